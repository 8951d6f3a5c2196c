//! Who of several processes captures: the latest takes over, and those before it hear of that and end.

use crate::edges::Edges;
use crate::producer::{Failure, Producer};
use crate::records::{self, State};
use crate::transaction::{self, Books};
use crate::whole;
use crate::writer::Writer;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};

/// How long it may take to become the one that captures.
const INIT_MS: i32 = 30_000;

/// Who is fenced waits so long before he looks for who did it: the other one writes that down first.
pub(crate) const SUCCESSOR: Duration = Duration::from_secs(2);

impl Writer {
    /// Without transactions nobody refuses what another process writes: the later one has the last word.
    pub(crate) fn hold_against(&mut self, found: Option<&State>) {
        self.overtaken = self.is_ours(found, true).err();
        let Some(session) = &mut self.session else { return };
        let state = session.books.state.clone();
        if found.is_some_and(|found| found.instance < state.instance)
            && transaction::claim(&session.producer, &mut session.books, state).is_err()
        {
            self.session = None;
        }
    }

    /// Who fenced us; none: it isn't written down within a while.
    pub(crate) fn successor(&self) -> Option<Error> {
        let until = Instant::now() + SUCCESSOR;
        loop {
            let found = whole::state(&self.config).ok()?;
            if let Err(error) = self.is_ours(found.as_ref(), true) {
                return Some(error);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// `is_all`: nothing is hidden by a transaction whose end isn't written yet. Else an earlier process's state may be seen, though ours
    /// stands behind it.
    pub(crate) fn is_ours(&self, found: Option<&State>, is_all: bool) -> Result<()> {
        records::is_of_pipeline(&self.config, found)?;
        let own = self.config.instance;
        let is_behind_ours = |state: &State| is_all && self.config.exactly_once && state.instance < own;
        let overtakes = |state: &State| state.instance > own || is_behind_ours(state);
        if self.has_claimed && found.is_some_and(overtakes) {
            return Err(Error::invalid("another process captures for this pipeline now: it began after this one")
                .hint("one process captures at a time; the latest takes over, and this one ends"));
        }
        Ok(())
    }

    /// Fences whoever captured before, and writes down that it is us now.
    pub(crate) fn become_the_one(
        &mut self,
        producer: &Producer,
        books: &mut Books,
        there: &BTreeMap<String, u32>,
    ) -> Result<()> {
        let wait = |failure: Failure| producer.client().because(failure.fault).error("taking over the bus");
        producer.init(INIT_MS).map_err(wait)?;
        // What the one before had open has ended by now, and nothing can come after it.
        let (edges, own) = (Edges::new(&self.config)?, format!("{}.__", self.config.topic_prefix));
        let is_own = |name: &&String| name.strip_prefix(&own).is_some_and(|rest| !rest.contains('.'));
        there.keys().filter(is_own).try_for_each(|name| edges.settled(name).map(|_| ()))?;
        let found = whole::newest_state(&self.config)?;
        self.is_ours(found.as_ref(), true)?;
        let bus = found.as_ref().map_or(self.config.instance, |state| state.bus);
        if let Some(before) = found.as_ref().filter(|_| !self.config.exactly_once) {
            // By a clock that went ahead of ours, perhaps.
            self.config.instance = self.config.instance.max(before.instance + u64::from(!self.has_claimed));
        }
        let state = State {
            pipeline: self.config.pipeline.clone(),
            bus,
            instance: self.config.instance,
            checkpoint: found.and_then(|state| state.checkpoint),
        };
        transaction::claim(producer, books, state).map_err(|broken| broken.error)?;
        (self.has_claimed, self.was_fenced) = (true, false);
        Ok(())
    }
}
