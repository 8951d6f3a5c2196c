//! Names, and schemas that change.

use crate::bench::*;
use std::sync::Arc;
use tidewire_change::{ErrorKind, Key, Progress, Schema};
use tidewire_connector::Sink;

fn with(schema: &Arc<Schema>, change: impl FnOnce(&mut Schema)) -> Arc<Schema> {
    let mut next = Schema::clone(schema);
    change(&mut next);
    Arc::new(next)
}

fn named(name: &str, ty: &str, attribute: i32) -> tidewire_change::Column {
    let mut column = schema("t", &[(name, ty)], Key::Position).columns[0].clone();
    column.attribute = attribute;
    column
}

#[tokio::test]
async fn hostile_names_are_only_names() {
    let db = Db::new("names");
    let mut sink =
        tidewire_postgres::sink::PostgresSink::new(tidewire_postgres::sink::Config { schema: None, ..db.config() });
    sink.open().await.unwrap();
    let (long, longer) = ("n".repeat(63), format!("{}m", "n".repeat(62)));
    let tables = [
        "Sales.EU/Order \"Lines\"",
        "Sales/EU.Order \"Lines\"",
        "select/table",
        "select/Table",
        "public/what?/is%this&",
        "public/it's; DROP TABLE x --",
        "public/\\N$1%s",
    ];
    let mut tables: Vec<String> = tables.iter().map(|t| t.to_string()).collect();
    tables.extend([format!("public/{long}"), format!("public/{longer}")]);
    let wide = "c".repeat(63);
    let columns = [
        "Id",
        "part.no",
        "we\"ird",
        "user",
        "User",
        "qty;drop",
        "ключ",
        "名前",
        "a b",
        "tab\tname",
        "_lsn",
        "_src_lsn",
        "_deleted",
        "_unchanged",
        "_turn",
        "kept",
        "new",
        "old",
        "excluded",
        "turn",
        "_op",
        "lsn",
        &wide,
        "$dollar",
        "0digit",
        "a\\b",
    ];
    let typed: Vec<(&str, &str)> = columns.iter().map(|name| (*name, "text")).collect();
    for table in &tables {
        let s = schema(table, &typed, Key::Columns(vec![0, 1, 10]));
        let mut values: Vec<&str> = columns.to_vec();
        apply(&mut sink, vec![change(&s, 'c', (1, 0), &values)]).await;
        let mut partial = values.clone();
        partial[16] = "~";
        partial[4] = "changed";
        assert_eq!(apply(&mut sink, vec![change(&s, 'u', (2, 0), &partial)]).await.applied, 1, "{table}");
        values[4] = "changed";
        let (schema, name) = table.split_once('/').unwrap();
        let view = match name.len() {
            63 => db.sql(&format!("SELECT target_view FROM tidewire.tables WHERE source_table = '{name}'")),
            _ => format!("{name}_current"),
        };
        let view = tidewire_pgwire::quote_ident(&view);
        let json = db.sql(&format!(
            "SELECT to_json(array_agg(v)) FROM {}.{view} t, json_each_text(row_to_json(t)) j(k, v)",
            tidewire_pgwire::quote_ident(schema)
        ));
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), values, "{table}");
        let names = db.sql(&format!(
            "SELECT to_json(array_agg(k)) FROM {}.{view} t, json_each_text(row_to_json(t)) j(k, v)",
            tidewire_pgwire::quote_ident(schema)
        ));
        assert_eq!(serde_json::from_str::<Vec<String>>(&names).unwrap(), columns, "the view has the source's names");
    }
}

#[tokio::test]
async fn a_table_that_is_called_as_anothers_view_gets_its_name_and_the_view_another() {
    let db = Db::new("views");
    let mut sink = db.sink().await;
    let table = |name: &str| schema(name, &[("id", "integer")], Key::Columns(vec![0]));
    for name in ["a", "a_current", "b_current", "b"] {
        apply(&mut sink, vec![change(&table(name), 'c', (1, 0), &["1"])]).await;
    }
    let views = db.sql("SELECT source_table, target_view FROM tidewire.tables ORDER BY 1");
    assert_eq!(views, "a|a_current_rows\na_current|a_current_current\nb|b_current_rows\nb_current|b_current_current");
    drop(sink);
    let mut sink = db.sink().await;
    let wider = schema("a", &[("id", "integer"), ("v", "text")], Key::Columns(vec![0]));
    apply(&mut sink, vec![change(&wider, 'c', (2, 0), &["2", "x"])]).await;
    assert_eq!(
        db.sql("SELECT * FROM replica.a_current_rows ORDER BY id"),
        "1|\n2|x",
        "also after a change of its columns"
    );
    assert_eq!(db.sql("SELECT id FROM replica.a_current"), "1");
}

#[tokio::test]
async fn a_table_with_more_columns_than_a_replica_can_hold_is_refused_as_a_whole() {
    let db = Db::new("wide");
    let mut sink = db.sink().await;
    let names: Vec<String> = (0..1593).map(|n| format!("c{n}")).collect();
    let columns: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "integer")).collect();
    let error = sink.prepare(schema("wide", &columns, Key::Columns(vec![0]))).await.unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.wide")));
    let values: Vec<&str> = columns[..1592].iter().map(|_| "1").collect();
    let widest = schema("widest", &columns[..1592], Key::Columns(vec![0]));
    apply(&mut sink, vec![change(&widest, 'c', (1, 0), &values)]).await;
    let mut partial = values.clone();
    partial[5] = "~";
    assert_eq!(apply(&mut sink, vec![change(&widest, 'u', (2, 0), &partial)]).await.applied, 1);
}

#[tokio::test]
async fn a_replay_of_two_tables_that_had_the_name_in_turn_loses_no_row() {
    let db = Db::new("turns");
    let mut sink = db.sink().await;
    let columns = [("id", "integer"), ("v", "text")];
    let first = schema("t", &columns, Key::Columns(vec![0]));
    let second = with(&first, |s| s.source_id = 2);
    let batches = [
        vec![change(&first, 'r', (10, u32::MAX), &["1", "a"])],
        vec![change(&first, 'u', (20, 0), &["1", "b"])],
        vec![change(&second, 'c', (20, 2), &["5", "other"]), change(&second, 'u', (30, 18), &["6", "other"])],
        // Put into the journal again after a restart, under the table that has the name by then.
        vec![change(&first, 'u', (20, 0), &["1", "b"]), change(&first, 'c', (30, 20), &["7", "c"])],
        vec![change(&first, 'r', (40, u32::MAX), &["1", "b"]), change(&first, 'r', (40, u32::MAX), &["7", "c"])],
    ];
    for _ in 0..2 {
        for batch in &batches {
            write(&mut sink, batch.clone()).await.unwrap();
        }
        sink.commit(&Progress::default()).await.unwrap();
        assert_eq!(db.sql("SELECT id, v FROM replica.t_current ORDER BY id"), "1|b\n7|c");
    }
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_and_the_other_tables_go_on() {
    let db = Db::new("taken");
    db.sql("CREATE SCHEMA replica; CREATE TABLE replica.orders (mine int); INSERT INTO replica.orders VALUES (7)");
    let mut sink = db.sink().await;
    let other = schema("other", &[("id", "integer")], Key::Columns(vec![0]));
    write(&mut sink, vec![change(&other, 'c', (1, 0), &["1"])]).await.unwrap();
    let error = sink.prepare(orders()).await.unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.orders")));
    assert!(error.to_string().contains("isn't this sink's"), "{error}");
    sink.commit(&Progress::default()).await.unwrap();
    assert_eq!(db.sql("SELECT * FROM replica.orders"), "7");
    assert_eq!(db.sql("SELECT * FROM replica.other_current"), "1", "what was written before stays in the transaction");
}

#[tokio::test]
async fn columns_come_and_go_and_a_name_taken_over_starts_empty() {
    let db = Db::new("columns");
    let mut sink = db.sink().await;
    let first = schema("part", &[("id", "integer"), ("code", "integer"), ("keep", "text")], Key::Columns(vec![0]));
    apply(
        &mut sink,
        vec![change(&first, 'c', (1, 0), &["1", "100", "k"]), change(&first, 'c', (1, 1), &["2", "200", "k"])],
    )
    .await;
    db.sql("CREATE VIEW mine AS SELECT id, keep FROM replica.part_current");
    // Added at the end: views on the view go on.
    let added = with(&first, |s| s.columns.push(named("extra", "numeric(6,2)", 4)));
    apply(&mut sink, vec![change(&added, 'c', (2, 0), &["3", "300", "k", "1.50"])]).await;
    assert_eq!(db.sql("SELECT * FROM replica.part_current ORDER BY id"), "1|100|k|\n2|200|k|\n3|300|k|1.50");
    // A replay of the older version changes neither the table nor the view.
    let written = apply(&mut sink, vec![change(&first, 'c', (1, 0), &["1", "100", "k"])]).await;
    assert_eq!(written.stale, 1);
    assert_eq!(db.sql("SELECT extra FROM replica.part_current WHERE id = 3"), "1.50");
    // Dropped: a view on the view stands in the way, and only this table is parked.
    let dropped = with(&added, |s| drop(s.columns.remove(1)));
    let error = write(&mut sink, vec![change(&dropped, 'c', (3, 0), &["4", "k4", "\\N"])]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert!(
        error.to_string().contains("depends on it") && error.hint_text().unwrap().contains("drop the views"),
        "{error}"
    );
    sink.commit(&Progress::default()).await.unwrap();
    db.sql("DROP VIEW mine");
    apply(&mut sink, vec![change(&dropped, 'c', (3, 0), &["4", "k4", "\\N"])]).await;
    assert_eq!(db.sql("SELECT * FROM replica.part_current ORDER BY id"), "1|k|\n2|k|\n3|k|1.50\n4|k4|");
    assert_eq!(db.sql("SELECT id, code FROM replica.part ORDER BY id"), "1|100\n2|200\n3|300\n4|", "what it had stays");
    // Added again under the old name, with another type: the old 200 doesn't come back.
    let again = with(&dropped, |s| s.columns.push(named("code", "text", 5)));
    apply(&mut sink, vec![change(&again, 'u', (4, 0), &["1", "k", "\\N", "C-1"])]).await;
    assert_eq!(db.sql("SELECT id, code FROM replica.part_current ORDER BY id"), "1|C-1\n2|\n3|\n4|");
    // Two columns that swap names: both start empty.
    let swapped = with(&again, |s| {
        (s.columns[1].name, s.columns[3].name) = ("code".into(), "keep".into());
    });
    apply(&mut sink, vec![change(&swapped, 'u', (5, 0), &["1", "new code", "\\N", "new keep"])]).await;
    let state = db.sql("SELECT id, code, keep FROM replica.part_current ORDER BY id");
    assert_eq!(state, "1|new code|new keep\n2||\n3||\n4||");
}

#[tokio::test]
async fn a_retyped_column_is_cast_or_starts_empty() {
    let db = Db::new("retyped");
    let mut sink = db.sink().await;
    let columns = [("id", "integer"), ("a", "integer"), ("b", "text"), ("r", "real"), ("day", "date")];
    let first = schema("t", &columns, Key::Columns(vec![0]));
    let day = "2026-01-02";
    let rows = [["1", "7", "x", "0.1", day], ["2", "8", "5", "NaN", day]];
    apply(&mut sink, vec![change(&first, 'c', (1, 0), &rows[0]), change(&first, 'c', (1, 1), &rows[1])]).await;
    let second = with(&first, |s| {
        s.columns[0] = named("id", "bigint", 1);
        s.columns[1] = named("a", "numeric(8,2)", 2);
        s.columns[2] = named("b", "integer", 3);
        s.columns[3] = named("r", "double precision", 4);
        s.columns[4] = named("day", "timestamp without time zone", 5);
    });
    let at = "2026-01-03 00:00:00";
    apply(&mut sink, vec![change(&second, 'c', (2, 0), &["5000000000", "9.00", "6", "0.1", at])]).await;
    // A `real` is the double that PostgreSQL makes of it.
    let expected = "1|7.00||0.10000000149011612|2026-01-02 00:00:00\n2|8.00||NaN|2026-01-02 00:00:00\n\
                    5000000000|9.00|6|0.1|2026-01-03 00:00:00";
    assert_eq!(db.sql("SELECT * FROM replica.t_current ORDER BY id"), expected);
    // The old version again, as at a replay: it changes nothing, nor the types.
    apply(&mut sink, vec![change(&first, 'c', (1, 0), &rows[0])]).await;
    assert_eq!(db.sql("SELECT pg_typeof(a) FROM replica.t LIMIT 1"), "numeric");
}

#[tokio::test]
async fn another_table_behind_the_name_or_another_key_starts_anew_and_stays_so() {
    let db = Db::new("anew");
    let mut sink = db.sink().await;
    let first = schema("rates", &[("id", "integer"), ("r", "numeric")], Key::Columns(vec![0]));
    let old = vec![change(&first, 'c', (1, 0), &["1", "1.1"]), change(&first, 'c', (1, 1), &["2", "2.2"])];
    apply(&mut sink, old.clone()).await;
    let second = with(&first, |s| {
        s.source_id += 1;
        s.columns = vec![named("id", "bigint", 1), named("v", "character varying(10)", 2)];
    });
    let new = vec![change(&second, 'c', (5, 3), &["2", "new2"]), change(&second, 'c', (5, 4), &["9", "new9"])];
    apply(&mut sink, new.clone()).await;
    let state = || db.sql("SELECT * FROM replica.rates_current ORDER BY id");
    assert_eq!(state(), "2|new2\n9|new9");
    // All of it again, from the start, after a restart too.
    for _ in 0..2 {
        assert_eq!(apply(&mut sink, old.clone()).await.applied, 0);
        assert_eq!(apply(&mut sink, new.clone()).await.applied, 0);
        assert_eq!(state(), "2|new2\n9|new9");
        sink.open().await.unwrap();
    }
    let keyed = with(&second, |s| s.key = Key::Columns(vec![1, 0]));
    apply(&mut sink, vec![change(&keyed, 'r', (7, 0), &["9", "new9"]), change(&keyed, 'r', (7, 1), &["9", "b"])]).await;
    assert_eq!(db.sql("SELECT * FROM replica.rates_current ORDER BY v"), "9|b\n9|new9");
    let keyless = with(&keyed, |s| s.key = Key::WholeRow);
    apply(&mut sink, vec![change(&keyless, 'r', (8, 0), &["1", "z"]), change(&keyless, 'r', (8, 1), &["1", "z"])])
        .await;
    assert_eq!(state(), "1|z\n1|z");
}

#[tokio::test]
async fn a_key_that_is_null_and_a_table_too_wide_are_told() {
    let db = Db::new("too_wide");
    let mut sink = db.sink().await;
    let s = schema("t", &[("a", "integer"), ("b", "integer")], Key::Columns(vec![0]));
    sink.prepare(s.clone()).await.unwrap();
    let changes = vec![change(&s, 'c', (1, 0), &["1", "2"]), change(&s, 'c', (1, 1), &["\\N", "2"])];
    let error = sink.write(batch(changes)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.position()),
        (ErrorKind::Malformed, Some(tidewire_change::Position::new(1, 1))),
        "{error}"
    );
    sink.open().await.unwrap();
    let names: Vec<String> = (0..1599).map(|i| format!("c{i}")).collect();
    let columns: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "integer")).collect();
    let wide = schema("wide", &columns, Key::Columns(vec![0]));
    let error = sink.prepare(wide).await.unwrap_err();
    assert_eq!((error.kind(), error.table()), (ErrorKind::Schema, Some("public.wide")), "{error}");
    sink.commit(&Progress::default()).await.unwrap();
}

#[test]
fn the_sql_of_a_table_is_readable_and_runs() {
    let text = tidewire_postgres::sink::table_sql(&orders(), Some("replica")).unwrap();
    assert_eq!(text, include_str!("orders.sql"));
    let db = Db::new("readable");
    let line = "\t\\N\t1\t0\tc\tepoch\tf\t\\N\n\\.\n";
    let text = text.replace("FROM STDIN;", &format!("FROM STDIN;\n1\tnew{line}"));
    db.sql(&format!("CREATE SCHEMA replica; BEGIN; {text} COMMIT"));
    assert_eq!(db.sql("SELECT * FROM replica.orders_current"), "1|new|");
}
