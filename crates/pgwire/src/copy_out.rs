use crate::connection::Connection;
use crate::frames::{self, Bodies};
use bytes::Bytes;
use tidewire_change::{Error, Result};

/// A running `COPY … TO STDOUT`. Dropping it half-way is allowed: the next call on the connection reads the rest off.
pub struct CopyOut<'a> {
    connection: &'a mut Connection,
    done: bool,
}

impl<'a> CopyOut<'a> {
    pub(crate) fn new(connection: &'a mut Connection) -> Self {
        CopyOut { connection, done: false }
    }

    /// The rows that have come; waits for some. `None` at the end; then, and after an error of the server, the connection
    /// is ready again. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<CopyChunk>> {
        if self.done {
            return Ok(None);
        }
        loop {
            let wire = &mut self.connection.wire;
            let run = frames::take_copy_data(&mut wire.incoming, |_| Ok(()));
            if let Some(run) = run.map_err(|error| wire.at(error))? {
                return Ok(Some(CopyChunk { run }));
            }
            // Only part of a row is there, or nothing: wait for more. Anything else ends the rows.
            match frames::head(&wire.incoming, frames::MAX_FRAME).map_err(|error| wire.at(error))? {
                Some(head) if head.tag != frames::COPY_DATA => {}
                _ => {
                    wire.fill().await?;
                    continue;
                }
            }
            match self.connection.next_answer().await {
                Ok(Some(frame)) if matches!(frame.tag, frames::COPY_DONE | frames::COMMAND_COMPLETE) => {}
                Ok(Some(frame)) => {
                    let tag = frame.tag as char;
                    return Err(Error::bug(format!("a COPY answered with the message '{tag}'")));
                }
                Ok(None) => {
                    self.done = true;
                    return Ok(None);
                }
                Err(error) => {
                    self.done = true;
                    return Err(error);
                }
            }
        }
    }
}

/// Rows of one read of the socket, not copied. Holds a receive buffer as long as it lives.
#[derive(Clone, Debug)]
pub struct CopyChunk {
    run: Bytes,
}

impl CopyChunk {
    /// Each CopyData message: PostgreSQL sends one a row; text rows end with a line feed. (In binary format the file header
    /// comes with the first row, and the trailer is a message of its own.)
    #[inline]
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        Bodies::new(&self.run).map(|range| &self.run[range])
    }

    /// The same as slices that can be kept.
    #[inline]
    pub fn rows_bytes(&self) -> impl Iterator<Item = Bytes> + '_ {
        Bodies::new(&self.run).map(|range| self.run.slice(range))
    }

    /// Bytes on the wire, message headers included.
    pub fn len_bytes(&self) -> usize {
        self.run.len()
    }
}
