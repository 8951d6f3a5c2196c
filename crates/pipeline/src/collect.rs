use crate::shared::{Meters, TableMeter};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tidewire_change::{Boundary, Change, Op, Position, Progress, Schema, TopicPartition};
use tidewire_connector::{Credit, Fetched, FetchedMessage};

/// Where in the bus one message lies.
pub(crate) type Origin = (TopicPartition, u64);

pub(crate) fn origin(message: &FetchedMessage) -> Origin {
    (TopicPartition { topic: message.topic.clone(), partition: message.partition }, message.offset)
}

/// Changes of one table that wait to be written, all under one schema.
pub(crate) struct Group {
    pub table: String,
    pub schema: Arc<Schema>,
    told: Told,
    /// The highest position that was collected.
    pub highest: Position,
    /// Its changes are skipped.
    pub parked: bool,
    pub changes: Vec<Change>,
    /// The messages of `changes`, kept only while one of them is suspected of being malformed.
    pub messages: Vec<FetchedMessage>,
    /// Write after so many changes: one of them is suspected of being malformed.
    pub limit: Option<usize>,
    pub bytes: usize,
    pub meter: Arc<TableMeter>,
}

/// Per partition the highest position that it has told of: one below it is a replay, since within a partition positions go
/// back by nothing else. The partition that told last is at hand.
struct Told {
    partition: u32,
    highest: Position,
    others: BTreeMap<u32, Position>,
}

impl Told {
    fn by(&self, partition: u32) -> Option<Position> {
        match partition == self.partition {
            true => Some(self.highest),
            false => self.others.get(&partition).copied(),
        }
    }

    fn note(&mut self, partition: u32, position: Position) {
        if partition != self.partition {
            self.others.insert(self.partition, self.highest);
            self.highest = self.others.get(&partition).copied().unwrap_or(position);
            self.partition = partition;
        }
        self.highest = self.highest.max(position);
    }
}

impl Group {
    fn new(first: &Change, partition: u32, rules: &Rules, meters: &Meters) -> Self {
        let table = first.schema.table.to_string();
        Group {
            parked: rules.parked.contains(&table),
            limit: rules.limits.get(&table).map(|l| l.changes),
            table,
            meter: meters.of(&first.schema.table),
            schema: first.schema.clone(),
            told: Told { partition, highest: first.position, others: BTreeMap::new() },
            highest: first.position,
            changes: Vec::new(),
            messages: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether a change says something about this group's rows that was said before: it came under another schema, and its
    /// partition has told of a later one. What another partition tells late is no replay. Rows of placed reads that came
    /// under two schemas may share a position.
    pub fn is_replay(&self, change: &Change, partition: u32) -> bool {
        let told = self.told.by(partition);
        let was_told = |told| change.position < told || (change.position == told && change.op != Op::Read);
        !self.has_schema(change) && told.is_some_and(was_told)
    }

    pub fn has_schema(&self, change: &Change) -> bool {
        Arc::ptr_eq(&self.schema, &change.schema) || self.schema == change.schema
    }

    pub fn follow(&mut self, change: &Change) {
        self.schema = change.schema.clone();
    }

    fn push(&mut self, change: Change, message: FetchedMessage) {
        self.told.note(message.partition, change.position);
        self.bytes += message.value.len();
        self.highest = self.highest.max(change.position);
        self.changes.push(change);
        if self.limit.is_some() {
            self.messages.push(message);
        }
    }

    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.changes.len() >= limit)
    }
}

/// What one sink's loop holds between fetching and committing.
#[derive(Default)]
pub(crate) struct Collected {
    pub groups: Vec<Group>,
    by_topic: HashMap<Arc<str>, usize>,
    last_found: Option<(Arc<str>, usize)>,
    /// Bytes collected and not written.
    pub bytes: usize,
    /// Bytes collected or written and not committed.
    pub uncommitted: usize,
    /// Changes that are not committed.
    pub pending: u64,
    /// Commit times of the pending changes and how many have each.
    commits: Vec<(i64, u64)>,
    pub credit: Credit,
    /// The highest commit of a change that is not committed.
    highest: u64,
    /// What was fetched, up to the last message.
    pub progress: Progress,
    /// What was fetched ends between two source transactions.
    pub at_boundary: bool,
}

impl Collected {
    pub fn from(progress: Progress) -> Self {
        Collected { progress, at_boundary: true, ..Collected::default() }
    }

    /// The group of a topic, if one of its changes was seen.
    /// Messages of one topic come in rows: the last answer is at hand.
    pub fn find(&mut self, topic: &Arc<str>) -> Option<usize> {
        if let Some((last, group)) = &self.last_found {
            if Arc::ptr_eq(last, topic) {
                return Some(*group);
            }
        }
        let group = *self.by_topic.get(topic)?;
        self.last_found = Some((topic.clone(), group));
        Some(group)
    }

    /// For the topic of `message`, whose change is the first of it.
    pub fn add_group(&mut self, message: &FetchedMessage, first: &Change, rules: &Rules, meters: &Meters) -> usize {
        self.by_topic.insert(message.topic.clone(), self.groups.len());
        self.groups.push(Group::new(first, message.partition, rules, meters));
        self.groups.len() - 1
    }

    pub fn push(&mut self, group: usize, change: Change, message: FetchedMessage) {
        self.bytes += message.value.len();
        self.uncommitted += message.value.len();
        self.pending += 1;
        self.highest = self.highest.max(change.position.commit);
        if change.op != Op::Read {
            match self.commits.last_mut() {
                Some((at, n)) if *at == change.committed_at => *n += 1,
                _ => self.commits.push((change.committed_at, 1)),
            }
        }
        self.groups[group].push(change, message);
    }

    /// Notes how far the fetched messages reach. `within`: some of them belong to a source transaction.
    pub fn pass(&mut self, reached: Reached, boundary: Option<Boundary>, within: bool) {
        self.progress.offsets.extend(reached.0);
        if let Some(boundary) = boundary {
            // A replay tells of boundaries that were passed.
            let known = &mut self.progress.boundary;
            known.position = known.position.max(boundary.position);
            known.complete_through = known.complete_through.max(boundary.complete_through);
        }
        // One that a replay tells of once more is none while a later transaction is half here.
        let is_whole = boundary.is_some_and(|boundary| boundary.position.commit >= self.highest);
        self.at_boundary = is_whole || (self.at_boundary && !within);
    }

    /// Everything collected was handed to the sink: its credit goes back.
    pub fn written(&mut self) {
        self.bytes = 0;
        self.credit = Credit::none();
    }

    /// Everything written is visible: returns the commit times of its changes, and how many had each.
    pub fn committed(&mut self) -> Vec<(i64, u64)> {
        self.pending = 0;
        self.highest = 0;
        self.uncommitted = 0;
        std::mem::take(&mut self.commits)
    }
}

/// The offsets behind the last message of each partition among some fetched messages.
pub(crate) struct Reached(Vec<(TopicPartition, u64)>);

impl Reached {
    /// One look into a tree per partition and fetch, not per message: topics are compared by address first.
    pub fn by(fetched: &Fetched) -> Self {
        let mut seen: HashSet<(*const u8, u32)> = HashSet::new();
        let mut last: Vec<usize> = Vec::new();
        let mut behind = None;
        for (i, m) in fetched.messages.iter().enumerate().rev() {
            let place = (m.topic.as_ptr(), m.partition);
            if behind != Some(place) && seen.insert(place) {
                last.push(i);
            }
            behind = Some(place);
        }
        last.reverse();
        let place = |i: usize| {
            let (place, offset) = origin(&fetched.messages[i]);
            (place, offset + 1)
        };
        Reached(last.into_iter().map(place).collect())
    }
}

/// What was found out about messages and tables of one sink; it outlives a restart of the loop.
#[derive(Default)]
pub(crate) struct Rules {
    pub parked: BTreeSet<String>,
    /// Messages that went to the dead letters.
    pub skip: HashSet<Origin>,
    pub limits: BTreeMap<String, Limit>,
    pub attempts: HashMap<Origin, Attempts>,
}

/// One write takes no more than `changes` changes of a table, until `until` is committed: a malformed one is looked for.
pub(crate) struct Limit {
    pub changes: usize,
    pub until: Position,
}

/// Failed attempts at one message, and the wall times of the first and the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Attempts {
    pub count: u32,
    pub first: i64,
    pub last: i64,
}

impl Rules {
    /// Forgets what lies before committed progress.
    pub fn passed(&mut self, progress: &Progress) {
        if self.limits.is_empty() && self.skip.is_empty() && self.attempts.is_empty() {
            return;
        }
        let ahead = |(place, offset): &Origin| progress.offsets.get(place).is_none_or(|next| offset >= next);
        self.skip.retain(|o| ahead(o));
        self.attempts.retain(|o, _| ahead(o));
        self.limits.retain(|_, limit| progress.boundary.position < limit.until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Identity, Key, TableName};

    #[test]
    fn what_another_partition_tells_late_is_no_replay() {
        let change = |source_id, commit| Change {
            schema: Arc::new(Schema {
                table: TableName::new("s", "t"),
                columns: Vec::new(),
                key: Key::WholeRow,
                identity: Identity::Full,
                source_id,
            }),
            op: Op::Truncate,
            position: Position::new(commit, 1),
            committed_at: 0,
            xid: None,
            before: None,
            after: None,
        };
        let mut group = Group::new(&change(1, 3), 0, &Rules::default(), &Meters::default());
        let tell = |group: &mut Group, source_id, commit, partition| {
            let change = change(source_id, commit);
            group.follow(&change);
            group.told.note(partition, change.position);
        };
        tell(&mut group, 2, 10, 0);
        assert!(group.is_replay(&change(1, 5), 0), "partition 0 told of 10 before");
        assert!(!group.is_replay(&change(1, 5), 1), "partition 1 is only behind");
        assert!(!group.is_replay(&change(2, 5), 0), "the schema is the same: the guard decides");
        tell(&mut group, 1, 5, 1);
        tell(&mut group, 2, 12, 0);
        assert!(group.is_replay(&change(1, 5), 1), "partition 1 told of this one, though under the schema before");
        assert!(!group.is_replay(&change(1, 6), 1), "and of no later one");
        assert!(group.is_replay(&change(1, 11), 0) && !group.is_replay(&change(1, 13), 0));
    }
}
