//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends the process at once.

use crate::terminal;
use tidewire_change::{Error, Result};
use tokio::signal::unix::{signal, SignalKind};

/// Returns at the first signal. From then on a second one ends the process with exit code 3.
pub async fn first() -> Result<()> {
    let fault = |e: std::io::Error| Error::bug(format!("signals can't be waited for: {e}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        terminal::warn("stopped at once; what was not committed is read again at the next start");
        std::process::exit(3);
    });
    Ok(())
}
