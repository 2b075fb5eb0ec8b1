//! Text to token ids and back. One engine serves byte-pair vocabularies of every public kind; what it
//! does not know (WordPiece, Unigram, rare normalizers) runs in the `tokenizers` crate behind the same
//! door.

use crate::added::AddedTokens;
use crate::merge::{merge, Symbol};
use crate::split::{split, Range, Stage};
use crate::vocab::{ByteChars, Vocab, NONE};
use ahash::AHashMap;
use std::borrow::Cow;
use unicode_normalization_alignments::UnicodeNormalization;

pub const SPACE_MARK: &str = "\u{2581}"; // stands for a space in SentencePiece vocabularies

#[derive(Clone, Debug, PartialEq)]
pub enum Normalizer {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    Strip { left: bool, right: bool },
    /// Prepends when the text is not empty.
    Prepend(String),
    /// Prepends a space mark when there is none. `first`: only at the very beginning of the input.
    PrefixMark { first: bool },
    /// Prepends a space when the text does not begin with one.
    PrefixSpace,
    Replace(String, String),
}

impl Normalizer {
    fn puts_before(&self) -> bool {
        matches!(self, Self::Prepend(_) | Self::PrefixMark { .. } | Self::PrefixSpace)
    }
}

/// How pairs find what they merge into.
pub enum Pairs {
    Ranked(Ranks),
    /// Any pair whose text is a token; the higher score first.
    Scored(Vec<f32>),
}

/// A list of merges. A merge is known by the token it makes and the length of its left part: nearly
/// every token is made in one way only, so a table by id is enough and is filled in no time.
pub struct Ranks {
    one: Vec<(u32, u32)>,             // by id: left bytes, rank; rank NONE: made by no merge
    more: AHashMap<(u32, u32), u32>, // (id, left bytes) -> rank, for tokens made in several ways
}

impl Ranks {
    pub fn new(tokens: usize) -> Self {
        Ranks { one: vec![(0, NONE); tokens], more: AHashMap::new() }
    }

    pub fn set(&mut self, id: u32, left: u32, rank: u32) {
        let one = &mut self.one[id as usize];
        if one.1 == NONE || one.0 == left {
            *one = (left, rank);
        } else {
            self.more.insert((id, left), rank);
        }
    }

    fn get(&self, id: u32, left: u32) -> Option<u32> {
        let one = self.one[id as usize];
        if one.0 == left && one.1 != NONE {
            return Some(one.1);
        }
        if self.more.is_empty() || one.1 == NONE {
            return None;
        }
        self.more.get(&(id, left)).copied()
    }
}

pub struct Bpe {
    pub pairs: Pairs,
    pub byte_level: bool,
    /// A word that is a token is not merged but taken.
    pub whole_words: bool,
    /// A run of line feeds that is a token is taken.
    pub whole_newlines: bool,
    /// Ids of <0x00> to <0xFF> for characters without a token; NONE where missing.
    pub byte_fallback: Option<Box<[u32; 256]>>,
    pub unknown: Option<u32>,
    pub fuse_unknown: bool,
    /// No token reaches over the beginning of a run of space marks: words may be cut there.
    pub cut_at_marks: bool,
}

/// How the text of a sequence is made of the texts of its tokens, one after another.
pub struct Decoder {
    pub byte_level: bool, // tokens are bytes, written in GPT-2's characters
    pub marks: bool,      // space marks become spaces
    pub strip_left: u32,  // spaces taken off the beginning of the text
}

impl Decoder {
    /// The decoder of a vocabulary that is known to be byte-level. Some files (tekken's) carry the
    /// one of another family beside it.
    pub fn of_bytes(self) -> Decoder {
        match self.byte_level {
            true => self,
            false => Decoder { byte_level: true, marks: false, strip_left: 0 },
        }
    }
}

pub enum Model {
    Bpe(Bpe, Vocab, Decoder),
    /// The crate's. Without a decoder it turns whole sequences into text, in its own way.
    Other(Box<tokenizers::Tokenizer>, Option<Decoder>),
}

pub struct Engine {
    pub model: Model,
    pub added: AddedTokens,
    pub normalizers: Vec<Normalizer>,
    pub stages: Vec<Stage>,
    /// Ids put around the text when the caller asks for them.
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
    /// Plain added tokens are looked for where spaces are marks already, as SentencePiece does.
    pub marks_first: bool,
    pub byte_chars: ByteChars,
    pub byte_ids: Box<[u32; 256]>, // byte-level: the token of each single byte
    pub byte_of: AHashMap<u32, u8>, // of byte-fallback tokens
}

impl Engine {
    /// Ids of `text`. Special tokens are recognised inside the `allowed` ranges only.
    pub fn encode(&self, text: &str, allowed: &[Range], add_special: bool) -> Result<Vec<u32>, String> {
        let mut ids = Vec::with_capacity(text.len() / 3 + 4);
        let other = matches!(self.model, Model::Other(..));
        for part in self.added.cut(text, allowed, !other && !self.marks_first) {
            match part.id {
                Some(id) => ids.push(id),
                None if self.marks_first => {
                    let marked = text[part.range.0..part.range.1].replace(' ', SPACE_MARK);
                    for inner in self.added.cut(&marked, &[], true) {
                        match inner.id {
                            Some(id) => ids.push(id),
                            None => {
                                let piece = &marked[inner.range.0..inner.range.1];
                                self.encode_piece(piece, part.range.0 + inner.range.0 == 0, &mut ids)?;
                            }
                        }
                    }
                }
                None if other => self.encode_other(&text[part.range.0..part.range.1], &mut ids)?,
                None => {
                    let piece = &text[part.range.0..part.range.1];
                    self.encode_piece(piece, part.range.0 == 0, &mut ids)?;
                }
            }
        }
        if add_special {
            // A text that already begins with its beginning token gets no second one.
            if !ids.starts_with(&self.prefix) {
                ids.splice(0..0, self.prefix.iter().copied());
            }
            ids.extend(&self.suffix);
        }
        Ok(ids)
    }

    /// Ids of text that stands behind other text: nothing is put before it, and no special token is
    /// recognised in it.
    pub fn encode_inside(&self, text: &str) -> Result<Vec<u32>, String> {
        let Model::Bpe(bpe, vocab, _) = &self.model else {
            return self.encode(text, &[], false);
        };
        let marked = match self.marks_first {
            true => Cow::Owned(text.replace(' ', SPACE_MARK)),
            false => Cow::Borrowed(text),
        };
        let mut ids = Vec::with_capacity(text.len() / 3 + 4);
        for part in self.added.cut(&marked, &[], true) {
            if let Some(id) = part.id {
                ids.push(id);
                continue;
            }
            let mut piece = Cow::Borrowed(&marked[part.range.0..part.range.1]);
            for normalizer in self.normalizers.iter().filter(|n| !n.puts_before()) {
                apply(normalizer, &mut piece, false);
            }
            self.encode_words(bpe, vocab, &piece, &mut ids)?;
        }
        Ok(ids)
    }

    /// By the crate. Its models may find special tokens among their pieces: where one stands in the
    /// text, the text is cut.
    fn encode_other(&self, piece: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let mut cuts = vec![0];
        self.added.each_special(piece, |_, begin| {
            cuts.push(begin + piece[begin..].chars().next().map_or(1, char::len_utf8));
        });
        cuts.push(piece.len());
        for ends in cuts.windows(2).filter(|ends| ends[0] < ends[1]) {
            self.encode_piece(&piece[ends[0]..ends[1]], false, ids)?;
        }
        Ok(())
    }

    fn encode_piece(&self, piece: &str, first: bool, ids: &mut Vec<u32>) -> Result<(), String> {
        let (bpe, vocab) = match &self.model {
            Model::Bpe(bpe, vocab, _) => (bpe, vocab),
            Model::Other(tokenizer, _) => {
                let encoding = tokenizer.encode_fast(piece, false).map_err(|e| e.to_string())?;
                ids.extend_from_slice(encoding.get_ids());
                return Ok(());
            }
        };
        let text = self.normalize(piece, first);
        self.encode_words(bpe, vocab, &text, ids)
    }

    fn encode_words(&self, bpe: &Bpe, vocab: &Vocab, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let words = split(&self.stages, text)?;
        let mut seen: AHashMap<&[u8], (usize, usize)> = AHashMap::new();
        let mut symbols = Vec::new();
        for range in words {
            for word in cut_marks(&text[range.0..range.1], bpe.cut_at_marks) {
                let word = word.as_bytes();
                if let Some(known) = seen.get(word) {
                    ids.extend_from_within(known.0..known.1);
                    continue;
                }
                let begin = ids.len();
                self.encode_word(bpe, vocab, word, &mut symbols, ids);
                if word.len() < 64 {
                    seen.insert(word, (begin, ids.len()));
                }
            }
        }
        Ok(())
    }

    fn encode_word(
        &self,
        bpe: &Bpe,
        vocab: &Vocab,
        word: &[u8],
        symbols: &mut Vec<Symbol>,
        ids: &mut Vec<u32>,
    ) {
        let whole = bpe.whole_words || (bpe.whole_newlines && word.iter().all(|b| *b == b'\n'));
        if whole {
            if let Some(id) = vocab.get(word) {
                ids.push(id);
                return;
            }
        }
        symbols.clear();
        if bpe.byte_level {
            symbols.extend(word.iter().enumerate().map(|(i, byte)| Symbol {
                id: self.byte_ids[*byte as usize],
                start: i as u32,
                len: 1,
            }));
        } else {
            let text = unsafe { std::str::from_utf8_unchecked(word) }; // a slice of a str at its borders
            symbols.extend(text.char_indices().map(|(i, c)| Symbol {
                id: vocab.get(&word[i..i + c.len_utf8()]).unwrap_or(NONE),
                start: i as u32,
                len: c.len_utf8() as u32,
            }));
        }
        match &bpe.pairs {
            Pairs::Ranked(ranks) => merge(symbols, |a, b| {
                if a.id == NONE || b.id == NONE {
                    return None;
                }
                let id = vocab.get(&word[a.start as usize..(b.start + b.len) as usize])?;
                Some((ranks.get(id, a.len)?, id))
            }),
            Pairs::Scored(scores) => merge(symbols, |a, b| {
                let text = &word[a.start as usize..(b.start + b.len) as usize];
                vocab.get(text).map(|id| (descending(scores[id as usize]), id))
            }),
        }
        self.finish_word(bpe, word, symbols, ids);
    }

    fn finish_word(&self, bpe: &Bpe, word: &[u8], symbols: &[Symbol], ids: &mut Vec<u32>) {
        let mut after_unknown = false;
        for symbol in symbols {
            if symbol.id != NONE {
                ids.push(symbol.id);
                after_unknown = false;
                continue;
            }
            let bytes = &word[symbol.start as usize..(symbol.start + symbol.len) as usize];
            if let Some(table) = &bpe.byte_fallback {
                if bytes.iter().all(|b| table[*b as usize] != NONE) {
                    ids.extend(bytes.iter().map(|b| table[*b as usize]));
                    after_unknown = false;
                    continue;
                }
            }
            if let Some(unknown) = bpe.unknown {
                if !(after_unknown && bpe.fuse_unknown) {
                    ids.push(unknown);
                }
                after_unknown = true;
            }
        }
    }

    fn normalize<'a>(&self, piece: &'a str, first: bool) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(piece);
        for normalizer in &self.normalizers {
            apply(normalizer, &mut text, first);
        }
        text
    }

    // ---- back to text

    fn decoder(&self) -> Option<&Decoder> {
        match &self.model {
            Model::Bpe(_, _, decoder) => Some(decoder),
            Model::Other(_, decoder) => decoder.as_ref(),
        }
    }

    /// True when the text of a sequence is the concatenation of token_bytes, less strip_left spaces.
    pub fn by_token(&self) -> bool {
        self.decoder().is_some()
    }

    pub fn strip_left(&self) -> u32 {
        self.decoder().map_or(0, |decoder| decoder.strip_left)
    }

    /// Appends the bytes of one token; nothing for an id without one.
    pub fn token_bytes(&self, id: u32, skip_special: bool, out: &mut Vec<u8>) {
        let Some(decoder) = self.decoder() else {
            return;
        };
        if let Some(token) = self.added.get(id) {
            if !(skip_special && token.special) {
                out.extend_from_slice(token.content.as_bytes());
            }
            return;
        }
        if let Some(byte) = self.byte_of.get(&id) {
            out.push(*byte);
            return;
        }
        match &self.model {
            Model::Bpe(_, vocab, _) if (id as usize) < vocab.len() => {
                put_piece(vocab.token(id), decoder, out);
            }
            Model::Bpe(..) => {}
            Model::Other(tokenizer, _) => {
                let piece = tokenizer.id_to_token(id).unwrap_or_default();
                if !(decoder.byte_level && self.byte_chars.to_bytes(&piece, out)) {
                    put_piece(piece.as_bytes(), decoder, out);
                }
            }
        }
    }

    /// The text of a sequence as bytes, which may be broken UTF-8 where the tokens are.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<Vec<u8>, String> {
        if let Model::Other(tokenizer, None) = &self.model {
            let known: Vec<u32> = ids
                .iter()
                .copied()
                .filter(|id| !(skip_special && self.added.get(*id).is_some_and(|t| t.special)))
                .collect();
            return tokenizer
                .decode(&known, skip_special)
                .map(String::into_bytes)
                .map_err(|e| e.to_string());
        }
        let mut out = Vec::with_capacity(ids.len() * 4);
        for id in ids {
            self.token_bytes(*id, skip_special, &mut out);
        }
        let strip = (self.strip_left() as usize).min(out.len());
        let strip = out[..strip].iter().take_while(|b| **b == b' ').count();
        out.drain(..strip);
        Ok(out)
    }

    // ---- the vocabulary

    pub fn vocab_size(&self) -> u32 {
        let own = match &self.model {
            Model::Bpe(_, vocab, _) => vocab.len() as u32,
            Model::Other(t, _) => t.get_vocab(true).values().map(|id| id + 1).max().unwrap_or(0),
        };
        self.added.all().iter().map(|t| t.id + 1).max().unwrap_or(0).max(own)
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        if let Some(added) = self.added.all().iter().find(|t| t.content == token) {
            return Some(added.id);
        }
        match &self.model {
            Model::Other(tokenizer, _) => tokenizer.token_to_id(token),
            Model::Bpe(bpe, vocab, _) => {
                if !bpe.byte_level {
                    return vocab.get(token.as_bytes()).or_else(|| self.byte_token(token));
                }
                let mut bytes = Vec::new();
                self.byte_chars.to_bytes(token, &mut bytes).then(|| vocab.get(&bytes)).flatten()
            }
        }
    }

    /// Byte tokens are not findable by text; their names are looked up here.
    fn byte_token(&self, name: &str) -> Option<u32> {
        self.byte_of
            .iter()
            .find(|(_, byte)| format!("<0x{:02X}>", byte) == name)
            .map(|(id, _)| *id)
    }

    pub fn id_to_token(&self, id: u32) -> Option<Vec<u8>> {
        if let Some(added) = self.added.get(id) {
            return Some(added.content.clone().into_bytes());
        }
        match &self.model {
            Model::Other(tokenizer, _) => tokenizer.id_to_token(id).map(String::into_bytes),
            Model::Bpe(bpe, vocab, _) => {
                if id as usize >= vocab.len() || vocab.token(id).is_empty() {
                    return None;
                }
                let bytes = vocab.token(id);
                Some(if bpe.byte_level {
                    self.byte_chars.to_text(bytes).into_bytes()
                } else {
                    bytes.to_vec()
                })
            }
        }
    }
}

/// Appends a token's bytes, its space marks as spaces where they stand for them.
fn put_piece(piece: &[u8], decoder: &Decoder, out: &mut Vec<u8>) {
    if decoder.byte_level || !decoder.marks {
        out.extend_from_slice(piece);
        return;
    }
    let mark = SPACE_MARK.as_bytes();
    let mut at = 0;
    while at < piece.len() {
        if piece[at..].starts_with(mark) {
            out.push(b' ');
            at += mark.len();
        } else {
            out.push(piece[at]);
            at += 1;
        }
    }
}

fn apply(normalizer: &Normalizer, text: &mut Cow<str>, first: bool) {
    match normalizer {
        // Below U+0300 nothing composes, so most texts stay as they are.
        Normalizer::Nfc if text.chars().all(|c| c < '\u{300}') => {}
        Normalizer::Nfc => *text = Cow::Owned(text.nfc().map(|(c, _)| c).collect()),
        Normalizer::Nfkc => *text = Cow::Owned(text.nfkc().map(|(c, _)| c).collect()),
        Normalizer::Nfd => *text = Cow::Owned(text.nfd().map(|(c, _)| c).collect()),
        Normalizer::Nfkd => *text = Cow::Owned(text.nfkd().map(|(c, _)| c).collect()),
        // Character by character, as the reference does: no final sigma.
        Normalizer::Lowercase => {
            *text = Cow::Owned(text.chars().flat_map(char::to_lowercase).collect())
        }
        Normalizer::Strip { left, right } => {
            let mut trimmed: &str = text;
            if *left {
                trimmed = trimmed.trim_start();
            }
            if *right {
                trimmed = trimmed.trim_end();
            }
            if trimmed.len() != text.len() {
                *text = Cow::Owned(trimmed.to_string());
            }
        }
        Normalizer::Prepend(prefix) => {
            if !text.is_empty() {
                text.to_mut().insert_str(0, prefix);
            }
        }
        Normalizer::PrefixMark { first: only_first } => {
            if !text.starts_with(SPACE_MARK) && (first || !only_first) {
                text.to_mut().insert_str(0, SPACE_MARK);
            }
        }
        Normalizer::PrefixSpace => {
            if !text.starts_with(' ') {
                text.to_mut().insert(0, ' ');
            }
        }
        Normalizer::Replace(from, to) => {
            if !from.is_empty() && text.contains(from.as_str()) {
                *text = Cow::Owned(text.replace(from.as_str(), to));
            }
        }
    }
}

/// Cuts before every run of space marks, when that is allowed.
fn cut_marks(word: &str, allowed: bool) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if allowed {
            let run = rest.len() - rest.trim_start_matches(SPACE_MARK).len();
            if let Some(next) = rest[run..].find(SPACE_MARK) {
                end = run + next;
            }
        }
        let (head, tail) = rest.split_at(end);
        rest = tail;
        Some(head)
    })
}

/// Orders like the scores, the highest first.
fn descending(score: f32) -> u32 {
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_order() {
        let scores = [f32::MAX, 3.5, 0.25, 0.0, -1.0, -7.5, -1e30];
        for pair in scores.windows(2) {
            assert!(descending(pair[0]) < descending(pair[1]));
        }
    }

    #[test]
    fn marks_cut_words() {
        let cut = |text: &str| {
            let marked = text.replace('_', SPACE_MARK);
            cut_marks(&marked, true).map(|w| w.replace(SPACE_MARK, "_")).collect::<Vec<_>>()
        };
        assert_eq!(cut("_a_b__c_"), ["_a", "_b", "__c", "_"]);
        assert_eq!(cut("a"), ["a"]);
        assert!(cut("").is_empty());
    }
}
