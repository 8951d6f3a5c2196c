//! The port, as the pipeline sees it.

use super::{lock, DeltaSink, Lake};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::{Progress, Result, Schema, TableName};
use tidewire_connector::{BoxFuture, Rewritten, Sink, SinkStatus, TableBatch, Written};

impl Sink for DeltaSink {
    fn open(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let opened = self.on_lake(Lake::open).await;
            self.status.connected = opened.is_ok();
            opened
        })
    }

    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>> {
        self.on_lake(|lake| Ok(lake.committed()))
    }

    fn missing(&self) -> Vec<TableName> {
        lock(&self.shared).missing.clone()
    }

    fn prepare(&mut self, schema: Arc<Schema>) -> BoxFuture<'_, Result<()>> {
        self.on_lake(move |lake| lake.prepare(schema))
    }

    fn write(&mut self, batch: TableBatch) -> BoxFuture<'_, Result<Written>> {
        Box::pin(async {
            let written = self.on_lake(move |lake| lake.write(batch)).await?;
            self.status.rows_applied += written.applied;
            self.status.rows_stale += written.stale;
            self.status.rows_incomplete += written.incomplete;
            Ok(written)
        })
    }

    fn commit(&mut self, progress: &Progress) -> BoxFuture<'_, Result<()>> {
        let progress = progress.clone();
        Box::pin(async move {
            let start = Instant::now();
            let committed = self.on_lake(move |lake| lake.commit(&progress)).await?;
            self.status.commits += u64::from(committed.rows > 0);
            self.status.bytes_written += committed.bytes;
            self.status.last_commit = Some(Duration::max(start.elapsed(), Duration::from_nanos(1)));
            Ok(())
        })
    }

    fn rewritten(&self) -> Vec<Rewritten> {
        lock(&self.shared).rewritten()
    }

    fn show(&mut self, rewritten: &Rewritten) -> BoxFuture<'_, Result<()>> {
        let rewritten = rewritten.clone();
        self.on_lake(move |lake| lake.show(&rewritten))
    }

    fn status(&self) -> SinkStatus {
        self.status.clone()
    }
}
