//! Tokenizers, chat templates and grammars for a C++ program, behind the C header include/quince_bridge.h.

pub mod added;
pub mod conversation;
pub mod engine;
pub mod ffi;
pub mod ffi_grammar;
pub mod grammar;
pub mod json;
pub mod memory;
pub mod merge;
pub mod python;
pub mod rewrite;
pub mod split;
pub mod template;
pub mod unicode;
pub mod vocab;
pub mod vocabulary;
