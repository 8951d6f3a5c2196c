//! Where a partition ends, with what isn't committed. A transaction that Kafka has answered lacks its mark until the brokers come to
//! write it: until then it, and all that stands behind it, is hidden from whoever reads what is committed.

use crate::config::Config;
use crate::consumer::Consumer;
use crate::whole;
use std::time::{Duration, Instant};
use tidewire_change::Result;

/// Brokers that are up again write what they owe within moments. (Of a partition that had no leader just then they may never: `seen`.)
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Edges {
    all: Consumer,
    committed: Consumer,
}

/// Of a topic's one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// Behind the last message, committed or not.
    pub all: u64,
    /// Behind the last that is committed, as far as no open transaction stands before it.
    pub committed: u64,
}

impl Edges {
    pub fn new(config: &Config) -> Result<Edges> {
        let mut settings = config.consumer("tidewire-look", whole::LOOK_BYTES);
        settings.set("isolation.level", "read_uncommitted");
        Ok(Edges { all: Consumer::new(&settings)?, committed: whole::consumer(config)? })
    }

    /// Behind the last message that is there, committed or not; 0: there is none. Blocks.
    pub fn end(&self, name: &str, partition: u32) -> Result<u64> {
        end(&self.all, name, partition)
    }

    /// Waits until nothing of the topic is hidden any more, but no longer than brokers need for it. For one who has ended what the
    /// process before had open. Blocks.
    pub fn settled(&self, name: &str) -> Result<Edge> {
        let all = self.end(name, 0)?;
        let edge = settled(all, Instant::now() + PATIENCE, || end(&self.committed, name, 0))?;
        if edge.committed < edge.all {
            let Edge { all, committed } = edge;
            tracing::warn!(
                topic = name,
                all,
                committed,
                "a transaction stays open here: nobody reads what lies behind it"
            );
        }
        Ok(edge)
    }
}

fn end(of: &Consumer, name: &str, partition: u32) -> Result<u64> {
    Ok(of.client().watermarks(name, partition)?.map_or(0, |(_, end)| end))
}

fn settled(all: u64, until: Instant, mut look: impl FnMut() -> Result<u64>) -> Result<Edge> {
    loop {
        let committed = look()?;
        if committed >= all || Instant::now() >= until {
            return Ok(Edge { all, committed });
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_transaction_hides_is_waited_for_but_not_for_ever() {
        let (mut ends, later) = (vec![9, 7, 3], Instant::now() + PATIENCE);
        assert_eq!(settled(8, later, || Ok(ends.pop().unwrap())).unwrap(), Edge { all: 8, committed: 9 });
        assert!(ends.is_empty());
        assert_eq!(settled(8, Instant::now(), || Ok(7)).unwrap(), Edge { all: 8, committed: 7 });
    }
}
