/// Feeds a parser with bytes from outside: each of `seeds` as it is, then `count` mutations of them, the same for the same
/// `seed`. Panics when `parse` does, or when the process took more than `memory` bytes meanwhile.
pub fn bombard(seeds: &[Vec<u8>], seed: u64, count: u32, memory: u64, mut parse: impl FnMut(&[u8])) {
    let before = peak_bytes();
    seeds.iter().for_each(|bytes| parse(bytes));
    let mut chance = Chance(seed | 1);
    (0..count).for_each(|_| parse(&mutation(seeds, &mut chance)));
    let grown = peak_bytes().saturating_sub(before);
    assert!(grown < memory, "the process grew by {grown} bytes while it read bytes from outside");
}

/// Xorshift, so that nothing but the seed decides.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Values at which sizes and counts break.
const EDGES: [&[u8]; 8] = [
    &[0xff; 8],
    &[0; 8],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0xff, 0xff, 0xff, 0x7f],
    &[0x80, 0, 0, 0],
    &[0, 0, 0, 0x80],
    &[0xff, 0xff],
    &[0x01],
];

fn mutation(seeds: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = seeds[chance.below(seeds.len())].clone();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(7) {
            0 => bytes.truncate(at),
            1 => flip(&mut bytes, at, chance),
            2 => overwrite(&mut bytes, at, EDGES[chance.below(EDGES.len())]),
            3 => insert(&mut bytes, at, EDGES[chance.below(EDGES.len())]),
            4 => {
                let until = (at + 1 + chance.below(16)).min(bytes.len());
                bytes.drain(at.min(until)..until);
            }
            5 => {
                let other = &seeds[chance.below(seeds.len())];
                let from = chance.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                let until = (at + chance.below(32)).min(bytes.len());
                let again = bytes[at..until].to_vec();
                insert(&mut bytes, at, &again);
            }
        }
    }
    bytes
}

fn flip(bytes: &mut [u8], at: usize, chance: &mut Chance) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << chance.below(8);
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes[at..].iter_mut().zip(with).for_each(|(byte, new)| *byte = *new);
}

fn insert(bytes: &mut Vec<u8>, at: usize, some: &[u8]) {
    bytes.splice(at..at, some.iter().copied());
}

/// The most memory that this process has held so far.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_that_trusts_a_length_is_found() {
        let seeds = [vec![0, 4, 1, 2, 3, 4]];
        let trusting = |bytes: &[u8]| {
            if let [high, low, rest @ ..] = bytes {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                assert!(rest.is_empty() || rest.len() >= len.min(9), "past the end");
            }
        };
        let found = std::panic::catch_unwind(|| bombard(&seeds, 7, 100_000, 1 << 30, trusting));
        assert!(found.is_err());
    }
}
