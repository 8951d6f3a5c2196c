//! The real binary, a real server, and readers that aren't ours.

mod support;

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use support::{free_port, server, Place};
use tidewire_testbed::Postgres;

const ORDERS: &str = "CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric(12,2));
    INSERT INTO orders SELECT g, 'new', g * 1.5 FROM generate_series(1, 1000) g";

#[test]
fn a_row_inserted_at_the_source_is_in_the_delta_table_and_in_the_replica() {
    let server = server();
    let (shop, replica) = (server.create_database("shop"), server.create_database("replica"));
    server.psql_in("shop", ORDERS);
    let place = Place::new(
        &format!("{{url: '{shop}', tables: [public.orders]}}"),
        &format!("{{lake: {{delta: {{path: ./lake}}}}, replica: {{postgres: {{url: '{replica}', schema: copy}}}}}}"),
    );
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*), sum(total)", "public.orders"), "1000|750750.00");

    server.psql_in(
        "shop",
        "INSERT INTO orders VALUES (5000, 'paid', 12.34); UPDATE orders SET status = 'sent' WHERE id = 1;
                            DELETE FROM orders WHERE id = 2; UPDATE orders SET id = 6000 WHERE id = 3",
    );
    place.catch_up().is(0);
    let expected = server.psql_in("shop", "SELECT id, status, total FROM orders ORDER BY 1");
    assert_eq!(place.duckdb("id, status, total", "public.orders"), expected);
    assert_eq!(server.psql_in("replica", "SELECT id, status, total FROM copy.orders_current ORDER BY 1"), expected);

    let answer = place.tidewire(&["reconcile"], &["--json"]).is(0).json();
    assert_eq!(answer["equal"], true, "{answer}");
    assert_eq!(answer["tables"].as_array().unwrap().len(), 2, "one table, two sinks: {answer}");
    place.tidewire(&["sql"], &["--table", "public.orders"]).is(0).says("INSERT INTO");
}

#[test]
fn a_sink_that_comes_later_is_filled_though_the_database_has_tables_that_are_not_followed() {
    let server = server();
    server.psql(&format!("CREATE TABLE aside (id int PRIMARY KEY); {ORDERS}"));
    let source = format!("source: {{postgres: {{url: '{}', tables: [public.orders]}}}}", server.url());
    let place = Place::lake(&server.url());
    let http = place.http;
    let configure = |sinks: &str| place.configure(&format!("{source}\nsinks: {{{sinks}}}\nhttp: 127.0.0.1:{http}\n"));
    configure("lake: {delta: {path: ./lake}}");
    place.catch_up().is(0);
    configure("lake: {delta: {path: ./lake}}, later: {delta: {path: ./later}}");
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0).says("later");
}

#[test]
fn caught_up_is_said_when_every_row_of_a_quiet_source_is_in_the_sink_and_not_at_the_first_commit() {
    let server = server();
    server.psql("CREATE TABLE many (id int PRIMARY KEY, note text); INSERT INTO many SELECT g, md5(g::text) FROM generate_series(1, 300000) g");
    let place = Place::lake(&server.url());
    let more = "commit_interval: 10ms\n";
    place.configure(&format!("{}{more}", std::fs::read_to_string(place.config()).unwrap()));
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*)", "public.many"), "300000");
}

/// A thousand orders, and a pipeline to a replica on the same server.
fn orders_and_a_replica() -> (Postgres, Place) {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(ORDERS);
    let place = Place::new(
        &format!("{{url: '{}'}}", server.url()),
        &format!("{{replica: {{postgres: {{url: '{replica}'}}}}}}"),
    );
    (server, place)
}

#[test]
fn a_row_that_drifted_is_found_named_and_repaired() {
    let (server, place) = orders_and_a_replica();
    place.catch_up().is(0);
    server.psql_in(
        "replica",
        "UPDATE public.orders SET status = 'forged' WHERE id = 7; DELETE FROM public.orders WHERE id = 8",
    );
    place.tidewire(&["reconcile"], &[]).is(1).says("public.orders").says("differs");
    place.tidewire(&["reconcile"], &["--repair"]).is(0);
    assert_eq!(
        server.psql_in("replica", "SELECT id, status FROM public.orders_current WHERE id IN (7, 8) ORDER BY 1"),
        "7|new\n8|new"
    );
    place.tidewire(&["reconcile"], &["--table", "public.nothing"]).is(2).says("public.nothing");
    place.tidewire(&["reconcile"], &["--sink", "nothing"]).is(2).says("replica");
}

#[test]
fn an_ad_hoc_snapshot_mends_the_rows_that_it_reads_and_no_others() {
    let (server, place) = orders_and_a_replica();
    let mut run = place.run();
    let copied = || server.try_psql("replica", "SELECT count(*) FROM public.orders_current").is_ok_and(|n| n == "1000");
    run.until("it is copied", |_| copied());
    server.psql_in(
        "replica",
        "UPDATE public.orders SET status = 'forged' WHERE id IN (7, 500); DELETE FROM public.orders WHERE id = 8",
    );
    place.tidewire(&["snapshot"], &["--table", "public.orders", "--where", "id <= 10"]).is(0);
    let rows =
        || server.psql_in("replica", "SELECT id, status FROM public.orders_current WHERE id IN (7, 8, 500) ORDER BY 1");
    run.until("what was read is mended", |_| rows() == "7|new\n8|new\n500|forged");
    place.tidewire(&["snapshot"], &["--table", "public.orders"]).is(0);
    run.until("all is mended", |_| rows() == "7|new\n8|new\n500|new");
    run.stop().is(0);
}

#[test]
fn a_slot_that_may_soon_lose_its_log_is_a_finding_that_says_what_to_do() {
    let server = Postgres::start(&[("wal_level", "logical"), ("max_slot_wal_keep_size", "512MB")]);
    server.psql(&format!("{ORDERS}; CREATE TABLE other (v text)"));
    let place =
        Place::new(&format!("{{url: '{}', tables: [public.orders]}}", server.url()), "{lake: {delta: {path: ./lake}}}");
    let mut run = place.run();
    run.until("it streams", |_| place.tidewire(&["status"], &["--json"]).out.contains("\"streaming\""));
    // A transaction that stays open: the slot can't let go of the log behind it.
    let mut session = server.command("psql");
    session.args(["-X", "-q", "-U", "postgres", "-h", "127.0.0.1", "-p", &server.port().to_string()]);
    let mut session = session.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = session.stdin.take().unwrap();
    input.write_all(b"BEGIN; INSERT INTO orders VALUES (9000, 'open', 1);\n").unwrap();
    run.until("the log runs short", |_| {
        server.psql("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
        let said = place.tidewire(&["status"], &[]).out;
        said.contains("slot tidewire_main")
            && said.contains("of runway left")
            && said.contains("raise max_slot_wal_keep_size")
    });
    drop(input);
    session.wait().unwrap();
    run.stop().is(0);
}

/// `memory` bounds what is on its way; one value larger than that passes alone, in at most this many copies of itself.
const COPIES: u64 = 5;

#[test]
fn one_giant_value_takes_a_bounded_multiple_of_itself() {
    const MIB: u64 = 64;
    let server = server();
    server.psql("CREATE TABLE big (id int PRIMARY KEY, v text)");
    let place = Place::lake(&server.url());
    let mut run = place.run();
    let is_streaming = || place.tidewire(&["status"], &["--json"]).out.contains("\"streaming\"");
    run.until("it is followed", |_| is_streaming());
    let peak = |run: &support::Running| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    let before = peak(&run);
    server.psql(&format!(
        "INSERT INTO big SELECT 1, string_agg(md5(g::text), '') FROM generate_series(1, {MIB} * 32768) g"
    ));
    let parts = || -> u64 {
        let folder = std::fs::read_dir(place.path("lake/public/big")).into_iter().flatten().flatten();
        folder.filter(|file| file.path().extension().is_some_and(|e| e == "parquet")).count() as u64
    };
    let log = place.path("lake/public/big/_delta_log");
    // A commit has two names for a moment: the one that it is written under, and its own.
    let adds = || {
        let files = std::fs::read_dir(&log).into_iter().flatten().flatten();
        let commits = files.filter(|file| file.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()));
        commits.filter(|f| std::fs::read_to_string(f.path()).is_ok_and(|text| text.contains("\"add\""))).count()
    };
    run.until("it is committed", |_| parts() > 0 && adds() > 0);
    let streamed = peak(&run) - before;
    let held = adds();
    place.tidewire(&["snapshot"], &["--table", "public.big"]).is(0);
    run.until("the copy of it is committed", |_| adds() > held);
    // The highest so far, of both ways.
    let taken = peak(&run) - before;
    run.stop().is(0);
    assert_eq!(place.duckdb("id, length(v)", "public.big"), format!("1|{}", MIB << 20));
    println!("{streamed} MiB, copied too {taken} MiB for a value of {MIB} MiB");
    assert!(taken <= COPIES * MIB, "{taken} MiB for a value of {MIB} MiB");
}

#[test]
fn commands_talk_to_the_pipeline_that_runs() {
    let server = server();
    server.psql(ORDERS);
    let place = Place::lake(&server.url());
    let mut run = place.run();
    run.until("the first snapshot is done", |_| {
        let status = place.tidewire(&["status"], &["--json"]);
        status.code == 0 && status.json()["tables"][0]["state"] == "streaming"
    });
    place.tidewire(&["status"], &[]).is(0).says("public.orders").says("lake");
    place.tidewire(&["reconcile"], &["--json"]).is(0);
    place.tidewire(&["snapshot"], &["--table", "public.orders", "--where", "id <= 10"]).is(0);
    place.tidewire(&["topic", "list"], &[]).is(0).says("public.orders");
    let lines = place.tidewire(&["topic", "read"], &["public.orders", "--max", "3"]).is(0).out;
    assert_eq!(lines.lines().count(), 3);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["value"]["op"], "r", "{first}");
    place.tidewire(&["slot", "list"], &[]).is(0).says("tidewire").says("active");
    place.tidewire(&["slot", "drop"], &["--yes"]).is(2).says("active");
    run.stop().is(0);
    place.tidewire(&["status"], &[]).is(3).says("not running");
    place.tidewire(&["slot", "drop"], &[]).is(2).says("--yes");
    place.tidewire(&["slot", "drop"], &["--yes"]).is(0);
    assert_eq!(server.psql("SELECT count(*) FROM pg_replication_slots"), "0");
}

#[test]
fn init_writes_a_file_that_check_and_run_take() {
    let server = server();
    server.psql(ORDERS);
    let place = Place::lake(&server.url());
    let url = server.url();
    let out = place.path("made.yaml").display().to_string();
    let words = |w: &[&str]| w.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    support::Running::start(words(&["init", &url, "--output", &out])).end().is(0).says(&out);
    support::Running::start(words(&["init", &url, "--output", &out])).end().is(2).says("--force");
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("${DATABASE_URL}") && text.contains("public.orders") && !text.contains(&url), "{text}");
    let text = text.replace("${DATABASE_URL}", &url).replace("127.0.0.1:7878", &format!("127.0.0.1:{}", free_port()));
    place.configure(&text);
    place.tidewire(&["check"], &[]).is(0);
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*)", "public.orders"), "1000");
}

#[test]
fn a_stop_in_the_middle_of_a_copy_loses_nothing_and_the_next_start_goes_on() {
    let server = server();
    server.psql(
        "CREATE TABLE big (id int PRIMARY KEY, v text);
                 INSERT INTO big SELECT g, repeat(md5(g::text), 4) FROM generate_series(1, 150000) g",
    );
    let place = Place::lake(&server.url());
    for signal in ["TERM", "KILL", "INT"] {
        let mut run = place.run();
        let journal = place.path("tidewire-data");
        run.until("something is in the journal", |_| std::fs::read_dir(&journal).is_ok_and(|f| f.count() > 1));
        std::thread::sleep(Duration::from_millis(300));
        run.signal(signal);
        let code = run.end().code;
        assert_eq!(code, if signal == "KILL" { -1 } else { 0 });
    }
    server.psql("DELETE FROM big WHERE id % 10 = 0");
    place.catch_up().is(0);
    assert_eq!(
        place.duckdb("count(*), count(DISTINCT id), sum(id)", "public.big"),
        server.psql("SELECT count(*), count(DISTINCT id), sum(id) FROM big")
    );
}

#[test]
fn the_demo_ends_with_equal_copies() {
    let words = ["demo", "--rows", "2000", "--seconds", "3", "--rate", "500", "--replica", "--json"].map(String::from);
    let answer = support::Running::start(words).end().is(0).json();
    assert_eq!(answer["equal"], true, "{answer}");
    let tables = answer["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 8, "four tables, two sinks: {answer}");
    assert!(tables.iter().all(|t| t["differing"] == 0 && t["rows_source"] == t["rows_copy"]), "{answer}");
    assert!(answer["load"]["changes"].as_u64().unwrap() > 500, "{answer}");
}
