//! The first test: eleven messages of the design's origin.

use crate::replica::{change, row, schema, Held, Replica};
use tidewire_change::{Change, Key, Kind, Op, Position};

fn messages() -> Vec<Option<Change>> {
    let numeric = Kind::Numeric { precision_scale: Some((12, 2)) };
    let orders = schema(Key::Columns(vec![0]), &[("id", Kind::Int32), ("status", Kind::Text), ("total", numeric)]);
    let put = |op, id, status, total, lsn| {
        let whole = row(&[Some(id), Some(status), Some(total)]);
        Some(change(&orders, op, Position::new(lsn, 0), Some(whole)))
    };
    vec![
        put(Op::Read, "1", "paid", "25.00", 100),
        put(Op::Read, "2", "paid", "10.00", 100),
        put(Op::Update, "1", "shipped", "25.00", 120),
        put(Op::Create, "3", "new", "60.00", 130),
        put(Op::Update, "1", "shipped", "25.00", 120),
        put(Op::Update, "3", "paid", "60.00", 150),
        Some(change(&orders, Op::Delete, Position::new(160, 0), Some(row(&[Some("2"), None, None])))),
        // The tombstone of 2.
        None,
        put(Op::Update, "3", "new", "60.00", 140),
        put(Op::Update, "2", "refunded", "10.00", 155),
        put(Op::Create, "4", "paid", "15.00", 170),
    ]
}

#[test]
fn the_replica_holds_the_newest_of_each_order_and_applying_all_again_changes_no_row() {
    let messages = messages();
    let changes = |offsets: std::ops::RangeInclusive<usize>| -> Vec<Change> {
        messages[offsets.start() - 1..*offsets.end()].iter().flatten().cloned().collect()
    };
    let mut replica = Replica::default();
    replica.write(&changes(1..=4));
    replica.write(&changes(5..=8));
    replica.write(&changes(9..=11));

    let held = |id, status, total, lsn, live| {
        let row = row(&[Some(id), Some(status), Some(total)]);
        Held { row, position: Position::new(lsn, 0), live }
    };
    let expected = [
        held("1", "shipped", "25.00", 120, true),
        held("2", "paid", "10.00", 160, false),
        held("3", "paid", "60.00", 150, true),
        held("4", "paid", "15.00", 170, true),
    ];
    assert!(replica.rows.values().eq(&expected), "{:#?}", replica.rows);

    let before = replica.clone();
    for batch in [1..=4, 5..=8, 9..=11, 1..=11] {
        replica.write(&changes(batch));
    }
    assert_eq!(replica, before);
}
