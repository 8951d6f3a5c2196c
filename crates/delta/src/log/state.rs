use super::action::{Action, Add, DomainMetadata, Metadata, Protocol, VectorRef};
use super::rewrite::{self, Rewrite, Word};
use super::seal::{Chain, Link};
use super::{checkpoint, parse, FOLDER};
use crate::store::Store;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tidewire_change::{Error, ErrorKind, Position, Result};

/// Reader features that we know how to read.
const READABLE: [&str; 3] = ["deletionVectors", "timestampNtz", "columnMapping"];
/// Writer features that we keep the promises of.
const WRITABLE: [&str; 7] = [
    "deletionVectors",
    "timestampNtz",
    "domainMetadata",
    "appendOnly",
    "invariants",
    "changeDataFeed",
    "columnMapping",
];

/// A file (or one vector of a file) that the table held once.
#[derive(Clone, Debug, PartialEq)]
pub struct Tombstone {
    pub path: Arc<str>,
    /// Milliseconds since 1970.
    pub deleted_at: i64,
    pub size: i64,
    pub vector: Option<VectorRef>,
}

/// What the table is at `version`.
#[derive(Clone, Debug)]
pub struct State {
    pub version: u64,
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// While the table is written anew: those of the new one.
    pub files: BTreeMap<Arc<str>, Add>,
    pub rewrite: Option<Rewrite>,
    pub txns: BTreeMap<String, i64>,
    pub domains: BTreeMap<String, String>,
    /// By path and vector: what was removed and may still be read by somebody.
    pub tombstones: HashMap<(Arc<str>, Option<String>), Tombstone>,
    /// The newest checkpoint that was seen.
    pub checkpoint: Option<u64>,
    /// The last commit of ours, unless it was read from a checkpoint alone that doesn't tell.
    pub last: Option<Link>,
    /// Files of checkpoints that aren't what was written, and were passed over.
    pub damaged: Vec<String>,
}

#[derive(Default)]
struct Replay {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    files: BTreeMap<Arc<str>, Add>,
    /// The files of the table that is written anew, if one is.
    next: BTreeMap<Arc<str>, Add>,
    since: Option<Position>,
    /// What could not be read.
    fault: Option<Error>,
    txns: BTreeMap<String, i64>,
    domains: BTreeMap<String, String>,
    tombstones: HashMap<(Arc<str>, Option<String>), Tombstone>,
}

impl State {
    /// Replays the log, up to and with `upto` when it is given. None when there is no table. A checkpoint that isn't what was written is
    /// passed over for the one before it, or for the first commit, if all commits since are there.
    pub fn load(store: &Store, upto: Option<u64>) -> Result<Option<State>> {
        let listing = Listing::of(store, upto)?;
        let (mut damage, mut damaged) = (None::<Error>, Vec::new());
        let newest = listing.checkpoints.first().map(|(version, _)| *version);
        for checkpoint in listing.checkpoints.iter().map(Some).chain([None]) {
            let error = match State::behind(store, &listing, checkpoint) {
                Ok(state) => {
                    let Some(error) = damage else { return Ok(state) };
                    // Without all commits up to it nobody knows what it stood for.
                    let Some(state) = state.filter(|state| Some(state.version) >= newest) else { return Err(error) };
                    tracing::warn!("{error}; the table is read from what came before it");
                    return Ok(Some(State { damaged, ..state }));
                }
                Err(Failed::Checkpoint(error)) => error,
                // Without the checkpoint it can't be told what the table is.
                Err(Failed::Rest(error)) => {
                    return Err(damage.filter(|_| error.kind() == ErrorKind::Invalid).unwrap_or(error));
                }
            };
            damaged.extend(checkpoint.iter().flat_map(|(_, names)| names.iter().cloned()));
            damage.get_or_insert(error);
        }
        Err(Error::bug("a log was read from none of its beginnings"))
    }

    fn behind(
        store: &Store,
        listing: &Listing,
        checkpoint: Option<&(u64, Vec<String>)>,
    ) -> Result<Option<State>, Failed> {
        let (mut replay, mut chain, mut version) = (Replay::default(), Chain::default(), None);
        if let Some((at, names)) = checkpoint {
            for name in names {
                let read = checkpoint::read(store, &format!("{FOLDER}/{name}"), |action| replay.apply(action));
                chain = Chain::behind(read.map_err(Failed::of_checkpoint)?);
            }
            version = Some(*at);
        }
        let mut names = Vec::new();
        for commit in &listing.commits {
            let expected = version.map_or(0, |v| v + 1);
            if *commit < expected {
                continue;
            }
            if *commit != expected {
                let place = store.place(FOLDER);
                let gap = format!("{place}: version {expected} is missing from the log, {commit} is there");
                return Err(Failed::Rest(
                    Error::invalid(gap)
                        .hint("restore the missing file, or remove the table's folder and let it be copied again"),
                ));
            }
            names.push(super::commit_name(*commit));
            version = Some(*commit);
        }
        store.read_all(&names, |name, bytes| {
            let actions = parse(bytes, &store.place(name))?;
            let version = version_of(name).ok_or_else(|| Error::bug(format!("{name} isn't a commit's name")))?;
            chain.take(version, bytes, &actions, |version| store.place(&super::commit_name(version)))?;
            actions.into_iter().for_each(|a| replay.apply(a));
            Ok(())
        })?;
        let Some(version) = version else { return Ok(None) };
        let place = store.place(FOLDER);
        let mut state = replay.state(version, checkpoint.map(|(at, _)| *at), &place)?;
        state.last = chain.last;
        state.check_readable(&place)?;
        Ok(Some(state))
    }

    fn check_readable(&self, place: &str) -> Result<()> {
        let unknown = |features: &Option<Vec<String>>, known: &[&str]| {
            features.iter().flatten().find(|f| !known.contains(&f.as_str())).cloned()
        };
        let feature = unknown(&self.protocol.reader_features, &READABLE);
        if self.protocol.min_reader_version > 3 || feature.is_some() {
            let what = feature.unwrap_or_else(|| format!("reader version {}", self.protocol.min_reader_version));
            return Err(Error::invalid(format!(
                "{place}: the table needs the Delta feature {what}, which we don't have"
            ))
            .hint("another writer has raised the table's protocol; point the sink at a path of its own"));
        }
        Ok(())
    }

    /// Fails when the table's protocol asks a writer for something that we don't do.
    pub fn check_writable(&self, place: &str) -> Result<()> {
        let unknown = self.protocol.writer_features.iter().flatten().find(|f| !WRITABLE.contains(&f.as_str()));
        if self.protocol.min_writer_version > 7 || unknown.is_some() {
            let version = format!("writer version {}", self.protocol.min_writer_version);
            let what = unknown.unwrap_or(&version);
            return Err(Error::invalid(format!(
                "{place}: the table needs the Delta feature {what}, which we don't have"
            ))
            .hint("another writer has raised the table's protocol; point the sink at a path of its own"));
        }
        Ok(())
    }

    /// Does it have a change data feed?
    pub fn has_feed(&self) -> bool {
        self.metadata.configuration.get(super::FEED_PROPERTY).is_some_and(|v| v.as_deref() == Some("true"))
    }

    /// Takes in the next version's actions.
    pub fn apply(&mut self, version: u64, actions: Vec<Action>) {
        let mut replay = Replay {
            protocol: Some(self.protocol.clone()),
            files: std::mem::take(&mut self.files),
            txns: std::mem::take(&mut self.txns),
            domains: std::mem::take(&mut self.domains),
            tombstones: std::mem::take(&mut self.tombstones),
            ..Replay::default()
        };
        if let Some(rewrite) = self.rewrite.take() {
            replay.next = std::mem::replace(&mut replay.files, rewrite.shown);
            replay.since = Some(rewrite.since);
        }
        actions.into_iter().for_each(|action| replay.apply(action));
        self.version = version;
        (self.files, self.rewrite) = replay.files();
        self.txns = replay.txns;
        self.domains = replay.domains;
        self.tombstones = replay.tombstones;
        if let Some(protocol) = replay.protocol {
            self.protocol = protocol;
        }
        if let Some(metadata) = replay.metadata {
            self.metadata = metadata;
        }
    }
}

/// Why a log can't be read from one of its beginnings.
enum Failed {
    /// The checkpoint isn't what was written.
    Checkpoint(Error),
    Rest(Error),
}

impl Failed {
    fn of_checkpoint(error: Error) -> Failed {
        match error.kind() {
            ErrorKind::Invalid => Failed::Checkpoint(error),
            _ => Failed::Rest(error),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Rest(error)
    }
}

/// The log's files that matter.
struct Listing {
    /// In order.
    commits: Vec<u64>,
    /// Those whose parts are all there, the newest first.
    checkpoints: Vec<(u64, Vec<String>)>,
}

impl Listing {
    fn of(store: &Store, upto: Option<u64>) -> Result<Listing> {
        let mut commits = Vec::new();
        let mut checkpoints: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for file in store.list(FOLDER)? {
            match parse_name(&file.name) {
                Some((version, _)) if upto.is_some_and(|upto| version > upto) => {}
                Some((version, Kind::Commit)) => commits.push(version),
                // A whole checkpoint replaces one in parts.
                Some((version, Kind::Checkpoint { parts: 1 })) => drop(checkpoints.insert(version, vec![file.name])),
                Some((version, Kind::Checkpoint { .. })) => checkpoints.entry(version).or_default().push(file.name),
                None => {}
            }
        }
        commits.sort_unstable();
        let complete = checkpoints.into_iter().rev().filter(|(_, names)| is_complete(names));
        Ok(Listing { commits, checkpoints: complete.collect() })
    }
}

impl Replay {
    /// Those that the table holds now, and what readers see if it is written anew.
    fn files(&mut self) -> (BTreeMap<Arc<str>, Add>, Option<Rewrite>) {
        let shown = std::mem::take(&mut self.files);
        match self.since {
            Some(since) => (std::mem::take(&mut self.next), Some(Rewrite { since, shown })),
            None => (shown, None),
        }
    }

    fn state(mut self, version: u64, checkpoint: Option<u64>, place: &str) -> Result<State> {
        if let Some(fault) = self.fault {
            return Err(fault.context(place));
        }
        let incomplete = |what| Error::invalid(format!("{place}: the log has no {what}"));
        let metadata = self.metadata.take().ok_or_else(|| incomplete("metadata"))?;
        // NULL among the values of a partition is lost on the way through a checkpoint.
        for add in self.files.values_mut() {
            for column in &metadata.partition_columns {
                add.partition_values.entry(column.clone()).or_insert(None);
            }
        }
        let (files, rewrite) = self.files();
        Ok(State {
            version,
            protocol: self.protocol.ok_or_else(|| incomplete("protocol"))?,
            metadata,
            files,
            rewrite,
            txns: self.txns,
            domains: self.domains,
            tombstones: self.tombstones,
            checkpoint,
            last: None,
            damaged: Vec::new(),
        })
    }

    fn apply(&mut self, action: Action) {
        if let Some(remove) = action.remove {
            let vector = remove.deletion_vector.as_ref().map(VectorRef::unique_id);
            // Within a commit the remove of a file's old vector may stand after the add of the new one.
            let current =
                self.files.get(&remove.path).map(|add| add.deletion_vector.as_ref().map(VectorRef::unique_id));
            if current.is_some_and(|current| current == vector) {
                self.files.remove(&remove.path);
            }
            let tombstone = Tombstone {
                path: remove.path.clone(),
                deleted_at: remove.deletion_timestamp.unwrap_or(0),
                size: remove.size.unwrap_or(0),
                vector: remove.deletion_vector,
            };
            self.tombstones.insert((remove.path, vector), tombstone);
        }
        if let Some(add) = action.add {
            let vector = add.deletion_vector.as_ref().map(VectorRef::unique_id);
            self.tombstones.remove(&(add.path.clone(), vector));
            self.files.insert(add.path.clone(), add);
        }
        if let Some(txn) = action.txn {
            self.txns.insert(txn.app_id, txn.version);
        }
        if let Some(domain) = action.domain_metadata {
            self.domain(domain);
        }
        self.protocol = action.protocol.or(self.protocol.take());
        self.metadata = action.meta_data.or(self.metadata.take());
    }

    fn domain(&mut self, domain: DomainMetadata) {
        match rewrite::word(&domain, FOLDER) {
            Err(error) => self.fault = self.fault.take().or(Some(error)),
            Ok(Some(Word::Since(at))) => self.since = Some(at),
            Ok(Some(Word::Over)) => self.since = None,
            Ok(Some(Word::Has(add))) => drop(self.next.insert(add.path.clone(), *add)),
            Ok(Some(Word::HasNot(path))) => drop(self.next.remove(&path)),
            Ok(None) if domain.removed => drop(self.domains.remove(&domain.domain)),
            Ok(None) => drop(self.domains.insert(domain.domain, domain.configuration)),
        }
    }
}

/// Is there a log at all?
pub fn is_there(store: &Store) -> Result<bool> {
    Ok(store.list(FOLDER)?.iter().any(|file| parse_name(&file.name).is_some()))
}

fn version_of(name: &str) -> Option<u64> {
    name.rsplit('/').next().and_then(parse_name).map(|(version, _)| version)
}

pub(super) enum Kind {
    Commit,
    Checkpoint { parts: u64 },
}

/// `N.json`, `N.checkpoint.parquet`, `N.checkpoint.o.p.parquet`.
pub(super) fn parse_name(name: &str) -> Option<(u64, Kind)> {
    let (version, rest) = name.split_once('.')?;
    if version.len() != 20 {
        return None;
    }
    let version = version.parse().ok()?;
    let kind = match rest.split('.').collect::<Vec<_>>()[..] {
        ["json"] => Kind::Commit,
        ["checkpoint", "parquet"] => Kind::Checkpoint { parts: 1 },
        ["checkpoint", _, parts, "parquet"] => Kind::Checkpoint { parts: parts.parse().ok()? },
        _ => return None,
    };
    Some((version, kind))
}

fn is_complete(names: &[String]) -> bool {
    match parse_name(&names[0]) {
        Some((_, Kind::Checkpoint { parts })) => names.len() as u64 == parts,
        _ => false,
    }
}
