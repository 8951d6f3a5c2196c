use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Keys are numbers that may be near each other: multiply and fold.
#[derive(Clone, Copy, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93_u128;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

pub type KeyMap<V> = HashMap<u128, V, BuildHasherDefault<Mix>>;
