//! The two loops over stand-ins: order, boundaries, restarts.

use crate::support::bench::Bench;
use crate::support::sink::Store;
use crate::support::{caught_up, config, row, until, wide};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Datum, Error, Message, Row};
use tidewire_connector::{Budget, BusWriter};
use tidewire_pipeline::{Pipeline, PipelineConfig, SinkSpec};

#[tokio::test(start_paused = true)]
async fn what_commits_at_the_source_is_in_the_sink_and_nothing_is_confirmed_before_it_is_durable() {
    let bench = Bench::new();
    let running = bench.start().await;
    bench.load(50);
    caught_up(&running).await;
    bench.assert_equal("orders");
    running.stop().await.expect("a clean end");
    let log = bench.log.all();
    let confirms: Vec<_> = log.iter().filter_map(|e| e.strip_prefix("confirm ")).collect();
    assert!(!confirms.is_empty());
    for commit in confirms {
        let durable = bench.log.index_of(&format!("durable {commit}")).expect("it was made durable");
        assert!(durable < bench.log.index_of(&format!("confirm {commit}")).unwrap(), "{commit}");
    }
    assert_eq!(log.last().map(String::as_str), Some("source close"));
}

#[tokio::test(start_paused = true)]
async fn a_schema_goes_to_the_bus_once_and_before_its_first_message_over_restarts_too() {
    let bench = Bench::new();
    for round in 0..3 {
        let running = bench.start().await;
        bench.world.commit("orders", &[(round, Some("x"))]);
        caught_up(&running).await;
        running.stop().await.unwrap();
    }
    bench.assert_equal("orders");
    assert_eq!(bench.bus.messages("__schemas").len(), 1);
    assert_eq!(bench.bus.messages("shop.orders").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn commits_fall_on_boundaries_only_and_a_large_transaction_is_several_writes_and_one_commit() {
    let mut bench = Bench::new();
    bench.world.part = 10;
    let budget = Budget::new(4096);
    let mut spec = SinkSpec::new("lake", bench.store.sink(), bench.bus.reader_with("lake", Some(budget.clone())));
    spec.pace.write_bytes = 2048;
    spec.pace.interval = Duration::from_millis(1);
    let values: Vec<(i64, Option<Row>)> = (0..500).map(|id| (id, Some(row(id, "some text")))).collect();
    let large = bench.world.commit_rows("orders", values);
    let config = PipelineConfig { append_bytes: 1, budgets: vec![("lake".into(), budget)], ..config(&bench.clock) };
    let running = bench.start_with(config, vec![spec]).await;
    until("the large transaction is committed", || {
        let memory = &running.status().memory[0];
        assert!(memory.used_bytes <= memory.capacity_bytes);
        bench.log.index_of(&format!("lake commit {large}")).is_some()
    })
    .await;
    running.stop().await.unwrap();
    bench.assert_equal("orders");
    assert!(bench.log.count("lake write") >= 10, "{:?}", bench.log.all());
    let first_commit = bench.log.all().into_iter().find(|e| e.starts_with("lake commit")).unwrap();
    assert_eq!(first_commit, format!("lake commit {large}"), "no part of it was committed before its end");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_waits_for_our_credit_inside_a_transaction_gets_it() {
    let mut bench = Bench::new();
    bench.world.part = 50;
    let spec = SinkSpec::new("lake", bench.store.sink(), bench.bus.reader_with("lake", Some(Budget::new(4096))));
    let values = (0..500).map(|id| (id, Some(row(id, "some text")))).collect();
    bench.world.commit_rows("orders", values);
    let config = PipelineConfig { append_bytes: 1, ..config(&bench.clock) };
    let running = bench.start_with(config, vec![spec]).await;
    caught_up(&running).await;
    bench.assert_equal("orders");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn faults_at_every_place_lose_nothing_and_apply_nothing_twice() {
    for (place, call) in [
        ("source", "next"),
        ("source", "confirm"),
        ("source", "open"),
        ("bus", "append"),
        ("bus", "fetch"),
        ("bus", "seek"),
        ("sink", "open"),
        ("sink", "prepare"),
        ("sink", "write"),
        ("sink", "commit"),
        ("sink", "after commit"),
    ] {
        for nth in [1, 2, 5] {
            let bench = Bench::new();
            let faults = match place {
                "source" => &bench.world.faults,
                "bus" => &bench.bus.faults,
                _ => &bench.store.faults,
            };
            faults.on(call, nth, || Error::unavailable("it is gone"));
            let running = bench.start().await;
            for _ in 0..6 {
                bench.load(20);
                tokio::time::sleep(Duration::from_millis(700)).await;
            }
            caught_up(&running).await;
            bench.assert_equal("orders");
            let status = running.status();
            assert_eq!(status.sinks[0].loop_state.trouble, None, "{call} {nth}");
            running.stop().await.unwrap_or_else(|e| panic!("{call} {nth}: {e}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_behind_what_the_sink_committed() {
    let bench = Bench::new();
    let running = bench.start().await;
    bench.load(30);
    caught_up(&running).await;
    running.stop().await.unwrap();
    let before = bench.store.writes.lock().unwrap().len();
    let running = bench.start().await;
    caught_up(&running).await;
    assert_eq!(bench.store.writes.lock().unwrap().len(), before, "nothing is written again");
    bench.load(5);
    caught_up(&running).await;
    bench.assert_equal("orders");
    assert_eq!(running.status().sinks[0].rows_stale, 0);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stuck_sink_holds_back_no_other_and_is_seen() {
    let bench = Bench::new();
    let stuck = Store::new("stuck", &bench.log);
    *stuck.slow.lock().unwrap() = Duration::from_secs(1_000_000);
    let other = SinkSpec::new("stuck", stuck.sink(), bench.bus.reader("stuck"));
    let running = bench.start_with(config(&bench.clock), vec![other, bench.spec()]).await;
    for _ in 0..100 {
        bench.load(3);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    until("the other sink is equal", || bench.store.rows("orders").len() == bench.world.rows("orders").len()).await;
    bench.assert_equal("orders");
    let findings = tidewire_pipeline::diagnose(&running.status());
    assert!(findings.iter().any(|f| f.subject == "sink stuck" && f.what.contains("one write takes")), "{findings:?}");
    assert!(findings.iter().all(|f| f.subject != "sink lake"), "{findings:?}");
    let began = tokio::time::Instant::now();
    running.stop().await.expect("it ends");
    assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stop_comes_in_time_while_the_journal_is_stuck() {
    let bench = Bench::new();
    let running = bench.start().await;
    *bench.bus.slow.lock().unwrap() = Duration::from_secs(1_000_000);
    bench.load(3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = tokio::time::Instant::now();
    running.stop().await.expect("it ends");
    assert!(began.elapsed() <= Duration::from_secs(2));
    assert_eq!(bench.world.confirmed().commit, 0, "nothing that isn't durable was confirmed");
}

#[tokio::test(start_paused = true)]
async fn what_was_collected_at_a_boundary_is_committed_at_a_stop() {
    let bench = Bench::new();
    let mut spec = bench.spec();
    spec.pace.interval = Duration::from_secs(3600);
    let running = bench.start_with(config(&bench.clock), vec![spec]).await;
    let last = bench.world.commit("orders", &[(1, Some("x"))]);
    until("it was fetched", || running.status().tables[0].captured.rows == 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bench.store.commits(), 0);
    running.stop().await.unwrap();
    assert_eq!(bench.store.progress().boundary.position.commit, last);
    bench.assert_equal("orders");
}

#[tokio::test(start_paused = true)]
async fn waiting_batches_are_joined_into_one_append() {
    let bench = Bench::new();
    *bench.bus.slow.lock().unwrap() = Duration::from_millis(50);
    let running = bench.start().await;
    bench.load(200);
    caught_up(&running).await;
    assert!(bench.bus.appends() < 100, "{} appends", bench.bus.appends());
    bench.assert_equal("orders");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_quiet_source_still_tells_how_complete_the_sink_is_and_commits_rarely() {
    let bench = Bench::new();
    let running = bench.start().await;
    for _ in 0..60 {
        let beat = bench.world.heartbeat();
        until("the heartbeat is through", || running.status().sinks[0].position.commit == beat).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let commits = bench.store.commits();
    assert!((4..=7).contains(&commits), "{commits} commits in a minute");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_schema_is_prepared_between_the_rows_before_it_and_those_after_it() {
    let bench = Bench::new();
    bench.world.commit("orders", &[(1, Some("old"))]);
    bench.world.set_schema(wide("orders"));
    let new = Row::from_datums([Datum::Text(b"2"), Datum::Text(b"new"), Datum::Text(b"more")]);
    bench.world.commit_rows("orders", vec![(2, Some(new))]);
    let running = bench.start().await;
    caught_up(&running).await;
    let events: Vec<_> = bench.log.all().into_iter().filter(|e| e.contains("shop.orders")).collect();
    let expected = [
        "lake prepare shop.orders 2",
        "lake write shop.orders",
        "lake prepare shop.orders 3",
        "lake write shop.orders",
    ];
    assert_eq!(events, expected);
    bench.assert_equal("orders");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_truncate_takes_what_was_before_it_and_leaves_what_comes_after() {
    let bench = Bench::new();
    let running = bench.start().await;
    bench.load(40);
    bench.world.truncate("orders");
    bench.world.commit("orders", &[(3, Some("after")), (500, Some("after"))]);
    caught_up(&running).await;
    bench.assert_equal("orders");
    assert_eq!(bench.store.rows("orders").len(), 2);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_key_are_copied_as_often_as_they_are_there() {
    let bench = Bench::new();
    bench.world.add_table("heap");
    for id in 0..20 {
        bench.world.commit("heap", &[(id, Some("x"))]);
    }
    let running = bench.start().await;
    caught_up(&running).await;
    assert_eq!(bench.store.rows("heap").len(), 20);
    let messages = bench.bus.messages("shop.heap");
    assert!(messages.iter().all(|m| m.partition == 0 && m.key.is_empty()));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_sinks_of_one_name_are_refused() {
    let bench = Bench::new();
    let sinks = vec![bench.spec(), bench.spec()];
    let started = Pipeline::start(config(&bench.clock), bench.world.source(), Arc::new(bench.bus.clone()), sinks).await;
    assert!(started.is_err_and(|e| e.to_string().contains("two sinks have the name \"lake\"")));
}

#[tokio::test(start_paused = true)]
async fn a_change_under_an_older_schema_that_is_told_again_does_not_turn_the_table_back() {
    let bench = Bench::new();
    let running = bench.start().await;
    bench.world.commit("orders", &[(1, Some("old"))]);
    bench.world.set_schema(wide("orders"));
    let new = Row::from_datums([Datum::Text(b"1"), Datum::Text(b"new"), Datum::Text(b"more")]);
    bench.world.commit_rows("orders", vec![(1, Some(new))]);
    caught_up(&running).await;
    let first = bench.bus.messages("shop.orders").remove(0);
    let again = Message {
        topic: first.topic,
        partition: first.partition,
        key: first.key,
        value: first.value,
        timestamp: first.timestamp,
    };
    bench.bus.append(vec![again], None).await.unwrap();
    bench.world.commit("orders", &[]);
    caught_up(&running).await;
    bench.assert_equal("orders");
    assert_eq!(bench.log.count("lake prepare"), 2);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_stops_nothing_and_spoils_no_number() {
    let bench = Bench::new();
    let running = bench.start().await;
    for jump in [-7_200_000_000, 14_400_000_000, -7_200_000_000] {
        bench.load(10);
        bench.clock.jump(jump);
        caught_up(&running).await;
        bench.assert_equal("orders");
        let sink = &running.status().sinks[0];
        assert!(sink.staleness_seconds.unwrap() >= 0.0);
    }
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_metrics_tell_rows_latencies_and_positions_in_prometheus_text() {
    let bench = Bench::new();
    let budget = ("source".to_string(), Budget::new(4096));
    let config = PipelineConfig { budgets: vec![budget], ..config(&bench.clock) };
    let running = bench.start_with(config, vec![bench.spec()]).await;
    bench.load(30);
    caught_up(&running).await;
    let text = running.metrics();
    for line in [
        "# TYPE tidewire_rows_total counter",
        "tidewire_rows_total{stage=\"capture\",table=\"shop.orders\"} 60",
        "tidewire_rows_total{stage=\"deliver\",sink=\"lake\",table=\"shop.orders\"} 60",
        "tidewire_source_connected 1",
        "tidewire_sink_lag_bytes{sink=\"lake\"} 0",
        "tidewire_visible_seconds_bucket{sink=\"lake\",le=\"+Inf\"} 60",
        "tidewire_visible_seconds_count{sink=\"lake\"} 60",
        "tidewire_durable_seconds_count 60",
        "tidewire_credit_capacity_bytes{budget=\"source\"} 4096",
        "tidewire_dead_letters_total{sink=\"lake\"} 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in:\n{text}");
    }
    let mut names: Vec<_> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), text.matches("# TYPE ").count(), "each metric has one head");
    running.stop().await.unwrap();
}
