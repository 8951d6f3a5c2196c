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
async fn a_table_that_changes_its_kind_is_written_anew_in_one_commit_and_old_changes_never_come_back() {
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
        let placed = change(next, Op::Read, 6, 0, row(&[Some("1"), Some("8")]));
        assert_eq!(write(&mut sink, next, vec![placed.clone()]).await.applied, 1);
        sink.commit(&progress(first, 2, 6)).await.unwrap();
        drop(sink);
        let mut sink = open(&config).await;
        let written = write(&mut sink, first, old[..49].to_vec()).await;
        assert_eq!((written.applied, written.stale), (0, 49));
        assert_eq!(write(&mut sink, next, vec![placed]).await.stale, 1);
        sink.commit(&progress(first, 3, 6)).await.unwrap();
        let mut expected = values(&[&[Some("1"), Some("8")]]);
        let same_table = first.source_id == next.source_id;
        // Another table's rows come bit by bit: they are shown when all are there.
        assert_eq!(sink.rewritten().is_empty(), same_table);
        for rewritten in sink.rewritten() {
            let old: Vec<Values> = (0..50).map(|n| vec![Some(n.to_string()), Some("7".into())]).collect();
            readers::check(&config, first, &comparable(old));
            sink.show(&rewritten).await.unwrap();
            sink.commit(&progress(first, 4, 6)).await.unwrap();
        }
        let keeps = |n: &i32| same_table && (*n != 1 || next.key_columns().is_empty());
        expected.extend((0..50).filter(keeps).map(|n| vec![Some(n.to_string()), Some("7".into())]));
        expected.sort();
        assert_eq!(inspect(&config, next, None).await.0, expected);
        validator::check(&folder_of(&config, first));
        readers::check(&config, next, &expected);
    }
}

#[tokio::test]
async fn a_value_that_a_wider_type_spells_otherwise_is_what_the_database_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let columns = |real: Kind, day: Kind| {
        with(vec![column("id", Kind::Int32, 1), column("r", real, 2), column("day", day, 3)], 1)
    };
    let narrow = columns(Kind::Float32, Kind::Date);
    let wide = columns(Kind::Float64, Kind::Timestamp);
    let mut sink = open(&config).await;
    let rows = [[Some("1"), Some("0.1"), Some("2026-01-02")], [Some("2"), Some("NaN"), None]];
    write(&mut sink, &narrow, rows.iter().zip(0..).map(|(r, n)| change(&narrow, Op::Create, 1, n, row(r))).collect())
        .await;
    sink.commit(&progress(&narrow, 1, 1)).await.unwrap();
    let at = Some("2026-01-03 04:05:06");
    write(&mut sink, &wide, vec![change(&wide, Op::Create, 2, 0, row(&[Some("3"), Some("0.1"), at]))]).await;
    sink.commit(&progress(&narrow, 2, 2)).await.unwrap();
    let expected = values(&[
        &[Some("1"), Some("0.10000000149011612"), Some("2026-01-02 00:00:00")],
        &[Some("2"), Some("NaN"), None],
        &[Some("3"), Some("0.1"), at],
    ]);
    assert_eq!(inspect(&config, &wide, None).await.0, expected);
    readers::check(&config, &wide, &expected);
}

fn comparable(mut rows: Vec<Values>) -> Vec<Values> {
    rows.sort();
    rows
}

fn mixed(n: u32) -> String {
    if n.is_multiple_of(3) {
        format!("text {n}")
    } else {
        n.to_string()
    }
}

/// Retyped and taken over while changes wait, files have struck rows, and rows are deleted; then cut off and opened again.
#[tokio::test]
async fn a_retyped_column_keeps_its_values_until_the_sources_own_come_and_no_version_is_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.buffer_bytes = 2000;
    config.index_entries = 40;
    let columns =
        |kind, other| vec![column("id", Kind::Int32, 1), column("v", kind, 2), column("w", Kind::Text, other)];
    let (old, new) = (with(columns(Kind::Text, 3), 1), with(columns(Kind::Int64, 4), 1));
    let create = |n: u32| change(&old, Op::Create, 5, n, row(&[Some(&n.to_string()), Some(&mixed(n)), Some("w")]));
    let mut sink = open(&config).await;
    write(&mut sink, &old, (0..200).map(create).collect()).await;
    sink.commit(&progress(&old, 1, 5)).await.unwrap();
    let delete = |n: u32| change(&old, Op::Delete, 6, n, row(&[Some(&n.to_string()), None, None]));
    write(&mut sink, &old, (0..50).map(delete).collect()).await;
    let update = |n: u32| change(&old, Op::Update, 7, n, row(&[Some(&n.to_string()), Some("-1"), Some("w")]));
    write(&mut sink, &old, (50..100).map(update).collect()).await;
    let read = |n: u32| change(&new, Op::Read, 9, n, row(&[Some(&n.to_string()), Some("5"), Some("other")]));
    write(&mut sink, &new, (190..200).map(read).collect()).await;
    // Nothing is committed yet: a crash here.
    drop(sink);
    let (before, _) = inspect(&config, &old, None).await;
    assert_eq!((before.len(), before[0][2].as_deref()), (200, Some("w")));
    let mut sink = open(&config).await;
    write(&mut sink, &old, (0..50).map(delete).chain((50..100).map(update)).collect()).await;
    assert_eq!(write(&mut sink, &new, (190..200).map(read).collect()).await.applied, 10);
    sink.commit(&progress(&old, 2, 9)).await.unwrap();
    let value = |n: u32| match n {
        50..100 => [Some("-1".into()), None],
        190..200 => [Some("5".into()), Some("other".into())],
        n => [Some(mixed(n)), None],
    };
    let mut expected: Vec<Values> =
        (50..200).map(|n| std::iter::once(Some(n.to_string())).chain(value(n)).collect()).collect();
    expected.sort();
    assert_eq!(inspect(&config, &new, None).await.0, expected);
    validator::check(&folder_of(&config, &new));
    readers::check(&config, &new, &expected);
    // A deleted row is known still, and so is each row's place: with the index, and without it.
    for _ in 0..2 {
        let late = change(&new, Op::Update, 5, 300, row(&[Some("7"), Some("1"), None]));
        assert_eq!(write(&mut sink, &new, vec![late]).await.stale, 1);
        let next = change(&new, Op::Update, 10, 0, row(&[Some("60"), Some("6"), Some("x")]));
        write(&mut sink, &new, vec![next]).await;
        sink.commit(&progress(&old, 3, 10)).await.unwrap();
        assert_eq!(inspect(&config, &new, None).await.0.len(), 150);
        drop(sink);
        std::fs::remove_dir_all(folder_of(&config, &new).join("_tidewire")).unwrap();
        sink = open(&config).await;
    }
}

#[tokio::test]
async fn a_key_over_other_columns_keeps_the_rows_and_each_key_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    config.buffer_bytes = 2000;
    config.index_entries = 16;
    let old = with(vec![column("id", Kind::Int32, 1), column("n", Kind::Int32, 2)], 1);
    let new = Arc::new(Schema { key: Key::Columns(vec![1]), ..Schema::clone(&old) });
    let mut sink = open(&config).await;
    // Numbers of the new key are those of the old one in another order; two rows share one, and one has none.
    let value = |n: u32| match n {
        7 => None,
        8 => Some("90".to_string()),
        n => Some((99 - n).to_string()),
    };
    let create = |n: u32| change(&old, Op::Create, 5, n, row(&[Some(&n.to_string()), value(n).as_deref()]));
    write(&mut sink, &old, (0..100).map(create).collect()).await;
    let delete = |n: u32| change(&old, Op::Delete, 6, n, row(&[Some(&n.to_string()), None]));
    write(&mut sink, &old, vec![delete(0), delete(1)]).await;
    sink.commit(&progress(&old, 1, 6)).await.unwrap();
    let update = change(&new, Op::Update, 8, 0, row(&[Some("1000"), Some("50")]));
    write(&mut sink, &new, vec![update]).await;
    sink.commit(&progress(&old, 2, 8)).await.unwrap();
    let kept = (2..100).filter(|n| ![7, 8, 49].contains(n)).map(|n| vec![Some(n.to_string()), value(n)]);
    let mut expected: Vec<Values> = kept.chain([vec![Some("1000".into()), Some("50".into())]]).collect();
    expected.sort();
    assert_eq!(inspect(&config, &new, None).await.0, expected);
    validator::check(&folder_of(&config, &new));
    readers::check(&config, &new, &expected);
}

#[tokio::test]
async fn a_type_that_the_configuration_asks_for_holds_what_it_prints_alike_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    let schema = with(vec![column("id", Kind::Int32, 1), column("v", Kind::Numeric { precision_scale: None }, 2)], 1);
    let texts = ["1.50", "1.5", "7", "NaN", "-0.25", "123456789012345678901234567890"];
    let changes = |commit| {
        let change = |(n, text): (usize, &&str)| {
            change(&schema, Op::Read, commit, n as u32, row(&[Some(&n.to_string()), Some(text)]))
        };
        texts.iter().enumerate().map(change).collect::<Vec<_>>()
    };
    let expected: Vec<Values> =
        texts.iter().enumerate().map(|(n, text)| vec![Some(n.to_string()), Some(text.to_string())]).collect();
    for (commit, ty) in
        [(5, None), (6, Some("decimal(10,2)")), (7, Some("double")), (8, Some("long")), (9, Some("text"))]
    {
        if let Some(ty) = ty {
            config.tables.types.set("public.t.v", ty).unwrap();
        }
        let mut sink = open(&config).await;
        // The first change under the new type writes the others anew.
        write(&mut sink, &schema, changes(commit)[..if ty.is_some() { 1 } else { 6 }].to_vec()).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
        assert_eq!(inspect(&config, &schema, None).await.0, expected, "{ty:?}");
        validator::check(&folder_of(&config, &schema));
        // A double is printed otherwise by other engines.
        if ty != Some("double") {
            readers::check(&config, &schema, &expected);
        }
    }
}
