use crate::connection::Connection;
use crate::frames::{self, broken, cut, Bodies};
use crate::server_error::PgError;
use bytes::{BufMut, Bytes};
use postgres_protocol::message::frontend;
use std::time::Duration;
use tidewire_change::{Error, Result};

/// Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's clock starts.
const EPOCH: i64 = 946_684_800_000_000;

const XLOG_DATA: u8 = b'w';
const KEEPALIVE: u8 = b'k';
/// Tag, start, end, clock.
const XLOG_HEADER: usize = 1 + 8 + 8 + 8;
/// Tag, end, clock, reply wanted.
const KEEPALIVE_LENGTH: usize = 1 + 8 + 8 + 1;

/// How long the server may take to end the stream before the socket is just dropped: a walsender that is decoding a large
/// transaction listens only now and then.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A running `START_REPLICATION` ("Streaming Replication Protocol").
pub struct Replication {
    connection: Connection,
}

impl Replication {
    pub(crate) fn new(connection: Connection) -> Self {
        Replication { connection }
    }

    pub fn server_version(&self) -> u32 {
        self.connection.server_version
    }

    /// All whole messages that have come; waits for one. Cancel-safe: nothing is lost when the future is dropped.
    /// `Unavailable` when the server ends the stream or the connection breaks.
    pub async fn next(&mut self) -> Result<ReplicationChunk> {
        let wire = &mut self.connection.wire;
        loop {
            if let Some(run) = frames::take_copy_data(&mut wire.incoming, check).map_err(|error| wire.at(error))? {
                return Ok(ReplicationChunk { run });
            }
            match frames::head(&wire.incoming, wire.limit).map_err(|error| wire.at(error))? {
                Some(head) if head.tag != frames::COPY_DATA && head.total <= wire.incoming.len() => {}
                _ => {
                    wire.fill().await?;
                    continue;
                }
            }
            let Some(frame) = frames::take(&mut wire.incoming, wire.limit)? else { continue };
            match frame.tag {
                frames::NOTICE | frames::NOTIFICATION | frames::PARAMETER_STATUS => {}
                frames::ERROR => return Err(PgError::parse(&frame.body).into_error(&wire.place)),
                frames::COPY_DONE | frames::COMMAND_COMPLETE | frames::READY => return Err(ended(&wire.place)),
                tag => {
                    let tag = tag as char;
                    return Err(Error::unavailable(format!("a replication stream brought the message '{tag}'")));
                }
            }
        }
    }

    /// Tells the server how far we are (LSNs): what lies below `flushed` it may forget. `now_micros`: microseconds since
    /// 1970. `reply`: ask for a keepalive at once. What a dropped future didn't write goes out with the next call.
    pub async fn send_status(
        &mut self,
        written: u64,
        flushed: u64,
        applied: u64,
        now_micros: i64,
        reply: bool,
    ) -> Result<()> {
        let outgoing = &mut self.connection.wire.outgoing;
        outgoing.put_u8(frames::COPY_DATA);
        outgoing.put_u32(4 + 1 + 8 + 8 + 8 + 8 + 1);
        outgoing.put_u8(b'r');
        outgoing.put_u64(written);
        outgoing.put_u64(flushed);
        outgoing.put_u64(applied);
        outgoing.put_i64(now_micros.saturating_sub(EPOCH));
        outgoing.put_u8(reply.into());
        self.connection.wire.flush().await
    }

    /// Ends the stream and the session in order, so that the slot is free when it returns. What is still under way is
    /// thrown away: it comes again, unless it was confirmed. When the server takes too long the socket is just dropped.
    pub async fn stop(mut self) -> Result<()> {
        frontend::copy_done(&mut self.connection.wire.outgoing);
        match tokio::time::timeout(STOP_LIMIT, self.drain()).await {
            Ok(drained) => drained?,
            Err(_) => return Ok(()),
        }
        self.connection.close().await;
        Ok(())
    }

    async fn drain(&mut self) -> Result<()> {
        let wire = &mut self.connection.wire;
        wire.flush().await?;
        loop {
            let frame = wire.next_frame().await?;
            match frame.tag {
                frames::READY => return Ok(()),
                frames::ERROR => return Err(PgError::parse(&frame.body).into_error(&wire.place)),
                _ => {}
            }
        }
    }
}

fn ended(place: &str) -> Error {
    Error::unavailable(format!("PostgreSQL at {place} ended the replication stream"))
        .hint("it is shutting down, or the session was ended by an administrator")
}

/// Messages of one read of the socket, not copied. Holds a receive buffer as long as it or a payload lives.
#[derive(Clone, Debug)]
pub struct ReplicationChunk {
    run: Bytes,
}

impl ReplicationChunk {
    #[inline]
    pub fn messages(&self) -> impl Iterator<Item = ReplicationMessage> + '_ {
        Bodies::new(&self.run).map(|range| {
            let body = &self.run[range.clone()];
            match body[0] {
                XLOG_DATA => ReplicationMessage::XLogData {
                    wal_start: word(body, 1),
                    wal_end: word(body, 9),
                    sent_at: clock(body, 17),
                    payload: self.run.slice(range.start + XLOG_HEADER..range.end),
                },
                _ => ReplicationMessage::Keepalive {
                    wal_end: word(body, 1),
                    sent_at: clock(body, 9),
                    reply_requested: body[17] != 0,
                },
            }
        })
    }

    /// Bytes on the wire, message headers included.
    pub fn len_bytes(&self) -> usize {
        self.run.len()
    }
}

/// `sent_at`: the server's clock, microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationMessage {
    XLogData { wal_start: u64, wal_end: u64, sent_at: i64, payload: Bytes },
    Keepalive { wal_end: u64, sent_at: i64, reply_requested: bool },
}

/// Refuses what `messages` couldn't read.
#[inline]
fn check(body: &[u8]) -> Result<()> {
    match body.first() {
        Some(&XLOG_DATA) if body.len() >= XLOG_HEADER => Ok(()),
        Some(&KEEPALIVE) if body.len() >= KEEPALIVE_LENGTH => Ok(()),
        Some(&XLOG_DATA | &KEEPALIVE) | None => Err(cut("replication")),
        Some(tag) => Err(broken(format!("an unknown replication message 0x{tag:02x}"))),
    }
}

#[inline]
fn word(body: &[u8], at: usize) -> u64 {
    body[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[inline]
fn clock(body: &[u8], at: usize) -> i64 {
    (word(body, at) as i64).saturating_add(EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn random_messages_never_panic(
            bodies in proptest::collection::vec((proptest::sample::select(b"wkx".as_slice()),
                                                 proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        ) {
            let mut buffer = BytesMut::new();
            for (tag, body) in &bodies {
                buffer.put_u8(b'd');
                buffer.put_u32(body.len() as u32 + 5);
                buffer.put_u8(*tag);
                buffer.put_slice(body);
            }
            while let Ok(Some(run)) = frames::take_copy_data(&mut buffer, check) {
                let chunk = ReplicationChunk { run };
                prop_assert!(chunk.messages().count() > 0);
            }
        }
    }
}
