//! The HTTP address of a running pipeline and its client, over loopback. The pipeline has a stand-in for a source and one
//! for a bus, both without any rows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidewire_change::{
    Boundary, Checkpoint, Datum, Error, ErrorKind, Message, Position, Progress, Result, Row, Schema, TableName,
    TopicPartition,
};
use tidewire_connector::{
    BoxFuture, BusReader, BusWriter, ChangeBatch, Fetched, FetchedMessage, Placed, Selection, ServerFacts, Sink,
    SinkStatus, Source, SourceHandle, SourceStatus, TableBatch, What, Written,
};
use tidewire_pipeline::reconcile::{Comparison, Difference, DriftKey, Live, Verdict};
use tidewire_pipeline::{Health, Pipeline, PipelineConfig, Running, SinkSpec};
use tidewire_server::{bind, serve, Address, Client, Serving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Source, bus, reader and sink in one; what was read is remembered.
#[derive(Clone, Default)]
struct Quiet {
    reads: Arc<Mutex<Vec<Selection>>>,
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl Source for Quiet {
    fn open(&mut self, _: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn next(&mut self) -> BoxFuture<'_, Result<ChangeBatch>> {
        Box::pin(std::future::pending())
    }
    fn confirm(&mut self, _: &Checkpoint) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn close(&mut self) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn handle(&self) -> Arc<dyn SourceHandle> {
        Arc::new(self.clone())
    }
}

impl SourceHandle for Quiet {
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        if selection.table.name == "unknown" {
            return Box::pin(async { Err(Error::invalid("there is no such table").hint("look at status")) });
        }
        self.reads.lock().unwrap().push(selection);
        ready(())
    }
    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        ready(Position::new(77, 3))
    }
    fn status(&self) -> SourceStatus {
        SourceStatus { connected: true, pending_reads: 5, ..Default::default() }
    }
    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>> {
        ready(ServerFacts::default())
    }
}

impl BusWriter for Quiet {
    fn last(&self) -> BoxFuture<'_, Result<Option<Checkpoint>>> {
        ready(None)
    }
    fn append(&self, _: Vec<Message>, _: Option<Checkpoint>) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn ends(&self) -> BoxFuture<'_, Result<BTreeMap<TopicPartition, u64>>> {
        ready(BTreeMap::new())
    }
    fn read_topic<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<FetchedMessage>>> {
        ready(Vec::new())
    }
}

impl BusReader for Quiet {
    fn seek(&mut self, _: &Progress) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn next(&mut self) -> BoxFuture<'_, Result<Fetched>> {
        Box::pin(std::future::pending())
    }
    fn commit(&mut self, _: &Progress) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
}

impl Sink for Quiet {
    fn open(&mut self) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn committed(&mut self) -> BoxFuture<'_, Result<Progress>> {
        let boundary = Boundary { position: Position::new(42, 0), complete_through: 1 };
        ready(Progress { boundary, ..Default::default() })
    }
    fn prepare(&mut self, _: Arc<Schema>) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn write(&mut self, _: TableBatch) -> BoxFuture<'_, Result<Written>> {
        ready(Written::default())
    }
    fn commit(&mut self, _: &Progress) -> BoxFuture<'_, Result<()>> {
        ready(())
    }
    fn status(&self) -> SinkStatus {
        SinkStatus::default()
    }
}

const SINK: &str = "my lake/1";

async fn pipeline(quiet: &Quiet) -> Running {
    let sink = SinkSpec::new(SINK, Box::new(quiet.clone()), Box::new(quiet.clone()));
    let (source, bus) = (Box::new(quiet.clone()), Arc::new(quiet.clone()));
    let running = Pipeline::start(PipelineConfig::default(), source, bus, vec![sink]).await.expect("it starts");
    while !running.status().sinks[0].open || !running.status().source.open {
        tokio::task::yield_now().await;
    }
    running
}

async fn served(quiet: &Quiet, token: Option<&str>) -> (Running, Serving) {
    let running = pipeline(quiet).await;
    let address = Address { address: "127.0.0.1:0".parse().unwrap(), token: token.map(str::to_string) };
    let serving = serve(running.clone(), bind(address).await.expect("it listens"));
    (running, serving)
}

/// A request as somebody else might send it; returns the answer as text.
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn get(address: SocketAddr, path: &str) -> String {
    raw(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await
}

#[tokio::test]
async fn a_second_process_sees_and_asks_what_the_first_knows() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, None).await;
    let client = Client::new(serving.address(), None);
    let status = client.status().await.unwrap();
    assert_eq!((status.sinks[0].name.as_str(), status.source.pending_reads), (SINK, 5));
    assert_eq!(client.pending_reads().await.unwrap(), 5);
    assert_eq!(client.mark().await.unwrap(), Position::new(77, 3));
    assert_eq!(client.sink_boundary(SINK).await.unwrap(), Position::new(42, 0));
    assert!(client.findings().await.is_ok());

    let key = Row::from_datums([Datum::Text(b"\xfe\xff"), Datum::Unchanged]);
    let selection = Selection { table: TableName::new("s", "t"), what: What::Keys(vec![key]), placed: Placed::Ahead };
    client.read(selection.clone()).await.unwrap();
    assert_eq!(quiet.reads.lock().unwrap().as_slice(), std::slice::from_ref(&selection));

    let wrong = Selection { table: TableName::new("s", "unknown"), ..selection };
    let error = client.read(wrong).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Invalid, "there is no such table — look at status")
    );
    let error = client.sink_boundary("other").await.unwrap_err();
    assert!(error.to_string().contains("my lake/1"), "{error}");

    client.stop().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), running.wait()).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_comparison_is_reported_without_the_keys_of_rows() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, None).await;
    let keys = vec![DriftKey { key: "secret".into(), what: Difference::Missing, repaired: false }];
    let comparison = Comparison {
        sink: SINK.into(),
        table: "s.t".into(),
        verdict: Verdict::Drift,
        rows_source: 2,
        rows_sink: 1,
        differing: 0,
        missing: 1,
        extra: 0,
        twice: 0,
        repaired: 0,
        moving: 0,
        keys,
        notes: Vec::new(),
    };
    let client = Client::new(serving.address(), None);
    client.report(&comparison).await.unwrap();
    assert_eq!(running.status().drift[0].rows, 1);
    let findings = get(serving.address(), "/findings").await;
    assert!(findings.contains("the copy differs") && !findings.contains("secret"), "{findings}");
    assert!(get(serving.address(), "/metrics")
        .await
        .contains("tidewire_drift_rows{sink=\"my lake/1\",table=\"s.t\"} 1"));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn probes_answer_200_or_503_with_the_reason() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, None).await;
    for path in ["/live", "/ready"] {
        let answer = get(serving.address(), path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let answer = get(serving.address(), "/current?within=5").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    let health: Health = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert!(!health.ok && health.why[0].contains("behind"), "{health:?}");
    running.stop().await.unwrap();
    assert!(get(serving.address(), "/ready").await.starts_with("HTTP/1.1 503"));
}

#[tokio::test]
async fn an_address_that_others_can_reach_requires_a_token() {
    let quiet = Quiet::default();
    let running = pipeline(&quiet).await;
    let open = Address { address: "0.0.0.0:0".parse().unwrap(), token: None };
    let error = bind(open).await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("set `token`"), "{error}");
    running.stop().await.unwrap();

    let (running, serving) = served(&quiet, Some("s3cret")).await;
    let at = serving.address();
    assert!(get(at, "/status").await.starts_with("HTTP/1.1 401"));
    let wrong =
        raw(at, "GET /status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s\r\nConnection: close\r\n\r\n")
            .await;
    assert!(wrong.starts_with("HTTP/1.1 401") && wrong.contains("the token is wrong"), "{wrong}");
    assert!(get(at, "/live").await.starts_with("HTTP/1.1 200"), "probes need none");
    for token in [None, Some("s3cres"), Some("s3cret2"), Some("")] {
        let error = Client::new(at, token.map(str::to_string)).status().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!error.to_string().contains("s3c"), "{error}");
        let what = if token.is_some() { "doesn't take this token" } else { "requires its token" };
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(Client::new(at, Some("s3cret".into())).status().await.is_ok());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_web_page_elsewhere_can_ask_nothing_through_a_browser() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, None).await;
    let at = serving.address();
    let rebound = raw(at, "GET /status HTTP/1.1\r\nHost: evil.example:80\r\nConnection: close\r\n\r\n").await;
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");
    let form = "POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let answer = raw(at, form).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("application/json"), "{answer}");
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:99"] {
        let answer = raw(at, &format!("GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{host}");
    }
    assert!(running.status().source.open, "it was not stopped");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn bodies_are_bounded_and_nonsense_is_refused_without_repeating_it() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, None).await;
    let head = "POST /reads HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let huge = raw(serving.address(), &format!("{head}Content-Length: 999999999\r\n\r\n")).await;
    assert!(huge.starts_with("HTTP/1.1 413"), "{huge}");
    let body = r#"{"table": {"schema": "s", "name": "t"}, "what": {"keys": ["secret"]}}"#;
    let answer = raw(serving.address(), &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    assert!(answer.starts_with("HTTP/1.1 400") && !answer.contains("secret"), "{answer}");
    assert!(get(serving.address(), "/nothing").await.starts_with("HTTP/1.1 404"));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_taken_port_and_a_missing_server_are_told_clearly() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, None).await;
    let at = serving.address();
    let error = bind(Address { address: at, token: None }).await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(&format!("{at} is taken by another process")), "{error}");
    // Whoever had it may be about to end.
    let (again, ended) = tokio::join!(bind(Address { address: at, token: None }), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        running.stop().await.unwrap();
        serving.stop().await;
    });
    drop((again.unwrap(), ended));
    let error = Client::new(at, None).status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.hint_text().unwrap().contains("tidewire run"), "{error}");
}

/// Sends bytes, says that no more come, and reads what is answered; nothing when the connection was closed.
async fn thrown(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        stream.read_to_end(&mut answer).await
    };
    // A refusal in the middle of a request is an answer, too.
    let _ = tokio::time::timeout(Duration::from_secs(20), talk).await.expect("the server answers or hangs up");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_any_bytes_never_crash_it_and_it_goes_on_answering() {
    let quiet = Quiet::default();
    let (running, serving) = served(&quiet, Some("s3cret")).await;
    let address = serving.address();
    let key = Row::from_datums([Datum::Text(b"1")]);
    let body = serde_json::json!({"table": "s.t", "keys": [key.encoded().to_vec()], "placed": "ahead"}).to_string();
    let request = |line: &str, body: &str| {
        let head =
            format!("{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\nConnection: close\r\n");
        format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let seeds = [
        request("GET /status", ""),
        request("GET /current?within=5", ""),
        request("POST /reads", &body),
        request("POST /comparisons", r#"{"sink":"a","table":"b"}"#),
        b"POST /reads HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n".to_vec(),
    ];
    let handle = tokio::runtime::Handle::current();
    let bombarding = tokio::task::spawn_blocking(move || {
        tidewire_testbed::bombard(&seeds, 61, 1000, 256 << 20, |bytes| {
            // The one request that is meant to end it.
            if !bytes.windows(5).any(|part| part == b"/stop") {
                let answer = handle.block_on(thrown(address, bytes));
                assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
            }
        })
    });
    bombarding.await.expect("no answer but HTTP");
    assert!(get(address, "/live").await.starts_with("HTTP/1.1 200"));
    running.stop().await.unwrap();
}
