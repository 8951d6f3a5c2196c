//! Tables that a sink writes anew beside the ones that readers see: they are shown when the last row of the source's read is
//! in the sink.
//!
//! The source begins to read a table anew before it says so downstream, and lists the read until its last row is out. So once
//! a sink has heard of it, a look at the source that finds no read of the table finds all of its rows given; a mark taken then
//! lies behind them. When the bus holds the stream up to the mark, by the same life of the source (another one may have to read
//! the last rows once more), a sink that has passed the mark holds all of them. What begins once more meanwhile has another
//! `since`, and is looked at anew.

use crate::context::Stop;
use crate::shared::{locked, Shared, SinkState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{topic, Position, Result, TableName};
use tidewire_connector::{Rewritten, SourceStatus, TableState};
use tokio::time::Instant;

/// Between two looks at the source.
const LOOK: Duration = Duration::from_millis(200);
/// How long the stream may take to a mark before all is looked at anew.
const PATIENCE: Duration = Duration::from_secs(30);

/// A table that a sink writes anew.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rewrite {
    pub rewritten: Rewritten,
    /// Up to here lie all rows that the source has read; none: not known yet.
    pub whole_at: Option<Position>,
}

impl SinkState {
    /// Takes note of what a loop writes anew of its own tables.
    pub fn rewrites(&self, now: Vec<Rewritten>, is_own: &dyn Fn(&TableName) -> bool) {
        let mut known = locked(&self.rewritten);
        if now.is_empty() && known.is_empty() {
            return;
        }
        let rewrite = |rewritten: Rewritten| {
            let before = known.iter().find(|rewrite| rewrite.rewritten == rewritten);
            Rewrite { whole_at: before.and_then(|rewrite| rewrite.whole_at), rewritten }
        };
        let others = known.iter().filter(|rewrite| !is_own(&rewrite.rewritten.table)).cloned();
        let next = others.chain(now.into_iter().map(rewrite)).collect();
        *known = next;
    }

    /// Another process writes these tables now.
    pub fn rewrites_end(&self, topics: &[String]) {
        locked(&self.rewritten).retain(|rewrite| !topics.contains(&topic::topic_of(&rewrite.rewritten.table)));
    }

    /// Those of which a sink that holds everything up to `boundary` holds every row.
    pub fn whole_rewrites(&self, boundary: Position) -> Vec<Rewritten> {
        let known = locked(&self.rewritten);
        let whole = known.iter().filter(|rewrite| rewrite.whole_at.is_some_and(|at| at <= boundary));
        whole.map(|rewrite| rewrite.rewritten.clone()).collect()
    }

    /// Tables that wait for the source.
    fn unread(&self) -> Vec<Rewritten> {
        let known = locked(&self.rewritten);
        known.iter().filter(|rewrite| rewrite.whole_at.is_none()).map(|rewrite| rewrite.rewritten.clone()).collect()
    }

    fn is_whole_at(&self, rewritten: &Rewritten, at: Position) {
        for rewrite in locked(&self.rewritten).iter_mut().filter(|rewrite| rewrite.rewritten == *rewritten) {
            rewrite.whole_at = Some(at);
        }
        self.whole.notify_one();
    }
}

/// Looks for the ends of reads until the stop. What fails is tried again.
pub(crate) async fn watch_rewrites(shared: Arc<Shared>, stop: Stop) -> Result<()> {
    let turns = async {
        loop {
            for sink in &shared.sinks {
                if let Err(error) = look(&shared, sink).await {
                    tracing::debug!(sink = sink.name, %error, "the end of a read is looked for again");
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let _: Option<()> = stop.unless(turns).await;
    Ok(())
}

async fn look(shared: &Shared, sink: &SinkState) -> Result<()> {
    let waiting = sink.unread();
    // While capture isn't open, what the source says of itself is old.
    if waiting.is_empty() || !shared.capture.pulse.is_open() {
        return Ok(());
    }
    // A mark costs the source a record in its log: nobody asks for one as long as the answer is known to be no.
    let status = shared.source.status();
    if !waiting.iter().any(|rewritten| is_read(&status, &rewritten.table)) {
        return Ok(());
    }
    let life = shared.capture.life.load(Relaxed);
    let first = shared.source.mark().await?;
    let Some(status) = status_past(shared, first).await else { return Ok(()) };
    let read: Vec<_> = waiting.into_iter().filter(|rewritten| is_read(&status, &rewritten.table)).collect();
    if read.is_empty() {
        return Ok(());
    }
    let Some(mark) = mark_above(shared, status.position).await? else { return Ok(()) };
    let mut durable = shared.capture.appended.subscribe();
    let durable = durable.wait_for(|checkpoint| checkpoint.position >= mark);
    let is_durable = matches!(tokio::time::timeout(PATIENCE, durable).await, Ok(Ok(_)));
    if is_durable && shared.capture.life.load(Relaxed) == life {
        read.iter().for_each(|rewritten| sink.is_whole_at(rewritten, mark));
    }
    Ok(())
}

/// A mark above a place of the stream, and with that above all rows that were placed there. On a standby it comes when the
/// primary has written something.
async fn mark_above(shared: &Shared, position: Position) -> Result<Option<Position>> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let mark = shared.source.mark().await?;
        if mark > position {
            return Ok(Some(mark));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// Do readers of a sink see all that it holds? Tables that the source doesn't follow any more, or that are parked in the
/// sink, aren't waited for.
pub(crate) fn are_shown(shared: &Shared, sink: &SinkState) -> bool {
    let known = locked(&sink.rewritten);
    if known.is_empty() {
        return true;
    }
    let (status, parked) = (shared.source.status(), locked(&sink.parked));
    let is_followed = |name: &TableName| {
        let found = status.tables.iter().find(|table| table.table == *name);
        found.is_some_and(|table| !matches!(table.state, TableState::Parked { .. } | TableState::Left { .. }))
    };
    !known
        .iter()
        .map(|rewrite| &rewrite.rewritten.table)
        .any(|t| is_followed(t) && !parked.contains_key(&t.to_string()))
}

/// A look that is younger than the mark. None: the stream takes its time.
async fn status_past(shared: &Shared, mark: Position) -> Option<SourceStatus> {
    let looks = async {
        loop {
            let status = shared.source.status();
            if status.connected && status.position >= mark {
                return status;
            }
            tokio::time::sleep(LOOK / 4).await;
        }
    };
    tokio::time::timeout(PATIENCE, looks).await.ok()
}

/// Has the source given all rows of the table? Of one that it doesn't follow any more they never come.
fn is_read(status: &SourceStatus, name: &TableName) -> bool {
    let found = status.tables.iter().find(|table| table.table == *name);
    found.is_some_and(|table| matches!(table.state, TableState::Streaming) && !table.is_read)
}
