//! The block `source` of a message, as far as it tells the change's place.

use super::glance::pair;
use super::plain::Lies;
use super::scan::{inside_quotes, Cursor};
use tidewire_change::{Op, Position};

#[derive(Clone, Copy, Default)]
pub(super) struct Source<'a> {
    snapshot: Snapshot,
    sequence: Option<&'a [u8]>,
    lsn: Option<u64>,
    commit_lsn: Option<u64>,
    ordinal: Option<u32>,
    pub(super) ts_us: Option<i64>,
    pub(super) xid: Option<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Snapshot {
    #[default]
    No,
    /// A row of an incremental one has its place in the stream.
    Incremental,
    Yes,
}

/// A member whose value differs from message to message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Sequence,
    Lsn,
    CommitLsn,
    Ordinal,
    Xid,
    Micros,
    /// Of no use here.
    Time,
}

pub(super) fn field(name: &[u8]) -> Option<Field> {
    Some(match name {
        b"sequence" => Field::Sequence,
        b"lsn" => Field::Lsn,
        b"commit_lsn" => Field::CommitLsn,
        b"ordinal" => Field::Ordinal,
        b"txId" => Field::Xid,
        b"ts_us" => Field::Micros,
        b"ts_ms" | b"ts_ns" => Field::Time,
        _ => return None,
    })
}

/// A member where numbers are numbers, and texts texts.
#[derive(Clone, Copy)]
pub(super) enum Member {
    Number(Field),
    Sequence,
    Snapshot,
    Unused,
}

impl Member {
    pub(super) fn of(name: &str, lies: Lies) -> Member {
        match (name, lies, field(name.as_bytes())) {
            ("snapshot", Lies::Text, _) => Member::Snapshot,
            (_, Lies::Text, Some(Field::Sequence)) => Member::Sequence,
            (_, Lies::Number, Some(of)) if of != Field::Time => Member::Number(of),
            _ => Member::Unused,
        }
    }
}

/// What is the same in the `source` of most messages of a topic: the text in front of each value that isn't. A block that has it all
/// needn't be read member by member.
#[derive(Default)]
pub(super) struct Template {
    parts: Vec<(Vec<u8>, Field)>,
    end: Vec<u8>,
    snapshot: Snapshot,
}

impl Template {
    fn read<'a>(&self, cursor: &mut Cursor<'a>) -> Option<Source<'a>> {
        let (mut ahead, mut source) = (*cursor, Source { snapshot: self.snapshot, ..Source::default() });
        for (part, field) in &self.parts {
            if !ahead.take_all(part) {
                return None;
            }
            source.set(*field, ahead.value()?)?;
        }
        if self.end.is_empty() || !ahead.take_all(&self.end) {
            return None;
        }
        *cursor = ahead;
        Some(source)
    }
}

impl<'a> Source<'a> {
    /// `None`: it is no object, or a number is none. A block of a new form becomes the template.
    pub(super) fn read(cursor: &mut Cursor<'a>, template: &mut Template) -> Option<Source<'a>> {
        cursor.peek()?;
        if let Some(source) = template.read(cursor) {
            return Some(source);
        }
        let (mut source, mut first, mut parts) = (Source::default(), true, Vec::new());
        let mut start = cursor.at;
        if !cursor.take(b'{') {
            return None;
        }
        while let Some(name) = cursor.member(&mut first)? {
            cursor.peek()?;
            let (at, value) = (cursor.at, cursor.value()?);
            source.add(name, value)?;
            if let Some(field) = field(name) {
                parts.push((cursor.bytes[start..at].to_vec(), field));
                start = cursor.at;
            }
        }
        *template = Template { parts, end: cursor.bytes[start..cursor.at].to_vec(), snapshot: source.snapshot };
        Some(source)
    }

    /// Takes a member by its name; one of no use is passed over.
    pub(super) fn add(&mut self, name: &[u8], value: &'a [u8]) -> Option<()> {
        if name == b"snapshot" {
            self.set_snapshot(inside_quotes(value).unwrap_or(value));
        }
        field(name).map_or(Some(()), |field| self.set(field, value))
    }

    /// Whether anything tells the change's place.
    pub(super) fn is_placed(&self) -> bool {
        self.is_ours() || self.sequence.is_some() || self.lsn.is_some() || self.snapshot == Snapshot::Yes
    }

    fn set(&mut self, field: Field, value: &'a [u8]) -> Option<()> {
        if value == b"null" || field == Field::Time {
            return Some(());
        }
        match field {
            Field::Sequence => self.sequence = Some(inside_quotes(value)?),
            Field::Lsn => self.lsn = Some(number(value)?),
            Field::CommitLsn => self.commit_lsn = Some(number(value)?),
            Field::Ordinal => self.ordinal = Some(u32::try_from(number(value)?).ok()?),
            Field::Xid => self.xid = u32::try_from(number(value)?).ok(),
            Field::Micros => self.ts_us = Some(signed(value)?),
            Field::Time => {}
        }
        Some(())
    }

    pub(super) fn set_snapshot(&mut self, word: &[u8]) {
        self.snapshot = match word {
            b"false" | b"null" => Snapshot::No,
            b"incremental" => Snapshot::Incremental,
            _ => Snapshot::Yes,
        };
    }

    /// `sequence`, without quotes and escapes.
    pub(super) fn set_sequence(&mut self, text: &'a [u8]) {
        self.sequence = Some(text);
    }

    /// A member that is a number of its own type. LSNs are its bits.
    pub(super) fn set_number(&mut self, field: Field, number: i64) -> Option<()> {
        match field {
            Field::Lsn => self.lsn = Some(number as u64),
            Field::CommitLsn => self.commit_lsn = Some(number as u64),
            Field::Ordinal => self.ordinal = Some(u32::try_from(number).ok()?),
            Field::Xid => self.xid = u32::try_from(number).ok(),
            Field::Micros => self.ts_us = Some(number),
            Field::Sequence | Field::Time => {}
        }
        Some(())
    }

    pub(super) fn is_ours(&self) -> bool {
        self.commit_lsn.is_some() && self.ordinal.is_some()
    }

    /// Ours: as it is written. Debezium's: the commit before the change's transaction is `commit`, the place of the change's record
    /// stands for the ordinal: its distance from that commit in units of 48 bytes (a record of a row's change takes 56 at least, so no
    /// two of one row meet). A transaction may have begun long before the commit before it: the distances go from -64 to 128 GiB.
    /// Rows of a snapshot come before all that is streamed.
    pub(super) fn position(&self, op: Op) -> Result<Position, &'static str> {
        if let (Some(commit), Some(ordinal)) = (self.commit_lsn, self.ordinal) {
            return Ok(Position { commit, ordinal });
        }
        if self.snapshot == Snapshot::Yes || (op == Op::Read && self.snapshot != Snapshot::Incremental) {
            return Ok(Position::ZERO);
        }
        let (commit, record) = match self.sequence {
            Some(sequence) => pair(sequence).ok_or("has a source.sequence that isn't two numbers")?,
            None => (None, self.lsn),
        };
        let record = record.ok_or("has neither source.sequence nor source.lsn: nothing tells its place")?;
        const UNIT: u64 = 48;
        const BELOW: i128 = (64 << 30) / UNIT as i128;
        // The first transaction after a connector began knows of no commit before it; nothing but a snapshot comes before it.
        let Some(commit) = commit else { return Ok(Position { commit: 0, ordinal: ((record / UNIT) as u32).max(1) }) };
        let distance = (i128::from(record) - i128::from(commit)).div_euclid(i128::from(UNIT)) + BELOW;
        u32::try_from(distance).map(|ordinal| Position { commit, ordinal }).map_err(|_| {
            "lies too far from the commit before it (beyond -64 to 128 GiB of log): its place can't be told"
        })
    }
}

pub(super) fn number(raw: &[u8]) -> Option<u64> {
    let digit = |number: u64, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        number.checked_mul(10)?.checked_add(u64::from(digit)).filter(|_| digit < 10)
    };
    raw.iter().try_fold(0, digit).filter(|_| !raw.is_empty())
}

pub(super) fn signed(raw: &[u8]) -> Option<i64> {
    match raw.strip_prefix(b"-") {
        Some(raw) => 0i64.checked_sub_unsigned(number(raw)?),
        None => i64::try_from(number(raw)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(source: &str) -> Result<Position, &'static str> {
        let mut template = Template::default();
        let mut read = || {
            Source::read(&mut Cursor::new(source.as_bytes()), &mut template)
                .expect("it is a source")
                .position(Op::Update)
        };
        // By the template that the first look made.
        assert_eq!(read(), read());
        read()
    }

    #[test]
    fn debeziums_changes_stand_in_the_order_of_their_sequences() {
        let sequences = [
            r#"{"snapshot":"last","sequence":"[null,\"27405768\"]","lsn":27405768}"#,
            r#"{"snapshot":"false","sequence":"[null,\"27405768\"]"}"#,
            r#"{"sequence":"[\"27413568\",\"27405768\"]"}"#,
            r#"{"sequence":"[\"27413568\",\"27413624\"]"}"#,
            r#"{"sequence":"[\"27413568\",\"99927413624\"]"}"#,
            r#"{"sequence":"[\"27415728\",\"1\"]"}"#,
            r#"{"sequence":"[\"27415728\",\"2\"]","commit_lsn":27415736,"ordinal":0}"#,
        ];
        let positions: Vec<Position> = sequences.iter().map(|source| position(source).unwrap()).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
        for bad in
            [r#"{"sequence":"x"}"#, "{}", r#"{"sequence":"[\"1\",\"199999999999\"]"}"#, r#"{"sequence":"[\"1\"]"}"#]
        {
            assert!(position(bad).is_err(), "{bad}");
        }
    }
}
