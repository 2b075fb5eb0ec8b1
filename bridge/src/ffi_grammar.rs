//! The C border of grammars; quince_bridge.h says what each function does.

use crate::engine::Engine;
use crate::ffi::{guarded, list, quiet, text, Owned, Slice};
use crate::grammar::compile::{compile, Kind};
use crate::grammar::matcher::{Matcher, State};
use crate::grammar::tokens::Tokens;
use std::sync::Arc;

#[repr(C)]
pub struct CState {
    accepting: bool,
    complete: bool,
}

impl From<State> for CState {
    fn from(state: State) -> Self {
        CState { accepting: state.accepting, complete: state.complete }
    }
}

fn kind_of(kind: u32) -> Result<Kind, String> {
    match kind {
        0 => Ok(Kind::JsonSchema),
        1 => Ok(Kind::JsonObject),
        2 => Ok(Kind::Regex),
        3 => Ok(Kind::Choice),
        4 => Ok(Kind::Lark),
        5 => Ok(Kind::Gbnf),
        other => Err(format!("unknown kind of grammar {other}")),
    }
}

fn boxed<T>(made: Option<T>) -> *mut T {
    made.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(value)))
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_tokens_new(
    tokenizer: *const Engine,
    vocab_size: u32,
    error: *mut Owned<u8>,
) -> *mut Arc<Tokens> {
    boxed(guarded(error, || {
        Arc::increment_strong_count(tokenizer);
        Tokens::new(Arc::from_raw(tokenizer), vocab_size).map(Arc::new)
    }))
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_tokens_free(tokens: *mut Arc<Tokens>) {
    if !tokens.is_null() {
        quiet((), || drop(Box::from_raw(tokens)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_grammar_compile(
    tokens: *const Arc<Tokens>,
    kind: u32,
    grammar: Slice,
    error: *mut Owned<u8>,
) -> *mut Matcher {
    boxed(guarded(error, || compile(&*tokens, kind_of(kind)?, text(grammar)?)))
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_matcher_free(matcher: *mut Matcher) {
    if !matcher.is_null() {
        quiet((), || drop(Box::from_raw(matcher)));
    }
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_matcher_clone(matcher: *const Matcher) -> *mut Matcher {
    quiet(std::ptr::null_mut(), || boxed(Some((*matcher).duplicate())))
}

/// What a call that ends in a state has to say.
unsafe fn say(state: Option<State>, out: *mut CState) -> bool {
    let good = state.is_some();
    *out = state.unwrap_or(State { accepting: false, complete: false }).into();
    good
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    word_count: usize,
    state: *mut CState,
    error: *mut Owned<u8>,
) -> bool {
    let made = guarded(error, || {
        let words = match word_count {
            0 => &mut [],
            _ => std::slice::from_raw_parts_mut(words, word_count),
        };
        (*matcher).mask(words)
    });
    say(made, state)
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_matcher_consume(
    matcher: *mut Matcher,
    ids: *const u32,
    count: usize,
    state: *mut CState,
    error: *mut Owned<u8>,
) -> bool {
    let made = guarded(error, || {
        (*matcher).consume(list(ids, count))?;
        (*matcher).state()
    });
    say(made, state)
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_matcher_forced(
    matcher: *mut Matcher,
    ids: *mut Owned<u32>,
    error: *mut Owned<u8>,
) -> bool {
    let made = guarded(error, || (*matcher).forced());
    let good = made.is_some();
    *ids = made.map_or(Owned::empty(), Owned::new);
    good
}

#[no_mangle]
pub unsafe extern "C" fn quince_bridge_matcher_rollback(
    matcher: *mut Matcher,
    count: usize,
    error: *mut Owned<u8>,
) -> bool {
    guarded(error, || (*matcher).rollback(count)).is_some()
}
