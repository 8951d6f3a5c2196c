//! Changes of shape: told by the log, by the catalog, or by neither until somebody looks.

use crate::follow::{config, server, Follow};
use tidewire_connector::Source;

async fn follow(setup: &str, tables: &[&str]) -> (tidewire_testbed::Postgres, Follow) {
    let server = server(&[]);
    server.psql(setup);
    let follow = Follow::start(config(&server, tables)).await;
    (server, follow)
}

#[tokio::test]
async fn ddl_that_changes_rows_without_row_events_is_followed_without_any_dml() {
    let (_server, mut follow) = follow(
        "CREATE TYPE mood AS ENUM ('sad', 'ok');
         CREATE TABLE t (id int PRIMARY KEY, price numeric(8,2), a int, b int, m mood, ms mood[]);
         INSERT INTO t SELECT g, g, g, -g, 'sad', ARRAY['sad']::mood[] FROM generate_series(1, 100) g",
        &["public.t"],
    )
    .await;
    follow.settle("public.t").await;
    let statements = [
        "ALTER TABLE t ADD COLUMN c int DEFAULT 5",
        "ALTER TABLE t ADD COLUMN d text DEFAULT md5(random()::text)",
        "ALTER TABLE t RENAME COLUMN price TO unit_price",
        "BEGIN; ALTER TABLE t RENAME a TO tmp; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME tmp TO b; COMMIT",
        "ALTER TABLE t ALTER COLUMN unit_price TYPE numeric(10,4)",
        "ALTER TABLE t ALTER COLUMN a TYPE int USING a + 1000",
        "ALTER TABLE t ALTER COLUMN c TYPE text USING 'c' || c",
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
        "BEGIN; ALTER TABLE t DROP COLUMN c; ALTER TABLE t ADD COLUMN c text; COMMIT",
        "ALTER TABLE t DROP COLUMN d",
        "ALTER TABLE t ADD COLUMN d text",
        "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (a)",
    ];
    for statement in statements {
        follow.execute(statement).await;
        follow.settle("public.t").await;
    }
}

#[tokio::test]
async fn what_changes_no_row_reads_nothing_again() {
    let (_server, mut follow) = follow(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(10)); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 100) g",
        &["public.t"],
    )
    .await;
    follow.settle("public.t").await;
    for statement in [
        "VACUUM FULL t",
        "CLUSTER t USING t_pkey",
        "REINDEX TABLE t",
        "ALTER TABLE t ALTER v SET STATISTICS 5",
        "ALTER TABLE t ALTER v TYPE varchar(20)",
        "ALTER TABLE t ADD COLUMN n int",
        "ALTER TABLE t ALTER v SET NOT NULL",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE TEMP TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1)",
    ] {
        follow.execute(statement).await;
        // Two of them in one look may be taken for a rewrite by ALTER.
        let later = std::time::Instant::now() + std::time::Duration::from_millis(300);
        follow.until("some looks at the catalog", |_| std::time::Instant::now() > later).await;
    }
    follow.execute("INSERT INTO t VALUES (200, 'y', 7)").await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 100);
}

#[tokio::test]
async fn ddl_between_changes_of_one_transaction_decodes_every_row_by_its_own_shape() {
    let (_server, mut follow) = follow(
        "CREATE TABLE morph (id int PRIMARY KEY, a text, b text); INSERT INTO morph VALUES (1, 'a1', 'b1')",
        &["public.morph"],
    )
    .await;
    follow.settle("public.morph").await;
    follow
        .execute(
            "BEGIN; INSERT INTO morph VALUES (2, 'a2', 'b2'); ALTER TABLE morph ADD COLUMN c int DEFAULT 5;
             INSERT INTO morph VALUES (3, 'a3', 'b3', 3); ALTER TABLE morph DROP COLUMN a; INSERT INTO morph VALUES (4, 'b4', 4);
             ALTER TABLE morph RENAME COLUMN b TO z; UPDATE morph SET z = 'z1' WHERE id = 1;
             ALTER TABLE morph ALTER COLUMN c TYPE text USING 'c' || c; INSERT INTO morph VALUES (5, 'z5', 'cc'); COMMIT",
        )
        .await;
    follow
        .execute("BEGIN; ALTER TABLE morph ADD COLUMN ghost int; INSERT INTO morph VALUES (6, 'z', 'c', 1); ROLLBACK")
        .await;
    follow.execute("INSERT INTO morph VALUES (7, 'z7', NULL)").await;
    follow.settle("public.morph").await;
}

#[tokio::test]
async fn ddl_while_nobody_reads_gives_old_rows_in_their_old_shape_and_new_ones_in_the_new() {
    let (_server, mut follow) = follow(
        "CREATE TABLE lag_t (id int PRIMARY KEY, old_name text, gone int, n int); INSERT INTO lag_t VALUES (1, 'x', 1, 1);
         CREATE TABLE quiet (id int PRIMARY KEY, v text); INSERT INTO quiet VALUES (1, 'a'), (2, 'b')",
        &["public.*"],
    )
    .await;
    follow.settle("public.lag_t").await;
    follow.settle("public.quiet").await;
    follow.source.close().await.unwrap();
    follow.execute("INSERT INTO lag_t VALUES (2, 'y', 2, 2); UPDATE lag_t SET gone = 99 WHERE id = 1").await;
    follow.execute("ALTER TABLE lag_t DROP COLUMN gone; ALTER TABLE lag_t RENAME COLUMN old_name TO new_name").await;
    follow.execute("ALTER TABLE lag_t ALTER COLUMN n TYPE bigint; INSERT INTO lag_t VALUES (3, 'z', 5000000000)").await;
    follow.execute("ALTER TABLE lag_t DROP CONSTRAINT lag_t_pkey; ALTER TABLE lag_t ADD COLUMN id2 uuid").await;
    follow.execute("ALTER TABLE quiet ADD COLUMN n int DEFAULT 3").await;
    follow.crash().await;
    follow.settle("public.lag_t").await;
    follow.settle("public.quiet").await;
}

#[tokio::test]
async fn another_table_behind_a_name_replaces_the_rows() {
    let (_server, mut follow) = follow(
        "CREATE TABLE stage (id int PRIMARY KEY, v text); INSERT INTO stage VALUES (1, 'old1'), (2, 'old2'), (3, 'old3');
         CREATE TABLE rates (id int PRIMARY KEY, r numeric); CREATE TABLE rates_new (id int PRIMARY KEY, r numeric);
         INSERT INTO rates VALUES (1, 1.1), (2, 2.2), (5, 5.5); INSERT INTO rates_new VALUES (1, 9.1), (3, 9.3)",
        &["public.*"],
    )
    .await;
    follow.settle("public.stage").await;
    follow.settle("public.rates").await;
    follow.execute("UPDATE stage SET v = 'old1b' WHERE id = 1").await;
    follow
        .execute("BEGIN; DROP TABLE stage; CREATE TABLE stage (id bigint PRIMARY KEY, v varchar(10), w int); COMMIT")
        .await;
    follow.execute("INSERT INTO stage VALUES (2, 'new2', 22), (9, 'new9', NULL)").await;
    follow.settle("public.stage").await;
    follow.execute("BEGIN; ALTER TABLE rates RENAME TO rates_old; ALTER TABLE rates_new RENAME TO rates; COMMIT").await;
    follow.execute("UPDATE rates SET r = 9.9 WHERE id = 3; UPDATE rates_old SET r = 0 WHERE id = 5").await;
    follow.settle("public.rates").await;
    follow.settle("public.rates_old").await;
    follow.execute("BEGIN; ALTER TABLE rates RENAME TO r1; ALTER TABLE rates_old RENAME TO rates; ALTER TABLE r1 RENAME TO rates_old; COMMIT").await;
    follow.settle("public.rates").await;
    follow.settle("public.rates_old").await;
    follow.source.close().await.unwrap();
    follow
        .execute("DROP TABLE stage; CREATE TABLE stage (id int PRIMARY KEY, x int); INSERT INTO stage VALUES (4, 4)")
        .await;
    follow.crash().await;
    follow.settle("public.stage").await;
}

#[tokio::test]
async fn a_table_that_joins_later_is_copied_and_the_others_go_on() {
    let (server, mut follow) =
        follow("CREATE TABLE first (id int PRIMARY KEY, v text); INSERT INTO first VALUES (1, 'a')", &["public.*"])
            .await;
    follow.settle("public.first").await;
    let mut open = crate::follow::sql(&server).await;
    follow.execute("CREATE TABLE second (id int PRIMARY KEY, v text); INSERT INTO second SELECT g, 'x' FROM generate_series(1, 500) g").await;
    open.execute("BEGIN; INSERT INTO second VALUES (1000, 'open before it joined')").await.unwrap();
    follow.execute("INSERT INTO first VALUES (2, 'b')").await;
    follow.until("the other table", |f| f.replica.count("public.first", 'c') == 1).await;
    open.execute("INSERT INTO second VALUES (1001, 'and after'); COMMIT").await.unwrap();
    follow.execute("CREATE UNLOGGED TABLE third (id int PRIMARY KEY); INSERT INTO third VALUES (1), (2)").await;
    follow.settle("public.second").await;
    follow.execute("ALTER TABLE third SET LOGGED").await;
    follow.settle("public.third").await;
    follow.execute("DROP TABLE first").await;
    follow.execute("INSERT INTO second VALUES (2000, 'on it goes')").await;
    follow.settle("public.second").await;
}

#[tokio::test]
async fn generated_columns_are_left_out_on_both_paths_and_identity_changes_keep_the_key() {
    let (server, mut follow) = follow(
        "CREATE TABLE invoice (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, net numeric(10,2),
           gross numeric(10,2) GENERATED ALWAYS AS (net * 1.19) STORED, tail text);
         INSERT INTO invoice (net, tail) VALUES (100, 'snapshot');
         CREATE TABLE badge (id int PRIMARY KEY, owner text); ALTER TABLE badge REPLICA IDENTITY NOTHING;
         INSERT INTO badge VALUES (1, 'a'), (2, 'b')",
        &["public.*"],
    )
    .await;
    follow.execute("INSERT INTO invoice (net, tail) VALUES (10, 'streamed'), (NULL, 'null net')").await;
    follow.execute("UPDATE invoice SET net = 200 WHERE id = 1").await;
    follow.execute("INSERT INTO badge VALUES (3, 'c'); ALTER TABLE badge REPLICA IDENTITY FULL").await;
    follow.execute("UPDATE badge SET owner = 'a2' WHERE id = 1; DELETE FROM badge WHERE id = 2").await;
    follow.execute("ALTER TABLE badge REPLICA IDENTITY DEFAULT; UPDATE badge SET id = 30 WHERE id = 3").await;
    follow.settle("public.badge").await;
    follow.catch_up().await;
    if server.psql("SHOW server_version_num").parse::<u32>().unwrap() >= 180_000 {
        // It publishes them.
        return follow.settle("public.invoice").await;
    }
    let columns = ["id".to_owned(), "net".to_owned(), "tail".to_owned()];
    let (_, rows) = follow.source_rows("(SELECT id, net, tail FROM invoice) i").await;
    assert_eq!(follow.replica.rows("public.invoice", &columns), rows);
    let invoice = follow.status().tables.into_iter().find(|t| t.table.name == "invoice").unwrap();
    assert!(invoice.notes[0].contains("gross"), "{:?}", invoice.notes);
}
