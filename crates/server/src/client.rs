use crate::http1::request;
use crate::wire::PositionAnswer;
use serde::{de::DeserializeOwned, Serialize};
use std::net::SocketAddr;
use tidewire_change::{topic::escape, Error, Position, Result};
use tidewire_connector::{BoxFuture, Selection};
use tidewire_pipeline::reconcile::{Comparison, Live};
use tidewire_pipeline::wire::{ErrorAnswer, ReadRequest};
use tidewire_pipeline::{Finding, Status};

/// Speaks to a running pipeline from another process.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    token: Option<String>,
}

impl Client {
    pub fn new(address: SocketAddr, token: Option<String>) -> Self {
        Client { address, token }
    }

    pub async fn status(&self) -> Result<Status> {
        self.get("/status").await
    }

    pub async fn findings(&self) -> Result<Vec<Finding>> {
        self.get("/findings").await
    }

    /// Asks it to stop; it answers before it has.
    pub async fn stop(&self) -> Result<()> {
        self.post("/stop", &serde_json::json!({})).await.map(drop)
    }

    /// `path` begins with a slash. An error that was answered comes back as it was.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let body = self.exchange(&format!("GET {path}"), None).await?;
        read(&body)
    }

    /// Returns the answer's body.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(body).map_err(|e| Error::bug("a request has no JSON form").caused_by(e))?;
        self.exchange(&format!("POST {path}"), Some(&body)).await
    }

    async fn exchange(&self, head: &str, body: Option<&[u8]>) -> Result<Vec<u8>> {
        let answer = request(self.address, head, self.token.as_deref(), body).await?;
        match answer.status {
            200..=299 => Ok(answer.body),
            401 => {
                let what = if self.token.is_some() { "doesn't take this token" } else { "requires its token" };
                Err(Error::invalid(format!("{} {what}", self.address))
                    .hint("set `token` in the configuration to the one that it was started with"))
            }
            status => Err(match serde_json::from_slice::<ErrorAnswer>(&answer.body) {
                Ok(error) => error.into(),
                Err(_) => Error::unavailable(format!("{} answered {head} with status {status}", self.address)),
            }),
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|e| {
        Error::unavailable(format!("the answer can't be read: {e}")).hint("is the running Tidewire of another version?")
    })
}

impl Live for Client {
    fn sink_boundary<'a>(&'a self, sink: &'a str) -> BoxFuture<'a, Result<Position>> {
        Box::pin(async move {
            let path = format!("/sinks/{}/boundary", escape(sink));
            Ok(self.get::<PositionAnswer>(&path).await?.position)
        })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        Box::pin(async {
            let body = self.post("/mark", &serde_json::json!({})).await?;
            Ok(read::<PositionAnswer>(&body)?.position)
        })
    }

    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.post("/reads", &ReadRequest::from(&selection)).await.map(drop) })
    }

    fn pending_reads(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { Ok(self.status().await?.source.pending_reads) })
    }

    fn report<'a>(&'a self, comparison: &'a Comparison) -> BoxFuture<'a, Result<()>> {
        // Keys are the user's rows: they are no business of the other process.
        let comparison = Comparison { keys: Vec::new(), ..comparison.clone() };
        Box::pin(async move { self.post("/comparisons", &comparison).await.map(drop) })
    }
}
