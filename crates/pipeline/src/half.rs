//! Half a transaction on the bus, whose rest isn't there.

use crate::collect::Collected;
use crate::context::Stop;
use crate::deliver::Deliver;
use crate::pace::{Due, STALL};
use crate::share::Lane;
use std::time::Duration;
use tidewire_change::{Progress, Result};

/// The bus is elsewhere, capture isn't open, and nothing came of a transaction for so long: it is let go.
const FAR_STALL: Duration = Duration::from_secs(2);
/// And looked at again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl Deliver {
    /// What comes next isn't captured yet, and what we hold is half a transaction, of which the sink has a part. If the sink is
    /// on the source's server, that part is an open transaction there, and a new slot waits for all of these: so it is dropped,
    /// and read again when capture is open. None: the stop came before.
    pub(crate) async fn let_go(&mut self, stop: &Stop) -> Option<Result<Progress>> {
        tracing::debug!(sink = self.state.name, "half a transaction is let go until capture is open");
        match stop.unless(self.sink.open()).await? {
            Ok(()) => {}
            Err(error) => return Some(Err(error)),
        }
        self.is_careful = true;
        let began = tokio::time::Instant::now();
        // Another process may have captured the rest and gone: that it isn't there says nothing of the bus.
        let is_ordered = |lane: &Option<Lane>| lane.as_ref().is_some_and(Lane::is_ordered);
        while !(self.is_capturing() || (self.shared.is_far && began.elapsed() >= LOOK_AGAIN) || is_ordered(&self.lane))
        {
            self.state.pulse.beat(self.shared.clock.now());
            stop.unless(tokio::time::sleep(STALL)).await?;
        }
        stop.unless(self.open()).await
    }

    /// Is half a transaction in the sink to be dropped now? By the journal it is known at once that nothing comes; a bus
    /// elsewhere may only be slow.
    pub(crate) fn lets_go(&self, due: &Due, collected: &Collected) -> bool {
        let patience = if self.shared.is_far { FAR_STALL } else { STALL };
        self.begun && !self.is_capturing() && due.stalls_for(collected, patience)
    }

    /// A sink may be given half a transaction. Here, where the bus isn't: always, or the reader would wait for credit that we
    /// hold.
    pub(crate) fn may_begin(&self) -> bool {
        self.shared.is_far || self.is_capturing()
    }

    pub(crate) fn is_capturing(&self) -> bool {
        self.shared.capture.pulse.is_open()
    }
}
