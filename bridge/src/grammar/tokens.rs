//! The vocabulary of a tokenizer as the tree of bytes that masks are computed over.

use crate::engine::Engine;
use llguidance::api::ParserLimits;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::ParserFactory;
use std::sync::{Arc, OnceLock};

/// Most lexer states of a grammar, 1 to 2 KB each; and what one mask and one compilation may cost, in
/// the crate's own units (about 14,000 a millisecond for the first, 50,000 for the second).
const MOST_STATES: usize = 60_000;
const MASK_FUEL: u64 = 400_000;
const COMPILE_FUEL: u64 = 1_000_000;
/// What may come next at one place, in the crate's items: an object has a few for each name that need not
/// be there (schema.rs, MOST_OPTIONAL). And of a whole mask, about 20,000 a millisecond.
const MOST_ITEMS: usize = 20_000;
const MASK_ITEMS: usize = 400_000;

pub struct Tokens {
    factory: OnceLock<Result<ParserFactory, String>>, // made when first needed: it takes a while
    pub engine: Arc<Engine>,
    /// Ids of the model: those above the tokenizer's are never allowed.
    pub vocab_size: u32,
}

struct Env {
    trie: TokTrie,
    engine: Arc<Engine>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let whole = std::str::from_utf8(bytes).ok().and_then(|text| self.exactly(text));
        whole.unwrap_or_else(|| self.trie.greedy_tokenize(bytes))
    }
}

impl Env {
    /// None where the tokenizer changes the text.
    fn exactly(&self, text: &str) -> Option<Vec<TokenId>> {
        let ids = self.engine.encode_inside(text).ok()?;
        let known = ids.iter().all(|id| (*id as usize) < self.trie.vocab_size());
        (known && self.trie.decode(&ids) == text.as_bytes()).then_some(ids)
    }
}

impl Tokens {
    pub fn new(engine: Arc<Engine>, vocab_size: u32) -> Result<Tokens, String> {
        if !engine.by_token() {
            return Err("this model's tokenizer cannot be held to a grammar: its text is not the \
                        concatenation of its tokens"
                .to_string());
        }
        if vocab_size == 0 {
            return Err("the model has no vocabulary".to_string());
        }
        Ok(Tokens { factory: OnceLock::new(), engine, vocab_size })
    }

    pub fn factory(&self) -> Result<&ParserFactory, String> {
        self.factory.get_or_init(|| self.make_factory()).as_ref().map_err(String::clone)
    }

    fn make_factory(&self) -> Result<ParserFactory, String> {
        // One id more than the model has stands for the end of the text, so that it is part of a mask.
        let end = self.vocab_size;
        let mut words: Vec<Vec<u8>> = (0..end).map(|id| word(&self.engine, id)).collect();
        words.push(Vec::new());
        let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
        let env: TokEnv = Arc::new(Env { trie, engine: self.engine.clone() });
        let inference = InferenceCapabilities { ff_tokens: true, ..Default::default() };
        let mut factory = ParserFactory::new(&env, inference, &SlicedBiasComputer::general_slices())
            .map_err(|e| e.to_string())?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: COMPILE_FUEL,
            step_lexer_fuel: MASK_FUEL,
            max_lexer_states: MOST_STATES,
            max_items_in_row: MOST_ITEMS,
            step_max_items: MASK_ITEMS,
            verbose_errors: false,
            ..Default::default()
        };
        Ok(factory)
    }
}

/// The bytes a grammar sees. Special tokens are marked with a byte that is in no text.
fn word(engine: &Engine, id: u32) -> Vec<u8> {
    let mark = TokTrie::SPECIAL_TOKEN_MARKER;
    let mut bytes = Vec::new();
    if engine.added.get(id).is_some_and(|token| token.special) {
        bytes.push(mark);
        engine.token_bytes(id, false, &mut bytes);
        return bytes;
    }
    engine.token_bytes(id, true, &mut bytes);
    // No UTF-8 text contains this byte.
    if bytes.first() == Some(&mark) {
        bytes.clear();
    }
    bytes
}
