//! Can every part of a grammar come to an end? One that cannot leads into texts without end.

use llguidance::earley::CGrammar;

/// True when every symbol that can be reached derives some finite text.
pub fn all_end(grammar: &CGrammar) -> bool {
    // Symbols by index: whether they were reached, and whether they are known to end.
    let mut reached = vec![false; usize::from(u16::MAX) + 1];
    let mut ends = reached.clone();
    let mut symbols = vec![grammar.start()];
    reached[grammar.start().as_index()] = true;
    let mut at = 0;
    while at < symbols.len() {
        let symbol = symbols[at];
        at += 1;
        let data = grammar.sym_data(symbol);
        ends[symbol.as_index()] = data.is_terminal || data.is_nullable || data.lexeme.is_some();
        for rule in &data.rules {
            for part in grammar.rule_rhs(*rule).0 {
                if !std::mem::replace(&mut reached[part.as_index()], true) {
                    symbols.push(*part);
                }
            }
        }
    }
    // Rules wait for those of their parts that are not known to end.
    let mut waiting: Vec<(usize, usize)> = Vec::new(); // symbol, parts left
    let mut waits: Vec<Vec<usize>> = vec![Vec::new(); reached.len()]; // of a symbol: rules
    let mut ready: Vec<usize> = Vec::new();
    for symbol in &symbols {
        if ends[symbol.as_index()] {
            ready.push(symbol.as_index());
        }
        for rule in &grammar.sym_data(*symbol).rules {
            let parts = grammar.rule_rhs(*rule).0;
            for part in parts {
                waits[part.as_index()].push(waiting.len());
            }
            waiting.push((symbol.as_index(), parts.len()));
        }
    }
    while let Some(symbol) = ready.pop() {
        for rule in &waits[symbol] {
            let (of, left) = &mut waiting[*rule];
            *left -= 1;
            if *left == 0 && !std::mem::replace(&mut ends[*of], true) {
                ready.push(*of);
            }
        }
    }
    symbols.iter().all(|symbol| ends[symbol.as_index()])
}
