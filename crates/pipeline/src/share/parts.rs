//! Parts of a sink, one a table or a part of a table, each with progress of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tidewire_change::{topic, Error, Progress, Result, Schema, TableName};
use tidewire_connector::{BoxFuture, Rewritten, Sink, SinkStatus, TableBatch, Written};
use tokio::time::Instant;

/// A part that had nothing to write notes its progress this often.
pub(crate) struct Parts {
    parts: BTreeMap<String, Part>,
    idle: Duration,
    all: Arc<AtomicBool>,
}

struct Part {
    sink: Box<dyn Sink>,
    is_dirty: bool,
    noted: Instant,
}

impl Parts {
    /// By topic, or part of one. `all`: set for one commit that leaves none out.
    pub fn new(sinks: BTreeMap<String, Box<dyn Sink>>, idle: Duration, all: Arc<AtomicBool>) -> Parts {
        let part = |sink| Part { sink, is_dirty: false, noted: Instant::now() };
        Parts { parts: sinks.into_iter().map(|(topic, sink)| (topic, part(sink))).collect(), idle, all }
    }

    /// Those that keep the table, or parts of it.
    fn of(&mut self, table: &TableName) -> Result<Vec<&mut Part>> {
        let topic = topic::topic_of(table);
        let from = self.parts.range_mut(topic.clone()..);
        let near = from.take_while(|(name, _)| name.starts_with(&topic));
        let of: Vec<_> = near.filter(|(name, _)| topic::whole_of(name).0 == topic).map(|(_, part)| part).collect();
        match of.is_empty() {
            true => Err(Error::bug(format!("{table} is written by another process"))),
            false => Ok(of),
        }
    }
}

/// Of all at once; the first error counts.
async fn all(mut futures: Vec<BoxFuture<'_, Result<()>>>) -> Result<()> {
    let mut outcome = Ok(());
    poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Ready(done) => {
                if outcome.is_ok() {
                    outcome = done;
                }
                false
            }
            Poll::Pending => true,
        });
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    outcome
}

impl Sink for Parts {
    fn open(&mut self) -> BoxFuture<'_, Result<()>> {
        let open = |part: &mut Part| {
            part.is_dirty = false;
        };
        self.parts.values_mut().for_each(open);
        Box::pin(all(self.parts.values_mut().map(|part| part.sink.open()).collect()))
    }

    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>> {
        Box::pin(async { Err(Error::bug("each part of a sink has progress of its own")) })
    }

    fn parts(&mut self) -> BoxFuture<'_, Result<Vec<tidewire_connector::Part>>> {
        Box::pin(async {
            let mut all = Vec::with_capacity(self.parts.len());
            for (topic, part) in &mut self.parts {
                all.push((Some(topic.clone()), part.sink.committed().await?));
            }
            Ok(all)
        })
    }

    fn leave(&mut self, topics: &[String]) {
        self.parts.retain(|topic, _| !topics.contains(topic));
    }

    fn missing(&self) -> Vec<TableName> {
        let missing: BTreeSet<TableName> = self.parts.values().flat_map(|part| part.sink.missing()).collect();
        missing.into_iter().collect()
    }

    fn prepare(&mut self, schema: Arc<Schema>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for part in self.of(&schema.table)? {
                part.is_dirty = true;
                part.sink.prepare(schema.clone()).await?;
            }
            Ok(())
        })
    }

    /// Parts of one table get all changes of it: each takes those that are its own.
    fn write(&mut self, batch: TableBatch) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async move {
            let (mut all, parts) = (Written::default(), self.of(&batch.schema.table)?);
            let (mut left, mut batch) = (parts.len(), Some(batch));
            for part in parts {
                left -= 1;
                // The last one needs no copy.
                let Some(batch) = (if left == 0 { batch.take() } else { batch.clone() }) else { break };
                part.is_dirty = true;
                let written = part.sink.write(batch).await?;
                all.applied += written.applied;
                all.stale += written.stale;
                all.incomplete += written.incomplete;
                all.renewed |= written.renewed;
            }
            Ok(all)
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let (everything, idle, progress) = (self.all.swap(false, Relaxed), self.idle, progress.clone());
        Box::pin(async move {
            let is_due = |part: &&mut Part| everything || part.is_dirty || part.noted.elapsed() >= idle;
            let mut due: Vec<_> = self.parts.values_mut().filter(is_due).collect();
            all(due.iter_mut().map(|part| part.sink.commit(&progress)).collect()).await?;
            for part in due {
                (part.is_dirty, part.noted) = (false, Instant::now());
            }
            Ok(())
        })
    }

    fn rewritten(&self) -> Vec<Rewritten> {
        self.parts.values().flat_map(|part| part.sink.rewritten()).collect()
    }

    fn show(&mut self, rewritten: &Rewritten) -> BoxFuture<'_, Result<()>> {
        let rewritten = rewritten.clone();
        Box::pin(async move {
            for part in self.of(&rewritten.table)? {
                part.is_dirty = true;
                part.sink.show(&rewritten).await?;
            }
            Ok(())
        })
    }

    fn status(&self) -> SinkStatus {
        let of = self.parts.values().map(|part| part.sink.status());
        of.fold(SinkStatus { connected: true, ..SinkStatus::default() }, |sum, of| sum.with(&of))
    }
}
