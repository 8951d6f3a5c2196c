use crate::frames::{self, Frame};
use crate::server_error::PgError;
use crate::stream::Stream;
use crate::tls;
use bytes::BytesMut;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use tidewire_change::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Duration, Instant};

/// Size of a receive buffer. Slices of it are handed out, so a new one is taken when it is used up and still held.
const BUFFER: usize = 256 * 1024;
/// Below this much room a new buffer is taken.
const MIN_ROOM: usize = 64 * 1024;
/// A read that brought so much came from a server that is busy sending. It sends each row or change by itself, and each
/// would wake us: from then on the kernel gathers `GATHER` bytes, or what came in `PACE`, before it says anything.
const BUSY: usize = 8 * 1024;
const GATHER: u32 = 64 * 1024;
const PACE: Duration = Duration::from_millis(1);
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
    /// The kernel gathers before it wakes us, but no longer than this.
    gathering: Option<Instant>,
    /// Rises with every read and write that moved something.
    pub(crate) moved: Arc<AtomicU64>,
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
            gathering: None,
            moved: Arc::default(),
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
        let filled = match self.gathering {
            Some(until) => tokio::time::timeout_at(until, poll_fn(|cx| self.poll_fill(cx))).await.ok(),
            None => None,
        };
        let got = match filled {
            Some(got) => got,
            None => {
                self.gather(false);
                poll_fn(|cx| self.poll_fill(cx)).await
            }
        };
        match got {
            Ok(0) => Err(self.closed()),
            Ok(got) => {
                self.gather(got >= BUSY);
                Ok(())
            }
            Err(error) => Err(self.io(error)),
        }
    }

    fn gather(&mut self, on: bool) {
        if self.gathering.is_some() != on {
            self.stream.wake_from(if on { GATHER } else { 1 });
        }
        self.gathering = on.then(|| Instant::now() + PACE);
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
        self.moved.fetch_add(1, Relaxed);
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
                Poll::Ready(_) => {
                    self.moved.fetch_add(1, Relaxed);
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixStream;

    fn pair() -> (Wire, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(Stream::Unix(ours), "test".into());
        wire.limit = frames::MAX_FRAME;
        (wire, theirs)
    }

    fn frame(length: usize) -> Vec<u8> {
        let mut bytes = vec![frames::COPY_DATA];
        bytes.extend_from_slice(&(length as u32 + 4).to_be_bytes());
        bytes.resize(frames::HEADER + length, b'x');
        bytes
    }

    #[tokio::test]
    async fn a_long_message_grows_the_buffer_and_the_next_one_shrinks_it() {
        let (mut wire, mut theirs) = pair();
        let lengths = [10, 5 << 20, 10, 300_000, 10, 70_000, 10, 1 << 20, 1 << 20, 10];
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| frame(*length)).collect();
        let writer = tokio::spawn(async move { theirs.write_all(&bytes).await });
        for length in lengths {
            let got = wire.next_frame().await.unwrap();
            assert_eq!(got.body.len(), length);
            let most = if length < BUFFER { 2 * BUFFER } else { length + BUFFER };
            assert!(wire.incoming.capacity() <= most, "{} after {length}", wire.incoming.capacity());
        }
        writer.await.unwrap().unwrap();
        assert!(matches!(wire.next_frame().await, Err(error) if error.to_string().contains("closed the connection")));
    }

    #[tokio::test]
    async fn slices_that_are_held_stay_as_they_were() {
        let (mut wire, mut theirs) = pair();
        let writer = tokio::spawn(async move {
            for n in 0..2000u32 {
                let mut message = frame(1000);
                message[frames::HEADER..frames::HEADER + 4].copy_from_slice(&n.to_be_bytes());
                theirs.write_all(&message).await.unwrap();
            }
        });
        let mut held = Vec::new();
        for _ in 0..2000 {
            held.push(wire.next_frame().await.unwrap().body);
        }
        writer.await.unwrap();
        for (n, body) in held.iter().enumerate() {
            assert_eq!(body[..4], (n as u32).to_be_bytes());
            assert!(body[4..].iter().all(|b| *b == b'x'));
        }
    }

    #[tokio::test]
    async fn before_login_a_long_message_is_refused() {
        let (mut wire, mut theirs) = pair();
        wire.limit = frames::MAX_STARTUP_FRAME;
        theirs.write_all(&frame(frames::MAX_STARTUP_FRAME)[..100]).await.unwrap();
        assert!(wire.next_frame().await.unwrap_err().to_string().contains("impossible length"));
    }

    #[tokio::test]
    async fn the_rest_behind_a_burst_comes_though_the_kernel_gathers() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ours = tokio::net::TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
        let (mut theirs, _) = server.accept().await.unwrap();
        let mut wire = Wire::new(Stream::Tcp(ours), "test".into());
        wire.limit = frames::MAX_FRAME;
        for _ in 0..20 {
            theirs.write_all(&frame(100_000)).await.unwrap();
            assert_eq!(wire.next_frame().await.unwrap().body.len(), 100_000);
            theirs.write_all(&frame(10)).await.unwrap();
            assert_eq!(wire.next_frame().await.unwrap().body.len(), 10);
        }
        // A quiet server's single message wakes us at once.
        theirs.write_all(&frame(10)).await.unwrap();
        wire.next_frame().await.unwrap();
        assert!(wire.gathering.is_none());
    }
}
