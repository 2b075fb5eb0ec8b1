//! Tokenizers for a C++ program, behind the C header include/quince_bridge.h.

pub mod added;
pub mod engine;
pub mod ffi;
pub mod json;
pub mod merge;
pub mod split;
pub mod vocab;
pub mod vocabulary;
