//! The messages of pgoutput, protocol version 1 (PostgreSQL documentation, "Logical Replication Message Formats").
//! Pure: bytes in, messages out; rows are slices of the bytes.

use bytes::{Buf, Bytes};
use tidewire_change::{Error, Result, Row};

/// Microseconds from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A time of PostgreSQL (microseconds since 2000) as microseconds since 1970.
fn unix_micros(postgres: i64) -> i64 {
    postgres.saturating_add(EPOCH_MICROS)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    Begin {
        final_lsn: u64,
        committed_at: i64,
        xid: u32,
    },
    Commit {
        end_lsn: u64,
    },
    Relation(RelationMessage),
    Type {
        oid: u32,
        name: String,
    },
    Insert {
        relation: u32,
        new: Row,
    },
    Update {
        relation: u32,
        old: Option<Old>,
        new: Row,
    },
    Delete {
        relation: u32,
        old: Old,
    },
    Truncate {
        relations: Vec<u32>,
    },
    Logical {
        transactional: bool,
        /// Where the message ends: a commit may lie right there.
        lsn: u64,
        prefix: Bytes,
        content: Bytes,
    },
    /// A row's change that can't be decoded. The next message is whole again.
    Unreadable {
        relation: u32,
        why: String,
    },
    /// Nothing for us: the origin of a transaction; a stray stream-abort, which version 18 sends in version 1.
    Ignored,
}

/// What the log gives of the old row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Old {
    /// All columns in place, those outside the key NULL.
    Key(Row),
    Full(Row),
}

impl Old {
    pub fn row(&self) -> &Row {
        let (Old::Key(row) | Old::Full(row)) = self;
        row
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RelationMessage {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    /// pg_class.relreplident.
    pub identity: char,
    pub columns: Vec<RelationColumn>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RelationColumn {
    pub is_key: bool,
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
}

/// Decodes one message. `Malformed` when it is cut or unknown; where one relation alone is to blame it is `Unreadable`.
pub(super) fn decode(mut bytes: Bytes) -> Result<Message> {
    let letter = u8_of(&mut bytes)?;
    if matches!(letter, b'I' | b'U' | b'D') {
        let relation = u32_of(&mut bytes)?;
        let message = row_change(letter, relation, &mut bytes).and_then(|message| whole(letter, message, &bytes));
        return Ok(message.unwrap_or_else(|error| Message::Unreadable { relation, why: error.message().to_owned() }));
    }
    let message = match letter {
        b'B' => {
            let (final_lsn, time) = (u64_of(&mut bytes)?, i64_of(&mut bytes)?);
            Message::Begin { final_lsn, committed_at: unix_micros(time), xid: u32_of(&mut bytes)? }
        }
        b'C' => {
            let (_flags, _commit) = (u8_of(&mut bytes)?, u64_of(&mut bytes)?);
            let (end_lsn, _time) = (u64_of(&mut bytes)?, i64_of(&mut bytes)?);
            Message::Commit { end_lsn }
        }
        b'R' => relation(&mut bytes)?,
        b'Y' => {
            let oid = u32_of(&mut bytes)?;
            let (schema, name) = (string_of(&mut bytes)?, string_of(&mut bytes)?);
            Message::Type { oid, name: if schema.is_empty() { name } else { format!("{schema}.{name}") } }
        }
        b'T' => {
            let (count, _flags) = (u32_of(&mut bytes)?, u8_of(&mut bytes)?);
            let relations = (0..count).map(|_| u32_of(&mut bytes)).collect::<Result<_>>()?;
            Message::Truncate { relations }
        }
        b'M' => logical(&mut bytes)?,
        b'O' | b'A' => return Ok(Message::Ignored),
        other => return Err(unknown(other)),
    };
    whole(letter, message, &bytes)
}

/// Nothing is left of the bytes.
fn whole(letter: u8, message: Message, rest: &Bytes) -> Result<Message> {
    match rest.len() {
        0 => Ok(message),
        stray => Err(Error::malformed(format!("{stray} stray bytes after a '{}' message", char::from(letter)))),
    }
}

#[inline]
fn row_change(letter: u8, relation: u32, bytes: &mut Bytes) -> Result<Message> {
    match letter {
        b'I' => {
            expect(bytes, b'N')?;
            Ok(Message::Insert { relation, new: Row::take(bytes)? })
        }
        b'U' => update(relation, bytes),
        _ => {
            let tag = u8_of(bytes)?;
            Ok(Message::Delete { relation, old: old(tag, bytes)? })
        }
    }
}

fn update(relation: u32, bytes: &mut Bytes) -> Result<Message> {
    let mut tag = u8_of(bytes)?;
    let mut before = None;
    if tag != b'N' {
        before = Some(old(tag, bytes)?);
        tag = u8_of(bytes)?;
    }
    if tag != b'N' {
        return Err(unknown_tag(tag));
    }
    Ok(Message::Update { relation, old: before, new: Row::take(bytes)? })
}

fn old(tag: u8, bytes: &mut Bytes) -> Result<Old> {
    match tag {
        b'K' => Ok(Old::Key(Row::take(bytes)?)),
        b'O' => Ok(Old::Full(Row::take(bytes)?)),
        tag => Err(unknown_tag(tag)),
    }
}

fn relation(bytes: &mut Bytes) -> Result<Message> {
    let oid = u32_of(bytes)?;
    let (schema, name) = (string_of(bytes)?, string_of(bytes)?);
    let identity = char::from(u8_of(bytes)?);
    let count = u16_of(bytes)?;
    let mut columns = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let is_key = u8_of(bytes)? & 1 == 1;
        let name = string_of(bytes)?;
        columns.push(RelationColumn { is_key, name, type_oid: u32_of(bytes)?, typmod: u32_of(bytes)? as i32 });
    }
    // An empty name stands for pg_catalog.
    let schema = if schema.is_empty() { "pg_catalog".to_owned() } else { schema };
    Ok(Message::Relation(RelationMessage { oid, schema, name, identity, columns }))
}

fn logical(bytes: &mut Bytes) -> Result<Message> {
    let transactional = u8_of(bytes)? & 1 == 1;
    let lsn = u64_of(bytes)?;
    let prefix = cstring(bytes)?;
    let len = u32_of(bytes)? as usize;
    if bytes.len() < len {
        return Err(cut());
    }
    Ok(Message::Logical { transactional, lsn, prefix, content: bytes.split_to(len) })
}

fn unknown(letter: u8) -> Error {
    Error::malformed(format!(
        "the server sent an unknown pgoutput message '{}' (0x{letter:02x})",
        letter.escape_ascii()
    ))
    .hint("this version of Tidewire doesn't know this server's protocol; upgrade Tidewire")
}

fn unknown_tag(tag: u8) -> Error {
    Error::malformed(format!("a pgoutput message has an unknown tuple tag '{}'", tag.escape_ascii()))
}

fn cut() -> Error {
    Error::malformed("a pgoutput message is cut short")
}

fn expect(bytes: &mut Bytes, tag: u8) -> Result<()> {
    match u8_of(bytes)? {
        got if got == tag => Ok(()),
        got => Err(unknown_tag(got)),
    }
}

fn u8_of(bytes: &mut Bytes) -> Result<u8> {
    bytes.try_get_u8().map_err(|_| cut())
}
fn u16_of(bytes: &mut Bytes) -> Result<u16> {
    bytes.try_get_u16().map_err(|_| cut())
}
fn u32_of(bytes: &mut Bytes) -> Result<u32> {
    bytes.try_get_u32().map_err(|_| cut())
}
fn u64_of(bytes: &mut Bytes) -> Result<u64> {
    bytes.try_get_u64().map_err(|_| cut())
}
fn i64_of(bytes: &mut Bytes) -> Result<i64> {
    bytes.try_get_i64().map_err(|_| cut())
}

fn cstring(bytes: &mut Bytes) -> Result<Bytes> {
    let end = memchr::memchr(0, bytes).ok_or_else(cut)?;
    let text = bytes.split_to(end);
    bytes.advance(1);
    Ok(text)
}

/// A name. One that isn't UTF-8 never belongs to a table that is followed (`catalog::is_named`).
fn string_of(bytes: &mut Bytes) -> Result<String> {
    Ok(String::from_utf8_lossy(&cstring(bytes)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::Datum;

    fn row() -> Row {
        Row::from_datums([Datum::Text(b"1"), Datum::Null, Datum::Unchanged])
    }

    fn message(parts: &[&[u8]]) -> Bytes {
        Bytes::from(parts.concat())
    }

    #[test]
    fn updates_come_with_no_old_row_its_key_or_all_of_it() {
        let (oid, encoded) = (7u32.to_be_bytes(), row());
        let encoded = encoded.encoded();
        for (tag, expected) in [(None, None), (Some(b"K"), Some(Old::Key(row()))), (Some(b"O"), Some(Old::Full(row())))]
        {
            let old = tag.map_or(Vec::new(), |tag| [&tag[..], &encoded[..]].concat());
            let got = decode(message(&[b"U", &oid, &old, b"N", encoded])).unwrap();
            assert_eq!(got, Message::Update { relation: 7, old: expected, new: row() });
        }
    }

    #[test]
    fn every_cut_of_every_message_is_refused() {
        let oid = 7u32.to_be_bytes();
        let messages = [
            message(&[b"I", &oid, b"N", row().encoded()]),
            message(&[b"D", &oid, b"K", row().encoded()]),
            message(&[b"T", &1u32.to_be_bytes(), b"\0", &oid]),
            message(&[b"R", &oid, b"public\0t\0d", &1u16.to_be_bytes(), b"\x01id\0", &oid, &oid]),
            message(&[b"M\0", &5u64.to_be_bytes(), b"p\0", &2u32.to_be_bytes(), b"xy"]),
            message(&[b"B", &5u64.to_be_bytes(), &0i64.to_be_bytes(), &oid]),
            message(&[b"C\0", &5u64.to_be_bytes(), &6u64.to_be_bytes(), &0i64.to_be_bytes()]),
            message(&[b"Y", &oid, b"s\0n\0"]),
        ];
        let refused = |bytes| matches!(decode(bytes), Err(_) | Ok(Message::Unreadable { relation: 7, .. }));
        for whole in messages {
            assert!(!refused(whole.clone()), "{whole:?}");
            for cut in 0..whole.len() {
                assert!(refused(whole.slice(..cut)), "{whole:?} cut at {cut}");
            }
            assert!(refused(message(&[&whole, b"z"])));
        }
    }

    #[test]
    fn an_unknown_message_is_an_error_that_names_it_and_a_stray_abort_is_none() {
        let error = decode(Bytes::from_static(b"Zabc")).unwrap_err();
        assert!(error.to_string().contains("'Z' (0x5a)"), "{error}");
        assert_eq!(decode(Bytes::from_static(b"A12345678")).unwrap(), Message::Ignored);
    }

    #[test]
    fn a_commit_time_counts_from_1970() {
        let begin = message(&[b"B", &5u64.to_be_bytes(), &1i64.to_be_bytes(), &9u32.to_be_bytes()]);
        let expected = Message::Begin { final_lsn: 5, committed_at: 946_684_800_000_001, xid: 9 };
        assert_eq!(decode(begin).unwrap(), expected);
    }
}
