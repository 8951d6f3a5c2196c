//! The value of a message on our own bus. Big endian:
//!
//! ```text
//! u8 version = 1 | u8 op letter | u8 flags | u64 commit | u32 ordinal | i64 committed_at (µs) | u64 schema id
//! | u32 xid (flag 1) | u32 length of before, before (flag 2) | after (flag 4)
//! ```
//!
//! Version 0 stands for a message that was in another form and couldn't be read: `u8 0 | why (UTF-8) | u8 0 | the message as it was`.
//!
//! Rows are as `Row` holds them, so encoding is a copy of bytes and decoding a slice. A topic of schemas holds each
//! `Schema` once, as JSON.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::Arc;
use tidewire_change::{Change, Error, LogMessage, Op, Position, Result, Row, Schema, SchemaId};

const VERSION: u8 = 1;
const UNREAD: u8 = 0;
const HEADER_BYTES: usize = 31;
const HAS_XID: u8 = 1;
const HAS_BEFORE: u8 = 2;
const HAS_AFTER: u8 = 4;

/// What can be known of a message without looking at its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub op: Op,
    pub position: Position,
    /// Microseconds since 1970 UTC.
    pub committed_at: i64,
    pub schema: SchemaId,
    pub xid: Option<u32>,
}

/// Appends the message value of a change. `schema` is the id of `change.schema`, which the caller has at hand.
pub fn encode(change: &Change, schema: SchemaId, out: &mut BytesMut) {
    let (op, position, committed_at) = (change.op, change.position, change.committed_at);
    let header = Header { op, position, committed_at, schema, xid: change.xid };
    put(&header, change.before.as_ref(), change.after.as_ref(), out);
}

/// Reads the header of a message value. `Malformed` when it isn't one.
pub fn header(value: &[u8]) -> Result<Header> {
    readable(value)?;
    take_header(&mut &*value).map(|(header, _)| header)
}

/// The change in a message value; its rows are slices of it. `schemas` finds a schema by its id.
/// `Malformed` when the bytes are not a message; `Schema` when its schema isn't known.
pub fn decode(value: Bytes, schemas: &dyn Fn(SchemaId) -> Option<Arc<Schema>>) -> Result<Change> {
    readable(&value)?;
    let Parts { header, before, after } = split(value)?;
    let Some(schema) = schemas(header.schema) else {
        let message =
            format!("the message at {} uses schema {:016x}, which isn't known", header.position, header.schema.0);
        return Err(Error::schema(message).hint("read the topic of schemas from its start"));
    };
    for row in before.iter().chain(&after) {
        if row.len() != schema.columns.len() {
            let (has, wants) = (row.len(), schema.columns.len());
            let message = format!("a row at {} has {has} columns, its schema {wants}", header.position);
            return Err(Error::malformed(message).on_table(&schema.table).at(header.position));
        }
    }
    let Header { op, position, committed_at, xid, .. } = header;
    Ok(Change { schema, op, position, committed_at, xid, before, after })
}

#[inline]
fn readable(value: &[u8]) -> Result<()> {
    match value.first() {
        Some(&UNREAD) => unread_here(value),
        _ => Ok(()),
    }
}

#[cold]
fn unread_here(value: &[u8]) -> Result<()> {
    of_unread(value).map_or(Ok(()), |(why, _)| Err(Error::malformed(why)))
}

/// Stands for a message in another form that couldn't be read: whoever decodes it is told why.
pub fn unread(why: &str, message: &[u8]) -> Bytes {
    [&[UNREAD], why.replace('\0', " ").as_bytes(), &[0], message].concat().into()
}

/// Why a message couldn't be read, and the message as it was; none: it is no such value.
pub fn of_unread(value: &[u8]) -> Option<(String, &[u8])> {
    let rest = value.strip_prefix(&[UNREAD])?;
    let end = rest.iter().position(|byte| *byte == 0).filter(|end| *end > 0)?;
    Some((String::from_utf8_lossy(&rest[..end]).into_owned(), &rest[end + 1..]))
}

/// For compaction: the one value that can stand for two of the same key, `newer` being the later message.
///
/// A reader that sees the result comes to what it would have come to with both, by the rule of `flow::applied`: columns
/// that a newer update lacks are taken from the older row; a delete keeps the last values; a partial row on top of
/// a delete can't be applied (a placed read of the key follows), so the delete stays. An empty value (a tombstone) never
/// lends anything. `None`: both have to stay, since the newer one is partial and of another schema.
pub fn merge(older: &Bytes, newer: &Bytes) -> Result<Option<Bytes>> {
    if older.is_empty() || newer.is_empty() {
        return Ok(Some(newer.clone()));
    }
    let (old, mut new) = (split(older.clone())?, split(newer.clone())?);
    if old.header.op == Op::Truncate || new.header.op == Op::Truncate {
        return Ok(None);
    }
    if new.header.position <= old.header.position {
        return Ok(Some(older.clone()));
    }
    if !new.row().is_some_and(Row::has_unchanged) {
        return Ok(Some(newer.clone()));
    }
    let same_schema = old.header.schema == new.header.schema;
    let base = old.row().filter(|_| same_schema);
    match (new.header.op, base) {
        (Op::Delete, None) => return Ok(Some(newer.clone())),
        (Op::Delete, Some(base)) => new.before = new.before.map(|row| row.completed_from(base)),
        (Op::Update, _) if old.header.op == Op::Delete => return Ok(Some(older.clone())),
        (Op::Update, None) => return Ok(None),
        (Op::Update, Some(base)) => {
            let after = new.after.map(|row| row.completed_from(base));
            if old.header.op != Op::Update && after.as_ref().is_some_and(Row::has_unchanged) {
                // A create that lacks columns takes nothing from an older row; neither may this.
                new.header.op = Op::Create;
            }
            new.after = after;
        }
        _ => return Ok(Some(older.clone())),
    }
    let mut out = BytesMut::with_capacity(older.len() + newer.len());
    put(&new.header, new.before.as_ref(), new.after.as_ref(), &mut out);
    Ok(Some(out.freeze()))
}

/// Key and value of the message that announces a schema.
pub fn encode_schema(schema: &Schema) -> (Bytes, Bytes) {
    let json = serde_json::to_vec(schema).expect("a schema has a JSON form");
    (Bytes::copy_from_slice(&schema.id().0.to_be_bytes()), json.into())
}

/// `Malformed` when key or value aren't those of a schema message.
pub fn decode_schema(key: &[u8], value: &[u8]) -> Result<(SchemaId, Schema)> {
    let id =
        key.try_into().map_err(|_| Error::malformed(format!("the key of a schema has {} bytes, not 8", key.len())))?;
    let schema = serde_json::from_slice(value)
        .map_err(|error| Error::malformed(format!("a message of the topic of schemas is no schema: {error}")))?;
    Ok((SchemaId(u64::from_be_bytes(id)), schema))
}

struct Parts {
    header: Header,
    before: Option<Row>,
    after: Option<Row>,
}

impl Parts {
    fn row(&self) -> Option<&Row> {
        self.after.as_ref().or(self.before.as_ref())
    }
}

fn put(header: &Header, before: Option<&Row>, after: Option<&Row>, out: &mut BytesMut) {
    let (before, after) = (before.map(Row::encoded), after.map(Row::encoded));
    out.reserve(HEADER_BYTES + 8 + before.map_or(0, Bytes::len) + after.map_or(0, Bytes::len));
    out.put_u8(VERSION);
    out.put_u8(header.op.letter() as u8);
    let flag = |there: bool, bit: u8| if there { bit } else { 0 };
    let rows = flag(before.is_some(), HAS_BEFORE) | flag(after.is_some(), HAS_AFTER);
    out.put_u8(flag(header.xid.is_some(), HAS_XID) | rows);
    out.put_u64(header.position.commit);
    out.put_u32(header.position.ordinal);
    out.put_i64(header.committed_at);
    out.put_u64(header.schema.0);
    if let Some(xid) = header.xid {
        out.put_u32(xid);
    }
    if let Some(before) = before {
        out.put_u32(before.len() as u32);
        out.put_slice(before);
    }
    if let Some(after) = after {
        out.put_slice(after);
    }
}

fn cut_short() -> Error {
    Error::malformed("a message is cut short")
}

/// Takes the header from the front; returns it with the flags.
fn take_header(value: &mut impl Buf) -> Result<(Header, u8)> {
    if value.remaining() < HEADER_BYTES {
        return Err(cut_short());
    }
    match value.get_u8() {
        VERSION => {}
        version => {
            let message = format!("a message has version {version}, this program reads version {VERSION}");
            return Err(Error::malformed(message).hint("a newer Tidewire wrote it: read it with that version"));
        }
    }
    let letter = value.get_u8();
    let op = Op::from_letter(letter)
        .ok_or_else(|| Error::malformed(format!("a message has the unknown operation 0x{letter:02x}")))?;
    let flags = value.get_u8();
    let rows = flags & (HAS_BEFORE | HAS_AFTER);
    let fits = match op {
        Op::Read | Op::Create => rows == HAS_AFTER,
        Op::Update => rows & HAS_AFTER != 0,
        Op::Delete => rows == HAS_BEFORE,
        Op::Truncate => rows == 0,
    };
    if !fits || flags > 7 {
        let letter = op.letter();
        return Err(Error::malformed(format!("a message with operation {letter} can't have the flags 0x{flags:02x}")));
    }
    let position = Position { commit: value.get_u64(), ordinal: value.get_u32() };
    let (committed_at, schema) = (value.get_i64(), SchemaId(value.get_u64()));
    let xid = match flags & HAS_XID {
        0 => None,
        _ => Some(value.try_get_u32().map_err(|_| cut_short())?),
    };
    Ok((Header { op, position, committed_at, schema, xid }, flags))
}

fn split(mut value: Bytes) -> Result<Parts> {
    let (header, flags) = take_header(&mut value)?;
    let (before, after) = take_rows(value, flags).map_err(|error| error.at(header.position))?;
    Ok(Parts { header, before, after })
}

fn take_rows(mut value: Bytes, flags: u8) -> Result<(Option<Row>, Option<Row>)> {
    let before = match flags & HAS_BEFORE {
        0 => None,
        _ => {
            let len = value.try_get_u32().map_err(|_| cut_short())? as usize;
            if len > value.len() {
                return Err(cut_short());
            }
            Some(Row::from_encoded(value.split_to(len))?)
        }
    };
    let after = match flags & HAS_AFTER {
        0 => None,
        _ => Some(Row::from_encoded(value.split_off(0))?),
    };
    match (after.is_some(), value.len()) {
        (false, stray @ 1..) => Err(Error::malformed(format!("{stray} stray bytes after a message"))),
        _ => Ok((before, after)),
    }
}

/// Key and value of the message that holds a message of the log.
pub fn encode_log_message(message: &LogMessage) -> (Bytes, Bytes) {
    let mut out = BytesMut::with_capacity(40 + message.prefix.len() + message.content.len());
    out.put_u8(VERSION);
    out.put_u64(message.position.commit);
    out.put_u32(message.position.ordinal);
    out.put_u32(message.number);
    out.put_i64(message.committed_at);
    out.put_u8(u8::from(message.xid.is_some()));
    out.put_u32(message.xid.unwrap_or(0));
    out.put_u32(message.prefix.len() as u32);
    out.put_slice(&message.prefix);
    out.put_slice(&message.content);
    // A prefix may be empty, and a message must have a key.
    let key = [&b"m"[..], &message.prefix].concat();
    (key.into(), out.freeze())
}

/// `Malformed` when it isn't that of a message of the log.
pub fn decode_log_message(mut value: Bytes) -> Result<LogMessage> {
    let malformed = || Error::malformed("a message of the log can't be read");
    if value.remaining() < 34 || value.get_u8() != VERSION {
        return Err(malformed());
    }
    let position = Position { commit: value.get_u64(), ordinal: value.get_u32() };
    let (number, committed_at) = (value.get_u32(), value.get_i64());
    let (has_xid, xid) = (value.get_u8() == 1, value.get_u32());
    let len = value.get_u32() as usize;
    if len > value.len() {
        return Err(malformed());
    }
    let prefix = value.split_to(len);
    Ok(LogMessage { prefix, content: value, position, number, committed_at, xid: has_xid.then_some(xid) })
}
