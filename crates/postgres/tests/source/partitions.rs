//! Partitioned tables are followed under their root; inheritance isn't partitioning.

use crate::follow::{config, server, Follow};
use tidewire_connector::{Inspect, Scan, Source};

const TICKET: &str = "CREATE TABLE ticket (region text NOT NULL, id int NOT NULL, v text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
  CREATE TABLE ticket_eu PARTITION OF ticket FOR VALUES IN ('eu');
  CREATE TABLE ticket_us PARTITION OF ticket FOR VALUES IN ('us') PARTITION BY HASH (id);
  CREATE TABLE ticket_us0 PARTITION OF ticket_us FOR VALUES WITH (MODULUS 2, REMAINDER 0);
  CREATE TABLE ticket_us1 PARTITION OF ticket_us FOR VALUES WITH (MODULUS 2, REMAINDER 1);
  CREATE TABLE ticket_rest (v text, id int NOT NULL, region text NOT NULL, extra int, PRIMARY KEY (region, id));
  ALTER TABLE ticket_rest DROP COLUMN extra; ALTER TABLE ticket ATTACH PARTITION ticket_rest DEFAULT;
  INSERT INTO ticket VALUES ('eu', 1, 'a'), ('us', 2, 'b'), ('ap', 3, 'c'), ('us', 7, 'g'), ('us', 8, 'h');";

#[tokio::test]
async fn rows_of_all_partitions_at_any_depth_and_in_any_column_order_are_one_table() {
    let server = server(&[]);
    server.psql(TICKET);
    let mut follow = Follow::start(config(&server, &["public.ticket"])).await;
    follow.settle("public.ticket").await;
    follow.execute("UPDATE ticket SET region = 'us' WHERE id = 1").await;
    follow.execute("UPDATE ticket SET region = 'zz', v = 'b2' WHERE id = 2").await;
    follow.execute("INSERT INTO ticket VALUES ('eu', 4, 'd'), ('us', 5, 'e'), ('us', 6, 'f'), ('ap', 9, 'i')").await;
    follow.execute("DELETE FROM ticket WHERE id = 3").await;
    follow.settle("public.ticket").await;
    assert_eq!(follow.replica.tables.keys().collect::<Vec<_>>(), ["public.ticket"]);
}

#[tokio::test]
async fn partitions_that_the_log_does_not_have_are_left_out_everywhere_and_told() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE visit (region text, id int) PARTITION BY LIST (region);
         CREATE TABLE visit_eu PARTITION OF visit FOR VALUES IN ('eu');
         CREATE UNLOGGED TABLE visit_us PARTITION OF visit FOR VALUES IN ('us');
         CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
         CREATE FOREIGN TABLE visit_far PARTITION OF visit FOR VALUES IN ('far') SERVER nowhere;
         INSERT INTO visit VALUES ('eu', 1), ('us', 2)",
    );
    let mut follow = Follow::start(config(&server, &["public.visit"])).await;
    follow.execute("INSERT INTO visit VALUES ('eu', 3), ('us', 4)").await;
    follow.until("both rows", |f| f.replica.rows("public.visit", &["id".to_string()]).len() == 2).await;
    let notes = follow.status().tables[0].notes.join("; ");
    assert!(notes.contains("public.visit_far, public.visit_us"), "{notes}");
    // A comparison looks at the same rows.
    let mut source = tidewire_postgres::sink::PostgresInspect::source(&config(&server, &[]));
    let schema = source.schemas().await.unwrap().remove(0);
    let mut seen = 0;
    source.scan(&Scan { schema, keys: None }, &mut |_| seen += 1).await.unwrap();
    assert_eq!(seen, 2);
    follow.source.close().await.unwrap();
}

#[tokio::test]
async fn truncating_detaching_and_dropping_one_partition_leaves_the_others_rows() {
    let server = server(&[]);
    server.psql(TICKET);
    let mut follow = Follow::start(config(&server, &["public.ticket"])).await;
    follow.settle("public.ticket").await;
    follow.execute("BEGIN; UPDATE ticket SET v = 'x' WHERE region = 'eu'; TRUNCATE ticket_us0; INSERT INTO ticket VALUES ('us', 11, 'k'); COMMIT").await;
    follow.settle("public.ticket").await;
    follow
        .execute("ALTER TABLE ticket DETACH PARTITION ticket_eu; INSERT INTO ticket_eu VALUES ('eu', 77, 'not ours')")
        .await;
    follow.settle("public.ticket").await;
    follow.execute("ALTER TABLE ticket ATTACH PARTITION ticket_eu FOR VALUES IN ('eu')").await;
    follow.settle("public.ticket").await;
    follow.execute("DROP TABLE ticket_rest").await;
    follow.settle("public.ticket").await;
    follow
        .execute("CREATE TABLE ticket_new PARTITION OF ticket DEFAULT; INSERT INTO ticket VALUES ('new', 1, 'n')")
        .await;
    follow.settle("public.ticket").await;
    follow.execute("TRUNCATE ticket; INSERT INTO ticket VALUES ('eu', 1, 'last')").await;
    follow.settle("public.ticket").await;
    follow.crash().await;
    follow.settle("public.ticket").await;
}

#[tokio::test]
async fn a_column_with_a_default_on_a_partitioned_table_reaches_old_rows() {
    let server = server(&[]);
    server.psql(TICKET);
    let mut follow = Follow::start(config(&server, &["public.ticket"])).await;
    follow.settle("public.ticket").await;
    follow.execute("ALTER TABLE ticket ADD COLUMN n int DEFAULT 5").await;
    follow.settle("public.ticket").await;
}

#[tokio::test]
async fn children_by_inheritance_are_tables_of_their_own() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE payment (id int PRIMARY KEY, amount numeric);
         CREATE TABLE card_payment (card text, PRIMARY KEY (id)) INHERITS (payment);
         INSERT INTO payment VALUES (1, 10); INSERT INTO card_payment VALUES (2, 20, 'V')",
    );
    let mut follow = Follow::start(config(&server, &["public.*"])).await;
    follow.execute("INSERT INTO card_payment VALUES (5, 50, 'M'); INSERT INTO payment VALUES (2, 99)").await;
    follow.execute("UPDATE payment SET amount = amount + 1").await;
    follow.settle("public.card_payment").await;
    let columns = ["id".to_owned(), "amount".to_owned()];
    let rows = follow.replica.rows("public.payment", &columns);
    assert_eq!(rows.len(), 2, "{rows:?}");
}
