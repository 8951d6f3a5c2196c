//! What a message is, and where its change stands, without a look at its rows: all that can be said before its table is known.

mod template;

use super::parts::{name_text, parts, quick_parts};
use super::scan::{inside_quotes, unescaped, Cursor};
use super::source;
pub use template::Looks;
use template::Template;
use tidewire_change::{Error, Op, Result};

/// A message with a value, as far as it speaks for itself.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    pub what: What,
    /// What stands under `schema`, with `schemas.enable`.
    pub schema: Option<&'a [u8]>,
    pub payload: &'a [u8],
    pub facts: Facts<'a>,
    pub has_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Change(Op),
    /// A heartbeat, a mark of a transaction, a logical message, a change of a schema or a notification: nothing of a row.
    Aside,
}

/// Whether a row was read for a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshot {
    #[default]
    No,
    Yes,
    /// One that has its place in the stream.
    Incremental,
}

/// What `source` says (of unwrapped rows, the fields that were added). Names are as they stand between their quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    pub snapshot: Snapshot,
    /// The last row of its table in its snapshot.
    pub is_last: bool,
    /// The change's position in full: the commit, and the number in it.
    pub commit_lsn: Option<u64>,
    pub ordinal: Option<u32>,
    /// `sequence`: the commit before, and the record; either may be null.
    pub sequence: Option<(Option<u64>, Option<u64>)>,
    /// Of the change's record. MySQL: the number of the file above 32 bits of the place in it.
    pub lsn: Option<u64>,
    /// MySQL's row in its event.
    pub row: Option<u32>,
    pub schema: Option<&'a [u8]>,
    pub table: Option<&'a [u8]>,
    pub database: Option<&'a [u8]>,
    /// When it was committed, microseconds since 1970 UTC.
    pub at: Option<i64>,
    /// MySQL's place in its log.
    pub file: Option<u64>,
    pub offset: Option<u64>,
    /// Names are as they are: nothing is escaped in them.
    pub is_plain: bool,
    /// A field that tells the place, and what it has that can't be read.
    pub unread: Option<(&'a [u8], &'a [u8])>,
}

/// The members of an envelope that say which message it is.
#[derive(Default)]
struct Members<'a> {
    op: Option<&'a [u8]>,
    status: bool,
    id: bool,
    ts_ms: Option<i64>,
    ddl: bool,
    notification: bool,
    others: bool,
    has_before: bool,
    has_after: bool,
    has_source: bool,
}

impl<'a> Glance<'a> {
    /// Of a message by itself: see `Looks::at`.
    pub fn of(value: &'a [u8], unwrapped: bool) -> Result<Glance<'a>> {
        Looks::default().at(value, unwrapped)
    }

    fn parted(
        (schema, payload): (Option<&'a [u8]>, &'a [u8]),
        unwrapped: bool,
        template: &mut Template,
    ) -> Result<Glance<'a>> {
        let mut glance = Glance { what: What::Aside, schema, payload, facts: Facts::default(), has_before: false };
        match unwrapped {
            true => glance.unwrapped().ok_or_else(broken)??,
            false => glance.envelope(template).ok_or_else(broken)??,
        }
        glance.facts.complete(unwrapped)?;
        Ok(glance)
    }

    fn envelope(&mut self, template: &mut Template) -> Option<Result<()>> {
        let (mut cursor, mut first, mut members) = (Cursor::new(self.payload), true, Members::default());
        if !cursor.take(b'{') {
            return None;
        }
        while let Some(name) = cursor.member(&mut first)? {
            if name == b"source" && cursor.peek()? == b'{' {
                members.has_source = true;
                if !template.read(&mut cursor, &mut self.facts) {
                    template.learn(&mut cursor, &mut self.facts)?;
                }
                continue;
            }
            let value = cursor.value()?;
            match name {
                b"op" => members.op = Some(value),
                b"before" => members.has_before = value != b"null",
                b"after" => members.has_after = value != b"null",
                b"status" => members.status = matches!(value, b"\"BEGIN\"" | b"\"END\""),
                b"id" => members.id = true,
                b"ts_ms" => members.ts_ms = signed(value),
                b"ddl" | b"tableChanges" => members.ddl = true,
                b"aggregate_type" => members.notification = true,
                b"ts_us" | b"ts_ns" | b"event_count" | b"data_collections" | b"transaction" => {}
                _ => members.others = true,
            }
        }
        if !cursor.is_at_end() {
            return None;
        }
        self.facts.at = self.facts.at.or(members.ts_ms.map(|ms| ms.saturating_mul(1000)));
        self.has_before = members.has_before;
        Some(members.what().map(|what| self.what = what))
    }

    fn unwrapped(&mut self) -> Option<Result<()>> {
        let (op, is_deleted) = self.facts.added(self.payload)?;
        let op = match (is_deleted, op) {
            (true, _) => Ok(Op::Delete),
            (false, Some(op)) => letter(op),
            (false, None) => Ok(Op::Update),
        };
        Some(op.map(|op| self.what = What::Change(op)))
    }

    /// Of a row alone: with what its headers tell, as an object of the names that fields have; empty: they tell nothing.
    pub fn also(&mut self, headers: &'a [u8]) -> Result<()> {
        if headers.is_empty() {
            return Ok(());
        }
        let (op, _) = self.facts.added(headers).ok_or_else(broken)?;
        if let (Some(op), false) = (op, self.what == What::Change(Op::Delete)) {
            self.what = What::Change(letter(op)?);
        }
        self.facts.complete(true)
    }
}

impl Members<'_> {
    fn what(&self) -> Result<What> {
        let Some(op) = self.op else {
            let is_heartbeat = self.ts_ms.is_some() && !self.others && !self.has_source && !self.id;
            return match is_heartbeat || (self.status && self.id) || self.ddl || self.notification {
                true => Ok(What::Aside),
                false => Err(Error::malformed("the value has no operation (`op`)")
                    .hint("rows without an envelope: source.debezium.unwrapped: true")),
            };
        };
        // A logical message.
        if op == b"\"m\"" {
            return Ok(What::Aside);
        }
        fits(letter(op)?, self.has_before, self.has_after)
    }
}

/// The operation, if the rows are those that it has.
pub(super) fn fits(op: Op, has_before: bool, has_after: bool) -> Result<What> {
    let fits = match op {
        Op::Read | Op::Create | Op::Update => has_after,
        Op::Delete => !has_after,
        Op::Truncate => !has_before && !has_after,
    };
    match fits {
        true => Ok(What::Change(op)),
        false => Err(Error::malformed(format!("the value has other rows than its operation `{}`", op.letter()))),
    }
}

/// A member of `source` that says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    CommitLsn,
    Ordinal,
    Lsn,
    Sequence,
    Offset,
    Snapshot,
    Schema,
    Table,
    Database,
    Micros,
    Millis,
    File,
    Row,
    /// It is of no use.
    None,
}

impl Field {
    pub(super) fn is_text(self) -> bool {
        matches!(self, Field::Sequence | Field::Snapshot | Field::Schema | Field::Table | Field::Database | Field::File)
    }
}

pub(super) fn field(name: &[u8]) -> Field {
    match name {
        b"commit_lsn" => Field::CommitLsn,
        b"ordinal" | b"seq" => Field::Ordinal,
        b"lsn" => Field::Lsn,
        b"sequence" => Field::Sequence,
        b"pos" => Field::Offset,
        b"snapshot" => Field::Snapshot,
        b"schema" => Field::Schema,
        b"table" => Field::Table,
        b"db" => Field::Database,
        b"ts_us" => Field::Micros,
        b"ts_ms" => Field::Millis,
        b"file" => Field::File,
        b"row" => Field::Row,
        _ => Field::None,
    }
}

impl<'a> Facts<'a> {
    /// What the headers of a message without a value tell, see `Glance::also`.
    pub fn of_headers(headers: &'a [u8]) -> Result<Facts<'a>> {
        let mut facts = Facts::default();
        if !headers.is_empty() {
            facts.added(headers).ok_or_else(broken)?;
            facts.complete(true)?;
        }
        Ok(facts)
    }

    /// Takes what was added to a row alone. The operation, and whether the row is gone; none: it is no object.
    fn added(&mut self, object: &'a [u8]) -> Option<(Option<&'a [u8]>, bool)> {
        let (mut cursor, mut first) = (Cursor::new(object), true);
        let (mut op, mut is_deleted, mut ts_ms) = (None, false, None);
        if !cursor.take(b'{') {
            return None;
        }
        while let Some(name) = cursor.member(&mut first)? {
            cursor.peek()?;
            let value = cursor.value()?;
            match name.strip_prefix(b"__") {
                Some(b"op") => op = Some(value),
                Some(b"deleted") => is_deleted = matches!(value, b"\"true\"" | b"true"),
                Some(b"ts_ms") => ts_ms = signed(value),
                Some(short) => self.add(short.strip_prefix(b"source_").unwrap_or(short), name, value),
                None => {}
            }
        }
        if !cursor.is_at_end() {
            return None;
        }
        self.at = self.at.or(ts_ms.map(|ms: i64| ms.saturating_mul(1000)));
        Some((op, is_deleted))
    }

    /// `shown`: the name as it stands in the message.
    fn add(&mut self, name: &[u8], shown: &'a [u8], value: &'a [u8]) {
        self.set(field(name), shown, value);
    }

    fn set(&mut self, field: Field, shown: &'a [u8], value: &'a [u8]) {
        if value == b"null" {
            return;
        }
        let was_read = match field {
            Field::CommitLsn => number(value).map(|number| self.commit_lsn = Some(number)),
            Field::Ordinal => {
                let number = number(value).and_then(|number| u32::try_from(number).ok());
                number.map(|number| self.ordinal = Some(number))
            }
            Field::Lsn => number(value).map(|number| self.lsn = Some(number)),
            Field::Sequence => inside_quotes(value).and_then(pair).map(|both| self.sequence = Some(both)),
            Field::Offset => number(value).map(|number| self.offset = Some(number)),
            _ => Some(()),
        };
        if was_read.is_none() {
            self.unread.get_or_insert((shown, value));
        }
        match field {
            Field::Snapshot => self.set_snapshot(inside_quotes(value).unwrap_or(value)),
            Field::Schema => self.schema = inside_quotes(value),
            Field::Table => self.table = inside_quotes(value),
            Field::Database => self.database = inside_quotes(value),
            Field::Micros => self.at = signed(value),
            Field::Millis if self.at.is_none() => self.at = signed(value).map(|ms| ms.saturating_mul(1000)),
            Field::File => self.file = inside_quotes(value).and_then(file_number),
            Field::Row => self.row = number(value).and_then(|row| u32::try_from(row).ok()),
            _ => {}
        }
    }

    /// The source is a MySQL server: its databases stand for schemas.
    pub fn is_of_binlog(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn set_snapshot(&mut self, word: &[u8]) {
        self.is_last = matches!(word, b"last" | b"last_in_data_collection");
        self.snapshot = match word {
            b"false" => Snapshot::No,
            b"incremental" => Snapshot::Incremental,
            _ => Snapshot::Yes,
        };
    }

    /// A name as text.
    pub fn name(&self, inside: &[u8]) -> Option<String> {
        match self.is_plain {
            true => String::from_utf8(inside.to_vec()).ok(),
            false => name_text(inside),
        }
    }

    /// Fails where a field can't be read that tells the place.
    pub(super) fn complete(&mut self, unwrapped: bool) -> Result<()> {
        if let (None, Some(file), Some(offset)) = (self.lsn, self.file, self.offset) {
            self.lsn = Some(file << 32 | offset.min(u64::from(u32::MAX)));
        }
        match self.unread {
            Some((name, value)) => Err(unread(name, value, unwrapped)),
            None => Ok(()),
        }
    }
}

fn unread(name: &[u8], value: &[u8], unwrapped: bool) -> Error {
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    let (block, shown) = (if unwrapped { "" } else { "source." }, value.chars().take(100).collect::<String>());
    let wanted = match name.trim_start_matches("__").trim_start_matches("source_") {
        "sequence" => "two whole numbers or nulls, as `[\"1\",\"2\"]`",
        "ordinal" | "seq" => "a whole number below 2^32",
        _ => "a whole number from 0, below 2^64",
    };
    Error::malformed(format!("the message's place can't be read: `{block}{name}` is {shown}, not {wanted}"))
        .hint("whoever writes the topic has to write it so, or leave the field out")
}

fn broken() -> Error {
    Error::malformed("the value isn't a JSON object")
}

fn letter(raw: &[u8]) -> Result<Op> {
    let op = match inside_quotes(raw) {
        Some([letter]) => Op::from_letter(*letter),
        _ => None,
    };
    op.ok_or_else(|| Error::malformed("the value has an operation that no change of a row has"))
}

/// `mysql-bin.000003`
pub(super) fn file_number(name: &[u8]) -> Option<u64> {
    let digits = name.rsplit(|byte| *byte == b'.').next()?;
    number(digits).filter(|number| *number <= u64::from(u32::MAX))
}

/// Also one that stands in quotes.
fn number(raw: &[u8]) -> Option<u64> {
    source::number(inside_quotes(raw).unwrap_or(raw))
}

fn signed(raw: &[u8]) -> Option<i64> {
    source::signed(inside_quotes(raw).unwrap_or(raw))
}

/// The two of `["1","2"]`; `quote`: as it stands there.
fn usual_pair(sequence: &[u8], quote: &[u8]) -> Option<(u64, u64)> {
    let inside = sequence.strip_prefix(b"[")?.strip_prefix(quote)?.strip_suffix(b"]")?.strip_suffix(quote)?;
    let at = memchr::memchr(b',', inside)?;
    let (first, second) = (inside[..at].strip_suffix(quote)?, inside[at + 1..].strip_prefix(quote)?);
    Some((source::number(first)?, source::number(second)?))
}

/// The two of `["1","2"]`, also inside of a JSON string; either may be null.
pub(super) fn pair(sequence: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
    if let Some((first, second)) = usual_pair(sequence, br#"\""#).or_else(|| usual_pair(sequence, b"\"")) {
        return Some((Some(first), Some(second)));
    }
    let mut scratch = Vec::new();
    let (mut cursor, mut first) = (Cursor::new(unescaped(sequence, &mut scratch)?), true);
    let mut numbers = [None, None];
    if !cursor.take(b'[') {
        return None;
    }
    for place in &mut numbers {
        if !cursor.next(&mut first, b']')? {
            return None;
        }
        *place = match cursor.value()? {
            b"null" => None,
            text => Some(number(text)?),
        };
    }
    (cursor.take(b']') && cursor.is_at_end()).then_some((numbers[0], numbers[1]))
}

#[cfg(test)]
mod tests;
