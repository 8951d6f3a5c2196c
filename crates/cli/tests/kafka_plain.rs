//! `bus.kafka.exactly_once: false`: no transactions, and the copies are equal all the same.

mod support;

use std::time::Instant;
use support::shop::Shop;
use support::LIMIT;

/// Messages that any consumer sees in a table's topic.
fn on_the_topic(shop: &Shop, topic: &str) -> u64 {
    let ends = shop.kafka.tool("GetOffsetShell", &["--topic", topic], "");
    ends.lines().map(|line| line.rsplit(':').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn without_transactions_capture_may_be_killed_at_any_moment_and_what_is_delivered_is_equal() {
    let shop = Shop::open_with(", exactly_once: false");
    let mut deliver = shop.start(&["deliver"]);
    // While tables are read for the first time, and then under load: behind what was sent, behind the record that makes it count, behind the
    // checkpoint.
    let deaths = ["kafka sent:2", "kafka told:3", "kafka sent:4", "kafka commit:5", "kafka sent:9", "kafka told:12"];
    let mut rounds = 1..;
    for die_at in deaths {
        let mut capture = shop.start_with(&["capture"], &[("TIDEWIRE_DIE_AT", die_at)]);
        let deadline = Instant::now() + LIMIT;
        // Whatever it sends when it dies has orders in it.
        while !capture.has_ended() {
            assert!(Instant::now() < deadline, "it lives on: {}", capture.errors());
            shop.load(rounds.next().unwrap());
        }
    }
    let mut capture = shop.start(&["capture"]);
    shop.load(rounds.next().unwrap());
    shop.is_captured(&mut capture);
    shop.answers("replica", &mut deliver);
    shop.answers("lake", &mut deliver);
    shop.compares_equal();
    deliver.stop().is(0);
    let lag = shop.place.tidewire(&["lag"], &["--json"]).is(0).json();
    assert!(lag["sinks"].as_array().unwrap().iter().all(|sink| sink["records"] == 0), "{lag}");

    // Other consumers see what was sent twice; our own readers passed over it.
    let words = ["--sink", "lake", "--to-earliest", "--topic", "public.orders", "--prove", "--json"];
    let proved = shop.place.tidewire(&["replay"], &words).is(0).json();
    let (sink, passes) = (&proved["sinks"][0], &proved["sinks"][0]["passes"]);
    assert!(sink["rows_changed"] == 0 && passes[0]["applied"] == 0 && passes[1]["applied"] == 0, "{proved}");
    let (named, all) = (passes[0]["messages"].as_u64().unwrap(), on_the_topic(&shop, "shop.public.orders"));
    assert_eq!(passes[1]["messages"], named, "{proved}");
    assert!(named > 2000 && named < all, "{named} of {all}: {proved}");
    capture.stop().is(0);
}
