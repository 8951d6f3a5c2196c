//! What others may ask of the source.

use super::reading::Command;
use crate::client::locked;
use crate::consumer::Queue;
use std::sync::{mpsc, Arc, Mutex};
use tidewire_change::{Error, Position, Result};
use tidewire_connector::{BoxFuture, Selection, ServerFacts, SourceHandle, SourceStatus};
use tokio::sync::oneshot;

#[derive(Default)]
pub(super) struct Handle {
    /// While the topics are read.
    pub reading: Mutex<Option<(mpsc::Sender<Command>, Arc<Queue>)>>,
    pub status: Mutex<SourceStatus>,
}

impl Handle {
    pub fn tell(&self, command: Command) -> Result<()> {
        let reading = locked(&self.reading);
        let (commands, queue) = reading.as_ref().ok_or_else(away)?;
        commands.send(command).map_err(|_| away())?;
        queue.wake();
        Ok(())
    }
}

fn away() -> Error {
    Error::unavailable("the topics aren't being read just now")
}

impl SourceHandle for Handle {
    fn read(&self, _: Selection) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            Err(Error::invalid(
                "topics hold what was told, not the rows as they are: nothing can be read once more from them",
            )
            .hint("have the connector take a snapshot (its signal execute-snapshot), or use source.postgres"))
        })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        Box::pin(async {
            let (done, marked) = oneshot::channel();
            self.tell(Command::Mark(done))?;
            marked.await.map_err(|_| away())?
        })
    }

    fn status(&self) -> SourceStatus {
        locked(&self.status).clone()
    }

    fn has_rows(&self) -> bool {
        false
    }

    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>> {
        Box::pin(async { Err(Error::invalid("a topic's server isn't known")) })
    }
}
