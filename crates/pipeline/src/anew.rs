//! Topics of tables that were deleted and made anew.

use crate::collect::Collected;
use crate::deliver::Deliver;
use std::sync::Arc;
use tidewire_change::{topic, Result};

impl Deliver {
    /// What the sink didn't have yet of a deleted topic is gone. That its table has to be compared is written down before anything of the
    /// new one is read.
    pub(crate) async fn compare_anew(&mut self, topic: &Arc<str>, from: u64, collected: &mut Collected) -> Result<()> {
        let Some(table) = topic::table_of(topic).map(|table| table.to_string()) else { return Ok(()) };
        let why = "its topic was deleted and made anew: messages may be missing";
        tracing::error!(sink = self.state.name, table, "{why}; the table is compared and mended");
        self.repairs.ask(&self.shared, &self.state.name, Some(&table), why).await?;
        for (place, next) in &mut collected.progress.offsets {
            if place.topic == *topic {
                *next = (*next).max(from);
            }
        }
        Ok(())
    }
}
