//! Classes of characters by general category, as Python's str methods use them.

use regex_syntax::hir::{Class, HirKind};
use std::sync::OnceLock;

/// Sorted ranges of code points.
type Ranges = Vec<(u32, u32)>;

const CLASSES: [&str; 7] = [
    r"[^\p{C}\p{Z}]",             // printable; the space is added below
    r"\p{L}",                     // alphabetic
    r"\p{Nd}",                    // decimal
    "[\\p{Nd}\u{b2}\u{b3}\u{b9}\u{2070}\u{2074}-\u{2079}\u{2080}-\u{2089}\u{2460}-\u{2468}]", // digit
    r"\p{N}",                     // numeric
    r"\p{Lowercase}",
    r"\p{Uppercase}",
];

static TABLES: [OnceLock<Ranges>; 7] = [const { OnceLock::new() }; 7];

fn ranges(pattern: &str) -> Ranges {
    match regex_syntax::parse(pattern).map(|hir| hir.into_kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => {
            class.ranges().iter().map(|r| (r.start() as u32, r.end() as u32)).collect()
        }
        _ => Vec::new(),
    }
}

pub fn is_class(c: char, which: u32) -> bool {
    let Some(table) = TABLES.get(which as usize) else {
        return false;
    };
    if which == 0 && c == ' ' {
        return true;
    }
    let table = table.get_or_init(|| ranges(CLASSES[which as usize]));
    let code = c as u32;
    let at = table.partition_point(|range| range.1 < code);
    table.get(at).is_some_and(|range| range.0 <= code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        let has = |c| (0..7).filter(|w| is_class(c, *w)).collect::<Vec<_>>();
        assert_eq!(has('a'), [0, 1, 5]);
        assert_eq!(has('É'), [0, 1, 6]);
        assert_eq!(has('7'), [0, 2, 3, 4]);
        assert_eq!(has('½'), [0, 4]);
        assert_eq!(has('²'), [0, 3, 4]);
        assert_eq!(has(' '), [0]);
        assert!(has('\u{a0}').is_empty() && has('\n').is_empty() && has('\u{200b}').is_empty());
    }
}
