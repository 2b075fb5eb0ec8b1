//! An engine from the text of a tokenizer.json. Byte-pair models whose other parts are known too run
//! in our own engine; anything else is left to the `tokenizers` crate.

use crate::added::{AddedToken, AddedTokens};
use crate::engine::*;
use crate::split::{Behavior, Stage};
use crate::vocab::{ByteChars, Vocab, NONE};
use crate::vocabulary::{add_rank, assemble, byte_name, BpeParts};
use ahash::AHashMap;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

#[derive(serde::Deserialize)]
struct Raw<'a> {
    #[serde(default)]
    added_tokens: Vec<RawAdded>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    #[serde(borrow)]
    model: RawModel<'a>,
}

#[derive(serde::Deserialize)]
struct RawAdded {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(serde::Deserialize)]
struct RawModel<'a> {
    r#type: Option<String>,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(borrow, default)]
    vocab: RawVocab<'a>,
    #[serde(borrow, default)]
    merges: Vec<Merge<'a>>,
}

/// A string that points into the JSON text where it can.
struct Text<'a>(Cow<'a, str>);

#[derive(Default)]
struct RawVocab<'a>(Vec<(Text<'a>, u32)>);

struct Merge<'a>(Text<'a>, Text<'a>);

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(v.to_string())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(TextVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = RawVocab<'de>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a vocabulary")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawVocab<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawVocab(entries))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawVocab<'de>, A::Error> {
        while seq.next_element::<de::IgnoredAny>()?.is_some() {}
        Ok(RawVocab::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawVocab<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(VocabVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = Merge<'de>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("\"left right\" or [left, right]")
    }
    fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Merge<'de>, E> {
        let (left, right) = v.split_once(' ').ok_or_else(|| E::custom("a merge has no space"))?;
        Ok(Merge(Text(Cow::Borrowed(left)), Text(Cow::Borrowed(right))))
    }
    fn visit_str<E: de::Error>(self, v: &str) -> Result<Merge<'de>, E> {
        let (left, right) = v.split_once(' ').ok_or_else(|| E::custom("a merge has no space"))?;
        Ok(Merge(Text(Cow::Owned(left.into())), Text(Cow::Owned(right.into()))))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merge<'de>, A::Error> {
        let short = || de::Error::custom("a merge has two parts");
        let left = seq.next_element()?.ok_or_else(short)?;
        let right = seq.next_element()?.ok_or_else(short)?;
        Ok(Merge(left, right))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(MergeVisitor)
    }
}

/// The engine of a tokenizer.json.
pub fn build(json: &str) -> Result<Engine, String> {
    let raw: Raw = serde_json::from_str(json).map_err(|e| e.to_string())?;
    match lower(&raw)? {
        Some(engine) => Ok(engine),
        None => build_other(json),
    }
}

/// The same tokenizer in the crate's hands, whatever it is.
pub fn build_other(json: &str) -> Result<Engine, String> {
    let raw: Raw = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let (prefix, suffix) = wrapping(&raw)?;
    let mut tokenizer: tokenizers::Tokenizer = json.parse().map_err(|e| format!("{e}"))?;
    tokenizer.set_encode_special_tokens(true);
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?;
    let mut byte_of = AHashMap::new();
    if raw.model.byte_fallback {
        for byte in 0..=255u8 {
            if let Some(id) = tokenizer.token_to_id(&format!("<0x{byte:02X}>")) {
                byte_of.insert(id, byte);
            }
        }
    }
    let decoder = decoder(raw.decoder.as_ref())
        .map(|known| match ends_in_bytes(raw.pre_tokenizer.as_ref()) {
            true => known.of_bytes(),
            false => known,
        });
    Ok(Engine {
        model: Model::Other(Box::new(tokenizer), decoder),
        added: AddedTokens::new(added_tokens(&raw))?,
        normalizers: Vec::new(),
        stages: Vec::new(),
        marks_first: false,
        prefix,
        suffix,
        byte_chars: ByteChars::new(),
        byte_ids: Box::new([NONE; 256]),
        byte_of,
    })
}

fn added_tokens(raw: &Raw) -> Vec<AddedToken> {
    raw.added_tokens
        .iter()
        .map(|t| AddedToken {
            id: t.id,
            content: t.content.clone(),
            special: t.special,
            single_word: t.single_word,
            lstrip: t.lstrip,
            rstrip: t.rstrip,
        })
        .collect()
}

/// None: some part is not ours.
fn lower(raw: &Raw) -> Result<Option<Engine>, String> {
    let model = &raw.model;
    let empty = |text: &Option<String>| text.as_ref().is_none_or(|t| t.is_empty());
    let ours = model.r#type.as_deref().unwrap_or("BPE") == "BPE"
        && model.dropout.unwrap_or(0.0) == 0.0
        && empty(&model.continuing_subword_prefix)
        && empty(&model.end_of_word_suffix)
        && !model.vocab.0.is_empty();
    if !ours {
        return Ok(None);
    }
    let mut plan = Plan::default();
    if !plan.normalizer(raw.normalizer.as_ref()) || !plan.pre_tokenizer(raw.pre_tokenizer.as_ref())? {
        return Ok(None);
    }
    let decoder = match decoder(raw.decoder.as_ref()) {
        Some(known) if plan.byte_level => known.of_bytes(),
        Some(known) if !known.byte_level => known,
        _ => return Ok(None),
    };
    let (prefix, suffix) = wrapping(raw)?;
    let (vocab, byte_chars, byte_of) = vocabulary(raw, plan.byte_level)?;
    let pairs = Pairs::Ranked(ranks(raw, plan.byte_level, &vocab, &byte_chars));
    let unknown = model.unk_token.as_ref().and_then(|name| {
        model.vocab.0.iter().find(|entry| entry.0 .0 == name.as_str()).map(|entry| entry.1)
    });
    let parts = BpeParts {
        pairs,
        byte_level: plan.byte_level,
        whole_words: model.ignore_merges,
        whole_newlines: false,
        unknown,
        fuse_unknown: model.fuse_unk,
        byte_fallback: model.byte_fallback,
    };
    Ok(Some(Engine {
        added: AddedTokens::new(added_tokens(raw))?,
        normalizers: plan.normalizers,
        stages: plan.stages,
        prefix,
        suffix,
        ..assemble(parts, vocab, decoder, byte_chars, byte_of)
    }))
}

type Tables = (Vocab, ByteChars, AHashMap<u32, u8>);

fn vocabulary(raw: &Raw, byte_level: bool) -> Result<Tables, String> {
    let entries = &raw.model.vocab.0;
    let size = entries.iter().map(|e| e.1).max().unwrap_or(0) as usize + 1;
    if size > entries.len() * 4 + (1 << 20) {
        return Err(format!("token id {} in a vocabulary of {} tokens", size - 1, entries.len()));
    }
    let mut by_id: Vec<Option<&str>> = vec![None; size];
    for (token, id) in entries {
        by_id[*id as usize] = Some(&token.0);
    }
    let mut hidden = vec![false; size]; // special tokens: no text leads to them through merging
    for added in raw.added_tokens.iter().filter(|t| t.special && (t.id as usize) < size) {
        hidden[added.id as usize] = true;
    }
    let byte_chars = ByteChars::new();
    let mut byte_of = AHashMap::new();
    let bytes = entries.iter().map(|e| e.0 .0.len()).sum();
    let mut vocab = Vocab::with_capacity(size, bytes);
    let mut scratch = Vec::new();
    for (id, token) in by_id.iter().enumerate() {
        let token = token.unwrap_or("");
        if byte_level {
            scratch.clear();
            if byte_chars.to_bytes(token, &mut scratch) {
                vocab.push(&scratch, !hidden[id]);
            } else {
                vocab.push(token.as_bytes(), false);
            }
            continue;
        }
        let byte = byte_name(token.as_bytes()).filter(|_| raw.model.byte_fallback);
        if let Some(byte) = byte {
            byte_of.insert(id as u32, byte);
        }
        vocab.push(token.as_bytes(), byte.is_none() && !hidden[id]);
    }
    Ok((vocab, byte_chars, byte_of))
}

fn ranks(raw: &Raw, byte_level: bool, vocab: &Vocab, byte_chars: &ByteChars) -> Ranks {
    let mut ranks = Ranks::new(vocab.len());
    let mut joined = Vec::new();
    for (rank, merge) in raw.model.merges.iter().enumerate() {
        let parts = (merge.0 .0.as_bytes(), merge.1 .0.as_bytes());
        let chars = byte_level.then_some(byte_chars);
        add_rank(&mut ranks, vocab, chars, parts, rank as u32, &mut joined);
    }
    ranks
}

#[derive(Default)]
struct Plan {
    normalizers: Vec<Normalizer>,
    stages: Vec<Stage>,
    byte_level: bool,
}

fn kind(value: &Value) -> &str {
    value["type"].as_str().unwrap_or("")
}

fn flag(value: &Value, name: &str, default: bool) -> bool {
    value[name].as_bool().unwrap_or(default)
}

const GPT2: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const SIGNS: &str = r"[\p{P}!-/:-@\[-`{-~]";

/// A literal text as a pattern.
fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| c.is_ascii_punctuation().then_some('\\').into_iter().chain([c]))
        .collect()
}

impl Plan {
    fn normalizer(&mut self, value: Option<&Value>) -> bool {
        let Some(value) = value.filter(|v| !v.is_null()) else {
            return true;
        };
        let text = |name: &str| value[name].as_str().map(str::to_string);
        self.normalizers.push(match kind(value) {
            "Sequence" => {
                return value["normalizers"]
                    .as_array()
                    .is_some_and(|list| list.iter().all(|v| self.normalizer(Some(v))));
            }
            "NFC" => Normalizer::Nfc,
            "NFD" => Normalizer::Nfd,
            "NFKC" => Normalizer::Nfkc,
            "NFKD" => Normalizer::Nfkd,
            "Lowercase" => Normalizer::Lowercase,
            "Strip" => Normalizer::Strip {
                left: flag(value, "strip_left", true),
                right: flag(value, "strip_right", true),
            },
            "Prepend" => match text("prepend") {
                Some(prefix) => Normalizer::Prepend(prefix),
                None => return false,
            },
            "Replace" => match (value["pattern"]["String"].as_str(), text("content")) {
                (Some(from), Some(to)) => Normalizer::Replace(from.to_string(), to),
                _ => return false,
            },
            _ => return false,
        });
        true
    }

    fn stage(&mut self, pattern: &str, behavior: Behavior, invert: bool) -> Result<bool, String> {
        self.stages.push(Stage::new(pattern, behavior, invert)?);
        Ok(true)
    }

    fn pre_tokenizer(&mut self, value: Option<&Value>) -> Result<bool, String> {
        let Some(value) = value.filter(|v| !v.is_null()) else {
            return Ok(true);
        };
        if self.byte_level {
            return Ok(false); // something after ByteLevel would see its characters
        }
        match kind(value) {
            "Sequence" => {
                for item in value["pretokenizers"].as_array().into_iter().flatten() {
                    if !self.pre_tokenizer(Some(item))? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            "ByteLevel" => {
                if flag(value, "add_prefix_space", true) {
                    if !self.stages.is_empty() {
                        return Ok(false);
                    }
                    self.normalizers.push(Normalizer::PrefixSpace);
                }
                if flag(value, "use_regex", true) {
                    self.stage(GPT2, Behavior::Isolated, false)?;
                }
                self.byte_level = true;
                Ok(true)
            }
            "Split" => {
                let pattern = match (value["pattern"]["Regex"].as_str(), value["pattern"]["String"].as_str()) {
                    (Some(pattern), _) => pattern.to_string(),
                    (_, Some(text)) => escape(text),
                    _ => return Ok(false),
                };
                let Some(behavior) = behavior(value) else {
                    return Ok(false);
                };
                // An expression of another dialect is the crate's business.
                match Stage::new(&pattern, behavior, flag(value, "invert", false)) {
                    Ok(stage) => self.stages.push(stage),
                    Err(_) => return Ok(false),
                }
                Ok(true)
            }
            "Digits" => {
                let each = flag(value, "individual_digits", false);
                let behavior = if each { Behavior::Isolated } else { Behavior::Contiguous };
                self.stage(r"\p{N}", behavior, false)
            }
            "Punctuation" => match behavior(value) {
                Some(behavior) => self.stage(SIGNS, behavior, false),
                None => Ok(false),
            },
            "Whitespace" => self.stage(r"\w+|[^\w\s]+", Behavior::Removed, true),
            "WhitespaceSplit" => self.stage(r"\s", Behavior::Removed, false),
            "Metaspace" => self.metaspace(value),
            _ => Ok(false),
        }
    }

    fn metaspace(&mut self, value: &Value) -> Result<bool, String> {
        if !self.stages.is_empty() || value["replacement"].as_str() != Some(SPACE_MARK) {
            return Ok(false);
        }
        self.normalizers.push(Normalizer::Replace(" ".into(), SPACE_MARK.into()));
        let prefix = flag(value, "add_prefix_space", true);
        let scheme = value["prepend_scheme"].as_str().unwrap_or("always");
        if prefix && scheme != "never" {
            self.normalizers.push(Normalizer::PrefixMark { first: scheme == "first" });
        }
        if flag(value, "split", true) {
            self.stage(SPACE_MARK, Behavior::MergedWithNext, false)?;
        }
        Ok(true)
    }
}

fn behavior(value: &Value) -> Option<Behavior> {
    Some(match value["behavior"].as_str().unwrap_or("Isolated") {
        "Isolated" => Behavior::Isolated,
        "Removed" => Behavior::Removed,
        "MergedWithPrevious" => Behavior::MergedWithPrevious,
        "MergedWithNext" => Behavior::MergedWithNext,
        "Contiguous" => Behavior::Contiguous,
        _ => return None,
    })
}

/// None: not one that goes token by token, as far as we know.
fn decoder(value: Option<&Value>) -> Option<Decoder> {
    let value = value?;
    let whole = [value.clone()];
    let steps = match kind(value) {
        "Sequence" => value["decoders"].as_array()?.as_slice(),
        _ => &whole,
    };
    let mut decoder = Decoder { byte_level: false, marks: false, strip_left: 0 };
    for step in steps {
        match kind(step) {
            "ByteLevel" => decoder.byte_level = true,
            "ByteFallback" | "Fuse" => {}
            "Replace" if step["pattern"]["String"].as_str() == Some(SPACE_MARK) => {
                if step["content"].as_str() != Some(" ") {
                    return None;
                }
                decoder.marks = true;
            }
            "Strip" if step["content"].as_str() == Some(" ") && step["stop"].as_u64() == Some(0) => {
                decoder.strip_left = step["start"].as_u64()? as u32;
            }
            "Metaspace" => {
                decoder.marks = true;
                let scheme = step["prepend_scheme"].as_str().unwrap_or("always");
                decoder.strip_left =
                    u32::from(flag(step, "add_prefix_space", true) && scheme != "never");
            }
            _ => return None,
        }
    }
    Some(decoder)
}

/// The pre-tokenizer hands bytes in GPT-2's characters to the model.
fn ends_in_bytes(value: Option<&Value>) -> bool {
    value.is_some_and(|value| match kind(value) {
        "Sequence" => value["pretokenizers"].as_array().is_some_and(|list| ends_in_bytes(list.last())),
        name => name == "ByteLevel",
    })
}

/// What the post-processor puts around a single text.
fn wrapping(raw: &Raw) -> Result<(Vec<u32>, Vec<u32>), String> {
    let mut around = (Vec::new(), Vec::new());
    if let Some(value) = raw.post_processor.as_ref() {
        wrap(value, &mut around);
    }
    Ok(around)
}

fn wrap(value: &Value, around: &mut (Vec<u32>, Vec<u32>)) {
    match kind(value) {
        "Sequence" => {
            for item in value["processors"].as_array().into_iter().flatten() {
                wrap(item, around);
            }
        }
        "TemplateProcessing" => {
            let mut after = false;
            for item in value["single"].as_array().into_iter().flatten() {
                if !item["Sequence"].is_null() {
                    after = true;
                } else if let Some(name) = item["SpecialToken"]["id"].as_str() {
                    let ids = value["special_tokens"][name]["ids"].as_array();
                    let ids = ids.into_iter().flatten().filter_map(|id| id.as_u64());
                    let side = if after { &mut around.1 } else { &mut around.0 };
                    side.extend(ids.map(|id| id as u32));
                }
            }
        }
        "BertProcessing" | "RobertaProcessing" => {
            around.0.extend(value["cls"][1].as_u64().map(|id| id as u32));
            around.1.extend(value["sep"][1].as_u64().map(|id| id as u32));
        }
        _ => {}
    }
}
