//! A GBNF tree as Lark. Lark cuts text into terminals and takes the longest that fits; GBNF knows
//! characters only. So whatever is free of recursion becomes one terminal, as large as can be: a
//! grammar without recursion means exactly the same, and one with recursion never allows more. What
//! it may lose are texts in which a terminal would have to stop although it could go on.

use crate::grammar::compile::literal;
use crate::grammar::gbnf::{Grammar, Node};
use std::fmt::Write;

pub fn write(grammar: &Grammar) -> String {
    let regular = regular_rules(grammar);
    let mut writer = Writer { regular: &regular, runs: String::new(), run_count: 0 };
    let mut out = String::new();
    for (id, body) in grammar.bodies.iter().enumerate() {
        let text = if regular[id] { writer.terminal(body) } else { writer.rule(body) };
        let _ = writeln!(out, "{}: {text}", name(id, regular[id]));
    }
    let start = name(grammar.root, regular[grammar.root]);
    format!("start: {start}\n{out}{}", writer.runs)
}

fn name(id: usize, regular: bool) -> String {
    format!("{}{id}", if regular { "R_" } else { "r_" })
}

/// Rules that lead to no cycle and to no token.
fn regular_rules(grammar: &Grammar) -> Vec<bool> {
    let count = grammar.bodies.len();
    let mut uses: Vec<Vec<usize>> = vec![Vec::new(); count]; // of each rule: the rules that use it
    let mut open: Vec<usize> = vec![0; count];
    let mut tokens = vec![false; count];
    for (id, body) in grammar.bodies.iter().enumerate() {
        each(body, &mut |node| match node {
            Node::Rule(used) => {
                uses[*used].push(id);
                open[id] += 1;
            }
            Node::Token { .. } => tokens[id] = true,
            _ => {}
        });
    }
    let mut regular = vec![false; count];
    let mut ready: Vec<usize> = (0..count).filter(|id| open[*id] == 0 && !tokens[*id]).collect();
    while let Some(id) = ready.pop() {
        regular[id] = true;
        for user in &uses[id] {
            open[*user] -= 1;
            if open[*user] == 0 && !tokens[*user] {
                ready.push(*user);
            }
        }
    }
    regular
}

fn each(node: &Node, visit: &mut dyn FnMut(&Node)) {
    visit(node);
    match node {
        Node::Sequence(nodes) | Node::Choice(nodes) => nodes.iter().for_each(|n| each(n, visit)),
        Node::Repeat { node, .. } => each(node, visit),
        _ => {}
    }
}

struct Writer<'a> {
    regular: &'a [bool],
    runs: String, // terminals made of parts of rules
    run_count: usize,
}

impl Writer<'_> {
    fn is_regular(&self, node: &Node) -> bool {
        let mut regular = true;
        each(node, &mut |node| match node {
            Node::Rule(id) => regular &= self.regular[*id],
            Node::Token { .. } => regular = false,
            _ => {}
        });
        regular
    }

    fn terminal(&self, node: &Node) -> String {
        match node {
            Node::Text(text) => literal(text),
            Node::Class { negated, ranges } => class(*negated, ranges),
            Node::Rule(id) => name(*id, true),
            Node::Token { .. } => String::new(), // not in a terminal
            Node::Sequence(nodes) if nodes.is_empty() => "\"\"".to_string(),
            Node::Sequence(nodes) => {
                let parts: Vec<String> = nodes.iter().map(|n| self.terminal(n)).collect();
                format!("({})", parts.join(" "))
            }
            Node::Choice(nodes) => {
                let parts: Vec<String> = nodes.iter().map(|n| self.terminal(n)).collect();
                format!("({})", parts.join(" | "))
            }
            Node::Repeat { node, least, most } => repeat(&self.terminal(node), *least, *most),
        }
    }

    fn rule(&mut self, node: &Node) -> String {
        if self.is_regular(node) {
            return self.run(std::slice::from_ref(node));
        }
        match node {
            Node::Rule(id) => name(*id, false),
            Node::Token { negated, id } => format!("<[{}{id}]>", if *negated { "^" } else { "" }),
            Node::Sequence(nodes) => {
                let mut parts = Vec::new();
                let mut at = 0;
                while at < nodes.len() {
                    let run = nodes[at..].iter().take_while(|n| self.is_regular(n)).count();
                    if run > 0 {
                        parts.push(self.run(&nodes[at..at + run]));
                        at += run;
                    } else {
                        parts.push(self.rule(&nodes[at]));
                        at += 1;
                    }
                }
                format!("({})", parts.join(" "))
            }
            Node::Choice(nodes) => {
                let parts: Vec<String> = nodes.iter().map(|n| self.rule(n)).collect();
                format!("({})", parts.join(" | "))
            }
            Node::Repeat { node, least, most } => repeat(&self.rule(node), *least, *most),
            Node::Text(_) | Node::Class { .. } => self.terminal(node),
        }
    }

    /// Names a terminal for a run of nodes.
    fn run(&mut self, nodes: &[Node]) -> String {
        if let [Node::Rule(id)] = nodes {
            return name(*id, true);
        }
        if nodes.iter().all(|n| matches!(n, Node::Text(text) if text.is_empty())
            || matches!(n, Node::Sequence(inner) if inner.is_empty()))
        {
            return "\"\"".to_string();
        }
        let parts: Vec<String> = nodes.iter().map(|n| self.terminal(n)).collect();
        let id = self.run_count;
        self.run_count += 1;
        let _ = writeln!(self.runs, "P_{id}: {}", parts.join(" "));
        format!("P_{id}")
    }
}

fn repeat(node: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => format!("({node})*"),
        (1, None) => format!("({node})+"),
        (0, Some(1)) => format!("({node})?"),
        (_, None) => format!("({node}){{{least},}}"),
        (_, Some(0)) => "\"\"".to_string(),
        (_, Some(most)) => format!("({node}){{{least},{most}}}"),
    }
}

fn class(negated: bool, ranges: &[(char, char)]) -> String {
    if ranges.is_empty() {
        return "/[\\x{0}-\\x{10FFFF}]/".to_string();
    }
    let mut out = String::from(if negated { "/[^" } else { "/[" });
    for (first, last) in ranges {
        let _ = write!(out, "\\x{{{:X}}}-\\x{{{:X}}}", *first as u32, *last as u32);
    }
    out + "]/"
}
