//! The block `source` of a message, as far as it tells the change's place.

use super::scan::{inside_quotes, unescaped, Cursor};
use tidewire_change::{Op, Position};

#[derive(Default)]
pub(super) struct Source<'a> {
    snapshot: Option<&'a [u8]>,
    sequence: Option<&'a [u8]>,
    lsn: Option<u64>,
    commit_lsn: Option<u64>,
    ordinal: Option<u32>,
    pub(super) ts_us: Option<i64>,
    pub(super) xid: Option<u32>,
}

impl<'a> Source<'a> {
    /// `None`: it is no object, or a number is none.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Option<Source<'a>> {
        let (mut source, mut first) = (Source::default(), true);
        if !cursor.take(b'{') {
            return None;
        }
        while let Some(name) = cursor.member(&mut first)? {
            let value = cursor.value()?;
            if value == b"null" {
                continue;
            }
            match name {
                b"snapshot" => source.snapshot = Some(inside_quotes(value).unwrap_or(value)),
                b"sequence" => source.sequence = Some(inside_quotes(value)?),
                b"lsn" => source.lsn = Some(number(value)?),
                b"commit_lsn" => source.commit_lsn = Some(number(value)?),
                b"ordinal" => source.ordinal = Some(u32::try_from(number(value)?).ok()?),
                b"txId" => source.xid = u32::try_from(number(value)?).ok(),
                b"ts_us" => source.ts_us = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                _ => {}
            }
        }
        Some(source)
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
        let is_snapshot = !matches!(self.snapshot, None | Some(b"false" | b"incremental"));
        if is_snapshot || (op == Op::Read && self.snapshot != Some(b"incremental")) {
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

fn number(raw: &[u8]) -> Option<u64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The two numbers of `["1","2"]` inside of a JSON string; either may be null.
fn pair(sequence: &[u8]) -> Option<(Option<u64>, Option<u64>)> {
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
            text => Some(number(inside_quotes(text)?)?),
        };
    }
    (cursor.take(b']') && cursor.is_at_end()).then_some((numbers[0], numbers[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(source: &str) -> Result<Position, &'static str> {
        Source::read(&mut Cursor::new(source.as_bytes())).expect("it is a source").position(Op::Update)
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
