//! Topics that somebody deletes and messages that somebody else writes, the whole way.

mod support;

use support::shop::Shop;
use support::{free_port, Place, Running};
use tidewire_testbed::Kafka;

#[test]
fn a_topic_deleted_while_its_sink_was_away_hides_no_deleted_row() {
    let shop = Shop::open();
    shop.is_equal();
    shop.server.psql("DELETE FROM orders WHERE id <= 100");
    let mut capture = shop.start(&["capture"]);
    shop.is_captured(&mut capture);
    capture.stop().is(0);
    shop.kafka.delete_topic("shop.public.orders");

    // The new topic grows far beyond what the sinks had read of the old one.
    let mut capture = shop.start(&["capture"]);
    for round in 0..3 {
        shop.server.psql(&format!("UPDATE orders SET status = 'later {round}'"));
    }
    shop.is_captured(&mut capture);
    let mut deliver = shop.start(&["deliver"]);
    deliver.until("it is noticed", |running| running.errors().contains("its topic was deleted and made anew"));
    deliver.until("the rows go", |_| {
        shop.server.psql_in("replica", "SELECT count(*) FROM orders WHERE id <= 100 AND NOT _deleted") == "0"
    });
    shop.compares_equal();
    assert!(!capture.has_ended() && !deliver.has_ended());
}

#[test]
fn a_topic_deleted_while_it_runs_is_made_anew_and_what_others_write_to_the_bus_stops_nobody() {
    let shop = Shop::open();
    shop.place.tidewire(&["lag"], &[]).is(3).says("the bus isn't made yet");
    let capture = shop.start(&["capture"]);
    let mut deliver = shop.start(&["deliver"]);
    shop.answers("replica", &mut deliver);
    shop.answers("lake", &mut deliver);
    shop.load(1);
    shop.compares_equal();

    shop.kafka.delete_topic("shop.public.orders");
    shop.load(2);
    deliver.until("it is noticed", |running| running.errors().contains("its topic was deleted and made anew"));
    shop.compares_equal();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'replica' AND state = 'idle in transaction'";
    deliver.until("no transaction is left open", |_| shop.server.psql(open) == "0");
    let told = capture.errors();
    assert!(told.contains("the topic was deleted"), "{told}");
    // Within seconds: nobody waits until the time of messages is over.
    assert!(!told.contains("timed out") && !told.contains("doesn't show it"), "{told}");

    for topic in ["__progress", "__control"] {
        shop.kafka.send_lines(&format!("shop.{topic}"), "x\n");
    }
    for topic in ["__schemas", "__topics", "__checkpoint", "__repairs"] {
        let words = ["--topic", &format!("shop.{topic}"), "--reader-property", "parse.key=true"];
        shop.kafka.tool("ConsoleProducer", &words, "k\tx\n");
    }
    shop.load(3);
    shop.compares_equal();
    deliver.until("it is told", |running| running.errors().contains("shop.__progress"));
    // Also to whoever starts behind it.
    capture.stop().is(0);
    deliver.stop().is(0);
    shop.load(4);
    shop.is_equal();
    shop.place.tidewire(&["lag"], &[]).is(0);
}

#[test]
fn of_tables_that_are_compacted_rightly_nothing_is_warned_of() {
    let shop = Shop::open();
    shop.server.psql("CREATE TABLE small (a int PRIMARY KEY, b int); INSERT INTO small VALUES (1, 2)");
    shop.place.catch_up().is(0);
    shop.server.psql("UPDATE small SET b = 3");
    let second = shop.place.catch_up().is(0);
    assert!(!second.err.contains("compacted"), "{}", second.err);
}

#[test]
fn rows_whose_partial_messages_somebody_had_compacted_come_back() {
    let shop = Shop::open_by(|| Kafka::start_with("log.cleaner.backoff.ms=200", None), "");
    let policy =
        ["cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.001", "max.compaction.lag.ms=100"];
    let words: Vec<&str> = policy.iter().flat_map(|setting| ["--config", setting]).collect();
    let create = ["--create", "--topic", "shop.public.big", "--partitions", "3"];
    shop.kafka.tool("TopicCommand", &[&create[..], &words].concat(), "");
    let rows = "INSERT INTO big SELECT g, 0, repeat(md5(g::text), 100) FROM generate_series";
    shop.server.psql(&format!(
        "CREATE TABLE big (id int PRIMARY KEY, n int, body text); ALTER TABLE big ALTER body SET STORAGE EXTERNAL; {rows}(1, 20) g"
    ));
    shop.place.catch_up().is(0);

    let mut capture = shop.start(&["capture"]);
    shop.server.psql(&format!("{rows}(21, 60) g"));
    (0..8).for_each(|_| drop(shop.server.psql("UPDATE big SET n = n + 1")));
    shop.is_captured(&mut capture);
    capture.until("most messages are gone", |_| {
        // Only what goes on has the broker close the segment before.
        shop.server.psql("UPDATE big SET n = n + 1 WHERE id = 1");
        let words = ["--topic", "shop.public.big", "--from-beginning", "--timeout-ms", "2000", "--formatter-property"];
        let more = ["print.value=false", "--formatter-property", "print.offset=true"];
        shop.kafka.tool("consumer.ConsoleConsumer", &[&words[..], &more].concat(), "").lines().count() < 400
    });
    assert!(capture.errors().contains("the topic is compacted"), "{}", capture.errors());
    let mut deliver = shop.start(&["deliver"]);
    deliver.until("it is told", |running| running.errors().contains("is the topic compacted?"));
    deliver.until("the rows are there", |_| shop.place.tidewire(&["reconcile"], &["--table", "public.big"]).code == 0);
}

const ROW: &str = r#""source":{"schema":"public","table":"t","lsn":LSN}}"#;

/// A pipeline that reads what others wrote into `odd.public.t`, by a bus in Kafka.
fn of_odd(shop: &Shop) -> Place {
    let place = Place::lake(&shop.server.url());
    let brokers = shop.kafka.address();
    place.configure(&format!(
        "source: {{debezium: {{brokers: '{brokers}', topics: ['odd.*'], tables: {{public.t: {{columns: [id int, v text], key: [id]}}}}}}}}\n\
         bus: {{kafka: {{brokers: '{brokers}', topic_prefix: copied}}}}\nsinks: {{lake: {{delta: {{path: ./lake}}}}}}\nhttp: 127.0.0.1:{}\n",
        free_port()
    ));
    place
}

fn make(shop: &Shop, topic: &str) {
    shop.kafka.tool("TopicCommand", &["--create", "--topic", topic, "--partitions", "1"], "");
}

fn send(shop: &Shop, op: &str, after: &str, lsn: u32) {
    let row = ROW.replace("LSN", &lsn.to_string());
    shop.kafka.send_lines("odd.public.t", &format!("{{\"op\":\"{op}\",\"before\":null,\"after\":{after},{row}\n"));
}

#[test]
fn rows_that_only_their_source_could_tell_again_stay_told_until_somebody_says_that_they_were() {
    let shop = Shop::open();
    make(&shop, "odd.public.t");
    send(&shop, "c", r#"{"id":1,"v":"x"}"#, 1);
    let place = of_odd(&shop);
    place.catch_up().is(0);
    // An update of a row that was never told.
    send(&shop, "u", r#"{"id":2,"v":"__debezium_unavailable_value"}"#, 2);
    place.catch_up().is(1).says("public.t in lake may differ");
    let told = |running: &mut Running, what: &str| {
        running.until("it is told", |_| place.tidewire(&["status"], &[]).out.contains(what));
        place.tidewire(&["status"], &[])
    };
    for _ in 0..2 {
        let mut running = place.run();
        let status = told(&mut running, "CRITICAL: sink lake: table public.t may lack rows");
        status.says("never told in full").says("have the connector take a snapshot").says("tidewire dlq drop");
        running.stop().is(0);
    }
    place.tidewire(&["dlq", "drop"], &["--sink", "lake"]).is(0);
    place.catch_up().is(0);

    // A topic of the bus that is deleted: what was in it is not told again either.
    shop.kafka.delete_topic("copied.public.t");
    send(&shop, "c", r#"{"id":3,"v":"z"}"#, 3);
    place.catch_up().is(1).says("public.t in lake may differ: its topic was deleted");
    let mut running = place.run();
    let status = told(&mut running, "CRITICAL: sink lake: table public.t may lack rows");
    assert!(!status.out.contains("mended") && !status.out.contains("reconcile"), "{}", status.out);

    // The topic itself is deleted: nothing more comes, which is told, also to whoever starts later.
    shop.kafka.delete_topic("odd.public.t");
    told(&mut running, "table public.t: it is not followed any more").says("its topic odd.public.t was deleted");
    running.stop().is(0);
    let mut running = place.run();
    told(&mut running, "its topic odd.public.t was deleted");
    running.stop().is(0);
}

#[test]
fn signals_that_cannot_come_are_told_by_check_and_while_it_runs_until_they_can() {
    let shop = Shop::open();
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    let source = "'}}\nbus:";
    assert!(text.contains(source));
    let signals = "', signals: {table: public.signals, topic: shop.signals}}}\nbus:";
    shop.place.configure(&text.replace(source, signals));
    let lacks = ["there is no table public.signals", "there is no topic shop.signals"];
    let checked = shop.place.tidewire(&["check"], &[]).is(0);
    lacks.iter().for_each(|what| assert!(checked.out.contains(what), "{}", checked.out));
    let mut running = shop.place.run();
    let told = |what: &&str| shop.place.tidewire(&["status"], &[]).out.contains(*what);
    running.until("both are told", |_| lacks.iter().all(told));
    shop.server
        .psql("CREATE TABLE signals (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))");
    make(&shop, "shop.signals");
    running.until("none is told", |_| !lacks.iter().any(told));
    let checked = shop.place.tidewire(&["check"], &[]).is(0);
    assert!(!checked.out.contains("there is no"), "{}", checked.out);
    running.stop().is(0);
}

#[test]
fn a_replica_of_a_table_without_a_key_keeps_its_rows_when_a_column_comes_and_says_that_they_are_gone_when_a_type_changes(
) {
    let shop = Shop::open();
    make(&shop, "plain.public.t");
    let place = Place::lake(&shop.server.url());
    let copy = shop.server.create_database("copy");
    place.configure(&format!(
        "source: {{debezium: {{brokers: '{}', topics: ['plain.*']}}}}\nsinks: {{copy: {{postgres: {{url: '{copy}'}}}}}}\nhttp: 127.0.0.1:{}\n",
        shop.kafka.address(),
        free_port()
    ));
    // `row`: before for a delete, after for others.
    let send = |fields: &[(&str, &str)], op: &str, row: &str, lsn: u32| {
        let field = |(name, ty): &(&str, &str)| format!(r#"{{"type":"{ty}","optional":true,"field":"{name}"}}"#);
        let fields = fields.iter().map(field).collect::<Vec<_>>().join(",");
        let rows = ["before", "after"]
            .map(|part| format!(r#"{{"type":"struct","optional":true,"field":"{part}","fields":[{fields}]}}"#));
        let (before, after) = if op == "d" { (row, "null") } else { ("null", row) };
        let source = ROW.replace("LSN", &lsn.to_string());
        let payload = format!(r#"{{"op":"{op}","before":{before},"after":{after},{source}"#);
        let line = format!(r#"{{"schema":{{"type":"struct","fields":[{}]}},"payload":{payload}}}"#, rows.join(","));
        shop.kafka.send_lines("plain.public.t", &(line + "\n"));
    };
    let (narrow, wide) = ([("a", "int32")], [("a", "int32"), ("b", "int32")]);
    let rows = || shop.server.psql_in("copy", "SELECT a, b FROM public.t_current ORDER BY a");
    send(&narrow, "c", r#"{"a":1}"#, 1);
    send(&narrow, "c", r#"{"a":2}"#, 2);
    place.catch_up().is(0);
    send(&wide, "c", r#"{"a":3,"b":4}"#, 3);
    place.catch_up().is(0);
    assert_eq!(rows(), "1|\n2|\n3|4");
    // What goes has what the database made of it: the column's default.
    send(&wide, "d", r#"{"a":1,"b":7}"#, 4);
    send(&wide, "d", r#"{"a":2,"b":null}"#, 5);
    place.catch_up().is(0);
    assert_eq!(rows(), "3|4");
    let wider = [("a", "int32"), ("b", "int64")];
    send(&wider, "c", r#"{"a":5,"b":6}"#, 6);
    place.catch_up().is(1).says("public.t in copy may differ: its copy was made anew");
    assert_eq!(rows(), "5|6");
    // It isn't said again of what comes then.
    place.tidewire(&["dlq", "drop"], &["--sink", "copy"]).is(0);
    send(&wider, "c", r#"{"a":6,"b":7}"#, 7);
    place.catch_up().is(0);
}
