//! A reader that gets nothing of a partition, though there is something: librdkafka may fetch nothing more of a topic that was made anew
//! under it. Whoever opens the bus once more reads on.

use crate::client::Client;
use crate::merge::Merge;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};
use tidewire_connector::hurries;

/// How long one append may be waited for before somebody looks where its messages are.
const PATIENCE: Duration = Duration::from_secs(20);

/// Since when nothing has come, and what is waited for: an append, and how much had come by then.
pub(crate) struct Waits {
    of: Option<(u64, u64)>,
    since: Instant,
}

impl Waits {
    pub fn new() -> Waits {
        Waits { of: None, since: Instant::now() }
    }

    /// The sink has something to do: nothing is asked for meanwhile.
    pub fn rest(&mut self) {
        self.since = Instant::now();
    }

    /// True: for too long, and it isn't said again for as long.
    fn are_long(&mut self, of: Option<(u64, u64)>, now: Instant) -> bool {
        let patience = if hurries() { PATIENCE / 4 } else { PATIENCE };
        let is_long = of.is_some() && of == self.of && now.duration_since(self.since) >= patience;
        if of != self.of || is_long {
            (self.of, self.since) = (of, now);
        }
        is_long
    }

    /// `names`: what Kafka calls the topics. `Unavailable`: the next append waits for something that could be read long ago.
    pub fn look(&mut self, merge: &Merge, names: &HashMap<Arc<str>, String>, client: &Client) -> Result<()> {
        if !self.are_long(merge.first(), Instant::now()) {
            return Ok(());
        }
        for (place, reached) in merge.lacks() {
            let (Some(topic), partition) = (names.get(&place.topic), place.partition) else { continue };
            let end = client.watermarks(topic, partition)?.map_or(0, |(_, end)| end);
            if end > reached {
                let what = format!("nothing comes of {topic}/{partition} from {reached} on, though it goes to {end}");
                return Err(Error::unavailable(what).hint("it is opened once more by itself"));
            }
            tracing::warn!(
                topic,
                partition,
                reached,
                "the next append isn't whole: its messages here can't be read yet"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_append_is_waited_for_too_long_and_it_is_said_once_in_a_while() {
        let (mut waits, began) = (Waits::new(), Instant::now());
        let mut after = |of, patiences: u32| waits.are_long(of, began + PATIENCE * patiences);
        let of = |append, came| Some((append, came));
        assert!(!after(None, 5) && !after(of(7, 1), 10) && after(of(7, 1), 11));
        assert!(!after(of(8, 1), 20), "another one");
        assert!(!after(of(8, 2), 30) && !after(of(8, 3), 40), "more of it comes");
        assert!(after(of(8, 3), 41) && !after(of(8, 3), 41), "it was said just now");
        assert!(!after(None, 50) && !after(of(8, 3), 60));
    }
}
