//! Topics that somebody deletes and messages that somebody else writes, the whole way.

mod support;

use support::shop::Shop;

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
    assert!(capture.errors().contains("the topic was deleted"), "{}", capture.errors());

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
