//! An engine from a vocabulary given as plain lists (as in a GGUF file), without a JSON text between.

use crate::added::{AddedToken, AddedTokens};
use crate::engine::*;
use crate::split::{Behavior, Stage};
use crate::vocab::{ByteChars, Vocab, NONE};
use ahash::AHashMap;
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::{self, BertNormalizer, Precompiled, Replace, Strip};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{decoders, NormalizerWrapper, Tokenizer};

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Merges,
    Scores,
    Unigram,
    WordPiece,
}

/// Numbers of token types, as GGUF has them.
pub mod token_type {
    pub const NORMAL: u8 = 1;
    pub const UNKNOWN: u8 = 2;
    pub const CONTROL: u8 = 3;
    pub const USER_DEFINED: u8 = 4;
    pub const BYTE: u8 = 6;
}

/// Flags of a vocabulary; the numbers are part of the C header.
pub mod flag {
    pub const BYTE_LEVEL: u32 = 1 << 0;
    pub const WHOLE_WORDS: u32 = 1 << 1;
    pub const WHOLE_NEWLINES: u32 = 1 << 2;
    pub const ESCAPE_SPACES: u32 = 1 << 3;
    pub const SPACE_PREFIX: u32 = 1 << 4;
    pub const NFC: u32 = 1 << 5;
    pub const LOWERCASE: u32 = 1 << 6;
    pub const STRIP_ACCENTS: u32 = 1 << 7;
    pub const MERGE_SPACES: u32 = 1 << 8;
    pub const SPLIT_MARKS: u32 = 1 << 9;
}

pub struct Source<'a> {
    pub kind: Kind,
    pub flags: u32,
    pub tokens: &'a [&'a [u8]],
    pub scores: Option<&'a [f32]>,
    pub types: Option<&'a [u8]>,
    pub strips: Option<&'a [u8]>, // bit 0: takes the spaces on its left, bit 1: on its right
    pub merges: &'a [&'a [u8]],   // "left right"
    pub splits: Vec<String>,
    pub unknown: Option<u32>,
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    pub charsmap: &'a [u8],
}

impl Source<'_> {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn kind_of(&self, id: usize) -> u8 {
        self.types.map_or(token_type::NORMAL, |types| types[id])
    }

    fn check(&self) -> Result<(), String> {
        let n = self.tokens.len();
        if n == 0 {
            return Err("the vocabulary has no tokens".to_string());
        }
        if n >= NONE as usize || self.tokens.iter().map(|t| t.len()).sum::<usize>() > 1 << 31 {
            return Err("the vocabulary is too large".to_string());
        }
        if self.scores.is_none() && matches!(self.kind, Kind::Scores | Kind::Unigram) {
            return Err("the vocabulary has no scores".to_string());
        }
        for id in self.prefix.iter().chain(&self.suffix).chain(&self.unknown) {
            if *id as usize >= n {
                return Err(format!("special token id {id} is outside the vocabulary of {n} tokens"));
            }
        }
        Ok(())
    }

    fn added(&self) -> Result<AddedTokens, String> {
        let mut added = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            let kind = self.kind_of(id);
            if !matches!(kind, token_type::UNKNOWN | token_type::CONTROL | token_type::USER_DEFINED) {
                continue;
            }
            let strips = self.strips.map_or(0, |strips| strips[id]);
            added.push(AddedToken {
                id: id as u32,
                content: String::from_utf8_lossy(token).into_owned(),
                special: kind != token_type::USER_DEFINED,
                lstrip: strips & 1 != 0,
                rstrip: strips & 2 != 0,
                single_word: false,
            });
        }
        let mark = self.marks_first().then_some(SPACE_MARK);
        AddedTokens::with_mark(added, mark)
    }

    fn marks_first(&self) -> bool {
        self.kind == Kind::Scores && self.has(flag::ESCAPE_SPACES)
    }

    pub fn build(&self) -> Result<Engine, String> {
        self.check()?;
        match self.kind {
            Kind::Merges | Kind::Scores => self.build_bpe(),
            Kind::Unigram => {
                let decoder = Decoder {
                    byte_level: false,
                    marks: true,
                    strip_left: u32::from(self.has(flag::SPACE_PREFIX)),
                };
                self.wrap(self.unigram()?, Some(decoder))
            }
            Kind::WordPiece => self.wrap(self.word_piece()?, None),
        }
    }

    fn build_bpe(&self) -> Result<Engine, String> {
        let byte_chars = ByteChars::new();
        let byte_level = self.has(flag::BYTE_LEVEL);
        let mut byte_of = AHashMap::new();
        let size = self.tokens.iter().map(|t| t.len()).sum();
        let mut vocab = Vocab::with_capacity(self.tokens.len(), size);
        let mut scratch = Vec::new();
        for (id, token) in self.tokens.iter().enumerate() {
            let kind = self.kind_of(id);
            if !byte_level {
                if let Some(byte) = byte_name(token).filter(|_| kind != token_type::USER_DEFINED) {
                    byte_of.insert(id as u32, byte);
                    vocab.push(token, false);
                    continue;
                }
            }
            let ordinary = !matches!(kind, token_type::UNKNOWN | token_type::CONTROL);
            scratch.clear();
            let mapped = byte_level
                && kind != token_type::USER_DEFINED
                && std::str::from_utf8(token).is_ok_and(|t| byte_chars.to_bytes(t, &mut scratch));
            if mapped {
                vocab.push(&scratch, ordinary);
            } else {
                vocab.push(token, ordinary && !byte_level);
            }
        }
        let mut normalizers = Vec::new();
        if self.has(flag::NFC) {
            normalizers.push(Normalizer::Nfc);
        }
        if self.has(flag::ESCAPE_SPACES) {
            normalizers.push(Normalizer::Replace(" ".into(), SPACE_MARK.into()));
        }
        if self.has(flag::SPACE_PREFIX) && !self.has(flag::SPLIT_MARKS) {
            normalizers.push(Normalizer::Prepend(SPACE_MARK.into()));
        }
        if self.has(flag::SPLIT_MARKS) {
            normalizers.push(Normalizer::PrefixMark { first: false });
        }
        let isolated = |p: &String| Stage::new(p, Behavior::Isolated, false);
        let mut stages = self.splits.iter().map(isolated).collect::<Result<Vec<_>, _>>()?;
        if self.has(flag::SPLIT_MARKS) {
            stages.push(Stage::new(SPACE_MARK, Behavior::MergedWithNext, false)?);
        }
        let parts = BpeParts {
            pairs: match self.kind {
                Kind::Scores => Pairs::Scored(self.scores.unwrap().to_vec()),
                _ => Pairs::Ranked(self.ranks(&vocab, &byte_chars)),
            },
            byte_level,
            whole_words: self.has(flag::WHOLE_WORDS),
            whole_newlines: self.has(flag::WHOLE_NEWLINES),
            unknown: self.unknown,
            fuse_unknown: false,
            byte_fallback: !byte_level && !byte_of.is_empty(),
        };
        let decoder = Decoder {
            byte_level,
            marks: self.has(flag::ESCAPE_SPACES),
            strip_left: u32::from(self.has(flag::SPACE_PREFIX)),
        };
        Ok(Engine {
            prefix: self.prefix.clone(),
            suffix: self.suffix.clone(),
            added: self.added()?,
            marks_first: self.marks_first(),
            normalizers,
            stages,
            ..assemble(parts, vocab, decoder, byte_chars, byte_of)
        })
    }

    /// Merges whose parts or result are no tokens are left out: they could never give one.
    fn ranks(&self, vocab: &Vocab, chars: &ByteChars) -> Ranks {
        let byte_level = self.has(flag::BYTE_LEVEL);
        let mut ranks = Ranks::new(vocab.len());
        let mut joined = Vec::new();
        for (rank, merge) in self.merges.iter().enumerate() {
            let Some(space) = merge.iter().skip(1).position(|b| *b == b' ').map(|p| p + 1) else {
                continue;
            };
            let parts = (&merge[..space], &merge[space + 1..]);
            add_rank(&mut ranks, vocab, byte_level.then_some(chars), parts, rank as u32, &mut joined);
        }
        ranks
    }

    fn wrap(&self, mut tokenizer: Tokenizer, decoder: Option<Decoder>) -> Result<Engine, String> {
        tokenizer.set_encode_special_tokens(true);
        let bytes = self.tokens.iter().enumerate().filter_map(|(id, token)| {
            let byte = byte_name(token).filter(|_| self.kind_of(id) == token_type::BYTE)?;
            Some((id as u32, byte))
        });
        Ok(Engine {
            model: Model::Other(Box::new(tokenizer), decoder),
            added: self.added()?,
            normalizers: Vec::new(),
            stages: Vec::new(),
            marks_first: false,
            prefix: self.prefix.clone(),
            suffix: self.suffix.clone(),
            byte_chars: ByteChars::new(),
            byte_ids: Box::new([NONE; 256]),
            byte_of: bytes.collect(),
        })
    }

    /// GGUF writes WordPiece tokens as "\u{2581}word" for the beginning of a word and "word" for what
    /// follows; the original has "word" and "##word".
    fn word_piece(&self) -> Result<Tokenizer, String> {
        let mut vocab = AHashMap::with_capacity(self.tokens.len());
        for (id, token) in self.tokens.iter().enumerate() {
            let token = String::from_utf8_lossy(token);
            let name = match token.strip_prefix(SPACE_MARK) {
                Some(word) => word.to_string(),
                None if self.kind_of(id) == token_type::NORMAL && Some(id as u32) != self.unknown => {
                    format!("##{token}")
                }
                None => token.into_owned(),
            };
            vocab.insert(name, id as u32);
        }
        let unknown = self.unknown.ok_or("the vocabulary has no unknown token")?;
        let model = WordPiece::builder()
            .vocab(vocab)
            .unk_token(String::from_utf8_lossy(self.tokens[unknown as usize]).into_owned())
            .build()
            .map_err(|e| e.to_string())?;
        let accents = Some(self.has(flag::STRIP_ACCENTS));
        let mut tokenizer = Tokenizer::new(model);
        tokenizer
            .with_normalizer(Some(BertNormalizer::new(true, true, accents, self.has(flag::LOWERCASE))))
            .map_err(|e| e.to_string())?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_decoder(Some(decoders::wordpiece::WordPiece::new("##".into(), true)));
        Ok(tokenizer)
    }

    fn unigram(&self) -> Result<Tokenizer, String> {
        let scores = self.scores.unwrap();
        let vocab = self.tokens.iter().enumerate().map(|(id, token)| {
            let score = match self.kind_of(id) {
                token_type::USER_DEFINED => 0.0,
                _ => scores[id] as f64,
            };
            (String::from_utf8_lossy(token).into_owned(), score)
        });
        let bytes = self.types.is_some_and(|types| types.contains(&token_type::BYTE));
        let model = Unigram::from(vocab.collect(), self.unknown.map(|id| id as usize), bytes)
            .map_err(|e| e.to_string())?;
        let mut chain: Vec<NormalizerWrapper> = Vec::new();
        if !self.charsmap.is_empty() {
            let map = Precompiled::from(self.charsmap).map_err(|e| e.to_string())?;
            chain.push(map.into());
        }
        if self.has(flag::MERGE_SPACES) {
            chain.push(Strip::new(true, true).into());
            let many = normalizers::replace::ReplacePattern::Regex(" {2,}".into());
            chain.push(Replace::new(many, " ").map_err(|e| e.to_string())?.into());
        }
        let scheme = match self.has(flag::SPACE_PREFIX) {
            true => PrependScheme::Always,
            false => PrependScheme::Never,
        };
        let mut tokenizer = Tokenizer::new(model);
        tokenizer
            .with_normalizer(Some(normalizers::Sequence::new(chain)))
            .map_err(|e| e.to_string())?;
        let marks = Metaspace::new('\u{2581}', scheme, true);
        tokenizer.with_pre_tokenizer(Some(marks.clone()));
        tokenizer.with_decoder(Some(marks));
        Ok(tokenizer)
    }
}

/// The byte of a byte-fallback token's name, "<0x0A>".
pub fn byte_name(token: &[u8]) -> Option<u8> {
    let hex = token.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if hex.len() != 2 || !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// Enters a merge of two tokens, given in GPT-2's characters when `chars` is there.
pub fn add_rank(
    ranks: &mut Ranks,
    vocab: &Vocab,
    chars: Option<&ByteChars>,
    parts: (&[u8], &[u8]),
    rank: u32,
    joined: &mut Vec<u8>,
) {
    joined.clear();
    let mut put = |part: &[u8]| match chars {
        Some(chars) => std::str::from_utf8(part).is_ok_and(|text| chars.to_bytes(text, joined)),
        None => {
            joined.extend_from_slice(part);
            true
        }
    };
    let (left, _) = parts;
    if !put(left) {
        return;
    }
    let middle = match chars {
        Some(_) => std::str::from_utf8(left).map_or(0, |text| text.chars().count()),
        None => left.len(),
    };
    if put(parts.1) {
        if let Some(id) = vocab.get(joined) {
            ranks.set(id, middle as u32, rank);
        }
    }
}

pub struct BpeParts {
    pub pairs: Pairs,
    pub byte_level: bool,
    pub whole_words: bool,
    pub whole_newlines: bool,
    pub unknown: Option<u32>,
    pub fuse_unknown: bool,
    pub byte_fallback: bool,
}

/// An engine without added tokens, normalizers, stages, prefix and suffix.
pub fn assemble(
    parts: BpeParts,
    vocab: Vocab,
    decoder: Decoder,
    byte_chars: ByteChars,
    byte_of: AHashMap<u32, u8>,
) -> Engine {
    let mut byte_ids = Box::new([NONE; 256]);
    let mut byte_fallback = None;
    if parts.byte_level {
        for byte in 0..=255u8 {
            byte_ids[byte as usize] = vocab.get(&[byte]).unwrap_or(NONE);
        }
    } else if parts.byte_fallback {
        let mut table = Box::new([NONE; 256]);
        for (id, byte) in &byte_of {
            table[*byte as usize] = *id;
        }
        byte_fallback = Some(table);
    }
    let bpe = Bpe {
        cut_at_marks: !parts.byte_level && !parts.whole_words && no_mark_inside(&vocab),
        pairs: parts.pairs,
        byte_level: parts.byte_level,
        whole_words: parts.whole_words,
        whole_newlines: parts.whole_newlines,
        byte_fallback,
        unknown: parts.unknown,
        fuse_unknown: parts.fuse_unknown,
    };
    Engine {
        model: Model::Bpe(bpe, vocab, decoder),
        added: AddedTokens::new(Vec::new()).unwrap(),
        normalizers: Vec::new(),
        stages: Vec::new(),
        marks_first: false,
        prefix: Vec::new(),
        suffix: Vec::new(),
        byte_chars,
        byte_ids,
        byte_of,
    }
}

/// No token that text can lead to has a space mark after another character.
fn no_mark_inside(vocab: &Vocab) -> bool {
    let mark = SPACE_MARK.as_bytes();
    let finder = aho_corasick::AhoCorasick::new([mark]).unwrap();
    (0..vocab.len() as u32).all(|id| {
        let token = vocab.token(id);
        let mut start = 0;
        while token[start..].starts_with(mark) {
            start += mark.len();
        }
        !finder.is_match(&token[start..]) || vocab.get(token) != Some(id)
    })
}
