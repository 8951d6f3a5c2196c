//! Rows that the log carries in part, keys that move.

use crate::follow::{config, server, Follow};

const BIG: &str = "(SELECT string_agg(md5((%*1000+g)::text), '') FROM generate_series(1, 400) g)";

fn big(seed: &str) -> String {
    BIG.replace('%', seed)
}

#[tokio::test]
async fn a_key_change_carries_the_big_values_along() {
    let server = server(&[]);
    server.psql(&format!(
        "CREATE TABLE part (id int PRIMARY KEY, n int, body text); CREATE TABLE whole (LIKE part INCLUDING ALL);
         ALTER TABLE part ALTER body SET STORAGE EXTERNAL; ALTER TABLE whole ALTER body SET STORAGE EXTERNAL;
         ALTER TABLE whole REPLICA IDENTITY FULL; INSERT INTO part SELECT i, 0, {} FROM generate_series(1, 9) i;
         INSERT INTO whole SELECT * FROM part",
        big("i")
    ));
    let mut follow = Follow::start(config(&server, &["public.*"])).await;
    follow.settle("public.part").await;
    follow.settle("public.whole").await;
    let reads = follow.replica.count("public.whole", 'r');
    for table in ["part", "whole"] {
        follow.execute(&format!("UPDATE {table} SET id = 20 WHERE id = 2; UPDATE {table} SET n = 7")).await;
        follow.execute(&format!("UPDATE {table} SET id = 30 WHERE id = 3; DELETE FROM {table} WHERE id = 30")).await;
        follow.settle(&format!("public.{table}")).await;
    }
    assert_eq!(follow.replica.count("public.whole", 'r'), reads, "full old rows complete the new ones");
    follow.crash().await;
    follow.settle("public.part").await;
}

#[tokio::test]
async fn keys_that_are_equal_but_not_identical_stay_one_row() {
    let server = server(&[]);
    server.psql(
        "CREATE EXTENSION citext; CREATE TABLE price (k numeric PRIMARY KEY, v text, big text);
         CREATE TABLE person (k citext PRIMARY KEY, v text, big text); ALTER TABLE person ALTER big SET STORAGE EXTERNAL;
         CREATE TABLE code (k char(6) PRIMARY KEY, v text);
         INSERT INTO price VALUES (1.0, 'a'), ('NaN', 'b'); INSERT INTO code VALUES ('AB', 'x'), ('C  D', 'y');
         INSERT INTO person VALUES ('MiXed', 'a', repeat(md5('x'), 200)), ('other', 'b', NULL)",
    );
    let mut follow = Follow::start(config(&server, &["public.*"])).await;
    follow.execute("UPDATE price SET k = 1.00 WHERE k = 1; UPDATE price SET v = 'n' WHERE k = 'NaN'").await;
    follow
        .execute("UPDATE person SET k = 'MIXED' WHERE k = 'mixed'; UPDATE person SET v = 'z' WHERE k = 'mixed'")
        .await;
    follow.execute("UPDATE code SET v = 'q' WHERE k = 'AB'; DELETE FROM code WHERE k = 'C  D '").await;
    for table in ["public.price", "public.person", "public.code"] {
        follow.settle(table).await;
    }
}

#[tokio::test]
async fn keys_that_shift_swap_and_rotate_in_one_statement_end_where_the_source_has_them() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text); ALTER TABLE t REPLICA IDENTITY FULL;
         INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'same'), (5, 'same'), (9, 'z')",
    );
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    let statements = [
        "UPDATE t SET id = id + 1 WHERE id < 9",
        "UPDATE t SET id = id - 1 WHERE id < 9",
        "UPDATE t SET id = 3 - id WHERE id IN (1, 2)",
        "UPDATE t SET id = 9 - id WHERE id IN (4, 5)",
        "UPDATE t SET id = CASE id WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE 1 END WHERE id IN (1, 2, 3)",
        "BEGIN; UPDATE t SET id = id + 1 WHERE id < 9; UPDATE t SET v = v || '!' WHERE id = 3; DELETE FROM t WHERE id = 4; COMMIT",
        "BEGIN; INSERT INTO t VALUES (50, 'ghost'); DELETE FROM t WHERE id = 50; UPDATE t SET id = 1 WHERE id = 2; COMMIT",
        "BEGIN; UPDATE t SET id = 60 WHERE id = 9; TRUNCATE t; INSERT INTO t VALUES (9, 'x'), (1, 'y'); COMMIT",
        "BEGIN; SET CONSTRAINTS ALL DEFERRED; UPDATE t SET id = 1 WHERE id = 9; UPDATE t SET id = 2 WHERE v = 'y'; COMMIT",
    ];
    for statement in statements {
        follow.execute(statement).await;
        follow.catch_up().await;
        let (columns, rows) = follow.source_rows("public.t").await;
        assert_eq!(follow.replica.rows("public.t", &columns), rows, "{statement}");
    }
    assert_eq!(follow.replica.count("public.t", 'r'), 6, "nothing had to be read again");
}

#[tokio::test]
async fn rows_under_a_key_that_was_another_for_a_while_park_nothing() {
    let server = server(&[]);
    server.psql(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL UNIQUE, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
         CREATE TABLE typed (LIKE t INCLUDING ALL); ALTER TABLE typed ALTER id TYPE text;
         INSERT INTO t SELECT i, 'c' || i, {} FROM generate_series(1, 9) i; INSERT INTO typed SELECT * FROM t",
        big("i")
    ));
    let mut follow = Follow::start(config(&server, &["public.*"])).await;
    follow.settle("public.t").await;
    follow.settle("public.typed").await;
    // The catalog is at the end of this before the log is read.
    server.psql(
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key; UPDATE t SET code = 'C5' WHERE id = 5;
         ALTER TABLE t REPLICA IDENTITY DEFAULT;
         UPDATE typed SET id = 'five' WHERE id = '5'; UPDATE typed SET id = '50' WHERE id = 'five';
         ALTER TABLE typed ALTER id TYPE int USING id::int",
    );
    follow.settle("public.t").await;
    follow.settle("public.typed").await;
    let states: Vec<_> = follow.status().tables.into_iter().map(|table| table.state).collect();
    assert_eq!(states, [tidewire_connector::TableState::Streaming, tidewire_connector::TableState::Streaming]);
}
