use crate::frames::{self, Frame};
use crate::server_error::PgError;
use crate::stream::Stream;
use crate::tls;
use bytes::BytesMut;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::task::{ready, Context, Poll};
use tidewire_change::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Size of a receive buffer. Slices of it are handed out, so a new one is taken when it is used up and still held.
const BUFFER: usize = 256 * 1024;
/// Below this much room a new buffer is taken.
const MIN_ROOM: usize = 64 * 1024;
/// While we write, the server may be waiting for us to read: up to this much is taken in meanwhile.
const READ_WHILE_WRITING: usize = 16 << 20;

/// A socket with its two buffers. All futures are cancel-safe: what was read is in `incoming`, what isn't written is in
/// `outgoing`.
pub(crate) struct Wire {
    stream: Stream,
    pub(crate) incoming: BytesMut,
    pub(crate) outgoing: BytesMut,
    /// `host:port/database`, for messages.
    pub(crate) place: String,
    /// The longest message that is taken.
    pub(crate) limit: usize,
    /// The receive buffer was made for one long message: it isn't used again.
    oversized: bool,
}

impl Wire {
    pub(crate) fn new(stream: Stream, place: String) -> Wire {
        Wire {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            place,
            limit: frames::MAX_STARTUP_FRAME,
            oversized: false,
        }
    }

    /// The next message; waits for it.
    pub(crate) async fn next_frame(&mut self) -> Result<Frame> {
        loop {
            if let Some(frame) = frames::take(&mut self.incoming, self.limit).map_err(|error| self.at(error))? {
                return Ok(frame);
            }
            self.fill().await?;
        }
    }

    /// Reads all that is there, at least something.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        match poll_fn(|cx| self.poll_fill(cx)).await {
            Ok(0) => Err(self.closed()),
            Ok(_) => Ok(()),
            Err(error) => Err(self.io(error)),
        }
    }

    /// Writes all that is in `outgoing`.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        match poll_fn(|cx| self.poll_flush(cx)).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.last_words(error).await),
        }
    }

    /// Closes the socket in order; the far side may be gone.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// 0: the server closed the connection.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut total = 0;
        // A socket that gives less than asked for is known to be empty: the second look costs no system call.
        while self.incoming.len() < self.incoming.capacity() {
            let got = {
                let read = pin!(self.stream.read_buf(&mut self.incoming));
                read.poll(cx)
            };
            match got {
                Poll::Ready(Ok(0)) => break,
                Poll::Ready(Ok(got)) => total += got,
                Poll::Ready(Err(_)) | Poll::Pending if total > 0 => break,
                other => return other,
            }
        }
        Poll::Ready(Ok(total))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let written = {
                let write = pin!(self.stream.write_buf(&mut self.outgoing));
                write.poll(cx)?
            };
            match written {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(_) => {}
                Poll::Pending if self.incoming.len() < READ_WHILE_WRITING => {
                    if ready!(self.poll_fill(cx))? == 0 {
                        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                    }
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        pin!(&mut self.stream).poll_flush(cx)
    }

    /// Makes room for at least `MIN_ROOM` more bytes, and for all of the message at the front.
    fn make_room(&mut self) {
        let missing = match frames::head(&self.incoming, self.limit) {
            Ok(Some(head)) => head.total.saturating_sub(self.incoming.len()),
            _ => 0,
        };
        let room = missing.max(if missing > BUFFER { 0 } else { MIN_ROOM });
        if self.incoming.capacity() - self.incoming.len() >= room {
            return;
        }
        if !self.oversized && self.incoming.try_reclaim(room) {
            return;
        }
        let size = BUFFER.max(self.incoming.len() + room);
        let mut fresh = BytesMut::with_capacity(size);
        fresh.extend_from_slice(&self.incoming);
        self.oversized = size > 2 * BUFFER;
        self.incoming = fresh;
    }

    /// A write failed: the server may have said why before it closed.
    async fn last_words(&mut self, error: io::Error) -> Error {
        loop {
            while let Ok(Some(frame)) = frames::take(&mut self.incoming, self.limit) {
                if frame.tag == frames::ERROR {
                    return PgError::parse(&frame.body).into_error(&self.place);
                }
            }
            match poll_fn(|cx| self.poll_fill(cx)).await {
                Ok(0) => return self.io(error),
                // A certificate that the server refused shows up here.
                Err(reason) => return self.io(reason),
                Ok(_) => {}
            }
        }
    }

    pub(crate) fn closed(&self) -> Error {
        Error::unavailable(format!("the PostgreSQL server at {} closed the connection", self.place))
            .hint("it may have been restarted or have crashed: its log tells")
    }

    pub(crate) fn io(&self, error: io::Error) -> Error {
        if let Some(error) = tls::explain(&error, &self.place) {
            return error;
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionAborted => self.closed().caused_by(error),
            _ => Error::unavailable(format!("the connection to PostgreSQL at {} broke: {error}", self.place))
                .hint("it may have been restarted, or the network is down")
                .caused_by(error),
        }
    }

    /// Says which server a broken byte stream came from.
    pub(crate) fn at(&self, error: Error) -> Error {
        error.context(format!("PostgreSQL at {}", self.place))
    }
}
