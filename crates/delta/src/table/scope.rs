//! Which of a table's buckets a committer owns, and where its progress stands in the log.
//!
//! A table of B buckets may have one owner, whose mark is the domain `tidewire`, or P of them, where P divides B: the owner of
//! part p has the buckets b with b mod P = p, and a mark and offsets of its own. Those that aren't there yet are the one owner's
//! as they were last. One owner takes the table back when all P stand where their marks are one.

use super::{Mark, Table, LAYOUT_DOMAIN, PROGRESS_DOMAIN};
use crate::data;
use crate::log::action::{Action, DomainMetadata};
use crate::log::{State, BUCKETS_DOMAIN};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tidewire_change::{Boundary, Error, Result, TopicPartition};

/// Before the number of a partition: the domain with the mark of its owner.
const SHARE_DOMAIN: &str = "tidewire.share/";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Of the table's parts, from 0 on.
    pub part: u32,
    /// So many parts there are.
    pub of: u32,
}

#[derive(Serialize, Deserialize)]
pub struct BucketCount {
    pub count: u32,
}

/// How many buckets a table has, whatever is `asked` of those that are made from now on.
pub fn buckets_of(state: &State, asked: u32, place: &str) -> Result<u32> {
    let text = state.domains.get(BUCKETS_DOMAIN);
    let bad = |why: String| Error::invalid(format!("{place}: Tidewire's part of the log can't be read: {why}"));
    let count = match text.map(|text| serde_json::from_str(text)) {
        None => 1,
        Some(Ok(BucketCount { count: 0 })) => return Err(bad("a table without buckets".into())),
        Some(Ok(BucketCount { count })) => count,
        Some(Err(e)) => return Err(bad(e.to_string())),
    };
    if count != asked {
        tracing::info!("{place}: `buckets: {asked}` holds for tables that are made from now on; this one has {count}");
    }
    Ok(count)
}

impl Scope {
    /// One owner has all buckets.
    pub const WHOLE: Scope = Scope { part: 0, of: 1 };

    pub fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Whose work it is that is done once a table, as long as it commits.
    pub fn is_first(self) -> bool {
        self.part == 0
    }

    pub fn owns(self, bucket: Option<u32>) -> bool {
        self.is_whole() || bucket.is_some_and(|bucket| bucket % self.of == self.part)
    }

    /// The domain of its mark.
    pub fn domain(self) -> String {
        match self.is_whole() {
            true => PROGRESS_DOMAIN.into(),
            false => format!("{SHARE_DOMAIN}{}", self.part),
        }
    }

    /// The folder of its index below the table's.
    pub fn index_folder(self) -> Option<String> {
        (!self.is_whole()).then(|| part_name(self.part, self.of))
    }

    /// May its owner remove a file of this name that no version has named since then (microseconds)? Files of others may belong
    /// to a commit that is still to come; vectors, whose names don't tell whose they are, are written just before one, and go
    /// with what is removed `for_all`.
    pub fn removes_before(self, name: &str, for_all: bool, files_from: i64, log_from: i64) -> i64 {
        match data::bucket_of(name) {
            _ if self.is_whole() => files_from,
            Some(bucket) if self.owns(Some(bucket)) => files_from,
            None if for_all => files_from.min(log_from),
            _ => i64::MIN,
        }
    }

    /// Fails when the table can't be shared so, or is just now written anew as a whole.
    pub fn check(self, buckets: u32, place: &str) -> Result<()> {
        if buckets.is_multiple_of(self.of) {
            return Ok(());
        }
        let error = format!("{place}: {buckets} buckets can't be shared among the owners of {} parts", self.of);
        Err(Error::invalid(error).hint(
            "set `buckets` to a multiple of the parts' number, remove the table's folder, and let it be copied again",
        ))
    }

    /// The mark of this scope's owner. `noted`: what all parts hold by what was noted beside the table.
    pub fn mark(self, state: &State, whole: Mark, noted: Option<Boundary>, place: &str) -> Result<Mark> {
        let shares = shares(state, place)?;
        let of = shares.values().find_map(|mark| mark.of).unwrap_or(1);
        if self.is_whole() {
            return if of == 1 { Ok(whole) } else { joined(&whole, &shares, of, noted, place) };
        }
        if state.rewrite.is_some() {
            return Err(Error::invalid(format!(
                "{place}: the table is written anew, which only an owner of all of it does"
            ))
            .hint("run one process that owns all parts until readers see the new table"));
        }
        if of != 1 && of != self.of {
            let error = format!("{place}: the table is shared among the owners of {of} parts, not {}", self.of);
            return Err(Error::invalid(error)
                .hint("stop them, run one process that owns all parts for a change or two, then start the new ones"));
        }
        let begins = || Mark { spare: whole.spare / u64::from(self.of), ..whole.clone() };
        let mark = shares.get(&self.part).cloned().unwrap_or_else(begins);
        Ok(Mark { of: Some(self.of), ..mark })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_whole() {
            true => write!(f, "the owner of the whole table"),
            false => write!(f, "the owner of part {} of {}", self.part, self.of),
        }
    }
}

/// Do several own the table?
pub fn is_shared(state: &State) -> bool {
    state.domains.keys().any(|name| name.starts_with(SHARE_DOMAIN))
}

/// The marks of owners of a part, by part.
fn shares(state: &State, place: &str) -> Result<BTreeMap<u32, Mark>> {
    let domains = state.domains.iter().filter_map(|(name, text)| Some((name.strip_prefix(SHARE_DOMAIN)?, text)));
    let bad =
        |why: &dyn fmt::Display| Error::invalid(format!("{place}: Tidewire's part of the log can't be read: {why}"));
    let share = |(part, text): (&str, &String)| {
        Ok((part.parse().map_err(|e| bad(&e))?, serde_json::from_str(text).map_err(|e| bad(&e))?))
    };
    domains.map(share).collect()
}

fn all<'a>(whole: &'a Mark, shares: &'a BTreeMap<u32, Mark>, of: u32) -> impl Iterator<Item = &'a Mark> {
    (0..of).map(move |part| shares.get(&part).unwrap_or(whole))
}

/// The table holds everything up to here, whoever owns it.
pub fn boundary(state: &State, whole: &Mark, place: &str) -> Result<Boundary> {
    let shares = shares(state, place)?;
    let of = shares.values().find_map(|mark| mark.of).unwrap_or(1);
    let marks = || all(whole, &shares, of);
    Ok(Boundary {
        position: marks().map(|mark| mark.boundary.position).min().unwrap_or_default(),
        complete_through: marks().map(|mark| mark.boundary.complete_through).min().unwrap_or_default(),
    })
}

/// One mark for all: what each of them promised of its own part has to be true of the others' parts, too.
fn joined(whole: &Mark, shares: &BTreeMap<u32, Mark>, of: u32, noted: Option<Boundary>, place: &str) -> Result<Mark> {
    let (marks, noted) = (|| all(whole, shares, of), noted.unwrap_or_default());
    let reached = marks().map(|mark| mark.boundary.position).min().unwrap_or_default().max(noted.position);
    let through = marks().map(|mark| mark.boundary.complete_through).min().unwrap_or_default();
    let (purged, truncate) =
        (marks().filter_map(|mark| mark.purged).max(), marks().filter_map(|mark| mark.truncate).max());
    let is_behind = marks().any(|mark| mark.truncate != truncate) || purged.is_some_and(|purged| purged > reached);
    if is_behind {
        let far = truncate.max(purged).unwrap_or_default();
        return Err(Error::invalid(format!(
            "{place}: the owners of its {of} parts stand at different points, so one process can't own all of it"
        ))
        .hint(format!("run those processes until each of them has passed {far}, then stop them")));
    }
    Ok(Mark {
        boundary: Boundary { position: reached, complete_through: through.max(noted.complete_through) },
        truncate,
        since: marks().filter_map(|mark| mark.since).min(),
        high: marks().map(|mark| mark.high).max().unwrap_or_default(),
        purged,
        spare: marks().map(|mark| mark.spare).min().unwrap_or_default(),
        of: None,
        ..whole.clone()
    })
}

impl Table {
    /// The actions with a mark. The owner of all takes the place of those of parts.
    pub(super) fn progress_actions(&self, mark: &Mark) -> Result<Vec<Action>> {
        let mut actions = vec![super::domain(&self.scope.domain(), mark)?.into()];
        if self.scope.is_whole() {
            let old = self.state.domains.keys().filter(|name| name.starts_with(SHARE_DOMAIN));
            let gone = |domain: &String| DomainMetadata {
                domain: domain.clone(),
                configuration: String::new(),
                removed: true,
            };
            actions.extend(old.map(|domain| Action::from(gone(domain))));
        }
        Ok(actions)
    }

    /// Do several own it?
    pub(super) fn is_shared(&self) -> bool {
        is_shared(&self.state)
    }

    /// Is a commit of another owner about what is this one's?
    pub(super) fn is_about_ours(&self, theirs: &[Action]) -> bool {
        let own_txn = self.app_prefix(&self.topic);
        let is_own_file = |path: &str| {
            let bucket = self.state.files.get(path).map(|add| add.bucket());
            self.files.holds(path) || bucket.is_none_or(|bucket| bucket.is_none() || self.scope.owns(bucket))
        };
        let is_own = |action: &Action| {
            let (txn, domain) = (action.txn.as_ref(), action.domain_metadata.as_ref());
            let is_other_share = |domain: &DomainMetadata| {
                let of = serde_json::from_str::<Mark>(&domain.configuration).ok().and_then(|mark| mark.of);
                domain.domain.starts_with(SHARE_DOMAIN) && (domain.removed || of != Some(self.scope.of))
            };
            txn.is_some_and(|txn| txn.app_id.starts_with(&own_txn))
                || domain.is_some_and(|d| {
                    d.domain == self.scope.domain() || d.domain == PROGRESS_DOMAIN || is_other_share(d)
                })
                || action.remove.as_ref().is_some_and(|remove| is_own_file(&remove.path))
                || action.add.as_ref().is_some_and(|add| add.bucket().is_none() || self.scope.owns(add.bucket()))
        };
        theirs.iter().any(is_own)
    }

    /// Offsets of the next messages that the last commits name: of the owner of all, those that every part has passed.
    pub fn offsets(&self) -> BTreeMap<TopicPartition, u64> {
        let prefix = format!("tidewire/{}/", self.config.owner());
        let (mut whole, mut of_parts) = (BTreeMap::new(), BTreeMap::<String, BTreeMap<TopicPartition, u64>>::new());
        for (app_id, version) in &self.state.txns {
            let told = app_id.strip_prefix(&prefix).and_then(|rest| rest.rsplit_once('/'));
            let Some((at, Ok(partition))) = told.map(|(at, partition)| (at, partition.parse())) else { continue };
            let (topic, part) = at.split_once('/').map_or((at, None), |(topic, part)| (topic, Some(part)));
            let offsets = match part {
                None => &mut whole,
                Some(part) => of_parts.entry(part.to_string()).or_default(),
            };
            offsets.insert(TopicPartition { topic: topic.into(), partition }, *version as u64);
        }
        let of_part = |part: u32, of: u32| {
            let mut all = whole.clone();
            // Those of a part that was joined with the others since say nothing any more.
            if self.state.domains.contains_key(&format!("{SHARE_DOMAIN}{part}")) {
                all.extend(of_parts.get(&part_name(part, of)).into_iter().flatten().map(|(at, n)| (at.clone(), *n)));
            }
            all
        };
        if !self.scope.is_whole() {
            return of_part(self.scope.part, self.scope.of);
        }
        let shares = self.state.domains.iter().filter(|(name, _)| name.starts_with(SHARE_DOMAIN));
        let of = shares.filter_map(|(_, text)| serde_json::from_str::<Mark>(text).ok()?.of).next();
        let all = of.map(|of| (0..of).map(|part| of_part(part, of)).reduce(least).unwrap_or_default());
        all.unwrap_or(whole)
    }

    /// The name under which the log keeps the offset of a partition of the table's topic.
    pub(super) fn app_id(&self, at: &TopicPartition) -> String {
        format!("{}{}", self.app_prefix(&at.topic), at.partition)
    }

    fn app_prefix(&self, topic: &str) -> String {
        let owner = self.config.owner();
        match self.scope.is_whole() {
            true => format!("tidewire/{owner}/{topic}/"),
            false => format!("tidewire/{owner}/{topic}/{}/", part_name(self.scope.part, self.scope.of)),
        }
    }

    /// A change after which all rows are other ones.
    pub(super) fn needs_the_whole_table(&self) -> Error {
        let table = self.name();
        Error::schema(format!(
            "{table}: a column's type, the key or the table itself is another one, so its rows have to be written anew; this process owns only part {} of {}",
            self.scope.part, self.scope.of
        ))
        .hint("stop all processes that own parts of the table, run one that owns all of it (`parts: 1`, or `tidewire run`) until it has passed this change, then start them again")
        .on_table(table)
    }
}

fn part_name(part: u32, of: u32) -> String {
    format!("{part}of{of}")
}

/// What both have passed.
pub fn least<K: Ord>(one: BTreeMap<K, u64>, other: BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let both = one.into_iter().filter_map(|(at, offset)| Some((offset.min(*other.get(&at)?), at)));
    both.map(|(offset, at)| (at, offset)).collect()
}

/// Does a commit change what belongs to the table as a whole?
pub fn is_about_the_whole(actions: &[Action]) -> bool {
    let is_shared = |name: &str| name == LAYOUT_DOMAIN || name == BUCKETS_DOMAIN || name.starts_with("tidewire.next");
    let is_one = |action: &Action| {
        let domain = action.domain_metadata.as_ref().is_some_and(|domain| is_shared(&domain.domain));
        domain || action.meta_data.is_some() || action.protocol.is_some()
    };
    actions.iter().any(is_one)
}
