//! Where one text stands in its grammar.

use crate::grammar::tokens::Tokens;
use llguidance::Matcher as Inner;
use std::sync::Arc;

pub struct Matcher {
    inner: Inner,
    tokens: Arc<Tokens>,
}

pub struct State {
    pub accepting: bool,
    /// Nothing can follow. Implies accepting.
    pub complete: bool,
}

/// What the crate adds for its own developers goes; the first line says what is wrong.
pub fn reason(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split("\n<state>").next().unwrap_or("");
    let text = text.split("\n<non-verbose/>").next().unwrap_or("");
    let text = text.split("\n<backtrace>").next().unwrap_or("");
    text.trim().to_string()
}

impl Matcher {
    pub fn new(inner: Inner, tokens: Arc<Tokens>) -> Matcher {
        Matcher { inner, tokens }
    }

    /// At the same place, and independent of this one from here on.
    pub fn duplicate(&self) -> Matcher {
        Matcher { inner: self.inner.clone(), tokens: self.tokens.clone() }
    }

    pub fn words(&self) -> usize {
        (self.tokens.vocab_size as usize).div_ceil(32)
    }

    /// The tokens that may come next, one bit each, the lowest first. All zero when complete.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<State, String> {
        if words.len() != self.words() {
            return Err(format!("a mask of {} words, want {}", words.len(), self.words()));
        }
        words.fill(0);
        if self.inner.is_stopped() {
            return self.state();
        }
        let mask = self.inner.compute_mask().map_err(reason)?;
        let end = self.tokens.vocab_size as usize;
        let from = mask.as_slice();
        words.copy_from_slice(&from[..words.len()]);
        if end % 32 != 0 {
            words[end / 32] &= (1 << (end % 32)) - 1;
        }
        let accepting = mask.get(end);
        let complete = accepting && words.iter().all(|word| *word == 0);
        Ok(State { accepting, complete })
    }

    pub fn state(&mut self) -> Result<State, String> {
        if let Some(error) = self.inner.get_error() {
            return Err(reason(error));
        }
        if self.inner.is_stopped() {
            return Ok(State { accepting: true, complete: true });
        }
        let accepting = self.inner.is_accepting().map_err(reason)?;
        Ok(State { accepting, complete: false })
    }

    /// A token that does not fit is an error; those before it are taken.
    pub fn consume(&mut self, ids: &[u32]) -> Result<(), String> {
        let taken = self.inner.try_consume_tokens(ids).map_err(reason)?;
        match ids.get(taken) {
            Some(id) => Err(format!("token {id} does not fit the grammar here")),
            None => Ok(()),
        }
    }

    /// Tokens that are the only way on, as the tokenizer would write them; often none.
    pub fn forced(&mut self) -> Result<Vec<u32>, String> {
        if self.inner.is_stopped() {
            return self.state().map(|_| Vec::new());
        }
        let end = self.tokens.vocab_size;
        let mut ids = self.inner.compute_ff_tokens();
        if let Some(error) = self.inner.get_error() {
            return Err(reason(error));
        }
        if let Some(at) = ids.iter().position(|id| *id >= end) {
            ids.truncate(at);
        }
        Ok(ids)
    }

    /// Takes back the last `count` tokens.
    pub fn rollback(&mut self, count: usize) -> Result<(), String> {
        self.inner.rollback(count).map_err(reason)
    }
}
