//! Small changes to a template's source where minijinja's language is not quite the reference's. Only
//! tags are touched, lines stay lines, and each change is to an expression that means the same:
//!
//! - `{% generation %}` (marks what the model wrote, for training) becomes `{% with %}`: a scope.
//! - `for x in E`: E goes through a filter that refuses None, which minijinja takes for an empty list.
//! - `"..." % E` becomes a filter: minijinja's `%` knows numbers only.
//! - `set x = E`: E goes through a filter that refuses values nested without end, whose printing would
//!   use up the stack, and makes lazy slices lists.
//! - `A|safe + B`: B is escaped for HTML, as the reference does in this one case.

use std::ops::Range;

pub const ITERATE: &str = "__iterate__";
pub const SHALLOW: &str = "__shallow__";
pub const PERCENT: &str = "__percent__";
pub const ESCAPE: &str = "__escape__";

#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    Name,
    Text,
    Number,
    Sign,
}

struct Token {
    kind: Kind,
    range: Range<usize>,
}

/// A text to put in at a position of the source.
type Edits = Vec<(usize, String)>;

struct Tag<'a> {
    source: &'a str,
    tokens: Vec<Token>,
    end: usize, // behind the closing mark
}

/// Longer chains of operators or branches would use up the stack of the compiler; real templates have
/// a few hundred tokens in their longest tag.
const MOST_TOKENS: usize = 3000;
const MOST_BRANCHES: usize = 1000;
const MOST_SOURCE: usize = 4 << 20;

/// The changed source; an error says what is too much.
pub fn rewrite(source: &str) -> Result<String, String> {
    if source.len() > MOST_SOURCE {
        return Err(format!("the template has {} bytes, more than {MOST_SOURCE}", source.len()));
    }
    let mut branches = 0;
    let mut edits = Edits::new();
    let mut renamed: Vec<(Range<usize>, &str)> = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        let begin = at + found;
        at = match source.as_bytes().get(begin + 1) {
            Some(b'#') => source[begin..].find("#}").map_or(source.len(), |end| begin + end + 2),
            Some(b'{') => {
                let tag = scan(source, begin + 2, "}}");
                check(&tag)?;
                percent(&tag, &mut edits);
                markup(&tag, &mut edits);
                tag.end
            }
            Some(b'%') => {
                let tag = scan(source, begin + 2, "%}");
                check(&tag)?;
                branches += usize::from(tag.text(0) == "elif");
                if branches > MOST_BRANCHES {
                    return Err(format!("more than {MOST_BRANCHES} branches"));
                }
                match (tag.text(0), tag.tokens.len()) {
                    ("raw", 1) => raw_end(source, tag.end),
                    ("generation", 1) => {
                        renamed.push((tag.tokens[0].range.clone(), "with"));
                        tag.end
                    }
                    ("endgeneration", 1) => {
                        renamed.push((tag.tokens[0].range.clone(), "endwith"));
                        tag.end
                    }
                    _ => {
                        percent(&tag, &mut edits);
                        iterated(&tag, &mut edits);
                        assigned(&tag, &mut edits);
                        tag.end
                    }
                }
            }
            _ => begin + 1,
        };
    }
    Ok(apply(source, edits, renamed))
}

fn check(tag: &Tag) -> Result<(), String> {
    if tag.tokens.len() <= MOST_TOKENS {
        return Ok(());
    }
    let line = tag.source[..tag.begin(0)].matches('\n').count() + 1;
    Err(format!("line {line}: a tag of more than {MOST_TOKENS} words and signs"))
}

fn assigned(tag: &Tag, edits: &mut Edits) {
    if tag.text(0) != "set" {
        return;
    }
    let Some(sign) = tag.top().into_iter().find(|i| tag.is_sign(*i, "=")) else {
        return;
    };
    if sign + 1 < tag.tokens.len() {
        edits.push((tag.begin(sign + 1), "(".to_string()));
        edits.push((tag.end_of(tag.tokens.len() - 1), format!(")|{SHALLOW}")));
    }
}

fn apply(source: &str, edits: Edits, renamed: Vec<(Range<usize>, &str)>) -> String {
    let mut changes: Vec<(Range<usize>, String)> =
        edits.into_iter().map(|(at, text)| (at..at, text)).collect();
    changes.extend(renamed.into_iter().map(|(range, text)| (range, text.to_string())));
    // Stable: of changes at one place the inner ones were made first.
    changes.sort_by_key(|change| change.0.start);
    let mut out = String::with_capacity(source.len() + 64);
    let mut last = 0;
    for (range, text) in changes {
        out.push_str(&source[last..range.start]);
        out.push_str(&text);
        last = range.end;
    }
    out.push_str(&source[last..]);
    out
}

fn raw_end(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(found) = source[at..].find("{%") {
        let begin = at + found + 2;
        let tag = scan(source, begin, "%}");
        if tag.text(0) == "endraw" && tag.tokens.len() == 1 {
            return tag.end;
        }
        at = begin;
    }
    source.len()
}

/// Cuts the inside of a tag into tokens, up to the closing mark outside of brackets.
fn scan<'a>(source: &'a str, from: usize, close: &str) -> Tag<'a> {
    let bytes = source.as_bytes();
    let mut tokens = Vec::new();
    let mut depth = 0usize;
    let mut at = from;
    if matches!(bytes.get(at), Some(b'-' | b'+')) {
        at += 1;
    }
    while at < source.len() {
        let rest = &source[at..];
        if depth == 0 {
            let trimmed = rest.strip_prefix(['-', '+']).unwrap_or(rest);
            if rest.starts_with(close) || trimmed.starts_with(close) {
                let end = at + rest.len() - trimmed.len().min(rest.len());
                let end = if rest.starts_with(close) { at } else { end };
                return Tag { source, tokens, end: end + close.len() };
            }
        }
        let c = rest.chars().next().unwrap();
        let (kind, size) = match c {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' | '\'' => (Kind::Text, text_size(rest, c)),
            c if c.is_ascii_digit() => {
                let more = |c: char| !(c.is_alphanumeric() || c == '_');
                (Kind::Number, rest.find(more).unwrap_or(rest.len()))
            }
            c if c.is_alphabetic() || c == '_' => {
                let more = |c: char| !(c.is_alphanumeric() || c == '_');
                (Kind::Name, rest.find(more).unwrap_or(rest.len()))
            }
            c => {
                match c {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                let double = ["**", "//", "==", "!=", "<=", ">="].iter().any(|d| rest.starts_with(d));
                (Kind::Sign, if double { 2 } else { c.len_utf8() })
            }
        };
        tokens.push(Token { kind, range: at..at + size });
        at += size;
    }
    Tag { source, tokens, end: source.len() }
}

fn text_size(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return i + 1;
        }
    }
    rest.len()
}

impl Tag<'_> {
    fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &self.source[token.range.clone()])
    }

    fn is_sign(&self, index: usize, sign: &str) -> bool {
        self.tokens.get(index).is_some_and(|t| t.kind == Kind::Sign) && self.text(index) == sign
    }

    /// The index behind the bracket that opens at `index`.
    fn behind_bracket(&self, index: usize) -> usize {
        let mut depth = 0usize;
        for i in index..self.tokens.len() {
            if self.tokens[i].kind == Kind::Sign {
                match self.text(i) {
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" | "}" => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            return i + 1;
                        }
                    }
                    _ => {}
                }
            }
        }
        self.tokens.len()
    }

    /// Indices of the tokens outside of brackets.
    fn top(&self) -> Vec<usize> {
        let mut top = Vec::new();
        let mut i = 0;
        while i < self.tokens.len() {
            top.push(i);
            i = match self.text(i) {
                "(" | "[" | "{" if self.tokens[i].kind == Kind::Sign => self.behind_bracket(i),
                _ => i + 1,
            };
        }
        top
    }

    /// The index behind an operand with its attributes, items, calls and filters.
    fn behind_operand(&self, from: usize) -> usize {
        let bracket = |i: usize| ["(", "[", "{"].iter().any(|b| self.is_sign(i, b));
        let mut i = if bracket(from) { self.behind_bracket(from) } else { from + 1 };
        loop {
            if self.is_sign(i, "(") || self.is_sign(i, "[") {
                i = self.behind_bracket(i);
            } else if self.is_sign(i, ".") || self.is_sign(i, "|") {
                i += 2;
            } else {
                return i.min(self.tokens.len());
            }
        }
    }

    fn begin(&self, index: usize) -> usize {
        self.tokens[index].range.start
    }

    fn end_of(&self, index: usize) -> usize {
        self.tokens[index].range.end
    }
}

fn iterated(tag: &Tag, edits: &mut Edits) {
    if tag.text(0) != "for" {
        return;
    }
    let top = tag.top();
    let named = |word: &str, from: usize| {
        top.iter().copied().find(|i| *i > from && tag.tokens[*i].kind == Kind::Name && tag.text(*i) == word)
    };
    let Some(keyword) = named("in", 0) else {
        return;
    };
    let stops = [named("if", keyword), named("recursive", keyword), Some(tag.tokens.len())];
    let stop = stops.into_iter().flatten().min().unwrap();
    if stop > keyword + 1 {
        edits.push((tag.begin(keyword + 1), "(".to_string()));
        edits.push((tag.end_of(stop - 1), format!(")|{ITERATE}")));
    }
}

fn percent(tag: &Tag, edits: &mut Edits) {
    for i in 1..tag.tokens.len() {
        // Of adjacent literals only the last would be meant.
        let literal = tag.tokens[i - 1].kind == Kind::Text
            && (i < 2 || tag.tokens[i - 2].kind != Kind::Text);
        if !(literal && tag.is_sign(i, "%")) || i + 1 >= tag.tokens.len() {
            continue;
        }
        let end = tag.behind_operand(i + 1);
        let sign = tag.tokens[i].range.clone();
        edits.push((tag.end_of(i - 1), format!("|{PERCENT}(")));
        edits.push((tag.end_of(end - 1), ")".to_string()));
        // The sign itself: nothing can be taken out by an insertion, so it is made part of a text.
        edits.push((sign.start, "'".to_string()));
        edits.push((sign.end, "', ".to_string()));
    }
}

fn markup(tag: &Tag, edits: &mut Edits) {
    let plus: Vec<usize> = tag.top().into_iter().filter(|i| tag.is_sign(*i, "+")).collect();
    let Some(first) = plus.first().copied() else {
        return;
    };
    if first < 2 || tag.text(first - 1) != "safe" || !tag.is_sign(first - 2, "|") {
        return;
    }
    for (n, sign) in plus.iter().enumerate() {
        let end = plus.get(n + 1).copied().unwrap_or(tag.tokens.len());
        if end > sign + 1 {
            edits.push((tag.begin(sign + 1), "(".to_string()));
            edits.push((tag.end_of(end - 1), format!(")|{ESCAPE}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_what_it_must() {
        let cases = [
            ("{%- generation +%}a{% endgeneration %}", "{%- with +%}a{% endwith %}"),
            ("{% for x in a.b[1:] if x %}", "{% for x in (a.b[1:])|__iterate__ if x %}"),
            ("{%- for k, v in d.items() recursive -%}", "{%- for k, v in (d.items())|__iterate__ recursive -%}"),
            ("{{ '%s!' % name.x(1)|upper ~ 'b' }}", "{{ '%s!'|__percent__( '%',  name.x(1)|upper) ~ 'b' }}"),
            ("{% set ns.x = a == b %}", "{% set ns.x = (a == b)|__shallow__ %}"),
            ("{{ 'a'|safe + b + c[1] }}", "{{ 'a'|safe + (b)|__escape__ + (c[1])|__escape__ }}"),
        ];
        for (before, after) in cases {
            assert_eq!(rewrite(before).unwrap(), after);
        }
    }

    #[test]
    fn leaves_the_rest() {
        for same in [
            "for x in y", "{# {% for x in y %} #}", "{% raw %}{% for x in y %}{% endraw %}",
            "{{ 'for x in y %}' }}", "{{ a % b }}", "{{ {'a': {}} }}", "{% set x %}",
            "{{ a + b|safe }}", "{% if 'x' in y %}", "{", "{{", "{%", "{% for", "{{ 'open", "é{{ü}}",
        ] {
            assert_eq!(rewrite(same).unwrap(), same);
        }
    }
}
