//! The file in which Debezium's embedded engine (and Debezium Server) keeps offsets: a Java `HashMap` of byte arrays, as Java writes
//! objects. Only that is read, and written as it is.

use tidewire_change::{Error, Result};

/// Up to the first entry: the stream's head, the class, its two fields.
const CLASS: &[u8] = b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02F\x00\x0aloadFactorI\x00\x09thresholdxp";
const ARRAY: &[u8] = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp";
/// The class of byte arrays once more: the third thing that was written.
const ARRAY_AGAIN: &[u8] = b"uq\x00\x7e\x00\x02";
const NULL: u8 = b'p';
const END: u8 = b'x';

/// Keys and values, in the file's order.
pub type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub fn read(bytes: &[u8]) -> Result<Entries> {
    entries(bytes).ok_or_else(|| {
        Error::invalid("it isn't an offset file of Debezium's engine (a Java map of bytes), nor JSON")
            .hint("give the file that offset.storage.file.filename names, or what GET /connectors/NAME/offsets answers")
    })
}

pub fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xac\xed")
}

fn entries(bytes: &[u8]) -> Option<Entries> {
    let mut rest = bytes.strip_prefix(CLASS)?;
    // loadFactor, threshold, then a block of eight bytes: buckets and entries.
    take(&mut rest, 8)?;
    rest = rest.strip_prefix(b"w\x08")?;
    take(&mut rest, 4)?;
    let count = number(&mut rest)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let key = array(&mut rest)??;
        entries.push((key, array(&mut rest)?));
    }
    (rest == [END]).then_some(entries)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let digits: [u8; 4] = take(rest, 4)?.try_into().ok()?;
    usize::try_from(i32::from_be_bytes(digits)).ok()
}

/// `Some(None)`: null.
fn array(rest: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    if rest.first() == Some(&NULL) {
        take(rest, 1)?;
        return Some(None);
    }
    *rest = rest.strip_prefix(ARRAY).or_else(|| rest.strip_prefix(ARRAY_AGAIN))?;
    let length = number(rest)?;
    take(rest, length).map(|bytes| Some(bytes.to_vec()))
}

pub fn write(entries: &Entries) -> Vec<u8> {
    let mut out = CLASS.to_vec();
    let buckets = (entries.len() * 2).next_power_of_two().max(16) as u32;
    out.extend_from_slice(&0.75f32.to_be_bytes());
    out.extend_from_slice(&(buckets * 3 / 4).to_be_bytes());
    out.extend_from_slice(b"w\x08");
    out.extend_from_slice(&buckets.to_be_bytes());
    out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    let mut is_first = true;
    let mut put = |bytes: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(if std::mem::take(&mut is_first) { ARRAY } else { ARRAY_AGAIN });
        out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    for (key, value) in entries {
        put(key, &mut out);
        match value {
            Some(value) => put(value, &mut out),
            None => out.push(NULL),
        }
    }
    out.push(END);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back_and_no_part_of_it_is_taken_for_the_whole() {
        let entries: Entries = vec![(b"[\"a\",{}]".to_vec(), Some(b"{\"lsn\":1}".to_vec())), (b"k".to_vec(), None)];
        let bytes = write(&entries);
        assert!(is_one(&bytes));
        assert_eq!(read(&bytes).unwrap(), entries);
        assert_eq!(read(&write(&Vec::new())).unwrap(), Vec::new());
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
