//! The change data feed, read by other engines and compared with what happened at the source.

use crate::support::readers::{changes_by, comparable, Told};
use crate::support::work::{KeyKind, Random, Source};
use crate::support::*;
use std::collections::BTreeMap;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

fn newest_version(config: &Config, schema: &Schema) -> u64 {
    let names = std::fs::read_dir(folder_of(config, schema).join("_delta_log")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).max().unwrap()
}

fn feeds(path: &std::path::Path) -> Config {
    let mut config = Config::new(path, "p", "lake");
    config.tables.change_feed.add("public.t").unwrap();
    config
}

/// Who can tell a table's changes.
fn readers() -> Vec<String> {
    readers::all().into_iter().filter(|reader| reader == "deltalake" || reader == "spark").collect()
}

/// Applies what is told to rows by their first `width` columns; everything told must fit what is there.
fn apply(rows: &mut BTreeMap<Values, Values>, told: &[Told], width: usize) {
    let key = |t: &Told| t.values[..width].to_vec();
    let of = |kind: &'static str| told.iter().filter(move |t| t.kind == kind);
    for t in of("delete").chain(of("update_preimage")) {
        assert_eq!(rows.remove(&key(t)).as_ref(), Some(&t.values), "{t:?}");
    }
    let before: Vec<Values> = of("update_preimage").map(key).collect();
    for t in of("update_postimage") {
        assert!(before.contains(&key(t)), "without what was before: {t:?}");
    }
    for t in of("insert").chain(of("update_postimage")) {
        assert!(rows.insert(key(t), t.values.clone()).is_none(), "it is there already: {t:?}");
    }
}

async fn run(seed: u64, kind: KeyKind, wish: impl Fn(&mut Config)) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = feeds(folder.path());
    wish(&mut config);
    config.buffer_bytes = 4000;
    config.index_entries = 40;
    config.upkeep.merge_files = 4;
    config.upkeep.checkpoint_commits = 7;
    let (mut random, mut source) = (Random::new(seed), Source::new(kind, 60));
    let schema = source.schema.clone();
    let mut sink = open(&config).await;
    let (mut at, mut states) = (0, BTreeMap::new());
    for _ in 0..30 {
        for _ in 0..1 + random.below(4) {
            let many = 1 + random.below(20);
            source.transact(&mut random, many);
        }
        // In pieces, some of them twice.
        let middle = at + (source.log.len() - at) / 2;
        write(&mut sink, &schema, source.log[at..middle].to_vec()).await;
        let from = if random.chance(30) { at } else { middle };
        write(&mut sink, &schema, source.log[from..].to_vec()).await;
        at = source.log.len();
        sink.commit(&progress(&schema, at as u64, source.log[at - 1].position.commit)).await.unwrap();
        if random.chance(10) {
            sink = open(&config).await;
        }
        sink.settle().await.unwrap();
        states.insert(newest_version(&config, &schema), source.sorted());
    }
    drop(sink);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &source.sorted());
    let Key::Columns(key) = &schema.key else { panic!() };
    for reader in readers() {
        let told: Vec<Told> = changes_by(&reader, &config, &schema);
        let mut rows = BTreeMap::new();
        for (version, state) in &states {
            let since = states.range(..version).next_back().map_or(0, |(version, _)| *version + 1);
            let of: Vec<Told> = told.iter().filter(|t| (since..=*version).contains(&t.version)).cloned().collect();
            apply(&mut rows, &of, key.len());
            let now: Vec<Values> = rows.values().cloned().collect();
            assert_eq!(
                comparable(now, &schema),
                comparable(state.clone(), &schema),
                "{reader}, seed {seed}, {version}"
            );
        }
        assert!(told.iter().any(|t| t.kind == "delete") && told.iter().any(|t| t.kind == "update_preimage"));
    }
}

#[tokio::test]
async fn the_feed_of_random_work_leads_from_each_version_to_the_next() {
    run(1, KeyKind::Integer, |_| {}).await;
    run(2, KeyKind::Mixed, |_| {}).await;
    run(3, KeyKind::Integer, |config| config.tables.partition_by.set("public.t", "flag").unwrap()).await;
}

#[tokio::test]
async fn a_deletion_tells_what_the_row_was_and_what_deleted_it_and_a_truncate_tells_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let config = feeds(folder.path());
    let schema = schema("t", vec![column("id", Kind::Int32, 1), column("v", Kind::Text, 2)], Key::Columns(vec![0]));
    let mut sink = open(&config).await;
    let put = |op, commit, id: &str, v| change(&schema, op, commit, 0, row(&[Some(id), v]));
    let gone = |commit, id: &str| {
        change(&schema, Op::Delete, commit, 0, Row::from_datums([Datum::Text(id.as_bytes()), Datum::Unchanged]))
    };
    let truncate = Change { op: Op::Truncate, after: None, ..put(Op::Create, 50, "0", None) };
    let commits: [(u64, Vec<Change>); 6] = [
        (10, ["1", "2", "3", "4"].map(|id| put(Op::Read, 10, id, Some("a"))).to_vec()),
        // The key 2 becomes 5; 3 comes and goes; 4 goes and comes; 9 was never there.
        (20, vec![gone(20, "2"), put(Op::Create, 20, "5", Some("a")), gone(20, "9")]),
        (
            30,
            vec![
                put(Op::Update, 29, "3", Some("b")),
                gone(30, "3"),
                gone(29, "4"),
                put(Op::Create, 30, "4", Some("c")),
            ],
        ),
        (40, vec![put(Op::Create, 40, "3", Some("d"))]),
        (50, vec![truncate.clone()]),
        (60, vec![put(Op::Create, 60, "1", Some("e"))]),
    ];
    for (commit, changes) in commits {
        write(&mut sink, &schema, changes).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
    }
    sink.settle().await.unwrap();
    drop(sink);
    validator::check(&folder_of(&config, &schema));
    let told = |version, kind: &str, lsn, op: &str, id: &str, v: &str| Told {
        version,
        kind: kind.into(),
        lsn,
        op: op.into(),
        values: vec![Some(id.into()), Some(v.into())],
    };
    let mut expected: Vec<Told> = ["1", "2", "3", "4"].map(|id| told(1, "insert", 10, "r", id, "a")).to_vec();
    expected.extend([told(2, "delete", 20, "d", "2", "a"), told(2, "insert", 20, "c", "5", "a")]);
    expected.extend([
        told(3, "delete", 30, "d", "3", "a"),
        told(3, "update_preimage", 10, "r", "4", "a"),
        told(3, "update_postimage", 30, "c", "4", "c"),
    ]);
    expected.push(told(4, "insert", 40, "c", "3", "d"));
    for (id, v) in [("1", "a"), ("3", "d"), ("4", "c"), ("5", "a")] {
        expected.push(told(5, "delete", 50, "t", id, v));
    }
    expected.push(told(6, "insert", 60, "c", "1", "e"));
    expected.sort();
    for reader in readers() {
        assert_eq!(changes_by(&reader, &config, &schema), expected, "{reader}");
    }
    // Switched off it costs nothing, switched on it begins with the next commit.
    let off = Config::new(folder.path(), "p", "lake");
    for (config, commit) in [(&off, 70), (&config, 80), (&config, 90)] {
        let mut sink = open(config).await;
        write(&mut sink, &schema, vec![put(Op::Update, commit, "1", Some("f"))]).await;
        sink.commit(&progress(&schema, commit, commit)).await.unwrap();
    }
    validator::check(&folder_of(&config, &schema));
    let files = std::fs::read_dir(folder_of(&config, &schema).join("_change_data")).unwrap().count();
    assert_eq!(files, 6, "four of the first versions, and two of the last");
}

#[tokio::test]
async fn tables_without_a_key_tell_what_came_and_went() {
    let folder = tempfile::tempdir().unwrap();
    let config = feeds(folder.path());
    let columns = vec![column("id", Kind::Int32, 1), column("v", Kind::Text, 2)];
    let schema = schema("t", columns, Key::WholeRow);
    let mut sink = open(&config).await;
    let values = |id: &str| row(&[Some(id), Some("x")]);
    let put = |commit, ordinal, id| change(&schema, Op::Create, commit, ordinal, values(id));
    write(&mut sink, &schema, vec![put(10, 0, "1"), put(10, 1, "1"), put(10, 2, "2")]).await;
    sink.commit(&progress(&schema, 1, 10)).await.unwrap();
    let moved = Change { op: Op::Update, before: Some(values("2")), ..put(20, 1, "3") };
    write(&mut sink, &schema, vec![change(&schema, Op::Delete, 20, 0, values("1")), moved]).await;
    sink.commit(&progress(&schema, 2, 20)).await.unwrap();
    drop(sink);
    for reader in readers() {
        let told = changes_by(&reader, &config, &schema);
        let told: Vec<(u64, &str, &str)> =
            told.iter().map(|t| (t.version, t.kind.as_str(), t.values[0].as_deref().unwrap())).collect();
        let first = [(1, "insert", "1"), (1, "insert", "1"), (1, "insert", "2")];
        let second = [(2, "delete", "1"), (2, "delete", "2"), (2, "insert", "3")];
        assert_eq!(told, [first, second].concat(), "{reader}");
    }
}

#[tokio::test]
async fn rows_that_go_over_to_another_type_are_no_changes_and_those_that_change_meanwhile_are() {
    use arrow_array::cast::AsArray;
    let folder = tempfile::tempdir().unwrap();
    let config = feeds(folder.path());
    let of = |kind: Kind, source_id: u64| {
        let columns = vec![column("id", Kind::Int32, 1), column("v", kind, 2)];
        std::sync::Arc::new(Schema { source_id, ..Schema::clone(&schema("t", columns, Key::Columns(vec![0]))) })
    };
    let (old, new, other) = (of(Kind::Int32, 1), of(Kind::Text, 1), of(Kind::Bool, 2));
    let mut sink = open(&config).await;
    let put = |schema: &std::sync::Arc<Schema>, commit, ordinal, id: &str, v: &str| {
        change(schema, Op::Update, commit, ordinal, row(&[Some(id), Some(v)]))
    };
    let ids = ["1", "2", "3", "4"];
    write(&mut sink, &old, ids.iter().zip(0..).map(|(id, n)| put(&old, 10, n, id, "7")).collect()).await;
    sink.commit(&progress(&old, 10, 10)).await.unwrap();
    // Retyped: two of the four rows come anew, one goes. Then another table takes the name.
    let gone = change(&new, Op::Delete, 20, 2, Row::from_datums([Datum::Text(b"3"), Datum::Unchanged]));
    let changes = vec![put(&new, 20, 0, "1", "x"), put(&new, 20, 1, "2", "y"), gone, put(&new, 20, 3, "5", "z")];
    write(&mut sink, &new, changes).await;
    sink.commit(&progress(&new, 20, 20)).await.unwrap();
    write(&mut sink, &other, vec![put(&other, 30, 0, "1", "t")]).await;
    sink.commit(&progress(&other, 30, 30)).await.unwrap();
    drop(sink);
    validator::check(&folder_of(&config, &other));
    let told = |version: u64| {
        let log = folder_of(&config, &other).join(format!("_delta_log/{version:020}.json"));
        let mut kinds = Vec::new();
        for line in std::fs::read_to_string(log).unwrap().lines() {
            let action: serde_json::Value = serde_json::from_str(line).unwrap();
            let Some(path) = action["cdc"]["path"].as_str() else { continue };
            let file = std::fs::File::open(folder_of(&config, &other).join(path)).unwrap();
            let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            for batch in reader.build().unwrap() {
                let batch = batch.unwrap();
                let kind = batch.column_by_name("_change_type").unwrap().as_string::<i32>();
                kinds.extend(kind.iter().map(|kind| kind.unwrap().to_string()));
            }
        }
        kinds.sort();
        kinds
    };
    let twice = |kind: &str| [kind.to_string(), kind.to_string()];
    let expected = [
        vec!["delete".to_string(), "insert".into()],
        twice("update_postimage").into(),
        twice("update_preimage").into(),
    ];
    assert_eq!(told(2), expected.concat());
    assert_eq!(
        told(3),
        ["delete", "delete", "delete", "delete", "insert"],
        "four rows of the old table, one of the new"
    );
}
