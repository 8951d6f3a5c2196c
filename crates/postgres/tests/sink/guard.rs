use crate::bench::*;
use std::sync::Arc;
use tidewire_change::{Boundary, Change, ErrorKind, Key, Op, Position, Progress, Schema, TopicPartition};
use tidewire_connector::Sink;

/// Offsets 1–11 of the design's first test; the tombstone (8) carries no change.
fn first_test() -> Vec<Vec<Change>> {
    let s = orders();
    let c = |letter, at, values: &[&str]| change(&s, letter, (at, 0), values);
    vec![
        vec![
            c('r', 100, &["1", "paid", "25.00"]),
            change(&s, 'r', (100, 1), &["2", "paid", "10.00"]),
            c('u', 120, &["1", "shipped", "25.00"]),
            c('c', 130, &["3", "new", "60.00"]),
        ],
        vec![
            c('u', 120, &["1", "shipped", "25.00"]),
            c('u', 150, &["3", "paid", "60.00"]),
            c('d', 160, &["2", "~", "~"]),
        ],
        vec![
            c('u', 140, &["3", "new", "60.00"]),
            c('u', 155, &["2", "refunded", "10.00"]),
            c('c', 170, &["4", "paid", "15.00"]),
        ],
    ]
}

const STATE: &str = "1|shipped|25.00|120|f\n2|paid|10.00|160|t\n3|paid|60.00|150|f\n4|paid|15.00|170|f";

#[tokio::test]
async fn the_first_test_ends_as_written_and_a_repetition_changes_no_row() {
    let db = Db::new("first_test");
    let mut sink = db.sink().await;
    for changes in first_test() {
        apply(&mut sink, changes).await;
    }
    let state = || db.sql("SELECT id, status, amount, _lsn, _deleted FROM replica.orders ORDER BY id");
    assert_eq!(state(), STATE);
    let current = db.sql("SELECT * FROM replica.orders_current ORDER BY id");
    assert_eq!(current, "1|shipped|25.00\n3|paid|60.00\n4|paid|15.00");

    let places = "SELECT id, ctid, xmin, _op, _ts FROM replica.orders ORDER BY id";
    let before = db.sql(places);
    sink.open().await.unwrap();
    for changes in first_test() {
        let many = tidewire_flow::reduce(changes.clone()).unwrap().changes.len() as u64;
        let written = apply(&mut sink, changes).await;
        assert_eq!((written.applied, written.stale), (0, many));
    }
    let all: Vec<Change> = first_test().concat();
    assert_eq!(apply(&mut sink, all).await.applied, 0);
    assert_eq!((db.sql(places), state()), (before, STATE.to_owned()));
}

fn progress(offset: u64) -> Progress {
    let at = |partition| TopicPartition { topic: "public.orders".into(), partition };
    let boundary = Boundary { position: Position::new(offset * 10, 7), complete_through: 1_790_000_000_123_456 };
    Progress { offsets: [(at(0), offset), (at(3), 1)].into(), boundary }
}

#[tokio::test]
async fn progress_is_kept_with_the_rows_and_what_was_not_committed_is_gone_after_open() {
    let db = Db::new("progress");
    let mut sink = db.sink().await;
    assert_eq!(sink.committed().await.unwrap(), Progress::default());
    write(&mut sink, first_test().remove(0)).await.unwrap();
    sink.commit(&progress(5)).await.unwrap();
    write(&mut sink, first_test().remove(1)).await.unwrap();
    assert_eq!(db.sql("SELECT count(*) FROM replica.orders WHERE _deleted"), "0", "not visible before commit");
    sink.open().await.unwrap();
    assert_eq!(sink.committed().await.unwrap(), progress(5));
    assert_eq!(db.sql("SELECT count(*) FROM replica.orders WHERE _deleted"), "0");
    apply(&mut sink, first_test().remove(1)).await;
    assert_eq!(db.sql("SELECT id FROM replica.orders WHERE _deleted"), "2");
    assert!(sink.status().connected && sink.status().rows_applied > 0 && sink.status().bytes_written > 0);
}

#[tokio::test]
async fn a_deleted_key_that_was_never_seen_keeps_older_changes_out() {
    let db = Db::new("unknown_delete");
    let mut sink = db.sink().await;
    let s = orders();
    assert_eq!(apply(&mut sink, vec![change(&s, 'd', (160, 0), &["9", "~", "~"])]).await.applied, 1);
    assert_eq!(apply(&mut sink, vec![change(&s, 'u', (155, 0), &["9", "late", "1.00"])]).await.stale, 1);
    assert_eq!(db.sql("SELECT id, status, _deleted, _lsn FROM replica.orders"), "9||t|160");
    apply(&mut sink, vec![change(&s, 'c', (170, 0), &["9", "reborn", "1.00"])]).await;
    apply(&mut sink, vec![change(&s, 'd', (160, 0), &["9", "~", "~"])]).await;
    assert_eq!(db.sql("SELECT id, status FROM replica.orders_current"), "9|reborn");
}

#[tokio::test]
async fn a_partial_row_takes_its_columns_from_a_live_row_and_is_counted_when_there_is_none() {
    let db = Db::new("partial");
    let mut sink = db.sink().await;
    let s = orders();
    apply(
        &mut sink,
        vec![change(&s, 'c', (1, 0), &["1", "big", "1.00"]), change(&s, 'c', (1, 1), &["2", "x", "2.00"])],
    )
    .await;
    apply(&mut sink, vec![change(&s, 'd', (2, 0), &["2", "~", "~"])]).await;
    let partial = |id, at| change(&s, 'u', at, &[id, "~", "9.00"]);
    let written = apply(&mut sink, vec![partial("1", (3, 0)), partial("2", (3, 1)), partial("3", (3, 2))]).await;
    assert_eq!((written.applied, written.incomplete, written.stale), (1, 2, 0));
    // Older than what is there: stale, whatever it lacks.
    let written = apply(&mut sink, vec![partial("1", (2, 9)), partial("2", (1, 9))]).await;
    assert_eq!((written.applied, written.incomplete, written.stale), (0, 0, 2));
    // A new row takes nothing from an old one.
    let written = apply(&mut sink, vec![change(&s, 'c', (4, 0), &["1", "~", "3.00"])]).await;
    assert_eq!((written.applied, written.incomplete), (0, 1));
    let state = db.sql("SELECT id, status, amount, _lsn, _deleted FROM replica.orders ORDER BY id");
    assert_eq!(state, "1|big|9.00|3|f\n2|x|2.00|2|t");
}

#[tokio::test]
async fn keys_that_are_equal_but_written_differently_are_one_row() {
    let db = Db::new("equal_keys");
    db.sql("CREATE EXTENSION citext");
    let mut sink = db.sink().await;
    let numeric = schema("steps", &[("step", "numeric"), ("v", "text"), ("w", "text")], Key::Columns(vec![0]));
    // d(1.0) and c(1.00) in one commit; and in one batch a partial row under the other spelling.
    let changes = vec![
        change(&numeric, 'c', (1, 0), &["1.0", "one", "kept"]),
        change(&numeric, 'd', (2, 0), &["1.0", "~", "~"]),
        change(&numeric, 'c', (2, 1), &["1.00", "two", "kept"]),
        change(&numeric, 'u', (3, 0), &["1.000", "three", "~"]),
    ];
    // As it comes when the reducer doesn't know that the texts are one key.
    sink.prepare(numeric.clone()).await.unwrap();
    let written = sink.write(batch(changes)).await.unwrap();
    sink.commit(&Progress::default()).await.unwrap();
    assert_eq!((written.applied, written.incomplete), (4, 0));
    assert_eq!(db.sql("SELECT step, v, w, _lsn, _deleted FROM replica.steps"), "1.000|three|kept|3|f");

    let floats = schema("floats", &[("f", "double precision"), ("v", "text")], Key::Columns(vec![0]));
    let changes = [
        ('r', 1, "0", "zero"),
        ('r', 1, "NaN", "nan"),
        ('d', 2, "0", "~"),
        ('c', 3, "-0", "minus"),
        ('u', 3, "NaN", "nan2"),
    ];
    for (i, (letter, at, key, v)) in changes.into_iter().enumerate() {
        apply(&mut sink, vec![change(&floats, letter, (at, i as u32), &[key, v])]).await;
    }
    assert_eq!(db.sql("SELECT f, v FROM replica.floats_current ORDER BY f"), "-0|minus\nNaN|nan2");
    apply(&mut sink, vec![change(&floats, 'd', (9, 0), &["NaN", "~"])]).await;
    assert_eq!(db.sql("SELECT f FROM replica.floats_current"), "-0");

    let handles = schema("handles", &[("h", "public.citext"), ("v", "text")], Key::Columns(vec![0]));
    apply(&mut sink, vec![change(&handles, 'r', (1, 0), &["Mia", "m"])]).await;
    apply(&mut sink, vec![change(&handles, 'd', (2, 0), &["Mia", "~"])]).await;
    apply(&mut sink, vec![change(&handles, 'c', (2, 1), &["MIA", "new"])]).await;
    apply(&mut sink, vec![change(&handles, 'u', (3, 0), &["mia", "~"])]).await;
    assert_eq!(db.sql("SELECT h, v, _lsn FROM replica.handles"), "mia|new|3");
    let whole = vec![change(&handles, 'c', (5, 0), &["x", "1"]), change(&handles, 'c', (6, 0), &["X", "2"])];
    sink.write(batch(whole)).await.unwrap();
    sink.commit(&Progress::default()).await.unwrap();
    assert_eq!(db.sql("SELECT h, v FROM replica.handles WHERE h = 'x'"), "X|2");
}

#[tokio::test]
async fn a_truncate_is_kept_so_that_a_replay_cannot_refill_the_table() {
    let db = Db::new("truncate");
    let mut sink = db.sink().await;
    let s = orders();
    let old: Vec<Change> = (0..5).map(|i| change(&s, 'c', (10, i), &[&i.to_string(), "old", "1.00"])).collect();
    let truncate = |at| Change { op: Op::Truncate, before: None, after: None, ..change(&s, 'c', at, &["0", "", "0"]) };
    apply(&mut sink, old.clone()).await;
    let new = vec![change(&s, 'c', (30, 0), &["3", "new", "3.00"]), change(&s, 'c', (30, 1), &["9", "new", "9.00"])];
    let mut all = vec![truncate((20, 0))];
    all.extend(new.clone());
    apply(&mut sink, all.clone()).await;
    let state = || db.sql("SELECT id, status FROM replica.orders ORDER BY id");
    assert_eq!(state(), "3|new\n9|new");
    // From the start, also after a restart, also the truncate alone.
    sink.open().await.unwrap();
    let written = apply(&mut sink, old.clone()).await;
    assert_eq!((written.applied, written.stale), (0, 5));
    apply(&mut sink, vec![truncate((20, 0))]).await;
    apply(&mut sink, all).await;
    assert_eq!(state(), "3|new\n9|new");
    // One that comes after newer rows takes only what lies below.
    apply(&mut sink, vec![truncate((30, 0)), change(&s, 'c', (31, 0), &["1", "x", "1.00"])]).await;
    assert_eq!(state(), "1|x\n9|new");
}

#[tokio::test]
async fn triggers_and_foreign_keys_on_replica_tables_do_not_fire() {
    let db = Db::new("triggers");
    let mut sink = db.sink().await;
    let owners = schema("owners", &[("id", "integer"), ("n", "integer")], Key::Columns(vec![0]));
    let pets = schema("pets", &[("id", "integer"), ("o", "integer")], Key::Columns(vec![0]));
    apply(&mut sink, vec![change(&owners, 'c', (1, 0), &["1", "0"])]).await;
    apply(&mut sink, vec![change(&pets, 'c', (1, 1), &["10", "1"])]).await;
    db.sql(
        "ALTER TABLE replica.pets ADD FOREIGN KEY (o) REFERENCES replica.owners ON DELETE CASCADE;
         CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN UPDATE replica.owners SET n = n + 1; RETURN NEW; END $$;
         CREATE TRIGGER bump AFTER INSERT OR UPDATE ON replica.pets FOR EACH ROW EXECUTE FUNCTION bump()",
    );
    apply(&mut sink, vec![change(&pets, 'c', (2, 0), &["20", "77"])]).await;
    apply(&mut sink, vec![change(&pets, 'u', (3, 0), &["10", "1"])]).await;
    assert_eq!(db.sql("SELECT * FROM replica.owners_current"), "1|0");
    assert_eq!(db.sql("SELECT * FROM replica.pets_current ORDER BY id"), "10|1\n20|77");
    // The server refuses to TRUNCATE a table that a foreign key points to.
    let truncate = Change { op: Op::Truncate, after: None, ..change(&owners, 'c', (4, 0), &["0", "0"]) };
    apply(&mut sink, vec![truncate]).await;
    let both = "SELECT (SELECT count(*) FROM replica.owners), (SELECT count(*) FROM replica.pets)";
    assert_eq!(db.sql(both), "0|2");
}

#[tokio::test]
async fn tables_without_a_key_append_each_position_once() {
    let db = Db::new("position");
    let mut sink = db.sink().await;
    let s: Arc<_> = schema("events", &[("what", "text")], Key::Position);
    let rows: Vec<Change> = (0..4).map(|i| change(&s, 'c', (5, i), &["same"])).collect();
    assert_eq!(apply(&mut sink, rows[..3].to_vec()).await.applied, 3);
    let written = apply(&mut sink, rows.clone()).await;
    assert_eq!((written.applied, written.stale), (1, 3));
    assert_eq!(db.sql("SELECT count(*), min(what) FROM replica.events_current"), "4|same");
    let error = write(&mut sink, vec![change(&s, 'd', (6, 1), &["~"])]).await.unwrap_err();
    assert_eq!((error.kind(), error.position()), (ErrorKind::Malformed, Some(Position::new(6, 1))), "{error}");
}

#[tokio::test]
async fn a_table_keyed_by_the_whole_row_keeps_its_rows_when_columns_are_added_and_finds_them_whatever_they_have_there()
{
    let db = Db::new("whole_row_grows");
    let mut sink = db.sink().await;
    let narrow = schema("lines", &[("a", "text"), ("n", "integer")], Key::WholeRow);
    let wide = schema("lines", &[("a", "text"), ("n", "integer"), ("d", "integer")], Key::WholeRow);
    let of = |schema: &Arc<Schema>, letter, at: u64, row: &[&str]| change(schema, letter, (at, 0), row);
    let rows = "SELECT a, n, d FROM replica.lines_current ORDER BY 1, 2, 3";
    let told = ["x", "x", "y", "z", "\\N"].iter().zip(1..).map(|(a, at)| of(&narrow, 'c', at, &[a, "1"]));
    apply(&mut sink, told.collect()).await;

    // Nobody tells the rows of before anew: they have NULL in the new column, or what the source has made of it (5).
    let changed = Change { before: Some(row(&["z", "1", "5"])), ..of(&wide, 'u', 12, &["z", "2", "5"]) };
    let later = vec![
        of(&wide, 'c', 10, &["new", "1", "5"]),
        of(&wide, 'd', 11, &["x", "1", "\\N"]),
        changed,
        of(&wide, 'd', 13, &["new", "1", "5"]),
        of(&wide, 'c', 14, &["y", "1", "5"]),
        of(&wide, 'd', 15, &["y", "1", "5"]),
    ];
    apply(&mut sink, later.clone()).await;
    assert_eq!(db.sql(rows), "x|1|\ny|1|\nz|2|5\n|1|");
    assert_eq!(apply(&mut sink, later.clone()).await.applied, 0, "told again, nothing changes");
    drop(sink);
    let mut sink = db.sink().await;
    assert_eq!(apply(&mut sink, later).await.applied, 0, "by another process, too");
    let rest = vec![of(&wide, 'd', 20, &["y", "1", "5"]), of(&wide, 'd', 21, &["\\N", "1", "\\N"])];
    apply(&mut sink, rest).await;
    assert_eq!(db.sql(rows), "x|1|\nz|2|5");
    let columns = [("a", "text"), ("n", "integer"), ("d", "integer"), ("e", "integer")];
    let wider = schema("lines", &columns, Key::WholeRow);
    let more = vec![
        of(&wider, 'd', 25, &["z", "2", "5", "7"]),
        of(&wider, 'c', 26, &["v", "1", "5", "7"]),
        of(&wider, 'd', 27, &["x", "1", "5", "7"]),
    ];
    apply(&mut sink, more).await;
    assert_eq!(db.sql(rows), "v|1|5");
    // A column that is gone makes it anew, as does one that stands elsewhere.
    let written = apply(&mut sink, vec![of(&narrow, 'c', 30, &["w", "1"])]).await;
    assert!(written.renewed && db.sql("SELECT a FROM replica.lines_current") == "w");
}

#[tokio::test]
async fn tables_keyed_by_the_whole_row_keep_their_copies_apart() {
    let db = Db::new("whole_row");
    let mut sink = db.sink().await;
    let s = schema("lines", &[("a", "text"), ("n", "integer")], Key::WholeRow);
    let c = |letter, at: u64, a: &str| change(&s, letter, (at, 0), &[a, "1"]);
    let update = Change { before: Some(row(&["y", "1"])), ..c('u', 5, "x") };
    let changes = vec![c('c', 1, "x"), c('c', 2, "x"), c('c', 3, "y"), c('d', 4, "x"), update, c('d', 6, "nobody")];
    for (a, b) in [(0, 2), (2, 6), (0, 6), (3, 5)] {
        apply(&mut sink, changes[a..b].to_vec()).await;
        if b == 6 {
            assert_eq!(db.sql("SELECT a, n FROM replica.lines_current"), "x|1\nx|1");
        }
    }
    apply(&mut sink, vec![c('d', 7, "x"), c('d', 8, "x")]).await;
    assert_eq!(db.sql("SELECT count(*) FROM replica.lines_current"), "0");
    assert_eq!(apply(&mut sink, changes).await.applied, 0);
    assert_eq!(db.sql("SELECT count(*) FROM replica.lines_current"), "0");
}
