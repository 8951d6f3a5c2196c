//! Segments of any bytes, for the fuzz targets.

use crate::config::{Config, SystemClock};
use crate::frame::{checksum, Head, HEAD};
use crate::header::{self, index_path};
use crate::journal::Journal;
use crate::messages::{Read, Start};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewire_change::{Checkpoint, Message, Position, Result};
use tidewire_connector::BusWriter;

/// A journal with one segment, whose bytes come from outside.
pub struct Journals {
    dir: PathBuf,
    segment: PathBuf,
}

impl Journals {
    /// A journal in the empty folder `dir`, and the bytes of its segment.
    pub async fn new(dir: &Path) -> Result<(Journals, Vec<u8>)> {
        let journal = Journal::open(Config::new(dir), Arc::new(SystemClock))?;
        let message = |topic: &str, key: &'static str, n: usize| Message {
            topic: Arc::from(topic),
            partition: 0,
            key: Bytes::from_static(key.as_bytes()),
            value: Bytes::from(vec![b'v'; n]),
            timestamp: 1_700_000_000_000_000,
        };
        let checkpoint = |commit| Checkpoint {
            position: Position::new(commit, 1),
            complete_through: 5,
            resume: Bytes::from_static(b"r"),
        };
        journal.append(vec![message("a.t", "k", 3), message("b.t", "", 0)], Some(checkpoint(7))).await?;
        journal.append(vec![message("a.t", "l", 20)], None).await?;
        journal.append(Vec::new(), Some(checkpoint(9))).await?;
        drop(journal);
        let in_folder = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let segment = in_folder.filter(|path| header::sequence_in_name(path).is_some()).min();
        let segment = segment.expect("a journal has a segment");
        let bytes = std::fs::read(&segment).expect("which can be read");
        Ok((Journals { dir: dir.to_path_buf(), segment }, bytes))
    }

    /// Whether the bytes, behind the first one, are a segment; with an odd first byte the checksums in it are made right.
    /// Panics unless it is read, or refused with its place.
    pub fn segment(&self, bytes: &[u8]) -> bool {
        let Some((how, rest)) = bytes.split_first() else { return false };
        let mut rest = rest.to_vec();
        if how & 1 == 1 {
            seal(&mut rest);
        }
        std::fs::write(&self.segment, rest).expect("the folder can be written");
        let _ = std::fs::remove_file(index_path(&self.segment));
        let read = self.read_all();
        if let Err(error) = &read {
            assert!(error.to_string().contains(&self.dir.display().to_string()), "no place is named: {error}");
        }
        read.is_ok()
    }

    fn read_all(&self) -> Result<()> {
        let view = Journal::read_only(&self.dir)?;
        for topic in view.topics() {
            let read = Read { topic: topic.topic.clone(), partition: None, start: Start::Earliest };
            view.read(read).try_for_each(|message| message.map(drop))?;
        }
        view.verify()
    }
}

/// Makes the checksums of header and frames right, as far as their lengths lead.
fn seal(segment: &mut [u8]) {
    let word = |at: usize| segment.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    let Some(mut at) = word(8).filter(|len| (HEAD..=segment.len()).contains(len)) else { return };
    header::seal(&mut segment[..at]);
    while let Some(head) = Head::parse(&segment[at..]) {
        let Some(frame) = segment.get_mut(at..at + head.frame_len()) else { return };
        let crc = checksum(frame);
        frame[8..12].copy_from_slice(&crc.to_le_bytes());
        at += head.frame_len();
    }
}
