//! Tables with Delta's column mapping: what is renamed or dropped is metadata alone.

use crate::support::readers::{check_by, View};
use crate::support::*;
use std::sync::Arc;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::{Config, DeltaSink, TableWork};

fn mapped(config: &mut Config) {
    config.tables.column_mapping.add("public.t").unwrap();
}

/// polars doesn't read such tables.
fn check(config: &Config, schema: &Schema, expected: &[Values], version: Option<u64>) {
    let readers: Vec<String> = readers::all().into_iter().filter(|reader| reader != "polars").collect();
    check_by(&readers, config, schema, expected, View { version, ..View::default() });
}

fn with(columns: Vec<Column>) -> Arc<Schema> {
    schema("t", columns, Key::Columns(vec![0]))
}

async fn commit(sink: &mut DeltaSink, schema: &Arc<Schema>, n: u64) {
    sink.prepare(schema.clone()).await.unwrap();
    sink.commit(&progress(schema, n, n)).await.unwrap();
}

fn id() -> Column {
    column("id", Kind::Int32, 1)
}

fn rows(of: impl Fn(u32) -> Values) -> Vec<Values> {
    let mut rows: Vec<Values> = (0..50).map(of).collect();
    rows.sort();
    rows
}

fn text(text: String) -> Option<String> {
    Some(text)
}

#[tokio::test]
async fn a_renamed_column_keeps_its_values_and_a_dropped_one_is_gone_without_a_file_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(folder.path(), "p", "lake");
    mapped(&mut config);
    let part = Kind::Composite(vec![column("n", Kind::Int32, 1), column("deep", Kind::Text, 2)]);
    let list = Kind::Array(Box::new(part.clone()));
    let first = with(vec![
        id(),
        column("a b", Kind::Text, 2),
        column("n", Kind::Int64, 3),
        column("pair", part.clone(), 4),
        column("pairs", list.clone(), 5),
    ]);
    let create = |n: u32| {
        let values = [
            Some(n.to_string()),
            Some(format!("a{n}")),
            Some(format!("{}", n * 2)),
            Some(format!("({n},deep)")),
            Some(format!("{{\"({n},x)\"}}")),
        ];
        change(&first, Op::Create, 1, n, row(&values.iter().map(Option::as_deref).collect::<Vec<_>>()))
    };
    let mut sink = open(&config).await;
    write(&mut sink, &first, (0..50).map(create).collect()).await;
    commit(&mut sink, &first, 1).await;
    let is = |n: u32| vec![text(n.to_string()), text(format!("a{n}")), text(format!("{}", n * 2))];
    let plain = with(first.columns[..3].to_vec());
    check(&config, &plain, &rows(is), None);
    let version = TableWork::new(config.clone()).describe(&first.table).await.unwrap().version;

    // Two columns swap their names, a third one gets a new one, a fourth one goes.
    let renamed =
        with(vec![id(), column("n", Kind::Text, 2), column("a b", Kind::Int64, 3), column("couples", list.clone(), 5)]);
    commit(&mut sink, &renamed, 2).await;
    let seen = TableWork::new(config.clone()).describe(&first.table).await.unwrap();
    assert_eq!((seen.version, seen.files, seen.rows), (version + 1, 1, 50), "one commit of metadata");
    assert!(seen.reader_features.contains(&"columnMapping".to_string()));
    let plain_renamed = with(renamed.columns[..3].to_vec());
    check(&config, &plain_renamed, &rows(is), None);
    assert_eq!(inspect(&config, &renamed, None).await.0.len(), 50);
    validator::check(&folder_of(&config, &first));

    // A column takes the name of one that went, with another type: it is empty, and nothing is written anew.
    let again = with([renamed.columns.clone(), vec![column("pair", Kind::Int32, 6)]].concat());
    let update = [Some("7"), Some("seven"), Some("77"), None, Some("5")];
    write(&mut sink, &again, vec![change(&again, Op::Update, 3, 0, row(&update))]).await;
    commit(&mut sink, &again, 3).await;
    assert_eq!(TableWork::new(config.clone()).describe(&first.table).await.unwrap().files, 2);
    let shown = with(vec![id(), column("n", Kind::Text, 2), column("a b", Kind::Int64, 3), again.columns[4].clone()]);
    let now = |n: u32| match n {
        7 => vec![text("7".into()), text("seven".into()), text("77".into()), text("5".into())],
        n => [is(n), vec![None]].concat(),
    };
    check(&config, &shown, &rows(now), None);

    // After a restart, without an index, with all files merged, and by an older version.
    drop(sink);
    std::fs::remove_dir_all(folder_of(&config, &first).join("_tidewire")).unwrap();
    config.upkeep.merge_files = 2;
    TableWork::new(config.clone()).maintain(&first.table).await.unwrap();
    let mut sink = open(&config).await;
    let unchanged =
        Row::from_datums([Datum::Text(b"8"), Datum::Unchanged, Datum::Text(b"88"), Datum::Null, Datum::Null]);
    write(&mut sink, &again, vec![change(&again, Op::Update, 4, 0, unchanged)]).await;
    commit(&mut sink, &again, 4).await;
    let now = |n: u32| match n {
        8 => vec![text("8".into()), text("a8".into()), text("88".into()), None],
        n => now(n),
    };
    check(&config, &shown, &rows(now), None);
    validator::check(&folder_of(&config, &first));
    check_named(&config, &[("id", "id"), ("a b", "a%20b"), ("n", "n")], &rows(is), version);

    // A retyped column is written anew, under numbers that no column had.
    let mut columns = again.columns.clone();
    columns[2] = column("a b", Kind::Text, 3);
    let retyped = with(columns);
    let update = [Some("9"), Some("nine"), Some("no number"), None, None];
    write(&mut sink, &retyped, vec![change(&retyped, Op::Update, 5, 0, row(&update))]).await;
    commit(&mut sink, &retyped, 5).await;
    let shown = with(vec![id(), column("n", Kind::Text, 2), column("a b", Kind::Text, 3), again.columns[4].clone()]);
    let now = |n: u32| match n {
        9 => vec![text("9".into()), text("nine".into()), text("no number".into()), None],
        n => now(n),
    };
    check(&config, &shown, &rows(now), None);
    validator::check(&folder_of(&config, &first));
}

/// As of an older version, whose columns had other names.
fn check_named(config: &Config, columns: &[(&str, &str)], expected: &[Values], version: u64) {
    let schema = with(columns.iter().zip(1..).map(|((name, _), n)| column(name, Kind::Text, n)).collect());
    let types = ["integer", "string", "long"].map(serde_json::Value::from);
    let columns: Vec<_> = columns.iter().zip(types).map(|((_, lake), ty)| (lake.to_string(), ty)).collect();
    for reader in readers::all().into_iter().filter(|reader| reader == "duckdb" || reader == "deltalake") {
        let view = View { version: Some(version), ..View::default() };
        let seen = readers::comparable(readers::read_with(&reader, config, &schema, &columns, view), &schema);
        assert_eq!(seen, expected, "{reader}");
    }
}

#[tokio::test]
async fn column_mapping_is_refused_together_with_what_it_does_not_go_with() {
    for (setting, set) in [
        ("partition_by", (|c: &mut Config| c.tables.partition_by.set("public.t", "v").unwrap()) as fn(&mut Config)),
        ("change_data_feed", |c| c.tables.change_feed.add("*").unwrap()),
    ] {
        let schema = with(vec![id(), column("v", Kind::Text, 2)]);
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::new(folder.path(), "p", "lake");
        mapped(&mut config);
        let mut both = config.clone();
        set(&mut both);
        let error = open(&both).await.prepare(schema.clone()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Schema && error.message().contains(setting), "{error}");
        // Also when the table is there already.
        commit(&mut open(&config).await, &schema, 1).await;
        let error = DeltaSink::new(both).open().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Schema && error.message().contains(setting), "{error}");
    }
}
