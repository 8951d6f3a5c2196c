use crate::config::Config;
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tidewire_change::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// The socket, however it is reached.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A peer that is gone without a word is noticed after at most KEEPALIVE_IDLE + PROBES × INTERVAL while we wait, and after
/// UNSENT_LIMIT while we write.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
const UNSENT_LIMIT: Duration = Duration::from_secs(60);

impl Stream {
    pub(crate) async fn open(config: &Config) -> Result<Stream> {
        if config.is_unix() {
            let path = format!("{}/.s.PGSQL.{}", config.host, config.port);
            let socket = UnixStream::connect(&path).await.map_err(|error| {
                Error::io(error, &path).hint("does the server run, with this port and socket folder?")
            })?;
            return Ok(Stream::Unix(socket));
        }
        let socket = TcpStream::connect((config.host.as_str(), config.port)).await.map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::ConnectionRefused => "does the server run, and does it listen on this address and port?",
                _ => "check host and port in the database URL, and the network between",
            };
            // Even "permission denied" comes from a firewall here: it can mend itself.
            Error::unavailable(format!("no connection to {}:{}: {error}", config.host, config.port))
                .hint(hint)
                .caused_by(error)
        })?;
        tune(&socket).map_err(|error| Error::io(error, "socket options"))?;
        Ok(Stream::Tcp(socket))
    }
}

fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = socket2::SockRef::from(socket);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNSENT_LIMIT))?;
    Ok(())
}

impl Stream {
    /// From how many waiting bytes on the kernel says that there is something to read (`SO_RCVLOWAT`). Only TCP can; a
    /// refusal costs nothing but wakes.
    pub(crate) fn wake_from(&self, bytes: u32) {
        let socket = match self {
            Stream::Tcp(socket) => socket,
            Stream::Tls(socket) => socket.get_ref().0,
            Stream::Unix(_) => return,
        };
        let bytes = bytes as libc::c_int;
        // SAFETY: the descriptor is open as long as `socket`, and the kernel reads one c_int of `bytes` during the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            );
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(socket) => Pin::new(socket).poll_read(cx, buf),
            Stream::Unix(socket) => Pin::new(socket).poll_read(cx, buf),
            Stream::Tls(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(socket) => Pin::new(socket).poll_write(cx, buf),
            Stream::Unix(socket) => Pin::new(socket).poll_write(cx, buf),
            Stream::Tls(socket) => Pin::new(socket).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Unix(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Tls(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
