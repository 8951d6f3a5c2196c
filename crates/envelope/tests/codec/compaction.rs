use crate::schema;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::sync::Arc;
use tidewire_change::{Change, Datum, ErrorKind, Kind, Op, Position, Row, Schema};
use tidewire_envelope::native::{decode, encode, merge};

fn memo() -> Arc<Schema> {
    schema(&[("id", Kind::Int32), ("small", Kind::Text), ("big", Kind::Text)])
}

fn datum(text: Option<&str>) -> Datum<'_> {
    text.map_or(Datum::Unchanged, |text| Datum::Text(text.as_bytes()))
}

fn encoded(change: &Change) -> Bytes {
    let mut out = BytesMut::new();
    encode(change, change.schema.id(), &mut out);
    out.freeze()
}

/// `None` is an unchanged column.
fn message(op: Op, commit: u64, small: Option<&str>, big: Option<&str>) -> Bytes {
    let row = Some(Row::from_datums([Datum::Text(b"1"), datum(small), datum(big)]));
    let (before, after) = if op == Op::Delete { (row, None) } else { (None, row) };
    let position = Position::new(commit, 0);
    encoded(&Change { schema: memo(), op, position, committed_at: 0, xid: None, before, after })
}

#[test]
fn a_partial_update_is_made_whole_and_a_whole_one_stays_as_it_is() {
    let create = message(Op::Create, 1, Some("a"), Some("large"));
    let partial = message(Op::Update, 2, Some("b"), None);
    let whole = message(Op::Update, 2, Some("b"), Some("large"));
    assert_eq!(merge(&create, &partial).unwrap(), Some(whole.clone()));
    assert_eq!(merge(&create, &whole).unwrap(), Some(whole.clone()));
    assert_eq!(merge(&whole, &create).unwrap(), Some(whole));
}

#[test]
fn a_delete_keeps_the_last_values_and_lends_none() {
    let create = message(Op::Create, 1, Some("a"), Some("large"));
    let delete = message(Op::Delete, 2, None, None);
    let kept = message(Op::Delete, 2, Some("a"), Some("large"));
    assert_eq!(merge(&create, &delete).unwrap(), Some(kept.clone()));
    for op in [Op::Create, Op::Update] {
        assert_eq!(merge(&kept, &message(op, 3, Some("b"), None)).unwrap(), Some(kept.clone()));
    }
    let again = message(Op::Create, 3, Some("b"), Some("c"));
    assert_eq!(merge(&kept, &again).unwrap(), Some(again));
}

#[test]
fn a_partial_update_under_another_schema_leaves_both_in_place() {
    let old = message(Op::Create, 1, Some("a"), Some("large"));
    let wider = schema(&[("id", Kind::Int32), ("small", Kind::Text), ("big", Kind::Text), ("more", Kind::Text)]);
    let row = |big| Some(Row::from_datums([Datum::Text(b"1"), Datum::Text(b"b"), big, Datum::Null]));
    let update = |big| {
        let (op, position) = (Op::Update, Position::new(2, 0));
        let schema = wider.clone();
        encoded(&Change { schema, op, position, committed_at: 0, xid: None, before: None, after: row(big) })
    };
    assert_eq!(merge(&old, &update(Datum::Unchanged)).unwrap(), None);
    let whole = update(Datum::Text(b"large"));
    assert_eq!(merge(&old, &whole).unwrap(), Some(whole));
}

#[test]
fn tombstones_stay_and_what_is_no_message_is_malformed() {
    let create = message(Op::Create, 1, Some("a"), Some("large"));
    assert_eq!(merge(&create, &Bytes::new()).unwrap(), Some(Bytes::new()));
    assert_eq!(merge(&Bytes::new(), &create).unwrap(), Some(create.clone()));
    assert_eq!(merge(&create, &create.slice(..9)).unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(merge(&create.slice(..9), &create).unwrap_err().kind(), ErrorKind::Malformed);
}

/// What a sink holds of the one key: row, position, live.
type Held = Option<(Row, Position, bool)>;

fn apply(held: &mut Held, message: &Bytes) {
    let change = decode(message.clone(), &|_| Some(memo())).unwrap();
    if held.as_ref().is_some_and(|(_, position, _)| change.position <= *position) {
        return;
    }
    let live = change.op != Op::Delete;
    let mut row = change.key_row().expect("no truncates here").clone();
    match held {
        Some((base, _, true)) if change.op == Op::Update => row = row.completed_from(base),
        _ => {}
    }
    if !live || !row.has_unchanged() {
        *held = Some((row, change.position, live));
    }
}

/// The log of one key: each step is what is done and whether the large column was sent.
fn log(steps: &[(u8, bool)]) -> Vec<Bytes> {
    let (mut log, mut live) = (Vec::new(), false);
    for (index, (step, with_big)) in steps.iter().enumerate() {
        let (commit, small) = (index as u64 + 1, index.to_string());
        let big = format!("big{index}");
        let big = with_big.then_some(big.as_str());
        let (op, big) = match (live, step % 3) {
            (false, _) => (Op::Create, big),
            (true, 0) => (Op::Delete, None),
            (true, _) => (Op::Update, big),
        };
        live = op != Op::Delete;
        let small = live.then_some(small.as_str());
        log.push(message(op, commit, small, big));
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_compacted_topic_brings_every_reader_to_where_the_whole_one_does(
        steps in prop::collection::vec((0u8..3, any::<bool>()), 1..12),
        bounds in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        seen in any::<prop::sample::Index>(),
    ) {
        let log = log(&steps);
        // The topic is compacted in pieces, each to one message.
        let mut ends: Vec<usize> = bounds.iter().map(|bound| bound.index(log.len())).chain([log.len()]).collect();
        ends.sort_unstable();
        let mut start = 0;
        let mut compacted: Vec<Bytes> = Vec::new();
        for end in ends.into_iter().filter(|end| *end > 0) {
            let piece = log[start..end].iter().cloned();
            compacted.extend(piece.reduce(|older, newer| merge(&older, &newer).unwrap().expect("one schema")));
            start = end;
        }
        // A reader that has seen a part of the topic before it was compacted.
        let mut reader: Held = None;
        log[..seen.index(log.len() + 1)].iter().for_each(|message| apply(&mut reader, message));
        compacted.iter().for_each(|message| apply(&mut reader, message));
        let mut expected: Held = None;
        log.iter().for_each(|message| apply(&mut expected, message));

        let position = |held: &Held| held.as_ref().map(|(_, position, live)| (*position, *live));
        let live_row = |held: &Held| held.as_ref().filter(|held| held.2).map(|held| held.0.clone());
        prop_assert_eq!(position(&reader), position(&expected));
        prop_assert_eq!(live_row(&reader), live_row(&expected));
    }
}
