use crate::journal;
use crate::messages::{Messages, Read, Start};
use crate::progress;
use crate::recover::{self, Mode};
use crate::state::State;
use crate::status::{self, JournalStatus, TopicFacts};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewire_change::{topic, Checkpoint, Error, Result, TopicPartition};
use tidewire_connector::Lag;

/// A journal seen from outside, as it was when it was opened. Takes no lock and changes nothing; what its owner has not
/// acknowledged yet may be seen.
pub struct View {
    dir: PathBuf,
    state: State,
    partitions: u32,
}

/// The owner may replace segments between our listing and our opening of them.
const TRIES: usize = 10;

impl View {
    pub(crate) fn open(dir: &Path) -> Result<View> {
        let mut tries = 1;
        loop {
            match Self::load(dir) {
                Err(error) if tries < TRIES && has_vanished(&error) => tries += 1,
                Ok((state, partitions)) => return Ok(View { dir: dir.to_path_buf(), state, partitions }),
                Err(error) => return Err(error),
            }
        }
    }

    fn load(dir: &Path) -> Result<(State, u32)> {
        let none = || {
            Error::invalid(format!("there is no journal in {}", dir.display()))
                .hint("name the pipeline's data_dir; it has a journal once the pipeline has run")
        };
        if !dir.is_dir() {
            return Err(none());
        }
        let mut state = recover::load(dir, Mode::Look)?.ok_or_else(none)?;
        state.readers = progress::load(dir)?;
        Ok((state, journal::partitions(dir)?.ok_or_else(none)?))
    }

    /// Looks again.
    pub fn refresh(&mut self) -> Result<()> {
        *self = Self::open(&self.dir)?;
        Ok(())
    }

    /// Partitions per topic.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    pub fn topics(&self) -> Vec<TopicFacts> {
        status::topics(&self.state)
    }

    pub fn read(&self, read: Read) -> Messages {
        Messages::new(&self.state, read)
    }

    pub fn ends(&self) -> &BTreeMap<TopicPartition, u64> {
        &self.state.ends
    }

    pub fn last(&self) -> Option<&Checkpoint> {
        self.state.last.as_ref()
    }

    /// Of the numbers only those that the files tell.
    pub fn status(&self) -> JournalStatus {
        status::status(&self.state, &self.dir)
    }

    /// How far the reader of this name is behind in each partition of a table. Messages that compaction took away count as if they
    /// were there.
    pub fn lag(&self, reader: &str) -> Result<BTreeMap<TopicPartition, Lag>> {
        let registered = self.state.readers.get(reader);
        let mut lags = BTreeMap::new();
        for facts in self.topics().into_iter().filter(|facts| !topic::is_internal(&facts.topic)) {
            let shared: Arc<str> = facts.topic.as_str().into();
            for part in facts.partitions {
                let place = TopicPartition { topic: shared.clone(), partition: part.partition };
                let next = registered.map_or(0, |reader| reader.next(&place)).clamp(part.earliest, part.next);
                let start = Start::Next(BTreeMap::from([(part.partition, next)]));
                let wanted = Read { topic: facts.topic.clone(), partition: Some(part.partition), start };
                let oldest = if next < part.next { self.read(wanted).next().transpose()? } else { None };
                let records = if oldest.is_some() { part.next - next } else { 0 };
                lags.insert(place, Lag { next, end: part.next, records, since: oldest.map(|oldest| oldest.timestamp) });
            }
        }
        Ok(lags)
    }

    /// Where each partition of a table's topic begins; with a time (microseconds since 1970 UTC): where what was appended then begins, none
    /// if nothing has been since.
    pub fn starts(&self, at: Option<i64>) -> Result<BTreeMap<TopicPartition, Option<u64>>> {
        let mut starts = BTreeMap::new();
        for facts in self.topics().into_iter().filter(|facts| !topic::is_internal(&facts.topic)) {
            let shared: Arc<str> = facts.topic.as_str().into();
            for part in facts.partitions {
                let place = TopicPartition { topic: shared.clone(), partition: part.partition };
                let start = match at {
                    None => Some(part.earliest),
                    Some(at) => {
                        let (topic, partition) = (facts.topic.clone(), Some(part.partition));
                        let first = self.read(Read { topic, partition, start: Start::Time(at) }).next().transpose()?;
                        first.map(|first| first.offset)
                    }
                };
                starts.insert(place, start);
            }
        }
        Ok(starts)
    }

    /// Reads every sealed segment and compares all checksums.
    pub fn verify(&self) -> Result<()> {
        self.state.sealed.iter().try_for_each(|segment| recover::verify(segment))
    }
}

fn has_vanished(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}
