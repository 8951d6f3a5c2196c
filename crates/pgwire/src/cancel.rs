use crate::config::Config;
use crate::startup;
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tidewire_change::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Cancels the statement that a session runs (CancelRequest), by a connection of its own with the same TLS.
#[derive(Clone)]
pub struct Canceller {
    pub(crate) config: Config,
    pub(crate) process_id: i32,
    pub(crate) secret_key: i32,
}

impl Canceller {
    /// Returns when the server has taken the request. The statement then ends with SQLSTATE 57014, unless it is done.
    pub async fn cancel(&self) -> Result<()> {
        let limit = self.config.connect_timeout;
        let io = |error| Error::unavailable(format!("no cancel request to {}: {error}", self.config.host));
        let cancelled = tokio::time::timeout(limit, async {
            let mut stream = startup::open(&self.config).await?;
            let mut request = BytesMut::new();
            frontend::cancel_request(self.process_id, self.secret_key, &mut request);
            stream.write_all(&request).await.map_err(io)?;
            stream.flush().await.map_err(io)?;
            // The server answers nothing and closes; some networks turn that into a reset.
            let _ = stream.read(&mut [0]).await;
            Ok(())
        });
        cancelled.await.unwrap_or_else(|_| Err(startup::too_slow(&self.config)))
    }
}
