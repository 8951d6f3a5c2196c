//! The bytes that a checkpoint carries for this source: where the log goes on, and what is still to be read.

use super::placed::gate::Gate;
use super::placed::ledger::TableRead;
use super::signals::Signals;
use super::watch::Known;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidewire_change::{Checkpoint, Error, Result};

/// The form of these bytes. A version that doesn't know a form refuses it.
const FORM: u32 = 1;

/// Changes with every checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    pub form: u32,
    /// The server may forget what lies before.
    pub lsn: u64,
    /// Added to the server's LSNs: positions never go back, even when the log began anew.
    pub base: u64,
    pub system: String,
    pub timeline: u32,
    pub slot: String,
    /// Transactions that were streamed and perhaps aren't visible yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Gate>,
    /// Commit LSN of the last transaction that was read with changes of ours: a log that has none there is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// Oid of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<u32>,
}

/// Changes now and then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub tables: Vec<Known>,
    pub reads: Vec<TableRead>,
    /// Keys to read again: per table their values, in key order.
    pub keys: Vec<(u32, Vec<Vec<String>>)>,
    pub keyless: Vec<Keyless>,
    /// The slot was another reader's, which has told the tables' rows: all changes from here on are ours to tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    #[serde(default, skip_serializing_if = "Signals::is_empty")]
    pub signals: Signals,
}

/// Streamed changes of a table without a key that its placed read already holds: those whose transaction `snapshot` sees,
/// up to `until` (LSN).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Keyless {
    pub table: u32,
    pub snapshot: String,
    pub until: u64,
}

impl Place {
    pub fn new(system: String, timeline: u32, slot: String) -> Place {
        Place { form: FORM, lsn: 0, base: 0, system, timeline, slot, unseen: None, commit: None, database: None }
    }
}

#[derive(Deserialize)]
struct Both {
    #[serde(flatten)]
    place: Place,
    plan: Plan,
}

/// `plan` comes encoded: it seldom changes.
pub(super) fn encode(place: &Place, plan: &str) -> Bytes {
    let place = serde_json::to_string(place).expect("numbers and strings have a JSON form");
    Bytes::from(format!("{},\"plan\":{plan}}}", &place[..place.len() - 1]))
}

pub(super) fn encode_plan(plan: &Plan) -> String {
    serde_json::to_string(plan).expect("numbers and strings have a JSON form")
}

/// What the server may forget once the checkpoint is durable, LSN. It stands in front of the long part.
pub(super) fn place(checkpoint: &Checkpoint) -> Result<u64> {
    let text = std::str::from_utf8(&checkpoint.resume).ok().and_then(|text| text.split_once("\"lsn\":"));
    let digits = text.and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Error::bug("a checkpoint of our own has no place in the log"))
}

/// `Invalid` when another program or a newer version wrote it.
pub(super) fn decode(checkpoint: &Checkpoint) -> Result<(Place, Plan)> {
    let unknown = || {
        Error::invalid("the checkpoint in the journal wasn't written by this version's PostgreSQL source")
            .hint("run the version that wrote it, or start with an empty data_dir")
    };
    let both: Both = serde_json::from_slice(&checkpoint.resume).map_err(|e| unknown().caused_by(e))?;
    if both.place.form != FORM {
        return Err(unknown());
    }
    let mut plan = both.plan;
    for read in &mut plan.reads {
        read.leaves.iter_mut().for_each(super::placed::ledger::LeafPlan::resume);
    }
    Ok((both.place, plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_comes_back_and_foreign_bytes_are_refused() {
        let mut place = Place::new("7".into(), 1, "s".into());
        (place.lsn, place.unseen) = (5, Some(Gate { from: 1, to: 2 }));
        let mut read = TableRead::new(0, 9);
        read.condition = Some("a > '\"'".into());
        let keys = vec![(9, vec![vec!["a\"b".into(), "é".into()]])];
        let plan = Plan { reads: vec![read], keys, ..Plan::default() };
        let checkpoint = Checkpoint { resume: encode(&place, &encode_plan(&plan)), ..Checkpoint::default() };
        assert_eq!(decode(&checkpoint).unwrap(), (place.clone(), plan.clone()));
        assert_eq!(super::place(&checkpoint).unwrap(), 5);
        place.form = 2;
        for resume in [encode(&place, &encode_plan(&plan)), Bytes::from_static(b"{}"), Bytes::new()] {
            assert!(decode(&Checkpoint { resume, ..Checkpoint::default() }).is_err());
        }
    }
}
