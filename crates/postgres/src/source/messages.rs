//! Messages of the log that stand outside of transactions.

use super::engine::Engine;
use bytes::Bytes;
use tidewire_change::LogMessage;

impl Engine {
    /// One that ends at this LSN: behind all that committed before it.
    pub(super) fn message_alone(&mut self, lsn: u64, prefix: Bytes, content: Bytes) {
        // After a restart the server may tell once more what was told.
        if lsn <= self.place.lsn || !self.shared.config.tells(&prefix) {
            return;
        }
        self.position = self.position.max(self.before(lsn));
        // The log doesn't tell when it was written: behind what had been written by then.
        let (position, committed_at) = (self.before(lsn), self.complete_through);
        let message = LogMessage { prefix, content, position, committed_at, ..LogMessage::default() };
        self.batch.messages.push((self.batch.changes.len(), message));
    }
}
