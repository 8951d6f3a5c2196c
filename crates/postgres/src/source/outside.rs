//! Bytes that a server, or who stands between it and us, may send; and checkpoints: for the fuzz targets.

use super::placed::copy_text::CopyDecoder;
use super::placed::ledger::TableRead;
use super::resume::{Place, Plan};
use super::{decode, resume};
use bytes::Bytes;
use tidewire_change::{Checkpoint, ErrorKind};

/// Whether the bytes are a message of pgoutput. Panics unless they are read, or refused as malformed.
pub fn pgoutput(bytes: &[u8]) -> bool {
    is_fine(decode::decode(Bytes::copy_from_slice(bytes)), ErrorKind::Malformed)
}

/// Whether the bytes are a line of COPY with as many columns as the first byte says.
pub fn copied_row(bytes: &[u8]) -> bool {
    let Some((columns, line)) = bytes.split_first() else { return false };
    let mut decoder = CopyDecoder::new(usize::from(*columns));
    let first = decoder.row(line);
    // A line that is refused leaves nothing behind.
    let again = decoder.row(line);
    assert_eq!(first.as_ref().ok(), again.as_ref().ok());
    is_fine(first, ErrorKind::Malformed)
}

/// Whether the bytes are what a checkpoint of ours holds. Panics unless they are read, or refused as invalid.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let checkpoint = Checkpoint { resume: Bytes::copy_from_slice(bytes), ..Checkpoint::default() };
    let _ = resume::place(&checkpoint);
    is_fine(resume::decode(&checkpoint), ErrorKind::Invalid)
}

/// What a checkpoint of ours holds.
pub fn some_checkpoint() -> Vec<u8> {
    let mut read = TableRead::new(0, 9);
    read.condition = Some("a > 1".into());
    let plan = Plan { reads: vec![read], keys: vec![(9, vec![vec!["k".into()]])], ..Plan::default() };
    resume::encode(&Place::new("7".into(), 1, "s".into()), &resume::encode_plan(&plan)).to_vec()
}

fn is_fine<T>(read: tidewire_change::Result<T>, kind: ErrorKind) -> bool {
    if let Err(error) = &read {
        assert!(error.kind() == kind && !error.message().is_empty(), "{error}");
    }
    read.is_ok()
}
