use std::time::{Duration, Instant};
use tidewire_change::{ErrorKind, Result};
use tidewire_pgwire::{Config, Connection, Mode};
use tidewire_testbed::Proxy;

const PATIENCE: Duration = Duration::from_millis(100);

async fn session(proxy: &Proxy) -> Connection {
    let mut config = Config::parse(&crate::server().url_by(proxy, "postgres")).unwrap();
    config.connect_timeout = Duration::from_secs(1);
    Connection::connect(&config, Mode::Sql).await.unwrap()
}

#[tokio::test]
async fn a_server_that_falls_silent_is_unavailable() {
    let proxy = Proxy::to(crate::server().addr());
    let mut pg = session(&proxy).await;
    let watch = pg.watch(PATIENCE).await.unwrap();
    proxy.stall();
    let error = watch.over(pg.query("SELECT 1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("can't be reached"), "{error}");
}

#[tokio::test]
async fn a_connection_that_lost_a_statement_or_an_answer_is_unavailable_and_its_session_holds_no_lock() {
    let proxy = Proxy::to(crate::server().addr());
    for in_copy in [false, true] {
        let mut pg = session(&proxy).await;
        let watch = pg.watch(PATIENCE).await.unwrap();
        pg.execute("CREATE TEMP TABLE taken (id int); SELECT pg_advisory_lock(77)").await.unwrap();
        let work = async {
            if !in_copy {
                proxy.stall_open();
                return pg.execute("SELECT 1").await;
            }
            let mut copy = pg.copy_in("COPY taken FROM STDIN").await?;
            proxy.stall_open();
            copy.send(b"1\n").await?;
            copy.finish().await.map(|_| ())
        };
        let error = watch.over(work).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("waits for us"), "{error}");
        let mut other = session(&proxy).await;
        other.execute("SET lock_timeout = '10s'; SELECT pg_advisory_lock(77)").await.unwrap();
    }
}

#[tokio::test]
async fn a_session_that_the_server_ended_without_a_word_to_us_is_unavailable() {
    let proxy = Proxy::to(crate::server().addr());
    let mut pg = session(&proxy).await;
    let pid = pg.query("SELECT pg_backend_pid()").await.unwrap().value().unwrap().to_string();
    let watch = pg.watch(PATIENCE).await.unwrap();
    proxy.stall_open();
    assert_eq!(crate::server().psql(&format!("SELECT pg_terminate_backend({pid}, 10000)")), "t");
    let error = watch.over(pg.query("SELECT 1")).await.unwrap_err();
    assert!(error.message().contains("ended it"), "{error}");
}

#[tokio::test]
async fn a_statement_that_takes_its_time_or_waits_for_a_lock_goes_on() -> Result<()> {
    let proxy = Proxy::to(crate::server().addr());
    let mut pg = session(&proxy).await;
    let watch = pg.watch(PATIENCE).await?;
    let began = Instant::now();
    watch.over(pg.execute("SELECT pg_sleep(1)")).await?;
    let mut holder = session(&proxy).await;
    holder.execute("SELECT pg_advisory_lock(78)").await?;
    let release = async {
        tokio::time::sleep(10 * PATIENCE).await;
        holder.execute("SELECT pg_advisory_unlock(78)").await
    };
    let (waited, released) = tokio::join!(watch.over(pg.execute("SELECT pg_advisory_lock(78)")), release);
    released?;
    waited?;
    assert!(began.elapsed() > 20 * PATIENCE);
    Ok(())
}
