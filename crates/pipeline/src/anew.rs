//! What sinks can't have by reading on: of topics that were deleted and made anew, and of rows that were never told.

use crate::collect::Collected;
use crate::deliver::Deliver;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use tidewire_change::{topic, Result};

impl Deliver {
    /// What the sink didn't have yet of a deleted topic is gone. That its table has to be compared is written down before anything of the
    /// new one is read.
    pub(crate) async fn compare_anew(&mut self, topic: &Arc<str>, from: u64, collected: &mut Collected) -> Result<()> {
        let Some(table) = topic::table_of(topic).map(|table| table.to_string()) else { return Ok(()) };
        let why = "its topic was deleted and made anew: messages may be missing";
        tracing::error!(sink = self.state.name, table, "{why}; {}", self.next());
        self.repairs.ask(&self.shared, &self.state.name, Some(&table), why).await?;
        for (place, next) in &mut collected.progress.offsets {
            if place.topic == *topic {
                *next = (*next).max(from);
            }
        }
        Ok(())
    }

    /// Of topics that lack messages. Where each tells its whole row, later ones say it all.
    pub(crate) async fn miss_messages(&mut self, topics: &[Arc<str>]) -> Result<()> {
        let why = "messages of its topic are gone, which later ones don't tell again (is the topic compacted? its cleanup.policy has to be \
                   delete): rows may be missing, or lack values";
        for table in topics.iter().filter_map(|topic| topic::table_of(topic)).map(|table| table.to_string()) {
            let is_told_whole = self.prepared.get(&table).is_some_and(|schema| schema.is_told_whole());
            if !is_told_whole && self.repairs.ask_unless_due(&self.shared, &self.state.name, &table, why).await? {
                tracing::error!(sink = self.state.name, table, "{why}; {}", self.next());
            }
        }
        Ok(())
    }

    fn next(&self) -> &'static str {
        match self.shared.source.has_rows() {
            true => "the table is compared and mended",
            false => "only its source can tell them again",
        }
    }

    /// A source of rows reads again what changes lacked; of messages nobody knows more. It is written down before it is committed.
    pub(crate) async fn lacks_rows(&mut self, table: &str, incomplete: u64, renewed: bool) -> Result<()> {
        self.state.incomplete.fetch_add(incomplete, Relaxed);
        if (incomplete == 0 && !renewed) || self.shared.source.has_rows() {
            return Ok(());
        }
        let why = match renewed {
            true => "its copy was made anew, since it got another key, or has none and columns of other types: rows that were told before are gone from it",
            false => "updates left values out, of rows that were never told in full: those rows are missing",
        };
        self.repairs.ask_unless_due(&self.shared, &self.state.name, table, why).await.map(|_| ())
    }
}
