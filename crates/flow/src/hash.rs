use xxhash_rust::xxh3::xxh3_128;

const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;

/// MurmurHash2, 32 bits, with the seed of Kafka's Java producer, so that our partitions are those of Kafka's own
/// producers.
pub fn murmur2(key: &[u8]) -> u32 {
    let mut hash = SEED ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let mut word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(MULTIPLIER);
        word = (word ^ word >> 24).wrapping_mul(MULTIPLIER);
        hash = hash.wrapping_mul(MULTIPLIER) ^ word;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 15
}

/// The partition of a key, as Kafka's Java producer chooses it. `partitions` is at least 1.
#[inline]
pub fn partition(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// XXH3, 128 bits.
#[inline]
pub fn key_hash128(key: &[u8]) -> u128 {
    xxh3_128(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_gives_the_values_of_kafkas_own_tests() {
        let known: [(&[u8], i32); 7] = [
            (b"21", -973932308),
            (b"foobar", -790332482),
            (b"a-little-bit-long-string", -985981536),
            (b"a-little-bit-longer-string", -1486304829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
            (b"abc", 479470107),
            (b"", 275646681),
        ];
        for (key, hash) in known {
            assert_eq!(murmur2(key) as i32, hash, "{}", String::from_utf8_lossy(key));
        }
    }

    #[test]
    fn a_partition_is_the_positive_hash_modulo_their_number() {
        assert_eq!(partition(b"foobar", 10), (-790332482i32 & 0x7fff_ffff) as u32 % 10);
        assert!((0..100u32).all(|n| partition(&n.to_be_bytes(), 7) < 7));
    }

    #[test]
    fn the_key_hash_never_changes_since_indexes_keep_it() {
        assert_eq!(key_hash128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    }
}
