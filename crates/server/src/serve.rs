use crate::gate::Gate;
use crate::routes::router;
use axum::Router;
use std::net::SocketAddr;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_pipeline::Running;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// So long an address that is taken is tried again.
const TAKEN: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(100);

/// Where to listen, and the token that requests must carry: required unless the address is loopback.
#[derive(Clone)]
pub struct Address {
    pub address: SocketAddr,
    pub token: Option<String>,
}

/// A server at work; it ends when this is dropped.
pub struct Serving {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// An address that is ours; nobody answers there yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

/// Starts to answer for a pipeline.
pub fn serve(running: Running, bound: Bound) -> Serving {
    begin(bound, |gate| router(running, gate))
}

/// `Invalid` when the address is taken, isn't this machine's, or lacks a token.
pub async fn bind(at: Address) -> Result<Bound> {
    let loopback = at.address.ip().is_loopback();
    if !loopback && at.token.as_ref().is_none_or(String::is_empty) {
        return Err(Error::invalid(format!("the HTTP address {} can be reached from other machines", at.address))
            .hint("set `token`, or listen on 127.0.0.1"));
    }
    let listener = listen(at.address).await.map_err(|e| bind_error(e, at.address))?;
    let address = listener.local_addr().map_err(|e| Error::io(e, at.address))?;
    Ok(Bound { listener, address, gate: Gate { loopback: loopback && at.token.is_none(), token: at.token } })
}

/// One that was killed may still have the address for a moment.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let until = Instant::now() + TAKEN;
    let mut is_told = false;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(%address, "the HTTP address is taken: for {TAKEN:?} it is tried again");
                }
                tokio::time::sleep(AGAIN).await;
            }
            bound => return bound,
        }
    }
}

pub(crate) fn begin(bound: Bound, app: impl FnOnce(Gate) -> Router) -> Serving {
    let Bound { listener, address, gate } = bound;
    let (stop, mut stopped) = watch::channel(false);
    let app = app(gate);
    let task = tokio::spawn(async move {
        let until = async move {
            // An error means that the server was dropped: the end, too.
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(until).await {
            tracing::error!(error = %error, "the HTTP server ended");
        }
    });
    Serving { address, stop, task }
}

fn bind_error(error: std::io::Error, address: SocketAddr) -> Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            Error::invalid(format!("the HTTP address {address} is taken by another process"))
                .hint("another Tidewire may be running here; else take another port: `http` in the configuration, --http of serve, --listen of registry")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            Error::invalid(format!("the HTTP address {address} is not one of this machine's"))
                .hint("set http to 127.0.0.1 and a port, or to an address of this machine")
        }
        std::io::ErrorKind::PermissionDenied => Error::invalid(format!("listening on {address} is not allowed"))
            .hint("ports below 1024 need special rights: set a higher one"),
        _ => Error::io(error, address),
    }
    .context("while starting the HTTP server")
}

impl Serving {
    /// The address with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening; answers that are under way may end.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // A connection that somebody keeps open must not hold up the end.
        let _ = tokio::time::timeout(Duration::from_millis(500), &mut self.task).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
