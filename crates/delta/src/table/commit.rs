use super::files::{LiveFile, Vector};
use super::pending::Pending;
use super::{domain, protocol_of, Table, LAYOUT_DOMAIN};
use crate::log;
use crate::log::action::{Action, Add, Protocol, Txn};
use crate::log::FEED_PROPERTY;
use crate::store::Syncing;
use crate::vector;
use roaring::RoaringBitmap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tidewire_change::{Progress, Result, TopicPartition};
use tidewire_connector::moment;

/// What a commit did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed {
    pub rows: u64,
    pub bytes: u64,
}

/// A file as it is after the commit.
struct Touched {
    add: Add,
    number: u32,
    vector: Option<Arc<RoaringBitmap>>,
    is_new: bool,
}

impl Table {
    /// Puts what waits, with the progress, as the table's next version. None when nothing waits.
    pub fn commit(&mut self, progress: &Progress) -> Result<Option<Committed>> {
        self.follow_neighbours()?;
        if !self.pending.is_dirty(&self.mark) && !self.tells_more_than(progress) {
            self.tend()?;
            return Ok(None);
        }
        let began = Instant::now();
        self.flush()?;
        let mut committed = Committed { rows: self.pending.rows, bytes: 0 };
        let mut mark = self.mark.clone();
        // A repetition from an earlier point takes nothing away from what the table holds.
        mark.boundary.position = mark.boundary.position.max(progress.boundary.position);
        mark.boundary.complete_through = mark.boundary.complete_through.max(progress.boundary.complete_through);
        mark.truncate = self.pending.truncate;
        mark.since = self.pending.since;
        mark.high = self.pending.high;
        self.earn(&mut mark, self.pending.bytes);
        moment("parquet written");
        let feed = self.feed()?;
        let (mut actions, touched) = self.actions(progress, &mark)?;
        if let Some(feed) = feed {
            actions.extend(feed.files.into_iter().map(Action::from));
            self.pending.syncing.extend(feed.syncing);
        }
        moment("vectors written");
        committed.bytes += touched.iter().filter(|t| t.is_new).map(|t| t.add.size as u64).sum::<u64>();
        let syncing = std::mem::take(&mut self.pending.syncing);
        self.put(actions, syncing)?;
        self.mark = mark;
        let pending = std::mem::replace(&mut self.pending, Pending::new(&self.mark));
        self.take_over(pending, touched)?;
        moment("index updated");
        self.upkeep.pace.spent(began.elapsed());
        self.tend()?;
        Ok(Some(committed))
    }

    /// The table was filled from another bus than `progress` is of, or a later state of it: what it says of that one would be
    /// taken for progress on this one.
    fn tells_more_than(&self, progress: &Progress) -> bool {
        self.offsets().iter().any(|(at, held)| *held > progress.offsets.get(at).copied().unwrap_or(0))
    }

    fn actions(&mut self, progress: &Progress, mark: &super::Mark) -> Result<(Vec<Action>, Vec<Touched>)> {
        let millis = self.config.now() / 1000;
        let operation = match self.pending.emptied && !self.is_hidden() {
            true => "TRUNCATE",
            false => "MERGE",
        };
        let mut actions = vec![commit_info(millis, operation)];
        let feed_changes = self.has_feed != self.state.has_feed() && !self.pending.shows;
        if (self.pending.columns_changed || self.pending.shows || feed_changes) && !self.is_hidden() {
            actions.extend(self.protocol_needed().map(Action::from));
            let mut metadata = self.state.metadata.clone();
            if feed_changes {
                metadata.configuration.insert(FEED_PROPERTY.into(), Some(self.has_feed.to_string()));
            }
            metadata.schema_string = self.layout.delta();
            metadata.configuration.extend(self.layout.mapping_properties());
            metadata.partition_columns = self.layout.partition.clone();
            actions.push(metadata.into());
        }
        // Of parts that are read for at once one may be behind another, whose offsets go back then: to read once more does no harm.
        let mut offsets: BTreeMap<TopicPartition, u64> = self.offsets().into_keys().map(|at| (at, 0)).collect();
        let own = progress.offsets.iter().filter(|(at, _)| *at.topic == *self.topic);
        offsets.extend(own.map(|(at, n)| (at.clone(), *n)));
        for (at, offset) in offsets {
            let (app_id, version) = (self.app_id(&at), offset as i64);
            if self.state.txns.get(&app_id) != Some(&version) {
                actions.push(Txn { app_id, version, last_updated: Some(millis) }.into());
            }
        }
        actions.extend(self.progress_actions(mark)?);
        if self.pending.layout_changed {
            actions.push(domain(LAYOUT_DOMAIN, self.layout.as_ref())?.into());
        }
        let touched = self.touch(&mut actions, millis)?;
        Ok((actions, touched))
    }

    /// The table's protocol with what its columns and properties need, if it lacks any of that.
    fn protocol_needed(&self) -> Option<Protocol> {
        let (mut next, wanted) = (self.state.protocol.clone(), protocol_of(&self.layout, self.has_feed));
        let raise = |held: &mut Option<Vec<String>>, wanted: Option<Vec<String>>| {
            let held = held.get_or_insert_default();
            let missing: Vec<String> = wanted.into_iter().flatten().filter(|f| !held.contains(f)).collect();
            held.extend(missing);
        };
        raise(&mut next.reader_features, wanted.reader_features);
        raise(&mut next.writer_features, wanted.writer_features);
        (next != self.state.protocol).then_some(next)
    }

    /// Writes the new vectors and adds the removes and adds of all files that change.
    fn touch(&mut self, actions: &mut Vec<Action>, millis: i64) -> Result<Vec<Touched>> {
        let mut touched = Vec::new();
        for number in &self.pending.removed {
            if let Some(add) = self.files.live.get(number).and_then(|file| self.state.files.get(&file.path)) {
                actions.push(add.remove(millis, true).into());
            }
        }
        let strikes = std::mem::take(&mut self.pending.strikes);
        for (number, rows) in &strikes {
            if self.pending.removed.contains(number) || self.pending.files.contains_key(number) {
                continue;
            }
            let held = self.files.vector(&self.store, *number)?;
            let Some(file) = self.files.live.get(number) else { continue };
            let Some(add) = self.state.files.get(&file.path) else { continue };
            let all = held.map_or_else(|| rows.clone(), |held| held.as_ref() | rows);
            actions.push(add.remove(millis, true).into());
            if all.len() == file.rows {
                self.pending.removed.insert(*number);
                continue;
            }
            touched.push(Touched {
                add: Add { data_change: true, ..add.clone() },
                number: *number,
                vector: Some(Arc::new(all)),
                is_new: false,
            });
        }
        for (number, file) in &self.pending.files {
            let add = Add {
                path: file.path.clone(),
                partition_values: file.group.partition.clone(),
                size: file.bytes as i64,
                modification_time: millis,
                data_change: true,
                stats: Some(file.stats.clone()),
                ..Add::default()
            }
            .with_deleted(file.deleted)
            .with_bucket(file.group.bucket);
            let struck = strikes.get(number).cloned();
            if struck.as_ref().is_some_and(|rows| rows.len() == file.rows) {
                self.store.remove(&file.path)?;
                continue;
            }
            touched.push(Touched { add, number: *number, vector: struck.map(Arc::new), is_new: true });
        }
        let vectors: Vec<&RoaringBitmap> = touched.iter().filter_map(|t| t.vector.as_deref()).collect();
        if !vectors.is_empty() {
            let (references, syncing) = vector::write(&self.store, &vectors)?;
            self.pending.syncing.push(syncing);
            let mut references = references.into_iter();
            for touched in touched.iter_mut().filter(|t| t.vector.is_some()) {
                touched.add.deletion_vector = references.next();
            }
        }
        actions.extend(touched.iter().map(|t| Action::from(t.add.clone())));
        Ok(touched)
    }

    /// Puts the next version, once all that it names is durable; when somebody else was faster, looks at what they did: behind
    /// other owners' commits it says that it follows these.
    pub(super) fn put(&mut self, actions: Vec<Action>, syncing: Vec<Syncing>) -> Result<()> {
        let actions = self.as_readers_see_it(actions)?;
        let (mut staged, mut digest, mut bytes) = log::stage(&self.store, &actions, self.state.last)?;
        // The names of the files in the table's folder.
        let folder = self.store.sync_folder_later(log::FOLDER)?;
        syncing.into_iter().chain([folder]).try_for_each(Syncing::wait)?;
        staged.wait()?;
        loop {
            let version = self.state.version + 1;
            moment("delta put");
            self.check_awake(self.config.now(), self.config.upkeep.file_retention.as_micros() as i64 / 2)?;
            if self.store.publish(&staged, &log::commit_name(version))? {
                moment("delta committed");
                self.state.apply(version, actions);
                self.state.last = Some(log::seal::Link { version, digest });
                self.upkeep.has_put = true;
                self.upkeep.logged += bytes;
                return self.check_awake(self.config.now(), self.config.upkeep.log_retention.as_micros() as i64 / 2);
            }
            let followed = self.state.last;
            if self.scope.is_whole() {
                self.give_way(version)?;
            } else {
                self.follow_neighbour(version)?;
            }
            if self.state.last != followed {
                (staged, digest, bytes) = log::stage(&self.store, &actions, self.state.last)?;
                staged.wait()?;
            }
        }
    }

    /// The version is put: the files, the index and what waits follow.
    fn take_over(&mut self, pending: Pending, touched: Vec<Touched>) -> Result<()> {
        pending.removed.iter().for_each(|number| self.files.remove(*number));
        for touched in touched {
            if touched.is_new {
                self.files.insert(touched.number, LiveFile::of(&touched.add)?);
            }
            if let (Some(file), Some(vector)) = (self.files.live.get_mut(&touched.number), touched.vector) {
                file.vector = Vector::Loaded(vector);
            }
        }
        let (nothing, stamp) = (self.stamp_of_nothing(), self.stamp());
        let Some(index) = self.index.as_mut() else { return Ok(()) };
        if pending.emptied {
            index.clear(nothing)?;
        }
        index.commit(|| stamp)
    }
}

pub fn commit_info(millis: i64, operation: &str) -> Action {
    let info = serde_json::json!({
        "timestamp": millis,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": format!("{}{}", log::foreign::ENGINE, env!("CARGO_PKG_VERSION")),
        // No other commit has the same bytes: whoever finds its name taken sees whether it was its own.
        "txnId": uuid::Uuid::new_v4().to_string(),
    });
    Action { commit_info: Some(info), ..Action::default() }
}
