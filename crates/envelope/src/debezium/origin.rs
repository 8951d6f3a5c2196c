//! The block `source` of a message.

use super::json::{push_integer, push_string};
use super::Origin;
use tidewire_change::{Position, TableName};

/// The pieces of `source` between the numbers.
pub(super) struct SourceParts {
    to_ts_ms: Vec<u8>,
    streamed_to_sequence: Vec<u8>,
    read_to_sequence: Vec<u8>,
    from_ts_ns: Vec<u8>,
}

/// What the numbers are.
pub(super) struct At {
    pub position: Position,
    /// Microseconds since 1970 UTC.
    pub committed_at: i64,
    /// The row was read, not streamed.
    pub is_read: bool,
    pub xid: Option<u32>,
}

impl SourceParts {
    pub fn new(origin: &Origin<'_>, table: &TableName) -> SourceParts {
        let mut to_ts_ms = b",\"source\":{\"version\":".to_vec();
        push_string(origin.version.as_bytes(), &mut to_ts_ms);
        to_ts_ms.extend_from_slice(b",\"connector\":\"postgresql\",\"name\":");
        push_string(origin.name.as_bytes(), &mut to_ts_ms);
        to_ts_ms.extend_from_slice(b",\"ts_ms\":");
        let to_sequence = |snapshot: &str| {
            let mut part = format!(",\"snapshot\":\"{snapshot}\",\"db\":").into_bytes();
            push_string(origin.database.as_bytes(), &mut part);
            part.extend_from_slice(b",\"sequence\":\"[\\\"");
            part
        };
        let mut from_ts_ns = b",\"schema\":".to_vec();
        push_string(table.schema.as_bytes(), &mut from_ts_ns);
        from_ts_ns.extend_from_slice(b",\"table\":");
        push_string(table.name.as_bytes(), &mut from_ts_ns);
        from_ts_ns.extend_from_slice(b",\"txId\":");
        let (streamed_to_sequence, read_to_sequence) = (to_sequence("false"), to_sequence("incremental"));
        SourceParts { to_ts_ms, streamed_to_sequence, read_to_sequence, from_ts_ns }
    }

    pub fn push(&self, at: &At, out: &mut Vec<u8>) {
        let At { position, committed_at: us, is_read: read, xid } = *at;
        out.extend_from_slice(&self.to_ts_ms);
        push_integer(us.div_euclid(1000), out);
        out.extend_from_slice(if read { &self.read_to_sequence } else { &self.streamed_to_sequence });
        let mut commit = itoa::Buffer::new();
        let commit = commit.format(position.commit).as_bytes();
        let mut ordinal = itoa::Buffer::new();
        let ordinal = ordinal.format(position.ordinal).as_bytes();
        out.extend_from_slice(commit);
        out.extend_from_slice(b"\\\",\\\"");
        out.extend_from_slice(ordinal);
        out.extend_from_slice(b"\\\"]\",\"ts_us\":");
        push_times_from_micros(us, out);
        out.extend_from_slice(&self.from_ts_ns);
        match xid.filter(|_| !read) {
            Some(xid) => push_integer(i64::from(xid), out),
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"lsn\":");
        out.extend_from_slice(if read { b"null" } else { commit });
        out.extend_from_slice(b",\"xmin\":null,\"origin\":null,\"origin_lsn\":null,\"commit_lsn\":");
        out.extend_from_slice(commit);
        out.extend_from_slice(b",\"ordinal\":");
        out.extend_from_slice(ordinal);
        out.push(b'}');
    }
}

/// Milliseconds, then `between`, then microseconds and nanoseconds.
pub(super) fn push_times(micros: i64, between: &[u8], out: &mut Vec<u8>) {
    push_integer(micros.div_euclid(1000), out);
    out.extend_from_slice(between);
    push_times_from_micros(micros, out);
}

fn push_times_from_micros(micros: i64, out: &mut Vec<u8>) {
    push_integer(micros, out);
    out.extend_from_slice(b",\"ts_ns\":");
    let nanos = i128::from(micros) * 1000;
    out.extend_from_slice(itoa::Buffer::new().format(nanos).as_bytes());
}
