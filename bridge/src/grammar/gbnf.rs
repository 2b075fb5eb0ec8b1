//! llama.cpp's grammar notation, read into a tree. gbnf_lark.rs writes the tree as Lark.

use crate::grammar::gbnf_lark;
use std::collections::HashMap;

pub const MOST_NESTING: usize = 100;
pub const MOST_RULES: usize = 1_500;
const MOST_REPEATS: u32 = 2_000; // as in llama.cpp

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    Text(String),
    /// Ranges of characters, or all others.
    Class { negated: bool, ranges: Vec<(char, char)> },
    Token { negated: bool, id: u32 },
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat { node: Box<Node>, least: u32, most: Option<u32> },
}

#[derive(Debug)]
pub struct Grammar {
    pub names: Vec<String>,
    pub bodies: Vec<Node>,
    pub root: usize,
}

/// resolve: the id of a token by its text.
pub fn to_lark(text: &str, resolve: &dyn Fn(&str) -> Option<u32>) -> Result<String, String> {
    Ok(gbnf_lark::write(&parse(text, resolve)?))
}

pub fn parse(text: &str, resolve: &dyn Fn(&str) -> Option<u32>) -> Result<Grammar, String> {
    let mut parser =
        Parser { rest: text, text, names: Vec::new(), ids: HashMap::new(), bodies: Vec::new(), resolve };
    parser.space(true);
    while !parser.rest.is_empty() {
        parser.rule()?;
    }
    let root = *parser.ids.get("root").ok_or("it has no rule \"root\"")?;
    let mut bodies = Vec::with_capacity(parser.bodies.len());
    for (id, body) in parser.bodies.into_iter().enumerate() {
        bodies.push(body.ok_or_else(|| format!("rule \"{}\" is used and not defined", parser.names[id]))?);
    }
    Ok(Grammar { names: parser.names, bodies, root })
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    names: Vec<String>,
    ids: HashMap<String, usize>,
    bodies: Vec<Option<Node>>,
    resolve: &'a dyn Fn(&str) -> Option<u32>,
}

impl Parser<'_> {
    fn wrong(&self, what: &str) -> String {
        let line = self.text[..self.text.len() - self.rest.len()].matches('\n').count() + 1;
        let near: String = self.rest.chars().take_while(|c| *c != '\n').take(20).collect();
        match near.as_str() {
            "" => format!("line {line}: {what}"),
            _ => format!("line {line}: {what}, near {near:?}"),
        }
    }

    fn next(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.rest.strip_prefix(c);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    /// White space and comments.
    fn space(&mut self, newlines: bool) {
        loop {
            let blank = |c: char| c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'));
            self.rest = self.rest.trim_start_matches(blank);
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = &self.rest[self.rest.find(['\n', '\r']).unwrap_or(self.rest.len())..];
        }
    }

    fn name(&mut self) -> Option<String> {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_string())
    }

    fn id(&mut self, name: String) -> Result<usize, String> {
        let next = self.names.len();
        let id = *self.ids.entry(name.clone()).or_insert(next);
        if id == next {
            if next >= MOST_RULES {
                return Err(format!("it has more than {MOST_RULES} rules"));
            }
            self.names.push(name);
            self.bodies.push(None);
        }
        Ok(id)
    }

    fn rule(&mut self) -> Result<(), String> {
        let name = self.name().ok_or_else(|| self.wrong("want the name of a rule"))?;
        self.space(false);
        match self.rest.strip_prefix("::=") {
            Some(rest) => self.rest = rest,
            None => return Err(self.wrong(&format!("want ::= behind \"{name}\""))),
        }
        let id = self.id(name)?;
        self.space(true);
        let body = self.choice(0)?;
        if self.bodies[id].replace(body).is_some() {
            return Err(self.wrong(&format!("rule \"{}\" is defined twice, here for the second time", self.names[id])));
        }
        if !self.rest.is_empty() && !self.rest.starts_with(['\n', '\r']) {
            return Err(self.wrong("want the end of the rule"));
        }
        self.space(true);
        Ok(())
    }

    fn choice(&mut self, depth: usize) -> Result<Node, String> {
        if depth > MOST_NESTING {
            return Err(self.wrong(&format!("it is nested more than {MOST_NESTING} deep")));
        }
        let mut options = vec![self.sequence(depth)?];
        while self.take('|') {
            self.space(true);
            options.push(self.sequence(depth)?);
        }
        Ok(if options.len() == 1 { options.remove(0) } else { Node::Choice(options) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, String> {
        let mut nodes = Vec::new();
        loop {
            self.space(depth > 0);
            let node = match self.next() {
                Some('"') => self.literal()?,
                Some('[') => self.class()?,
                Some('.') => {
                    self.take('.');
                    Node::Class { negated: true, ranges: Vec::new() }
                }
                Some('(') => {
                    self.take('(');
                    let inner = self.choice(depth + 1)?;
                    if !self.take(')') {
                        return Err(self.wrong("want )"));
                    }
                    inner
                }
                Some('<' | '!') => self.token()?,
                Some(c) if c.is_ascii_alphanumeric() || c == '-' || c == '_' => {
                    let name = self.name().unwrap_or_default();
                    Node::Rule(self.id(name)?)
                }
                _ => break,
            };
            self.space(depth > 0);
            let node = self.repeats(node)?;
            nodes.push(node);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Sequence(nodes) })
    }

    fn repeats(&mut self, mut node: Node) -> Result<Node, String> {
        for nested in 0.. {
            let (least, most) = match self.next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => (0, Some(0)),
                _ => break,
            };
            if nested > MOST_NESTING {
                return Err(self.wrong("too many repetitions of a repetition"));
            }
            self.rest = &self.rest[1..];
            let (least, most) = if most == Some(0) { self.braces()? } else { (least, most) };
            node = Node::Repeat { node: Box::new(node), least, most };
            self.space(false);
        }
        Ok(node)
    }

    /// m}, m,} or m,n} (a missing m is 0).
    fn braces(&mut self) -> Result<(u32, Option<u32>), String> {
        self.space(true);
        let least = self.number()?;
        self.space(true);
        let mut most = least;
        if self.take(',') {
            self.space(true);
            most = self.number()?;
            self.space(true);
        } else if least.is_none() {
            return Err(self.wrong("want a number"));
        }
        if !self.take('}') {
            return Err(self.wrong("want }"));
        }
        let least = least.unwrap_or(0);
        if most.is_some_and(|most| most < least) {
            return Err(self.wrong("a repetition ends before it begins"));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        if end == 0 {
            return Ok(None);
        }
        match self.rest[..end].parse::<u32>() {
            Ok(number) if number <= MOST_REPEATS => {
                self.rest = &self.rest[end..];
                Ok(Some(number))
            }
            _ => Err(self.wrong(&format!("at most {MOST_REPEATS} repetitions"))),
        }
    }

    fn literal(&mut self) -> Result<Node, String> {
        self.take('"');
        let mut text = String::new();
        while !self.take('"') {
            text.push(self.character("a text")?);
        }
        Ok(Node::Text(text))
    }

    fn class(&mut self) -> Result<Node, String> {
        self.take('[');
        let negated = self.take('^');
        let mut ranges = Vec::new();
        while !self.take(']') {
            let first = self.character("a set of characters")?;
            let mut last = first;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.take('-');
                last = self.character("a set of characters")?;
            }
            if last < first {
                return Err(self.wrong("a range of characters ends before it begins"));
            }
            ranges.push((first, last));
        }
        if ranges.is_empty() && !negated {
            return Err(self.wrong("a set of no characters"));
        }
        Ok(Node::Class { negated, ranges })
    }

    fn character(&mut self, of: &str) -> Result<char, String> {
        let c = self.next().ok_or_else(|| self.wrong(&format!("{of} that does not end")))?;
        if c == '\n' {
            return Err(self.wrong(&format!("{of} that does not end on its line")));
        }
        self.rest = &self.rest[c.len_utf8()..];
        if c != '\\' {
            return Ok(c);
        }
        let escape = self.next().ok_or_else(|| self.wrong("a \\ at the end"))?;
        self.rest = &self.rest[escape.len_utf8()..];
        match escape {
            'x' => self.hex(2),
            'u' => self.hex(4),
            'U' => self.hex(8),
            't' => Ok('\t'),
            'r' => Ok('\r'),
            'n' => Ok('\n'),
            '\\' | '"' | '[' | ']' | '-' | '^' => Ok(escape),
            other => Err(self.wrong(&format!("unknown escape \\{other}"))),
        }
    }

    fn hex(&mut self, digits: usize) -> Result<char, String> {
        let text = self.rest.get(..digits).filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = text.and_then(|t| u32::from_str_radix(t, 16).ok()).and_then(char::from_u32);
        let c = code.ok_or_else(|| self.wrong(&format!("want {digits} hexadecimal digits of a character")))?;
        self.rest = &self.rest[digits..];
        Ok(c)
    }

    /// <text of the token> or <[id]>, with ! for any other.
    fn token(&mut self) -> Result<Node, String> {
        let negated = self.take('!');
        let end = self.rest.find('>').filter(|_| self.rest.starts_with('<'));
        let end = end.ok_or_else(|| self.wrong("want a token, <text> or <[id]>"))? + 1;
        let name = &self.rest[..end];
        let id = match name.strip_prefix("<[").and_then(|n| n.strip_suffix("]>")) {
            Some(number) => number.parse().ok(),
            None => (self.resolve)(name),
        };
        let id = id.ok_or_else(|| self.wrong(&format!("{name} is no token of this model")))?;
        self.rest = &self.rest[end..];
        Ok(Node::Token { negated, id })
    }
}
