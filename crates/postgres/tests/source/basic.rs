use crate::follow::{config, server, Follow};

#[tokio::test]
async fn rows_from_before_and_every_kind_of_change_arrive() {
    let server = server(&[]);
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'old' FROM generate_series(1, 5000) g",
    );
    let mut follow = Follow::start(config(&server, &["public.t"])).await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 5000);
    follow.execute("INSERT INTO t VALUES (6000, NULL), (6001, '')").await;
    follow.execute("UPDATE t SET v = 'new' WHERE id < 10").await;
    follow.execute("UPDATE t SET id = -id WHERE id = 20").await;
    follow.execute("DELETE FROM t WHERE id = 30").await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'd'), 2, "a delete, and the old half of a key change");
    follow.execute("TRUNCATE t").await;
    follow.execute("INSERT INTO t VALUES (1, 'after')").await;
    follow.settle("public.t").await;
    assert_eq!(follow.replica.count("public.t", 'r'), 5000, "nothing was read twice");
}

#[tokio::test]
async fn who_sees_that_it_is_connected_sees_the_tables_that_wait_to_be_copied() {
    let server = server(&[]);
    server.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let follow = Follow::start(config(&server, &["public.t"])).await;
    // Nothing has been taken from it yet.
    let status = follow.status();
    assert!(status.connected && status.pending_reads > 0, "{status:?}");
    assert_eq!(status.tables.len(), 1);
    assert_eq!(status.tables[0].state, tidewire_connector::TableState::Pending);
}
