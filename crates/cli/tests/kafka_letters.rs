//! Dead letters by Kafka, the whole way.

mod support;

use support::shop::Shop;

#[test]
fn dead_letters_have_connects_headers_and_go_back_through_the_guard_when_the_cause_is_mended() {
    let shop = Shop::open();
    shop.is_equal();
    shop.server.psql_in("replica", "ALTER TABLE public.orders ADD CHECK (status NOT LIKE 'poison%')");
    shop.server
        .psql("INSERT INTO orders VALUES (5001, 'poison one', 1); INSERT INTO orders VALUES (5002, 'poison two', 2)");
    let _capture = shop.start(&["capture"]);
    let mut deliver = shop.start(&["deliver", "--sink", "replica"]);
    let letters =
        || shop.place.tidewire(&["dlq", "list"], &["--json"]).is(0).json()["letters"].as_array().unwrap().clone();
    deliver.until("both are put aside", |_| letters().len() == 2);
    shop.server.psql("UPDATE orders SET status = 'newer' WHERE id = 5002");
    let newer = "SELECT status FROM public.orders_current WHERE id = 5002";
    deliver.until("their partitions flow on", |_| shop.server.psql_in("replica", newer) == "newer");
    deliver.stop().is(0);

    // As any consumer sees them.
    let words = [
        "--topic",
        "shop.__dead_letters",
        "--from-beginning",
        "--max-messages",
        "2",
        "--timeout-ms",
        "30000",
        "--formatter-property",
        "print.headers=true",
    ];
    let seen = shop.kafka.tool("consumer.ConsoleConsumer", &words, "");
    for header in [
        "topic:shop.public.orders",
        "partition:",
        "offset:",
        "connector.name:replica",
        "task.id:0",
        "stage:TASK_PUT",
        "class.name:",
        "exception.class.name:tidewire.Malformed",
        "exception.message:",
    ] {
        assert_eq!(seen.matches(&format!("__connect.errors.{header}")).count(), 2, "{header}: {seen}");
    }
    assert!(!seen.contains("poison one"), "a row's values are coded: {seen}");

    let refused = shop.place.tidewire(&["dlq", "replay"], &["--json"]).is(1).json();
    assert_eq!((&refused["sinks"][0]["delivered"], letters().len()), (&0.into(), 2), "{refused}");
    shop.server.psql_in("replica", "ALTER TABLE public.orders DROP CONSTRAINT orders_status_check");
    let done = shop.place.tidewire(&["dlq", "replay"], &["--json"]).is(0).json();
    let sink = &done["sinks"][0];
    assert_eq!((&sink["delivered"], &sink["applied"], &sink["stale"]), (&2.into(), &1.into(), &1.into()), "{done}");
    assert!(letters().is_empty());
    let mut deliver = shop.start(&["deliver"]);
    shop.answers("replica", &mut deliver);
    shop.compares_equal();
}

#[test]
fn a_foreign_message_as_large_as_a_topic_takes_goes_aside_and_holds_nobody_up() {
    let shop = Shop::open_with(", max_message: 1MB");
    shop.is_equal();
    shop.kafka.send_lines("shop.public.orders", &"x".repeat(1_000_000));
    let _capture = shop.start(&["capture"]);
    let mut deliver = shop.start(&["deliver"]);
    shop.load(1);
    let aside = || shop.place.tidewire(&["dlq", "list"], &["--json"]).is(0).json()["letters"].as_array().unwrap().len();
    deliver.until("each sink has put it aside", |_| aside() == 2);
    shop.answers("replica", &mut deliver);
    shop.answers("lake", &mut deliver);
    shop.compares_equal();
}
