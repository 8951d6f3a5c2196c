use tidewire_change::Position;

/// Where the newest state of a key lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the file: see `Files`.
    pub file: u32,
    pub row: u32,
    pub position: Position,
    pub deleted: bool,
}

/// On disk: key 16 bytes, file and deleted bit 4, row 4, commit 8, ordinal 4; little endian.
pub const ENTRY_BYTES: usize = 36;
const DELETED: u32 = 1 << 31;

pub fn encode(key: u128, place: &Place) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let file = place.file | if place.deleted { DELETED } else { 0 };
    bytes[..16].copy_from_slice(&key.to_le_bytes());
    bytes[16..20].copy_from_slice(&file.to_le_bytes());
    bytes[20..24].copy_from_slice(&place.row.to_le_bytes());
    bytes[24..32].copy_from_slice(&place.position.commit.to_le_bytes());
    bytes[32..].copy_from_slice(&place.position.ordinal.to_le_bytes());
    bytes
}

/// `bytes` is one entry long.
#[inline]
pub fn key_of(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(array(bytes, 0))
}

#[inline]
pub fn place_of(bytes: &[u8]) -> Place {
    let file = u32::from_le_bytes(array(bytes, 16));
    Place {
        file: file & !DELETED,
        row: u32::from_le_bytes(array(bytes, 20)),
        position: Position::new(u64::from_le_bytes(array(bytes, 24)), u32::from_le_bytes(array(bytes, 32))),
        deleted: file & DELETED != 0,
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
