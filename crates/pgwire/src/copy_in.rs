use crate::connection::{encoding, Connection};
use crate::frames;
use crate::rows;
use bytes::BufMut;
use postgres_protocol::message::frontend;
use tidewire_change::{Error, Result};

/// Data is written to the socket when this much has come together.
const FLUSH_AT: usize = 128 * 1024;
/// Bytes that one call adds to a message at most.
const PIECE: usize = 1 << 20;

/// A running `COPY … FROM STDIN`. Dropping it half-way gives it up: the next call on the connection sees to that.
pub struct CopyIn<'a> {
    connection: &'a mut Connection,
    /// Where in the outgoing buffer the message starts that takes more data.
    open: Option<usize>,
}

impl<'a> CopyIn<'a> {
    pub(crate) fn new(connection: &'a mut Connection) -> Self {
        CopyIn { connection, open: None }
    }

    /// Adds data; row borders mean nothing here. Buffered. An error that the server has sent meanwhile is returned, and
    /// then the COPY is over and the connection ready again.
    pub async fn send(&mut self, data: &[u8]) -> Result<()> {
        self.must_run()?;
        for piece in data.chunks(PIECE) {
            self.put(piece);
            if self.connection.wire.outgoing.len() >= FLUSH_AT {
                self.open = None;
                self.connection.wire.flush().await?;
                self.hear().await?;
            }
        }
        Ok(())
    }

    /// Ends the data; returns how many rows the server took.
    pub async fn finish(self) -> Result<u64> {
        self.must_run()?;
        frontend::copy_done(&mut self.connection.wire.outgoing);
        self.connection.copying_in = false;
        self.connection.wire.flush().await?;
        let mut count = None;
        while let Some(frame) = self.connection.next_answer().await? {
            if frame.tag == frames::COMMAND_COMPLETE {
                count = Some(rows::affected(&frame));
            }
        }
        count.ok_or_else(|| Error::bug("a COPY ended without a row count"))
    }

    /// Gives the COPY up: the server keeps none of its rows.
    pub async fn abort(self) -> Result<()> {
        if !self.connection.copying_in {
            return Ok(());
        }
        frontend::copy_fail("given up", &mut self.connection.wire.outgoing).map_err(encoding)?;
        self.connection.copying_in = false;
        self.connection.wire.flush().await?;
        match self.connection.next_answer().await {
            // Our own CopyFail comes back as an error, or one that was under way.
            Err(_) if self.connection.unanswered == 0 => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::bug("a COPY that was given up succeeded")),
        }
    }

    fn must_run(&self) -> Result<()> {
        match self.connection.copying_in {
            true => Ok(()),
            false => Err(Error::bug("the COPY is over: an earlier call returned its error")),
        }
    }

    fn put(&mut self, piece: &[u8]) {
        let outgoing = &mut self.connection.wire.outgoing;
        let start = *self.open.get_or_insert_with(|| {
            outgoing.put_u8(frames::COPY_DATA);
            outgoing.put_u32(0);
            outgoing.len() - frames::HEADER
        });
        outgoing.put_slice(piece);
        let length = (outgoing.len() - start - 1) as u32;
        outgoing[start + 1..start + frames::HEADER].copy_from_slice(&length.to_be_bytes());
    }

    /// Looks at what the server has sent so far, without waiting.
    async fn hear(&mut self) -> Result<()> {
        loop {
            let wire = &mut self.connection.wire;
            let head = match frames::head(&wire.incoming, wire.limit).map_err(|error| wire.at(error))? {
                Some(head) if head.total <= wire.incoming.len() => head,
                _ => return Ok(()),
            };
            if matches!(head.tag, frames::NOTICE | frames::NOTIFICATION | frames::PARAMETER_STATUS) {
                frames::take(&mut wire.incoming, wire.limit)?;
                continue;
            }
            self.connection.copying_in = false;
            self.connection.next_answer().await?;
            return Err(Error::bug("the server ended a COPY by itself"));
        }
    }
}
