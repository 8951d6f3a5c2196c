//! What `reduce` makes of one batch.

use crate::replica::{change, row, schema};
use std::sync::Arc;
use tidewire_change::{Change, ErrorKind, Key, Kind, Op, Position, Schema};
use tidewire_flow::{applied, reduce, Applied};

fn table() -> Arc<Schema> {
    schema(Key::Columns(vec![0]), &[("id", Kind::Int32), ("small", Kind::Text), ("big", Kind::Text)])
}

fn at(table: &Arc<Schema>, op: Op, commit: u64, values: [Option<&str>; 3]) -> Change {
    change(table, op, Position::new(commit, 0), Some(row(&values)))
}

const BIG: Option<&str> = None;

#[test]
fn a_partial_update_takes_what_it_lacks_from_the_change_before_it() {
    let table = table();
    let reduced = reduce(vec![
        at(&table, Op::Create, 1, [Some("1"), Some("a"), Some("large")]),
        at(&table, Op::Update, 2, [Some("1"), Some("b"), BIG]),
        at(&table, Op::Update, 3, [Some("1"), Some("c"), BIG]),
    ]);
    let whole = at(&table, Op::Update, 3, [Some("1"), Some("c"), Some("large")]);
    assert_eq!(reduced.unwrap().changes, [whole]);
}

#[test]
fn a_deleted_row_keeps_its_last_values() {
    let table = table();
    let reduced = reduce(vec![
        at(&table, Op::Read, 1, [Some("1"), Some("a"), Some("large")]),
        at(&table, Op::Delete, 2, [Some("1"), None, BIG]),
    ]);
    assert_eq!(reduced.unwrap().changes, [at(&table, Op::Delete, 2, [Some("1"), Some("a"), Some("large")])]);
}

#[test]
fn a_deleted_row_lends_nothing_to_the_row_after_it() {
    let table = table();
    let delete = at(&table, Op::Delete, 2, [Some("1"), None, BIG]);
    for op in [Op::Create, Op::Update] {
        let reduced = reduce(vec![delete.clone(), at(&table, op, 3, [Some("1"), Some("b"), BIG])]).unwrap();
        assert_eq!((reduced.changes, reduced.incomplete), (vec![delete.clone()], 1));
    }
}

#[test]
fn a_new_row_that_lacks_columns_takes_none_from_an_older_one() {
    let table = table();
    let reduced = reduce(vec![
        at(&table, Op::Create, 2, [Some("1"), Some("b"), BIG]),
        at(&table, Op::Update, 3, [Some("1"), Some("c"), BIG]),
    ]);
    let changes = reduced.unwrap().changes;
    assert_eq!(changes, [at(&table, Op::Create, 3, [Some("1"), Some("c"), BIG])]);
    let older = row(&[Some("1"), Some("a"), Some("of an older row")]);
    assert_eq!(applied(&changes[0], Some((&older, true))), Applied::Incomplete);
}

#[test]
fn a_reader_that_goes_back_within_a_batch_brings_no_old_column_back() {
    let table = table();
    // The create of the row that the update means was in the batch before; this batch goes back to a row before that.
    let update = at(&table, Op::Update, 4, [Some("1"), Some("b"), BIG]);
    let old = at(&table, Op::Create, 1, [Some("1"), Some("a"), Some("old")]);
    assert_eq!(reduce(vec![update.clone(), old]).unwrap().changes, [update]);
}

#[test]
fn an_update_with_the_whole_old_row_lacks_nothing() {
    let table = table();
    let mut update = at(&table, Op::Update, 2, [Some("1"), Some("b"), BIG]);
    update.before = Some(row(&[Some("1"), Some("a"), Some("large")]));
    let after = reduce(vec![update]).unwrap().changes.remove(0).after;
    assert_eq!(after, Some(row(&[Some("1"), Some("b"), Some("large")])));
}

#[test]
fn a_truncate_drops_what_lies_below_it_wherever_it_comes_in_the_batch() {
    let table = table();
    let truncate = change(&table, Op::Truncate, Position::new(2, 0), None);
    let below = at(&table, Op::Create, 1, [Some("1"), Some("a"), Some("x")]);
    let above = at(&table, Op::Create, 3, [Some("2"), Some("a"), Some("x")]);
    let reduced = reduce(vec![above.clone(), truncate, below]).unwrap();
    assert_eq!((reduced.truncate, reduced.changes), (Some(Position::new(2, 0)), vec![above]));
}

#[test]
fn rows_known_by_their_position_stay_all_each_once() {
    let table = schema(Key::Position, &[("line", Kind::Text)]);
    let line = |commit| change(&table, Op::Create, Position::new(commit, 0), Some(row(&[Some("same")])));
    let reduced = reduce(vec![line(3), line(1), line(3), line(2)]).unwrap();
    assert_eq!(reduced.changes, [line(1), line(2), line(3)]);
}

#[test]
fn two_schemas_in_one_call_are_a_fault_of_the_caller() {
    let other = schema(Key::Columns(vec![0]), &[("id", Kind::Int32)]);
    let first = at(&table(), Op::Create, 1, [Some("1"), Some("a"), Some("x")]);
    let second = change(&other, Op::Create, Position::new(2, 0), Some(row(&[Some("1")])));
    assert_eq!(reduce(vec![first, second]).unwrap_err().kind(), ErrorKind::Bug);
}
