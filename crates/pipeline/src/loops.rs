//! The tasks of a pipeline, and how they end together.

use crate::context::{task_error, Stop};
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The loops' tasks, and what each is called.
#[derive(Default)]
pub(crate) struct Loops {
    tasks: JoinSet<Result<()>>,
    names: HashMap<tokio::task::Id, String>,
}

impl Loops {
    pub fn spawn(&mut self, name: String, task: impl Future<Output = Result<()>> + Send + 'static) {
        self.spawn_on(name, task, &None);
    }

    pub fn spawn_on(
        &mut self,
        name: String,
        task: impl Future<Output = Result<()>> + Send + 'static,
        on: &Option<tokio::runtime::Handle>,
    ) {
        let task = match on {
            Some(runtime) => self.tasks.spawn_on(task, runtime),
            None => self.tasks.spawn(task),
        };
        self.names.insert(task.id(), name);
    }

    async fn next_end(&mut self) -> Option<Result<()>> {
        Some(match self.tasks.join_next_with_id().await? {
            Ok((_, result)) => result,
            Err(error) => Err(task_error(&error, self.names.get(&error.id()).map_or("?", String::as_str))),
        })
    }
}

/// The one way to an end: whatever ends first, by its own error or by a stop, stops the others; who isn't done in time is
/// cut off (what it had not committed is read again at the next start).
pub(crate) async fn watch_over(
    mut loops: Loops,
    stop: Stop,
    shutdown: Duration,
    ended: watch::Sender<Option<Result<(), Arc<Error>>>>,
) {
    let mut first = Ok(());
    tokio::select! {
        biased;
        Some(result) = loops.next_end() => first = result,
        _ = stop.requested() => {}
    }
    stop.request();
    let deadline = tokio::time::Instant::now() + shutdown;
    loop {
        match tokio::time::timeout_at(deadline, loops.next_end()).await {
            Ok(Some(result)) => first = first.and(result),
            Ok(None) => break,
            Err(_) => {
                tracing::warn!("some loops did not end in {shutdown:?} and are cut off");
                loops.tasks.shutdown().await;
                break;
            }
        }
    }
    if let Err(error) = &first {
        // Whoever waits for the pipeline is given the error and tells of it.
        tracing::debug!(error = %error, "the pipeline ended");
    }
    ended.send_replace(Some(first.map_err(Arc::new)));
}
