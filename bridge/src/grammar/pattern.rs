//! Patterns of JSON strings. derivre 0.3.13 takes a set of characters that has all control characters
//! for one that has every character, when it writes them as JSON: [^"] would let a quote through as
//! \". Without NUL, which nobody misses, such a set is read as it is.

use regex_syntax::hir::{Class, ClassBytesRange, ClassUnicodeRange, Hir, HirKind};

/// The pattern as the crate should get it; None: as it is.
pub fn mend(pattern: &str) -> Option<String> {
    let parsed = regex_syntax::Parser::new().parse(&llguidance::regex_to_lark(pattern, "dw")).ok()?;
    let mut changed = false;
    let mended = without_nul(parsed, &mut changed);
    changed.then(|| mended.to_string())
}

fn without_nul(hir: Hir, changed: &mut bool) -> Hir {
    let made = match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Look(look) => Hir::look(look),
        HirKind::Class(class) => return Hir::class(mended(class, changed)),
        HirKind::Repetition(mut repetition) => {
            repetition.sub = Box::new(without_nul(*repetition.sub, changed));
            Hir::repetition(repetition)
        }
        HirKind::Capture(capture) => without_nul(*capture.sub, changed),
        HirKind::Concat(parts) => Hir::concat(parts.into_iter().map(|p| without_nul(p, changed)).collect()),
        HirKind::Alternation(parts) => {
            Hir::alternation(parts.into_iter().map(|p| without_nul(p, changed)).collect())
        }
    };
    // Putting together may have made a set of several.
    match made.kind() {
        HirKind::Class(class) => Hir::class(mended(class.clone(), changed)),
        _ => made,
    }
}

fn mended(class: Class, changed: &mut bool) -> Class {
    let ranges: Vec<(u32, u32)> = match &class {
        Class::Unicode(set) => set.iter().map(|r| (r.start() as u32, r.end() as u32)).collect(),
        Class::Bytes(set) => set.iter().map(|r| (r.start() as u32, r.end() as u32)).collect(),
    };
    let has = |c: u32| ranges.iter().any(|(first, last)| (*first..=*last).contains(&c));
    let all_controls = (0..0x20).all(|c| c == u32::from(b'\n') || has(c));
    if !all_controls || (has(u32::from(b'"')) && has(u32::from(b'\\'))) {
        return class;
    }
    *changed = true;
    match class {
        Class::Unicode(mut set) => {
            let rest = [ClassUnicodeRange::new('\u{1}', char::MAX)];
            set.intersect(&regex_syntax::hir::ClassUnicode::new(rest));
            Class::Unicode(set)
        }
        Class::Bytes(mut set) => {
            set.intersect(&regex_syntax::hir::ClassBytes::new([ClassBytesRange::new(1, 0xff)]));
            Class::Bytes(set)
        }
    }
}
