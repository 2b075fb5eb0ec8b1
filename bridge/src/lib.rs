//! Tokenizers and chat templates for a C++ program, behind the C header include/quince_bridge.h.

pub mod added;
pub mod conversation;
pub mod engine;
pub mod ffi;
pub mod json;
pub mod merge;
pub mod python;
pub mod rewrite;
pub mod split;
pub mod template;
pub mod unicode;
pub mod vocab;
pub mod vocabulary;
