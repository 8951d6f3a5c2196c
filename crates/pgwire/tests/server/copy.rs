use crate::{connect, server};
use tidewire_change::ErrorKind;
use tidewire_pgwire::{sqlstate, Connection};

/// All rows of a COPY, and how many there were.
async fn read(pg: &mut Connection, sql: &str) -> (Vec<u8>, usize) {
    let mut copy = pg.copy_out(sql).await.unwrap();
    let (mut all, mut count) = (Vec::new(), 0);
    while let Some(chunk) = copy.next().await.unwrap() {
        let before = all.len();
        for row in chunk.rows() {
            all.extend_from_slice(row);
            count += 1;
        }
        assert_eq!(chunk.rows_bytes().map(|row| row.len()).sum::<usize>(), all.len() - before);
        assert!(chunk.len_bytes() > all.len() - before);
    }
    assert!(copy.next().await.unwrap().is_none(), "the end stays the end");
    (all, count)
}

async fn works(pg: &mut Connection) {
    assert_eq!(pg.query("SELECT 7 AS x").await.unwrap().value().unwrap(), "7");
}

#[tokio::test]
async fn a_hundred_thousand_rows_come_out_and_go_in_unchanged() {
    let mut pg = connect(&server().url()).await;
    let select = "SELECT g, md5(g::text), CASE WHEN g % 7 = 0 THEN NULL ELSE E'a\\tb\\n\\\\' || g END FROM \
                  generate_series(1, 100000) g";
    let (text, count) = read(&mut pg, &format!("COPY ({select}) TO STDOUT")).await;
    assert_eq!(count, 100_000);
    assert!(text.starts_with(b"1\tc4ca4238a0b923820dcc509a6f75849b\ta\\tb\\n\\\\1\n"));
    assert!(text.windows(9).any(|w| w == b"\t\\N\n99996"));

    pg.execute("CREATE TEMP TABLE back (a int, b text, c text)").await.unwrap();
    for size in [17, 64 * 1024, usize::MAX] {
        pg.execute("TRUNCATE pg_temp.back").await.unwrap();
        let mut copy = pg.copy_in("COPY pg_temp.back FROM STDIN").await.unwrap();
        for piece in text.chunks(size) {
            copy.send(piece).await.unwrap();
        }
        assert_eq!(copy.finish().await.unwrap(), 100_000);
        let difference = format!("SELECT count(*) FROM (({select}) EXCEPT ALL SELECT * FROM pg_temp.back) x");
        assert_eq!(pg.query(&difference).await.unwrap().value().unwrap(), "0");
        assert_eq!(read(&mut pg, "COPY pg_temp.back TO STDOUT").await, (text.clone(), count), "pieces of {size}");
    }
}

#[tokio::test]
async fn a_value_of_fifty_megabytes_passes_both_ways() {
    let mut pg = connect(&server().url()).await;
    let (mut value, count) = read(&mut pg, "COPY (SELECT repeat('tidewire', 6553600)) TO STDOUT").await;
    assert_eq!((value.len(), count), (52_428_801, 1));
    assert!(value[..52_428_800].chunks(8).all(|piece| piece == b"tidewire"));
    works(&mut pg).await;
    pg.execute("CREATE TEMP TABLE big (a text)").await.unwrap();
    let mut copy = pg.copy_in("COPY pg_temp.big FROM STDIN").await.unwrap();
    value.extend_from_slice(b"small\n");
    copy.send(&value).await.unwrap();
    assert_eq!(copy.finish().await.unwrap(), 2);
    assert_eq!(pg.query("SELECT sum(length(a)) AS n FROM pg_temp.big").await.unwrap().value().unwrap(), "52428805");
    assert_eq!(read(&mut pg, "COPY (SELECT a, 1 FROM pg_temp.big) TO STDOUT").await.1, 2);
}

#[tokio::test]
async fn binary_and_empty_copies_work() {
    let mut pg = connect(&server().url()).await;
    let (bytes, _) = read(&mut pg, "COPY (SELECT 1::int4, 'x'::text) TO STDOUT (FORMAT binary)").await;
    assert!(bytes.starts_with(b"PGCOPY\n\xff\r\n\0") && bytes.ends_with(b"\xff\xff"));
    assert_eq!(read(&mut pg, "COPY (SELECT 1 WHERE false) TO STDOUT").await, (vec![], 0));
    pg.execute("CREATE TEMP TABLE none (a int)").await.unwrap();
    assert_eq!(pg.copy_in("COPY pg_temp.none FROM STDIN").await.unwrap().finish().await.unwrap(), 0);
    works(&mut pg).await;
}

#[tokio::test]
async fn rows_before_an_error_arrive_and_the_connection_goes_on() {
    let mut pg = connect(&server().url()).await;
    let mut copy = pg.copy_out("COPY (SELECT 1 / (5001 - g) FROM generate_series(1, 9000) g) TO STDOUT").await.unwrap();
    let mut count = 0;
    let error = loop {
        match copy.next().await {
            Ok(Some(chunk)) => count += chunk.rows().count(),
            Ok(None) => panic!("the error is missing"),
            Err(error) => break error,
        }
    };
    assert_eq!((count, sqlstate(&error)), (5000, Some("22012")));
    assert!(copy.next().await.unwrap().is_none());
    works(&mut pg).await;
    assert_eq!(sqlstate(&pg.copy_out("COPY nowhere TO STDOUT").await.err().unwrap()), Some("42P01"));
    works(&mut pg).await;
}

#[tokio::test]
async fn a_copy_dropped_half_way_leaves_a_connection_that_works() {
    let mut pg = connect(&server().url()).await;
    {
        let mut copy = pg.copy_out("COPY (SELECT g FROM generate_series(1, 300000) g) TO STDOUT").await.unwrap();
        assert!(copy.next().await.unwrap().is_some());
    }
    works(&mut pg).await;

    pg.execute("CREATE TEMP TABLE kept (a int)").await.unwrap();
    {
        let mut copy = pg.copy_in("COPY pg_temp.kept FROM STDIN").await.unwrap();
        copy.send(b"1\n2\n").await.unwrap();
    }
    let mut copy = pg.copy_in("COPY pg_temp.kept FROM STDIN").await.unwrap();
    copy.send(&b"3\n".repeat(200_000)).await.unwrap();
    copy.abort().await.unwrap();
    assert_eq!(pg.query("SELECT count(*) FROM pg_temp.kept").await.unwrap().value().unwrap(), "0");
}

#[tokio::test]
async fn a_row_that_the_server_refuses_ends_the_copy_early_and_is_not_repeated() {
    let mut pg = connect(&server().url()).await;
    pg.execute("CREATE TEMP TABLE strict (a int)").await.unwrap();
    let mut copy = pg.copy_in("COPY pg_temp.strict FROM STDIN").await.unwrap();
    copy.send(b"secret\n").await.unwrap();
    // The server's answer is noticed while data still goes out; a gigabyte would never be sent.
    let mut error = None;
    for _ in 0..8192 {
        if let Err(found) = copy.send(&b"1\n".repeat(64 * 1024)).await {
            error = Some(found);
            break;
        }
    }
    let error = error.expect("the error is noticed before a gigabyte is sent");
    assert_eq!((sqlstate(&error), error.kind()), (Some("22P02"), ErrorKind::Invalid));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    assert_eq!(copy.send(b"1\n").await.unwrap_err().kind(), ErrorKind::Bug);
    assert_eq!(copy.finish().await.unwrap_err().kind(), ErrorKind::Bug);
    let mut copy = pg.copy_in("COPY pg_temp.strict FROM STDIN").await.unwrap();
    copy.send(b"secret\n").await.unwrap();
    assert_eq!(sqlstate(&copy.finish().await.unwrap_err()), Some("22P02"));
    works(&mut pg).await;
}

#[tokio::test]
async fn a_server_that_talks_while_we_send_blocks_nobody() {
    let mut pg = connect(&server().url()).await;
    pg.execute(
        "CREATE TEMP TABLE chatty (a int);
         CREATE FUNCTION pg_temp.chat() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE NOTICE '%', repeat('x', 2000); RETURN NEW; END $$;
         CREATE TRIGGER chat BEFORE INSERT ON pg_temp.chatty FOR EACH ROW EXECUTE FUNCTION pg_temp.chat()",
    )
    .await
    .unwrap();
    let mut copy = pg.copy_in("COPY pg_temp.chatty FROM STDIN").await.unwrap();
    copy.send(&b"1\n".repeat(20_000)).await.unwrap();
    copy.send(&b"1                                               \n".repeat(20_000)).await.unwrap();
    assert_eq!(copy.finish().await.unwrap(), 40_000);
}
