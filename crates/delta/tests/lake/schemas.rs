//! Columns come and go, tables change their kind.

use crate::support::*;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::{Inspect, Sink};
use tidewire_delta::{Config, DeltaInspect};

fn with(columns: Vec<Column>, source_id: u64) -> Arc<Schema> {
    let schema = schema("t", columns, Key::Columns(vec![0]));
    Arc::new(Schema { source_id, ..Schema::clone(&schema) })
}

fn values(rows: &[&[Option<&str>]]) -> Vec<Values> {
    rows.iter().map(|row| row.iter().map(|v| v.map(String::from)).collect()).collect()
}

#[tokio::test]
async fn an_added_column_is_null_in_old_rows_and_a_dropped_one_stays_with_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let (id, a, b) = (column("id", Kind::Int32, 1), column("a", Kind::Text, 2), column("b", Kind::Timestamp, 3));
    let first = with(vec![id.clone(), a.clone()], 1);
    let wide = with(vec![id.clone(), a.clone(), b.clone()], 1);
    let narrow = with(vec![id.clone(), b.clone()], 1);
    let mut sink = open(&config).await;
    let rows = ["1", "2", "3", "4"].map(|k| row(&[Some(k), Some("old")]));
    write(&mut sink, &first, rows.into_iter().zip(0..).map(|(r, n)| change(&first, Op::Create, 1, n, r)).collect())
        .await;
    sink.commit(&progress(&first, 1, 1)).await.unwrap();
    let time = Some("2026-01-01 00:00:00");
    write(&mut sink, &wide, vec![change(&wide, Op::Update, 2, 0, row(&[Some("2"), Some("new"), time]))]).await;
    // Waits in memory under the wide schema when the narrow one comes.
    write(&mut sink, &narrow, vec![change(&narrow, Op::Update, 3, 0, row(&[Some("3"), time]))]).await;
    sink.commit(&progress(&first, 2, 3)).await.unwrap();
    drop(sink);
    let mut sink = open(&config).await;
    write(&mut sink, &narrow, vec![change(&narrow, Op::Update, 4, 0, row(&[Some("2"), None]))]).await;
    write(&mut sink, &narrow, vec![change(&narrow, Op::Create, 5, 0, row(&[Some("5"), time]))]).await;
    sink.commit(&progress(&first, 3, 5)).await.unwrap();
    let expected = values(&[
        &[Some("1"), Some("old"), None],
        &[Some("2"), Some("new"), None],
        &[Some("3"), Some("old"), time],
        &[Some("4"), Some("old"), None],
        &[Some("5"), None, time],
    ]);
    assert_eq!(inspect(&config, &wide, None).await.0, expected);
    validator::check(&folder_of(&config, &wide));
    readers::check(&config, &wide, &expected);
    assert_eq!(DeltaInspect::new(config).schemas().await.unwrap(), [narrow]);
}

#[tokio::test]
async fn a_renamed_column_is_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let old = with(vec![column("id", Kind::Int32, 1), column("a", Kind::Text, 2)], 1);
    let new = with(vec![column("id", Kind::Int32, 1), column("z", Kind::Text, 2)], 1);
    let mut sink = open(&config).await;
    write(&mut sink, &old, vec![change(&old, Op::Create, 1, 0, row(&[Some("1"), Some("x")]))]).await;
    sink.commit(&progress(&old, 1, 1)).await.unwrap();
    write(&mut sink, &new, vec![change(&new, Op::Read, 2, 0, row(&[Some("1"), Some("x")]))]).await;
    sink.commit(&progress(&old, 2, 2)).await.unwrap();
    assert_eq!(inspect(&config, &new, None).await.0, values(&[&[Some("1"), Some("x")]]));
    assert_eq!(inspect(&config, &old, None).await.0, values(&[&[Some("1"), Some("x")]]), "stays with its row");
}

#[tokio::test]
async fn a_table_that_changes_its_kind_loses_its_rows_and_old_changes_never_come_back() {
    let id = |kind| column("id", kind, 1);
    let first = with(vec![id(Kind::Int32), column("v", Kind::Text, 2)], 1);
    let retyped = with(vec![id(Kind::Int32), column("v", Kind::Int64, 2)], 1);
    let swapped = with(vec![id(Kind::Int32), column("v", Kind::Text, 2)], 2);
    let rekeyed = with(vec![id(Kind::Text), column("v", Kind::Text, 2)], 1);
    let keyless = Arc::new(Schema { key: Key::Position, ..Schema::clone(&first) });
    let bag = Arc::new(Schema { key: Key::WholeRow, ..Schema::clone(&first) });
    let pairs = [
        (&first, &retyped),
        (&first, &swapped),
        (&first, &rekeyed),
        (&first, &keyless),
        (&keyless, &first),
        (&keyless, &bag),
        (&bag, &first),
    ];
    for (first, next) in pairs {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::new(folder.path(), "p", "lake");
        let mut sink = open(&config).await;
        let old: Vec<Change> =
            (0..50).map(|n| change(first, Op::Create, 5, n, row(&[Some(&n.to_string()), Some("7")]))).collect();
        write(&mut sink, first, old.clone()).await;
        sink.commit(&progress(first, 1, 5)).await.unwrap();
        // Known, but nothing has come under it yet: readers still see the old rows.
        sink.prepare(next.clone()).await.unwrap();
        assert_eq!(inspect(&config, first, None).await.0.len(), 50);
        // A placed read may stand at the last position of all.
        let placed = change(next, Op::Read, 5, 49, row(&[Some("1"), Some("8")]));
        assert_eq!(write(&mut sink, next, vec![placed.clone()]).await.applied, 1);
        sink.commit(&progress(first, 2, 6)).await.unwrap();
        drop(sink);
        let mut sink = open(&config).await;
        let written = write(&mut sink, first, old[..49].to_vec()).await;
        assert_eq!((written.applied, written.stale), (0, 49));
        assert_eq!(write(&mut sink, next, vec![placed]).await.stale, 1);
        sink.commit(&progress(first, 3, 6)).await.unwrap();
        let expected = values(&[&[Some("1"), Some("8")]]);
        assert_eq!(inspect(&config, next, None).await.0, expected);
        validator::check(&folder_of(&config, first));
        readers::check(&config, next, &expected);
    }
}
