//! The C border; quince_bridge.h says what each function does.

use crate::conversation;
use crate::engine::Engine;
use crate::json;
use crate::template::{Template, Time};
use crate::vocabulary::{Kind, Source};
use std::any::Any;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CRange {
    begin: usize,
    end: usize,
}

#[repr(C)]
pub struct CVocabulary {
    kind: u32,
    flags: u32,
    tokens: *const Slice,
    token_count: usize,
    scores: *const f32,
    types: *const u8,
    strips: *const u8,
    merges: *const Slice,
    merge_count: usize,
    splits: *const Slice,
    split_count: usize,
    unknown: i64,
    prefix: *const u32,
    prefix_count: usize,
    suffix: *const u32,
    suffix_count: usize,
    charsmap: Slice,
}

impl<T> Owned<T> {
    pub(crate) fn empty() -> Self {
        Owned { data: std::ptr::null_mut(), size: 0, capacity: 0 }
    }
    pub(crate) fn new(vec: Vec<T>) -> Self {
        let mut vec = std::mem::ManuallyDrop::new(vec);
        Owned { data: vec.as_mut_ptr(), size: vec.len(), capacity: vec.capacity() }
    }
    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(Vec::from_raw_parts(self.data, self.size, self.capacity));
        }
    }
}

pub(crate) unsafe fn list<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if data.is_null() || size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

pub(crate) unsafe fn bytes<'a>(slice: Slice) -> &'a [u8] {
    list(slice.data, slice.size)
}

pub(crate) unsafe fn text<'a>(slice: Slice) -> Result<&'a str, String> {
    std::str::from_utf8(bytes(slice)).map_err(|e| format!("invalid UTF-8 at byte {}", e.valid_up_to()))
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let said = panic
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!("internal error: {}", said.unwrap_or_else(|| "panic".to_string()))
}

/// Runs `body`; an error or a panic goes to `error` as text.
pub(crate) unsafe fn guarded<R>(error: *mut Owned<u8>, body: impl FnOnce() -> Result<R, String>) -> Option<R> {
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return Some(result),
        Ok(Err(message)) => message,
        Err(panic) => panic_text(panic),
    };
    if !error.is_null() {
        *error = Owned::new(message.into_bytes());
    }
    None
}

/// Runs `body`, which has no way to say an error.
pub(crate) fn quiet<R>(otherwise: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_bytes_free(bytes: Owned<u8>) {
    bytes.free()
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_ids_free(ids: Owned<u32>) {
    ids.free()
}

// Shared with the grammars made for it.
fn shared(engine: Option<Engine>) -> *mut Engine {
    engine.map_or(std::ptr::null_mut(), |e| Arc::into_raw(Arc::new(e)).cast_mut())
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_tokenizer_from_json(json: Slice, error: *mut Owned<u8>) -> *mut Engine {
    shared(guarded(error, || json::build(text(json)?)))
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_tokenizer_from_vocabulary(
    vocabulary: *const CVocabulary,
    error: *mut Owned<u8>,
) -> *mut Engine {
    shared(guarded(error, || source(&*vocabulary, |source| source.build())?))
}

unsafe fn source<R>(v: &CVocabulary, body: impl FnOnce(&Source) -> R) -> Result<R, String> {
    let n = v.token_count;
    let tokens: Vec<&[u8]> = list(v.tokens, n).iter().map(|s| bytes(*s)).collect();
    let merges: Vec<&[u8]> = list(v.merges, v.merge_count).iter().map(|s| bytes(*s)).collect();
    let splits = list(v.splits, v.split_count).iter().map(|s| text(*s).map(str::to_string));
    Ok(body(&Source {
        kind: match v.kind {
            0 => Kind::Merges,
            1 => Kind::Scores,
            2 => Kind::Unigram,
            3 => Kind::WordPiece,
            other => return Err(format!("unknown kind of vocabulary {other}")),
        },
        flags: v.flags,
        tokens: &tokens,
        scores: (!v.scores.is_null()).then(|| list(v.scores, n)),
        types: (!v.types.is_null()).then(|| list(v.types, n)),
        strips: (!v.strips.is_null()).then(|| list(v.strips, n)),
        merges: &merges,
        splits: splits.collect::<Result<_, _>>()?,
        unknown: u32::try_from(v.unknown).ok(),
        prefix: list(v.prefix, v.prefix_count).to_vec(),
        suffix: list(v.suffix, v.suffix_count).to_vec(),
        charsmap: bytes(v.charsmap),
    }))
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_tokenizer_free(tokenizer: *mut Engine) {
    if !tokenizer.is_null() {
        quiet((), || drop(Arc::from_raw(tokenizer)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_encode(
    tokenizer: *const Engine,
    input: Slice,
    allowed: *const CRange,
    allowed_count: usize,
    add_special: bool,
    ids: *mut Owned<u32>,
    error: *mut Owned<u8>,
) -> bool {
    let result = guarded(error, || {
        let input = text(input)?;
        let allowed: Vec<(usize, usize)> =
            list(allowed, allowed_count).iter().map(|r| (r.begin, r.end)).collect();
        let mut last = 0;
        for (begin, end) in &allowed {
            let good = last <= *begin
                && begin <= end
                && input.is_char_boundary(*begin)
                && input.is_char_boundary(*end);
            if !good {
                return Err(format!("bad range {begin}..{end} of a text of {} bytes", input.len()));
            }
            last = *end;
        }
        (*tokenizer).encode(input, &allowed, add_special)
    });
    let good = result.is_some();
    *ids = result.map_or(Owned::empty(), Owned::new);
    good
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_decode(
    tokenizer: *const Engine,
    ids: *const u32,
    count: usize,
    skip_special: bool,
    out: *mut Owned<u8>,
    error: *mut Owned<u8>,
) -> bool {
    let result = guarded(error, || (*tokenizer).decode(list(ids, count), skip_special));
    let good = result.is_some();
    *out = result.map_or(Owned::empty(), Owned::new);
    good
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_decodes_by_token(tokenizer: *const Engine, strip_left: *mut u32) -> bool {
    *strip_left = (*tokenizer).strip_left();
    (*tokenizer).by_token()
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_decode_one(
    tokenizer: *const Engine,
    id: u32,
    skip_special: bool,
) -> Owned<u8> {
    quiet(Owned::empty(), || {
        let mut out = Vec::new();
        (*tokenizer).token_bytes(id, skip_special, &mut out);
        Owned::new(out)
    })
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_vocab_size(tokenizer: *const Engine) -> u32 {
    quiet(0, || (*tokenizer).vocab_size())
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_token_to_id(tokenizer: *const Engine, token: Slice) -> i64 {
    quiet(-1, || {
        text(token).ok().and_then(|t| (*tokenizer).token_to_id(t)).map_or(-1, i64::from)
    })
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_id_to_token(
    tokenizer: *const Engine,
    id: u32,
    token: *mut Owned<u8>,
) -> bool {
    let found = quiet(None, || (*tokenizer).id_to_token(id));
    let good = found.is_some();
    *token = found.map_or(Owned::empty(), Owned::new);
    good
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_is_special(tokenizer: *const Engine, id: u32) -> bool {
    (*tokenizer).added.get(id).is_some_and(|token| token.special)
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_special_ids(tokenizer: *const Engine) -> Owned<u32> {
    quiet(Owned::empty(), || {
        let mut ids: Vec<u32> =
            (*tokenizer).added.all().iter().filter(|t| t.special).map(|t| t.id).collect();
        ids.sort_unstable();
        ids.dedup();
        Owned::new(ids)
    })
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_template_new(
    source: Slice,
    error: *mut Owned<u8>,
) -> *mut Template {
    let made = guarded(error, || Template::new(text(source)?).map_err(|f| f.message));
    made.map_or(std::ptr::null_mut(), |t| Box::into_raw(Box::new(t)))
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_template_free(template: *mut Template) {
    if !template.is_null() {
        quiet((), || drop(Box::from_raw(template)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_template_render(
    template: *const Template,
    request: Slice,
    now: *const Time,
    tokenizer: *const Engine,
    out: *mut Owned<u8>,
    cuts: *mut Owned<u32>,
    refused: *mut bool,
    error: *mut Owned<u8>,
) -> bool {
    *refused = false;
    let made = guarded(error, || {
        let tokens = tokenizer.as_ref().map(|engine| &engine.added);
        conversation::render(&*template, text(request)?, &*now, tokens).map_err(|failure| {
            *refused = failure.refused;
            failure.message
        })
    });
    let good = made.is_some();
    let (prompt, places) = made.map_or((Owned::empty(), Owned::empty()), |prompt| {
        (Owned::new(prompt.text.into_bytes()), Owned::new(prompt.cuts))
    });
    *out = prompt;
    *cuts = places;
    good
}
