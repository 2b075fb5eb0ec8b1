//! The tokens of a vocabulary: bytes of each id and the way back. All bytes lie in one block and the
//! hash table holds ids only, so that 262,144 tokens are ready in some ten milliseconds.

use ahash::RandomState;

pub const NONE: u32 = u32::MAX;

pub struct Vocab {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    table: Vec<u32>,
    mask: usize,
    hasher: RandomState,
}

impl Vocab {
    pub fn with_capacity(tokens: usize, bytes: usize) -> Self {
        let size = (tokens * 2).next_power_of_two().max(16);
        Vocab {
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(tokens),
            table: vec![NONE; size],
            mask: size - 1,
            hasher: RandomState::with_seeds(0x51, 0x71, 0x9e, 0xce),
        }
    }

    /// Appends the token with the next id. `findable` false: the id has bytes but no text leads to it.
    pub fn push(&mut self, token: &[u8], findable: bool) {
        let id = self.ends.len() as u32;
        self.bytes.extend_from_slice(token);
        self.ends.push(self.bytes.len() as u32);
        if !findable || token.is_empty() {
            return;
        }
        if (id as usize + 1) * 2 > self.table.len() {
            self.grow();
        }
        let slot = self.slot(token);
        self.table[slot] = id; // of two equal tokens the later wins
    }

    /// Where `token` is, or the empty slot where it would be.
    fn slot(&self, token: &[u8]) -> usize {
        let mut slot = self.hasher.hash_one(token) as usize & self.mask;
        loop {
            let id = self.table[slot];
            if id == NONE || self.token(id) == token {
                return slot;
            }
            slot = (slot + 1) & self.mask;
        }
    }

    fn grow(&mut self) {
        let size = self.table.len() * 2;
        let old = std::mem::replace(&mut self.table, vec![NONE; size]);
        self.mask = size - 1;
        for id in old.into_iter().filter(|id| *id != NONE) {
            let slot = self.slot(self.token(id));
            self.table[slot] = id;
        }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn token(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        &self.bytes[start..self.ends[id] as usize]
    }

    pub fn get(&self, token: &[u8]) -> Option<u32> {
        let id = self.table[self.slot(token)];
        (id != NONE).then_some(id)
    }
}

/// GPT-2's reversible map from bytes to printable characters: bytes that are printable in Latin-1
/// stand for themselves, the others for U+0100 and up in the order of their values.
pub struct ByteChars {
    chars: [char; 256],
    bytes: [i16; 0x200],
}

impl ByteChars {
    pub fn new() -> Self {
        let mut map = ByteChars {
            chars: ['\0'; 256],
            bytes: [-1; 0x200],
        };
        let mut next = 0x100u32;
        for byte in 0..=255u8 {
            let code = match byte {
                0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte as u32,
                _ => {
                    next += 1;
                    next - 1
                }
            };
            map.chars[byte as usize] = char::from_u32(code).unwrap();
            map.bytes[code as usize] = byte as i16;
        }
        map
    }

    pub fn to_text(&self, bytes: &[u8]) -> String {
        bytes.iter().map(|b| self.chars[*b as usize]).collect()
    }

    /// Appends the bytes that `text` stands for; false (and nothing appended) when a character of it
    /// stands for no byte.
    pub fn to_bytes(&self, text: &str, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        for c in text.chars() {
            match self.bytes.get(c as usize) {
                Some(byte) if *byte >= 0 => out.push(*byte as u8),
                _ => {
                    out.truncate(start);
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_pushed() {
        let mut vocab = Vocab::with_capacity(1, 1);
        for i in 0..1000u32 {
            vocab.push(format!("t{i}").as_bytes(), i % 7 != 0);
        }
        for i in 0..1000u32 {
            let expected = (i % 7 != 0).then_some(i);
            assert_eq!(vocab.get(format!("t{i}").as_bytes()), expected);
            assert_eq!(vocab.token(i), format!("t{i}").as_bytes());
        }
        assert_eq!(vocab.get(b"t1000"), None);
        assert_eq!(vocab.get(b""), None);
    }

    #[test]
    fn byte_characters_are_reversible() {
        let map = ByteChars::new();
        let all: Vec<u8> = (0..=255).collect();
        let text = map.to_text(&all);
        let mut back = Vec::new();
        assert!(map.to_bytes(&text, &mut back));
        assert_eq!(back, all);
        assert_eq!(map.to_text(b" \n"), "\u{120}\u{10a}");
        assert!(!map.to_bytes("a b", &mut back));
        assert_eq!(back.len(), 256);
    }
}
