use super::Mark;
use crate::data::Written;
use crate::rows::Stamp;
use crate::store::Syncing;
use roaring::RoaringBitmap;
use std::collections::{BTreeMap, BTreeSet};
use tidewire_change::{Position, Row};

/// What was written since the last commit.
pub struct Pending {
    pub buffer: Option<Buffer>,
    /// Files that are on disk, by number.
    pub files: BTreeMap<u32, Written>,
    /// Their contents on the way there.
    pub syncing: Vec<Syncing>,
    /// Rows that newer ones replace, by file; pending files among them.
    pub strikes: BTreeMap<u32, RoaringBitmap>,
    /// Files of the table that go as a whole.
    pub removed: BTreeSet<u32>,
    /// All that the table held goes: the index starts anew.
    pub emptied: bool,
    /// From this commit on the table is written anew beside the one that readers see; where it begins.
    pub hides: Option<Position>,
    /// Readers see the new table from this commit on.
    pub shows: bool,
    pub layout_changed: bool,
    pub columns_changed: bool,
    pub truncate: Option<Position>,
    pub since: Option<Position>,
    pub high: Position,
    pub rows: u64,
    /// Of those rows, as they came.
    pub bytes: u64,
    /// Some of the new rows are there only to say that they are deleted.
    pub has_deleted: bool,
    /// Wall times of the source's transactions by their commits, for the change data feed.
    pub times: BTreeMap<u64, i64>,
    /// Files of rows that were there before, under another layout.
    pub converted: BTreeSet<u32>,
}

/// Rows that will become the file `file`.
pub struct Buffer {
    pub file: u32,
    pub rows: Vec<Buffered>,
    pub bytes: usize,
}

pub struct Buffered {
    pub key: u128,
    /// In the order of `Layout::write_order`.
    pub row: Row,
    pub stamp: Stamp,
    /// A newer one has come meanwhile.
    pub dead: bool,
}

impl Pending {
    pub fn new(mark: &Mark) -> Pending {
        Pending {
            buffer: None,
            files: BTreeMap::new(),
            syncing: Vec::new(),
            strikes: BTreeMap::new(),
            removed: BTreeSet::new(),
            emptied: false,
            hides: None,
            shows: false,
            layout_changed: false,
            columns_changed: false,
            truncate: mark.truncate,
            since: mark.since,
            high: mark.high,
            rows: 0,
            bytes: 0,
            has_deleted: false,
            times: BTreeMap::new(),
            converted: BTreeSet::new(),
        }
    }

    /// Is there anything that readers would see, or that has to be remembered?
    pub fn is_dirty(&self, mark: &Mark) -> bool {
        self.buffer.is_some()
            || !self.files.is_empty()
            || !self.strikes.is_empty()
            || !self.removed.is_empty()
            || self.layout_changed
            || self.hides.is_some()
            || self.shows
            || self.truncate != mark.truncate
            || self.since != mark.since
    }
}
