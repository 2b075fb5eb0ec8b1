//! Tokens that are found in the raw text before anything else happens to it: special ones (markers of
//! turns, beginning and end), found only where the caller allows it, and plain ones, found everywhere.

use crate::split::Range;
use ahash::AHashMap;
use aho_corasick::{AhoCorasick, Input, MatchKind};

#[derive(Clone, Debug, Default)]
pub struct AddedToken {
    pub id: u32,
    pub content: String,
    pub special: bool,
    pub single_word: bool,
    pub lstrip: bool,
    pub rstrip: bool,
}

pub struct AddedTokens {
    tokens: Vec<AddedToken>,
    by_id: AHashMap<u32, u32>,
    special: Option<Finder>,
    plain: Option<Finder>,
}

struct Finder {
    automaton: AhoCorasick,
    tokens: Vec<u32>, // of each pattern the index into AddedTokens::tokens
}

/// A part of the text: a token, or plain text where id is None.
pub struct Part {
    pub range: Range,
    pub id: Option<u32>,
}

#[derive(Clone, Copy)]
struct Hit {
    start: usize,
    end: usize,
    token: u32,
}

impl Finder {
    fn new(tokens: &[AddedToken], special: bool, mark: Option<&str>) -> Result<Option<Finder>, String> {
        let chosen: Vec<u32> = (0..tokens.len() as u32)
            .filter(|i| tokens[*i as usize].special == special)
            .filter(|i| !tokens[*i as usize].content.is_empty())
            .collect();
        if chosen.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(chosen.iter().map(|i| match mark {
                Some(mark) => tokens[*i as usize].content.replace(' ', mark),
                None => tokens[*i as usize].content.clone(),
            }))
            .map_err(|e| format!("added tokens: {e}"))?;
        Ok(Some(Finder { automaton, tokens: chosen }))
    }

    fn find(&self, text: &str, tokens: &[AddedToken], from: usize, to: usize) -> Option<Hit> {
        let mut at = from;
        while at < to {
            let hit = self.automaton.find(Input::new(text).range(at..to))?;
            let token = self.tokens[hit.pattern().as_usize()];
            if !tokens[token as usize].single_word || stands_alone(text, hit.start(), hit.end()) {
                return Some(Hit { start: hit.start(), end: hit.end(), token });
            }
            at = hit.end();
        }
        None
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    !text[..start].chars().next_back().is_some_and(is_word)
        && !text[end..].chars().next().is_some_and(is_word)
}

/// Special tokens found in the allowed parts of the text, one after another.
struct Specials<'a> {
    finder: Option<&'a Finder>,
    allowed: &'a [Range],
    part: usize,
}

impl Specials<'_> {
    fn next(&mut self, text: &str, tokens: &[AddedToken], from: usize) -> Option<Hit> {
        let finder = self.finder?;
        while let Some(range) = self.allowed.get(self.part) {
            if let Some(hit) = finder.find(text, tokens, range.0.max(from), range.1) {
                return Some(hit);
            }
            self.part += 1;
        }
        None
    }
}

impl AddedTokens {
    pub fn new(tokens: Vec<AddedToken>) -> Result<Self, String> {
        Self::with_mark(tokens, None)
    }

    /// `mark`: what stands for a space in texts where plain tokens are looked for.
    pub fn with_mark(tokens: Vec<AddedToken>, mark: Option<&str>) -> Result<Self, String> {
        Ok(AddedTokens {
            by_id: tokens.iter().enumerate().map(|(i, t)| (t.id, i as u32)).collect(),
            special: Finder::new(&tokens, true, None)?,
            plain: Finder::new(&tokens, false, mark)?,
            tokens,
        })
    }

    pub fn get(&self, id: u32) -> Option<&AddedToken> {
        self.by_id.get(&id).map(|i| &self.tokens[*i as usize])
    }

    pub fn all(&self) -> &[AddedToken] {
        &self.tokens
    }

    /// Calls `found` with the id and beginning of every special token in `text`, also overlapping ones.
    pub fn each_special(&self, text: &str, mut found: impl FnMut(u32, usize)) {
        let Some(finder) = &self.special else {
            return;
        };
        let mut at = 0;
        while let Some(hit) = finder.automaton.find(Input::new(text).range(at..)) {
            let token = finder.tokens[hit.pattern().as_usize()];
            found(self.tokens[token as usize].id, hit.start());
            at = hit.start() + text[hit.start()..].chars().next().map_or(1, char::len_utf8);
        }
    }

    /// Cuts `text` at added tokens. Special tokens are looked for within each of the `allowed` ranges
    /// (ascending, apart), plain ones in the whole text if `plain`. The leftmost wins, then the longest.
    pub fn cut(&self, text: &str, allowed: &[Range], plain: bool) -> Vec<Part> {
        let mut specials = Specials { finder: self.special.as_ref(), allowed, part: 0 };
        let plains = self.plain.as_ref().filter(|_| plain);
        let mut parts = Vec::new();
        let mut done = 0;
        let mut special = specials.next(text, &self.tokens, 0);
        let mut ordinary = plains.and_then(|p| p.find(text, &self.tokens, 0, text.len()));
        loop {
            let hit = match (special, ordinary) {
                (None, None) => break,
                (Some(a), Some(b)) if (b.start, a.end) < (a.start, b.end) => b,
                (Some(a), _) => a,
                (None, Some(b)) => b,
            };
            let token = &self.tokens[hit.token as usize];
            let (mut start, mut end) = (hit.start, hit.end);
            if token.lstrip {
                start = done + text[done..start].trim_end().len();
            }
            if token.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if start > done {
                parts.push(Part { range: (done, start), id: None });
            }
            parts.push(Part { range: (start, end), id: Some(token.id) });
            done = end;
            if special.is_some_and(|h| h.start < done) {
                special = specials.next(text, &self.tokens, done);
            }
            if ordinary.is_some_and(|h| h.start < done) {
                ordinary = plains.and_then(|p| p.find(text, &self.tokens, done, text.len()));
            }
        }
        if done < text.len() {
            parts.push(Part { range: (done, text.len()), id: None });
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> AddedTokens {
        let make = |id, content: &str, special| AddedToken {
            id,
            content: content.to_string(),
            special,
            ..Default::default()
        };
        let mut list = vec![
            make(1, "<s>", true),
            make(2, "<s>>", true),
            make(3, "<think>", false),
            make(4, "  ", false),
            make(5, "<r>", true),
            make(6, "word", false),
        ];
        list[4].rstrip = true;
        list[4].lstrip = true;
        list[5].single_word = true;
        AddedTokens::new(list).unwrap()
    }

    fn show(text: &str, allowed: &[Range]) -> String {
        tokens()
            .cut(text, allowed, true)
            .iter()
            .map(|p| match p.id {
                Some(id) => format!("[{id}]"),
                None => text[p.range.0..p.range.1].to_string(),
            })
            .collect()
    }

    #[test]
    fn special_only_where_allowed() {
        assert_eq!(show("a<s>b<think>", &[(0, 12)]), "a[1]b[3]");
        assert_eq!(show("a<s>b<think>", &[]), "a<s>b[3]");
        assert_eq!(show("<s><s>", &[(3, 6)]), "<s>[1]");
        // Neither a token half in allowed text, nor one hidden behind a longer one that is not.
        assert_eq!(show("<s><s>", &[(0, 2), (4, 6)]), "<s><s>");
        assert_eq!(show("<s>>", &[(0, 3)]), "[1]>");
        assert_eq!(show("<s>>", &[(0, 4)]), "[2]");
    }

    #[test]
    fn strips_and_single_words() {
        assert_eq!(show("a \n<r> \u{3000}b", &[(0, 11)]), "a[5]b");
        assert_eq!(show("a   b", &[]), "a[4] b");
        assert_eq!(show("word words, word", &[]), "[6] words, [6]");
        assert_eq!(show("", &[]), "");
    }
}
