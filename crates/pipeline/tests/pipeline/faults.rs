//! What the supervisor makes of each kind of error.

use crate::support::bench::Bench;
use crate::support::sink::Store;
use crate::support::{caught_up, until};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Message};
use tidewire_connector::BusWriter;
use tidewire_pipeline::{diagnose, DeadLetter, Severity};

fn bench() -> Bench {
    let bench = Bench::new();
    bench.world.add_table("lines");
    bench
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_be_followed_is_parked_the_others_go_on_and_a_restart_mends_it() {
    let bench = bench();
    bench.store.faults.on("prepare", 1, || Error::schema("the column moved").hint("move it back"));
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    until("it is parked", || !running.status().sinks[0].parked.is_empty()).await;
    bench.world.commit("lines", &[(1, Some("b"))]);
    bench.world.commit("orders", &[(2, Some("c"))]);
    caught_up(&running).await;
    bench.assert_equal("lines");
    assert!(bench.store.rows("orders").is_empty());
    let status = running.status();
    assert_eq!(status.sinks[0].parked["shop.orders"].why, "the column moved");
    let finding = diagnose(&status).into_iter().find(|f| f.what.contains("parked")).expect("it is told");
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.next.contains("move it back"), "{finding}");
    running.stop().await.unwrap();

    // The progress has passed the skipped changes; the repair that was written down brings the rows.
    let running = bench.start_seeing().await;
    until("it is mended", || running.status().repairs.is_empty()).await;
    bench.assert_equal("orders");
    assert!(running.status().sinks[0].parked.is_empty());
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_either_way_moves_no_position_and_loses_nothing() {
    const DAY: i64 = 86_400_000_000;
    let bench = bench();
    let running = bench.start().await;
    let mut last = running.status().source.position;
    for jump in [0, -DAY, 400 * DAY, -800 * DAY] {
        bench.clock.jump(jump);
        bench.load(20);
        caught_up(&running).await;
        bench.assert_equal("orders");
        let status = running.status();
        assert!(status.source.position > last, "{jump}");
        assert!(status.sinks[0].staleness_seconds.is_none_or(|seconds| seconds >= 0.0), "{jump}");
        last = status.source.position;
    }
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_malformed_message_among_many_goes_to_the_dead_letters_and_all_others_are_applied() {
    let bench = bench();
    *bench.store.poison.lock().unwrap() = Some("poison".into());
    for id in 0..40 {
        bench.world.commit("orders", &[(id, Some(if id == 23 { "poison" } else { "fine" }))]);
    }
    bench.world.commit("lines", &[(1, Some("b"))]);
    let running = bench.start_seeing().await;
    caught_up(&running).await;
    assert_eq!(bench.store.rows("orders").len(), 39);
    bench.assert_equal("lines");
    let letters = bench.bus.messages("__dead_letters");
    assert_eq!(letters.len(), 1);
    let letter: DeadLetter = serde_json::from_slice(&letters[0].value).unwrap();
    assert_eq!((letter.topic.as_str(), letter.sink.as_str(), letter.attempts), ("shop.orders", "lake", 3));
    assert!(letter.reason.contains("a value can't be stored") && letter.last >= letter.first);
    let mut messages = bench.bus.messages("shop.orders").into_iter();
    let message = messages.find(|m| (m.partition, m.offset) == (letter.partition, letter.offset)).unwrap();
    assert_eq!(message.key, b"23".as_slice());
    assert!(!letter.value.is_empty());
    let status = running.status();
    assert_eq!((status.sinks[0].dead_letters, &status.sinks[0].loop_state.trouble), (1, &None));
    assert!(diagnose(&status).iter().any(|f| f.next.contains("tidewire dlq list")));
    running.stop().await.unwrap();
    let running = bench.start_seeing().await;
    assert_eq!(running.status().sinks[0].dead_letters, 1, "it is not forgotten");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_message_go_to_the_dead_letters() {
    let bench = bench();
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    caught_up(&running).await;
    let junk = Message {
        topic: "shop.orders".into(),
        partition: 0,
        key: "9".into(),
        value: vec![1u8, b'?', 7, 7].into(),
        timestamp: 0,
    };
    bench.bus.append(vec![junk], None).await.unwrap();
    bench.world.commit("orders", &[(2, Some("b"))]);
    caught_up(&running).await;
    bench.assert_equal("orders");
    let letter: DeadLetter = serde_json::from_slice(&bench.bus.messages("__dead_letters")[0].value).unwrap();
    assert_eq!((letter.key.as_str(), letter.value.as_str()), ("OQ==", "AT8HBw=="));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_the_bus_does_not_take_is_not_skipped() {
    let bench = bench();
    *bench.store.poison.lock().unwrap() = Some("poison".into());
    bench.world.commit("orders", &[(1, Some("poison"))]);
    let running = bench.start_seeing().await;
    until("it was captured", || bench.bus.messages("shop.orders").len() == 1).await;
    bench.bus.faults.on("append", 1, || Error::unavailable("the disk is full"));
    caught_up(&running).await;
    assert_eq!(bench.bus.messages("__dead_letters").len(), 1);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_must_be_changed_by_the_user_stops_everything_with_the_message() {
    for call in ["open", "next", "append"] {
        let bench = bench();
        let faults = if call == "append" { &bench.bus.faults } else { &bench.world.faults };
        faults.on(call, 1, || Error::invalid("the folder is not writable").hint("give the right"));
        let running = bench.start_seeing().await;
        bench.world.commit("orders", &[(1, Some("a"))]);
        let error = tokio::time::timeout(Duration::from_secs(60), running.wait()).await.expect("it ends").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().ends_with("the folder is not writable — give the right"), "{error}");
        assert!(running.caught_up().await.is_err(), "who waits is told");
    }
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_takes_our_rights_away_while_it_runs_is_tried_again_and_stops_nothing() {
    let bench = bench();
    bench.store.faults.on("write", 1, || Error::invalid("the password is wrong").hint("set the new one"));
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    caught_up(&running).await;
    bench.assert_equal("orders");
    assert_eq!(bench.log.count("lake write"), 2, "the first write failed");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_loop_is_a_bug_and_stops_the_others() {
    let bench = bench();
    bench.store.faults.on("write", 1, || panic!("this panic belongs to the test"));
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    let error = running.wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bug);
    assert!(error.message().contains("sink lake"), "{error}");
    assert!(bench.log.all().contains(&"source close".to_string()), "capture was ended in order");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_shows_the_same_nonsense_again_and_again_stops_the_pipeline() {
    let bench = bench();
    for _ in 0..3 {
        bench.world.faults.on("next", 1, || Error::malformed("an unknown message"));
    }
    let running = bench.start_seeing().await;
    let error = running.wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert_eq!(bench.log.count("source open"), 3);
}

#[tokio::test(start_paused = true)]
async fn errors_in_a_row_are_told_with_their_beginning_and_forgotten_when_it_goes_on() {
    let bench = bench();
    for _ in 0..20 {
        bench.store.faults.on("commit", 1, || Error::unavailable("no connection").hint("start it"));
    }
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    until("some errors came", || {
        running.status().sinks[0].loop_state.trouble.as_ref().is_some_and(|t| t.in_a_row >= 6)
    })
    .await;
    let finding = diagnose(&running.status()).into_iter().find(|f| f.subject == "sink lake").unwrap();
    assert_eq!((finding.severity, finding.next.as_str()), (Severity::Critical, "start it"));
    assert!(finding.what.contains("times in a row") && finding.since.is_some(), "{finding}");
    caught_up(&running).await;
    bench.assert_equal("orders");
    assert_eq!(diagnose(&running.status()), []);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_the_log_was_lost_a_new_one_is_started_and_every_table_is_mended() {
    let bench = bench();
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a")), (2, Some("b")), (3, Some("c"))]);
    bench.world.commit("lines", &[(1, Some("a"))]);
    caught_up(&running).await;
    // A change, a new row and a delete that nobody will ever tell.
    bench.world.commit_unseen("orders", &[(1, Some("changed")), (2, None), (4, Some("new"))]);
    bench.world.faults.on("next", 1, || Error::lost("the slot is gone"));
    bench.world.heartbeat();
    until("a new log is started", || bench.log.count("source recover") == 1).await;
    bench.world.commit("lines", &[(2, Some("after"))]);
    until("it is mended", || running.status().repairs.is_empty()).await;
    bench.assert_equal("orders");
    bench.assert_equal("lines");
    assert_eq!(running.status().source.recoveries, 1);
    running.stop().await.unwrap();
}

/// What the sink holds of a transaction is let go when the log ends in it: a new slot on the sink's server waits for it.
#[tokio::test(start_paused = true)]
async fn a_log_that_is_lost_in_the_middle_of_a_transaction_never_waits_for_a_sink_on_the_same_server() {
    let mut bench = bench();
    (bench.world.part, bench.world.shares_its_server, bench.write_bytes) = (10, true, Some(1));
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    caught_up(&running).await;
    let rows: Vec<_> = (0..40).map(|id| (id, Some("b"))).collect();
    bench.world.faults.on("next", 3, || Error::lost("the slot is gone"));
    bench.world.commit("orders", &rows);
    until("the sink has a part of it", || bench.log.is_sink_in_a_transaction()).await;
    until("a new log is started", || bench.log.count("source recover") == 1).await;
    bench.world.commit("orders", &[(2, Some("after"))]);
    until("it is mended", || running.status().repairs.is_empty()).await;
    caught_up(&running).await;
    bench.assert_equal("orders");
    assert_eq!(running.status().sinks[0].loop_state.trouble, None);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repair_is_still_due_after_a_restart() {
    let bench = bench();
    let running = bench.start_seeing().await;
    bench.world.commit("orders", &[(1, Some("a"))]);
    caught_up(&running).await;
    bench.world.commit_unseen("orders", &[(2, Some("b"))]);
    bench.world.faults.on("next", 1, || Error::lost("the slot is gone"));
    bench.world.heartbeat();
    until("it is written down", || bench.bus.messages("__repairs").len() == 1).await;
    running.stop().await.unwrap();
    let running = bench.start_seeing().await;
    until("it is mended", || running.status().repairs.is_empty()).await;
    bench.assert_equal("orders");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_added_later_gets_the_rows_that_the_bus_no_longer_holds() {
    let mut bench = bench();
    let running = bench.start_seeing().await;
    bench.load(40);
    caught_up(&running).await;
    assert_eq!(running.status().repairs, [], "a first start needs no repair");
    running.stop().await.unwrap();
    bench.bus.drop_messages("shop.orders");
    bench.store = Store::new("lake", &bench.log);
    let running = bench.start_seeing().await;
    bench.load(3);
    until("it is told", || running.status().repairs.iter().any(|r| r.why.contains("the sink is new"))).await;
    until("it is mended", || running.status().repairs.is_empty()).await;
    caught_up(&running).await;
    bench.assert_equal("orders");
    running.stop().await.unwrap();
    let running = bench.start_seeing().await;
    assert_eq!(running.status().repairs, [], "it is not new any more");
    running.stop().await.unwrap();
}
