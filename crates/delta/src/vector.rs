//! Deletion vectors: PROTOCOL.md, "Deletion Vector Format", and their names: Z85 (ZeroMQ RFC 32) of a UUID.

use crate::log::action::VectorRef;
use crate::store::{Store, Syncing};
use roaring::RoaringBitmap;
use std::io::Write;
use tidewire_change::{Error, Result};
use uuid::Uuid;

const VERSION: u8 = 1;
const MAGIC: u32 = 1_681_511_377;
const DIGITS: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

pub fn file_name(id: Uuid) -> String {
    format!("deletion_vector_{id}.bin")
}

/// The bytes of one vector: the magic number, then the 64-bit bitmap in portable form. A file has less than 2^32 rows, so
/// there is one 32-bit bitmap at most, of the upper half 0.
pub fn encode(rows: &RoaringBitmap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + rows.serialized_size());
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&u64::from(!rows.is_empty()).to_le_bytes());
    if !rows.is_empty() {
        bytes.extend_from_slice(&0u32.to_le_bytes());
        rows.serialize_into(&mut bytes).expect("writing into memory can't fail");
    }
    bytes
}

pub fn decode(bytes: &[u8]) -> Result<RoaringBitmap> {
    let bad = |what: &str| Error::invalid(format!("a deletion vector {what}"));
    let (magic, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| bad("is cut short"))?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return Err(bad("has a magic number that we don't know"));
    }
    let (count, mut rest) = rest.split_first_chunk::<8>().ok_or_else(|| bad("is cut short"))?;
    let mut rows = RoaringBitmap::new();
    for _ in 0..u64::from_le_bytes(*count) {
        let (upper, data) = rest.split_first_chunk::<4>().ok_or_else(|| bad("is cut short"))?;
        if *upper != [0; 4] {
            return Err(bad("names rows above 2^32"));
        }
        rest = data;
        rows |= RoaringBitmap::deserialize_from(&mut rest).map_err(|e| bad("isn't a bitmap").caused_by(e))?;
    }
    Ok(rows)
}

/// Writes all vectors of a commit into one file and says where each is. The file's contents are durable after the wait,
/// its name when its folder is synced.
pub fn write(store: &Store, vectors: &[&RoaringBitmap]) -> Result<(Vec<VectorRef>, Syncing)> {
    let id = Uuid::new_v4();
    let name = file_name(id);
    let mut upload = store.create(&name)?;
    let mut places = Vec::with_capacity(vectors.len());
    let mut offset = 1u64;
    let mut put = |bytes: &[u8]| upload.write_all(bytes).map_err(|e| Error::io(e, store.place(&name)));
    put(&[VERSION])?;
    for rows in vectors {
        let data = encode(rows);
        let too_large = |_| Error::bug("a commit's deletion vectors exceed 2 GiB");
        places.push(VectorRef {
            storage_type: "u".into(),
            path_or_inline_dv: z85_encode(id.as_bytes()),
            offset: Some(i32::try_from(offset).map_err(too_large)?),
            size_in_bytes: i32::try_from(data.len()).map_err(too_large)?,
            cardinality: rows.len() as i64,
        });
        put(&(data.len() as u32).to_be_bytes())?;
        put(&data)?;
        put(&crc32fast::hash(&data).to_be_bytes())?;
        offset += 8 + data.len() as u64;
    }
    let (_, syncing) = upload.finish_later()?;
    Ok((places, syncing))
}

/// The file that holds the vector; none for a vector that stands in the log itself.
pub fn file_of(vector: &VectorRef) -> Result<Option<String>> {
    let bad = || Error::invalid("a deletion vector's place can't be read");
    match vector.storage_type.as_str() {
        "i" => Ok(None),
        "u" => {
            let text = &vector.path_or_inline_dv;
            let at = text.len().checked_sub(20).filter(|at| text.is_char_boundary(*at)).ok_or_else(bad)?;
            let id = z85_decode(&text.as_bytes()[at..]).and_then(|b| Uuid::from_slice(&b).ok()).ok_or_else(bad)?;
            let separator = if at == 0 { "" } else { "/" };
            Ok(Some(format!("{}{separator}{}", &text[..at], file_name(id))))
        }
        other => Err(Error::invalid(format!("a deletion vector has the storage type {other:?}, which we don't read"))),
    }
}

pub fn read(store: &Store, vector: &VectorRef) -> Result<RoaringBitmap> {
    let (data, place) = match file_of(vector)? {
        None => {
            let data = z85_decode(vector.path_or_inline_dv.as_bytes());
            (data.ok_or_else(|| Error::invalid("an inline deletion vector can't be read"))?, "the log".to_string())
        }
        Some(name) => {
            let place = store.place(&name);
            let (offset, size) = (vector.offset.unwrap_or(1), vector.size_in_bytes);
            let (Ok(offset), Ok(length)) = (u64::try_from(offset), usize::try_from(size)) else {
                return Err(Error::invalid(format!("{place}: the log gives a deletion vector a negative place")));
            };
            let bytes = store.read_range(&name, offset, length + 8)?;
            let data = &bytes[4..4 + length];
            if bytes[..4] != size.to_be_bytes() || bytes[4 + length..] != crc32fast::hash(data).to_be_bytes() {
                return Err(Error::invalid(format!("{place}: the deletion vector at {offset} is damaged"))
                    .hint("restore the file from a backup, or remove the table's folder and let it be copied again"));
            }
            (data.to_vec(), place)
        }
    };
    let rows = decode(&data).map_err(|e| e.context(place.clone()))?;
    match rows.len() as i64 == vector.cardinality {
        true => Ok(rows),
        false => Err(Error::invalid(format!(
            "{place}: a deletion vector strikes {} rows, the log says {}",
            rows.len(),
            vector.cardinality
        ))),
    }
}

/// `bytes` must be a multiple of four long.
pub fn z85_encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() / 4 * 5);
    for chunk in bytes.chunks_exact(4) {
        let value = u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        let powers = [85u32.pow(4), 85u32.pow(3), 85u32.pow(2), 85, 1];
        text.extend(powers.map(|p| DIGITS[(value / p % 85) as usize] as char));
    }
    text
}

pub fn z85_decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(5) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 5 * 4);
    for chunk in text.chunks_exact(5) {
        let mut value = 0u32;
        for byte in chunk {
            let digit = DIGITS.iter().position(|d| d == byte)? as u32;
            value = value.checked_mul(85)?.checked_add(digit)?;
        }
        bytes.extend_from_slice(&value.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z85_is_that_of_the_zeromq_rfc() {
        let bytes = [0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B];
        assert_eq!(z85_encode(&bytes), "HelloWorld");
        assert_eq!(z85_decode(b"HelloWorld").unwrap(), bytes);
        assert_eq!(z85_decode(b"Hello"), Some(bytes[..4].to_vec()));
        assert!(z85_decode(b"Hell").is_none());
        assert!(z85_decode(b"#####").is_none(), "above 2^32");
    }

    /// An inline vector as other writers make it: rows 3, 4, 7, 11, 18, 29.
    #[test]
    fn a_vector_of_another_writer_is_read_and_written_byte_for_byte() {
        let inline = b"^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";
        let bytes = z85_decode(inline).unwrap();
        let rows = decode(&bytes).unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), [3, 4, 7, 11, 18, 29]);
        assert_eq!(encode(&rows), bytes[..encode(&rows).len()]);
    }

    #[test]
    fn a_vector_that_the_log_says_is_larger_than_its_file_takes_no_memory() {
        let rows: RoaringBitmap = (0..9).chain(70_000..80_000).collect();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let (places, syncing) = write(&store, &[&rows]).unwrap();
        syncing.wait().unwrap();
        // The log asks for more than the file has: nothing of that size is taken.
        let asked = VectorRef { size_in_bytes: i32::MAX - 8, ..places[0].clone() };
        assert!(read(&store, &asked).unwrap_err().to_string().contains("is cut short"));
    }

    #[test]
    fn vectors_in_one_file_come_back_and_a_flipped_bit_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path());
        let first: RoaringBitmap = [0, 5, 70_000].into_iter().collect();
        let second: RoaringBitmap = (10..100_000).collect();
        let (places, syncing) = write(&store, &[&first, &second]).unwrap();
        syncing.wait().unwrap();
        assert_eq!(read(&store, &places[0]).unwrap(), first);
        assert_eq!(read(&store, &places[1]).unwrap(), second);
        let name = file_of(&places[1]).unwrap().unwrap();
        let mut bytes = store.read(&name).unwrap().unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        store.put(&name, &bytes).unwrap();
        assert!(read(&store, &places[1]).is_err());
        for (offset, size_in_bytes) in [(-1, 40), (1, -1), (1, i32::MIN)] {
            assert!(read(&store, &VectorRef { offset: Some(offset), size_in_bytes, ..places[0].clone() }).is_err());
        }
        assert!(read(&store, &places[0]).is_ok());
    }
}
