//! Grammars that hold generated text to a form: a JSON schema, an expression, a list of choices, a Lark
//! or GBNF grammar. The `llguidance` crate knows which bytes may follow; here it is fed with the
//! tokens of our tokenizers and kept within limits.

pub mod compile;
mod ends;
pub mod gbnf;
mod gbnf_lark;
pub mod matcher;
mod pattern;
pub mod schema;
pub mod tokens;
