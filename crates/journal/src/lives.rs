//! Which journal this is, and which of its pasts it has: offsets of another journal, or of a future that a backup put back
//! has not had, say nothing here.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tidewire_change::{Error, Progress, Result, TopicPartition};

/// The topic under which a reader's progress tells the life that it last read in (partition 0) and the sequence of the next
/// frame (partition 1). Nothing is ever appended to it.
pub(crate) const TOPIC: &str = "__journal";

/// More than enough for a sink that is down while the pipeline starts again and again.
const KEPT: usize = 4096;

/// From one opening of the journal to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// When it was opened, microseconds since 1970 UTC, made unique: two journals that come from one backup differ in it.
    id: u64,
    /// The sequence of its first frame.
    from: u64,
}

/// Oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lives(Vec<Life>);

impl Lives {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The journal is opened; what it has so far ends before `from`.
    pub fn begin(&mut self, now: i64, from: u64) {
        let last = self.0.last().map_or(0, |life| life.id);
        // A clock that was set back makes no life twice. (Sinks keep offsets as signed numbers.)
        let id = (now.max(0) as u64).max(last + 1);
        self.0.push(Life { id, from });
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
    }

    /// What a reader that has read all before the frame `next` puts into its progress.
    pub fn marks(&self, next: u64) -> Vec<(TopicPartition, u64)> {
        let topic: Arc<str> = TOPIC.into();
        let life = self.0.last().map_or(0, |life| life.id);
        let at = |partition| TopicPartition { topic: topic.clone(), partition };
        vec![(at(0), life), (at(1), next)]
    }

    /// Was `progress` made by reading what this journal holds? None: it doesn't say. `Lost`: no.
    pub fn check(&self, progress: &Progress) -> Option<Result<()>> {
        let mark = |partition| progress.offsets.get(&TopicPartition { topic: TOPIC.into(), partition });
        let (life, next) = (*mark(0)?, *mark(1)?);
        let Some(at) = self.0.iter().position(|known| known.id == life) else {
            return Some(Err(Error::lost("its sink was filled from another journal, or this one is an older backup")));
        };
        Some(match self.0.get(at + 1) {
            Some(after) if next > after.from => Err(Error::lost(format!(
                "its sink has read {} appends that this journal has never had: it is an older backup",
                next - after.from
            ))),
            _ => Ok(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::ErrorKind;

    fn made(marks: Vec<(TopicPartition, u64)>) -> Progress {
        Progress { offsets: marks.into_iter().collect(), ..Progress::default() }
    }

    #[test]
    fn progress_of_an_earlier_life_is_ours_up_to_the_end_of_that_life() {
        let mut lives = Lives::default();
        lives.begin(100, 1);
        let (early, late) = (made(lives.marks(5)), made(lives.marks(9)));
        lives.begin(200, 6);
        assert!(matches!(lives.check(&early), Some(Ok(()))));
        assert!(matches!(lives.check(&late), Some(Err(error)) if error.kind() == ErrorKind::Lost));
        assert!(matches!(lives.check(&made(lives.marks(7))), Some(Ok(()))));
        assert!(lives.check(&Progress::default()).is_none());
    }

    #[test]
    fn two_journals_of_one_backup_are_told_apart_although_the_clock_was_set_back() {
        let mut one = Lives::default();
        one.begin(100, 1);
        let mut other = one.clone();
        one.begin(200, 6);
        other.begin(50, 6);
        assert!(matches!(other.check(&made(one.marks(6))), Some(Err(_))));
        assert!(matches!(one.check(&made(other.marks(6))), Some(Err(_))));
    }

    #[test]
    fn however_often_it_is_opened_the_list_stays_short() {
        let mut lives = Lives::default();
        (0..2 * KEPT as i64).for_each(|now| lives.begin(now, 1));
        assert_eq!(lives.0.len(), KEPT);
    }
}
