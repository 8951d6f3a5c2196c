//! Both sides of reconcile read the same text.

use crate::bench::*;
use std::sync::Arc;
use tidewire_change::{Datum, ErrorKind, Key, Position, Progress, Row, Schema};
use tidewire_connector::{Inspect, Scan, Sink, Standing};
use tidewire_postgres::sink::PostgresInspect;

async fn scan(inspect: &mut PostgresInspect, schema: &Arc<Schema>, keys: Option<Vec<Row>>) -> (Vec<Row>, Position) {
    let mut rows = Vec::new();
    let scan = Scan { schema: schema.clone(), keys };
    let position = inspect.scan(&scan, &mut |row| rows.push(row)).await.unwrap();
    rows.sort_by(|a, b| a.encoded().cmp(b.encoded()));
    (rows, position)
}

fn by_name<'a>(schemas: &'a [Arc<Schema>], name: &str) -> &'a Arc<Schema> {
    schemas.iter().find(|s| s.table.name == name).unwrap()
}

#[tokio::test]
async fn source_and_sink_give_the_same_rows_of_the_same_table() {
    let source = Db::new("inspect_source");
    let target = Db::new("inspect_target");
    source.sql(
        r#"CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('ok', 'so so');
           CREATE TABLE odd (id citext, "Part" numeric, t text, m mood, c char(4), PRIMARY KEY (id, "Part"));
           INSERT INTO odd VALUES ('Mia', 1.0, NULL, 'ok', 'a'), ('b', 2.50, '', 'so so', NULL),
             ('c', 3, '\N', NULL, ''), ('d', 4, E'back\\slash\nline\ttab\r', NULL, 'x  y')"#,
    );
    target.sql("CREATE EXTENSION citext");
    let mut left = PostgresInspect::source(&source.source());
    let schemas = left.schemas().await.unwrap();
    let odd = by_name(&schemas, "odd");
    let (rows, position) = scan(&mut left, odd, None).await;
    assert_eq!(rows.len(), 4);
    let insert = source.sql("SELECT pg_current_wal_insert_lsn() - '0/0'");
    assert!(position.commit > 0 && position.commit <= insert.parse().unwrap());
    assert_eq!(position.ordinal, u32::MAX);

    let mut sink = target.sink().await;
    let changes = rows.iter().enumerate().map(|(i, row)| tidewire_change::Change {
        after: Some(row.clone()),
        ..change(odd, 'r', (9, i as u32), &["\\N"; 5])
    });
    apply(&mut sink, changes.collect()).await;
    apply(&mut sink, vec![change(odd, 'd', (10, 0), &["b", "2.50", "~", "~", "~"])]).await;
    let boundary = tidewire_change::Boundary { position: Position::new(11, 3), complete_through: 5 };
    sink.commit(&Progress { boundary, ..Progress::default() }).await.unwrap();
    let mut right = PostgresInspect::sink(target.config());
    let (copied, at) = scan(&mut right, odd, None).await;
    let live: Vec<Row> = rows.iter().filter(|r| r.get(0) != Some(Datum::Text(b"b"))).cloned().collect();
    assert_eq!((copied, at), (live, Position::new(11, 3)));
    assert_eq!(right.schemas().await.unwrap(), std::slice::from_ref(odd));

    // By key: written differently, deleted, never there, and one that the type can't hold.
    let key = |id, part| row(&[id, part, "~", "~", "~"]);
    let keys = vec![key("MIA", "1.000"), key("b", "2.5"), key("nobody", "1"), key("d", "4"), key("mia", "1")];
    for (inspect, expected) in [(&mut left, 3), (&mut right, 2)] {
        assert_eq!(scan(inspect, odd, Some(keys.clone())).await.0.len(), expected);
        let mut keys = keys.clone();
        keys.push(key("d", "not a number"));
        assert_eq!(scan(inspect, odd, Some(keys)).await.0.len(), expected);
    }
}

#[tokio::test]
async fn a_partitioned_table_is_read_by_its_root_and_a_parent_without_its_children() {
    let db = Db::new("inspect_trees");
    db.sql(
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
         CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);
         INSERT INTO parts VALUES (1), (11);
         CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (x int) INHERITS (parent);
         INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 2)",
    );
    let mut inspect = PostgresInspect::source(&db.source());
    let schemas = inspect.schemas().await.unwrap();
    assert_eq!(scan(&mut inspect, by_name(&schemas, "parts"), None).await.0.len(), 2);
    assert_eq!(scan(&mut inspect, by_name(&schemas, "parent"), None).await.0, [row(&["1"])]);
}

#[tokio::test]
async fn stored_generated_columns_are_compared_where_the_publication_publishes_them() {
    let db = Db::new("inspect_generated");
    db.sql(
        "CREATE TABLE g (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED);
         CREATE TABLE k (id int, k int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY); INSERT INTO g VALUES (1)",
    );
    let is_new = db.sql("SHOW server_version_num").parse::<u32>().unwrap() >= 180_000;
    let of = |name: &str| tidewire_postgres::source::Config { publication: Some(name.into()), ..db.source() };
    db.sql("CREATE PUBLICATION plain");
    let mut cases = vec![(db.source(), is_new), (of("plain"), false)];
    if is_new {
        db.sql("CREATE PUBLICATION whole WITH (publish_generated_columns = stored)");
        cases.push((of("whole"), true));
    }
    for (config, carries) in cases {
        let mut inspect = PostgresInspect::source(&config);
        let schemas = inspect.schemas().await.unwrap();
        let rows = scan(&mut inspect, by_name(&schemas, "g"), None).await.0;
        let key = &by_name(&schemas, "k").key;
        match carries {
            true => assert_eq!((rows, key), (vec![row(&["1", "2"])], &Key::Columns(vec![1]))),
            false => assert_eq!((rows, key), (vec![row(&["1"])], &Key::Position)),
        }
    }
}

#[tokio::test]
async fn a_table_that_is_not_there_is_told_and_the_next_scan_works() {
    let db = Db::new("inspect_missing");
    db.sql("CREATE TABLE t (id int PRIMARY KEY)");
    let mut inspect = PostgresInspect::source(&db.source());
    let missing = Scan { schema: schema("gone", &[("id", "integer")], Key::Columns(vec![0])), keys: None };
    let error = inspect.scan(&missing, &mut |_| {}).await.unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.gone")), "{error}");
    let t = schema("t", &[("id", "integer")], Key::Columns(vec![0]));
    assert!(scan(&mut inspect, &t, None).await.0.is_empty());
    let mut sink = PostgresInspect::sink(db.config());
    assert!(sink.schemas().await.unwrap().is_empty(), "a target that no sink has written to");
}

#[tokio::test]
async fn a_source_holds_its_moment_until_it_lets_go_and_tells_what_lies_below_it() {
    let db = Db::new("inspect_held");
    db.sql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'a'), (2, 'b'); CREATE TABLE other (id int PRIMARY KEY)");
    let mut inspect = PostgresInspect::source(&db.source());
    let t = schema("t", &[("id", "integer"), ("v", "text")], Key::Columns(vec![0]));
    let other = schema("other", &[("id", "integer")], Key::Columns(vec![0]));
    let since = inspect.hold(&t).await.unwrap().expect("PostgreSQL has snapshots");
    let change = "UPDATE t SET v = 'new'; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (3, 'c'); INSERT INTO other VALUES (1)";
    db.sql(change);
    let commit: u64 = db.sql("SELECT pg_current_wal_insert_lsn() - '0/0'").parse().unwrap();
    assert!(since.commit < commit && since.ordinal == 0);
    let old = [row(&["1", "a"]), row(&["2", "b"])];
    let (rows, position) = scan(&mut inspect, &t, None).await;
    assert_eq!(rows, old);
    assert!(position >= since && position.commit < commit, "{since} {position}");
    // By key, a key that can't be read among them, and again as a whole: still the same moment.
    let keys = ["2", "3", "no number"].map(|id| row(&[id, "~"])).to_vec();
    assert_eq!(scan(&mut inspect, &t, Some(keys)).await.0, old[1..]);
    assert_eq!(scan(&mut inspect, &t, None).await, (old.to_vec(), position));
    inspect.let_go().await.unwrap();
    assert_eq!(scan(&mut inspect, &t, None).await.0, [row(&["1", "new"]), row(&["3", "c"])]);
    // Another table is never read in it.
    inspect.hold(&t).await.unwrap();
    db.sql("INSERT INTO other VALUES (2)");
    assert_eq!(scan(&mut inspect, &other, None).await.0.len(), 2);
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()";
    assert_eq!(db.sql(idle), "0");
}

#[tokio::test]
async fn a_moment_does_not_wait_for_a_transaction_that_stays_open() {
    let db = Db::new("inspect_open");
    db.sql("CREATE TABLE t (id int PRIMARY KEY)");
    let mut other = tidewire_pgwire::Connection::connect(&db.connection(), tidewire_pgwire::Mode::Sql).await.unwrap();
    other.execute("BEGIN; INSERT INTO public.t VALUES (1)").await.unwrap();
    let mut inspect = PostgresInspect::source(&db.source());
    let t = schema("t", &[("id", "integer")], Key::Columns(vec![0]));
    assert!(inspect.hold(&t).await.unwrap().is_some());
    assert!(scan(&mut inspect, &t, None).await.0.is_empty());
}

#[tokio::test]
async fn a_replica_tells_which_rows_came_or_went_since_a_position() {
    let db = Db::new("inspect_since");
    let mut sink = db.sink().await;
    let t = orders();
    let written = [("1", 5), ("2", 5), ("3", 9), ("4", 5), ("5", 5)];
    apply(&mut sink, written.iter().map(|(id, at)| change(&t, 'c', (*at, 0), &[id, "x", "1.00"])).collect()).await;
    let later = vec![
        change(&t, 'u', (9, 1), &["2", "y", "1.00"]),
        change(&t, 'd', (9, 2), &["4", "~", "~"]),
        change(&t, 'd', (8, 2), &["5", "~", "~"]),
    ];
    apply(&mut sink, later).await;
    let mut inspect = PostgresInspect::sink(db.config());
    let mut seen = Vec::new();
    let whole = Scan { schema: t.clone(), keys: None };
    let id = |row: &Row| match row.get(0) {
        Some(Datum::Text(id)) => String::from_utf8(id.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    };
    inspect
        .scan_since(&whole, Position::new(9, 0), &mut |row, standing| seen.push((id(&row), standing)))
        .await
        .unwrap();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("1", Standing::Below), ("2", Standing::Later), ("3", Standing::Later), ("4", Standing::Gone)];
    assert_eq!(seen, expected.map(|(id, standing)| (id.to_string(), standing)));
}
