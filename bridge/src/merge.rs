//! The merging at the heart of byte-pair encoding: of all adjacent pairs that may merge, the one with
//! the lowest rank goes first, the leftmost of equals. Short words are scanned, long ones use a heap,
//! so a megabyte without a break costs n log n.

use crate::vocab::NONE;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A piece of the word: token id (NONE: not in the vocabulary) and its bytes.
#[derive(Clone, Copy)]
pub struct Symbol {
    pub id: u32,
    pub start: u32,
    pub len: u32,
}

/// (rank, id) of what a pair merges into.
pub type Merged = Option<(u32, u32)>;

const SHORT: usize = 40;

/// Merges `symbols` in place as far as `pair` allows.
pub fn merge(symbols: &mut Vec<Symbol>, pair: impl Fn(&Symbol, &Symbol) -> Merged) {
    if symbols.len() < 2 {
        return;
    }
    if symbols.len() <= SHORT {
        merge_short(symbols, pair);
    } else {
        merge_long(symbols, pair);
    }
}

fn merge_short(symbols: &mut Vec<Symbol>, pair: impl Fn(&Symbol, &Symbol) -> Merged) {
    let mut merged = [None as Merged; SHORT];
    for i in 0..symbols.len() - 1 {
        merged[i] = pair(&symbols[i], &symbols[i + 1]);
    }
    loop {
        let n = symbols.len();
        let mut best = (u32::MAX, 0);
        let mut at = NONE as usize;
        for (i, candidate) in merged[..n - 1].iter().enumerate() {
            if let Some(candidate) = candidate {
                if at == NONE as usize || candidate.0 < best.0 {
                    best = *candidate;
                    at = i;
                }
            }
        }
        if at == NONE as usize {
            return;
        }
        symbols[at].id = best.1;
        symbols[at].len += symbols[at + 1].len;
        symbols.remove(at + 1);
        merged.copy_within(at + 1..n - 1, at);
        let n = n - 1;
        if n < 2 {
            return;
        }
        if at + 1 < n {
            merged[at] = pair(&symbols[at], &symbols[at + 1]);
        }
        if at > 0 {
            merged[at - 1] = pair(&symbols[at - 1], &symbols[at]);
        }
    }
}

fn merge_long(symbols: &mut Vec<Symbol>, pair: impl Fn(&Symbol, &Symbol) -> Merged) {
    let n = symbols.len();
    // Neighbours still alive; a merged-away symbol has len 0.
    let mut next: Vec<u32> = (1..=n as u32).collect();
    let mut prev: Vec<u32> = (0..n as u32).map(|i| i.wrapping_sub(1)).collect();
    // (rank, left index), the length of the would-be token (to see stale entries), its id
    let mut heap = BinaryHeap::new();
    let push = |heap: &mut BinaryHeap<_>, symbols: &[Symbol], left: usize, right: usize| {
        if let Some((rank, id)) = pair(&symbols[left], &symbols[right]) {
            let len = symbols[left].len + symbols[right].len;
            heap.push((Reverse((rank, left as u32)), len, id));
        }
    };
    for i in 0..n - 1 {
        push(&mut heap, symbols, i, i + 1);
    }
    while let Some((Reverse((_, left)), len, id)) = heap.pop() {
        let left = left as usize;
        let right = next[left] as usize;
        if symbols[left].len == 0 || right >= n || symbols[left].len + symbols[right].len != len {
            continue;
        }
        symbols[left].id = id;
        symbols[left].len = len;
        symbols[right].len = 0;
        let after = next[right] as usize;
        next[left] = after as u32;
        if after < n {
            prev[after] = left as u32;
            push(&mut heap, symbols, left, after);
        }
        if prev[left] != u32::MAX {
            push(&mut heap, symbols, prev[left] as usize, left);
        }
    }
    symbols.retain(|symbol| symbol.len > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    // Ranks by a small arithmetic rule, so that many pairs merge and ties are common.
    fn rule(a: &Symbol, b: &Symbol) -> Merged {
        let sum = a.len + b.len;
        let mixed = (a.id.wrapping_mul(31) ^ b.id.wrapping_mul(17)) % 7;
        (mixed < 4 && sum < 9).then_some((mixed + sum, (a.id + b.id) % 5))
    }

    #[test]
    fn short_and_long_agree() {
        let mut state = 7u32;
        for n in 2..=SHORT {
            for _ in 0..50 {
                let word: Vec<Symbol> = (0..n)
                    .map(|i| {
                        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                        Symbol { id: (state >> 16) % 5, start: i as u32, len: 1 }
                    })
                    .collect();
                let (mut short, mut long) = (word.clone(), word);
                merge_short(&mut short, rule);
                merge_long(&mut long, rule);
                let ids = |s: &[Symbol]| s.iter().map(|x| (x.id, x.len)).collect::<Vec<_>>();
                assert_eq!(ids(&short), ids(&long));
            }
        }
    }
}
