//! Several processes share the tables of a lake, by Kafka's consumer groups.

mod support;

use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant, SystemTime};
use support::group::{open, open_with, ALL};
use support::{Running, LIMIT};
use tidewire_testbed::Kafka;

#[test]
fn two_processes_share_the_tables_of_a_lake_both_commit_and_kafkas_own_tool_shows_who_has_what() {
    let shop = open();
    let _capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.load_all(1);
    shop.lake_is_equal();

    let mut other = shop.member();
    let (ones, _) = shop.are_shared(&one, &mut other);
    let commits = |running: &Running| shop.lake_of(running).unwrap()["commits"].as_u64().unwrap();
    let (before, before_other) = (commits(&one), commits(&other));
    shop.load_all(2);
    other.until("both commit", |other| commits(&one) > before && commits(other) > before_other);
    shop.lake_is_equal();
    shop.nothing_lags();

    // What an operator sees.
    let words = ["--describe", "--group", "tidewire-main-lake"];
    let seen = shop.kafka.tool("consumer.group.ConsumerGroupCommand", &words, "");
    let owner = |table: &str| {
        let work = format!("shop.__work.{table}");
        let line = seen.lines().find(|line| line.split_whitespace().nth(1) == Some(&work));
        let line = line.unwrap_or_else(|| panic!("{work} isn't in: {seen}"));
        line.split_whitespace().find(|word| word.starts_with("tidewire-main-")).unwrap_or("-").to_string()
    };
    for table in ALL {
        let of_one = ones.contains(table);
        let mate = ALL.iter().find(|mate| **mate != table && ones.contains(**mate) == of_one).unwrap();
        assert!(owner(table) != "-" && owner(table) == owner(mate), "{table} and {mate}: {seen}");
    }
    assert!(seen.contains("shop.public.orders"), "offsets of the tables' own topics: {seen}");

    let memory = shop.status_of(&one).unwrap()["memory"][0].clone();
    assert!(memory["name"] == "sink lake" && memory["used_bytes"].as_u64() > Some(0), "{memory}");
    assert!(memory["capacity_bytes"].as_u64() >= memory["used_bytes"].as_u64(), "{memory}");

    // A table that comes later finds somebody, too.
    shop.server.psql("CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later SELECT generate_series(1, 10)");
    let count = |table: &str| shop.place.duckdb("count(*)", table);
    other.until("it is delivered", |_| shop.place.path("lake/public/later/_delta_log").exists());
    other.until("its rows are", |_| count("public.later") == "10");
    assert_eq!(shop.shares(&one).len() + shop.shares(&other).len(), ALL.len() + 1);
    one.stop().is(0);
    shop.load_all(3);
    other.until("it has all", |other| shop.shares(other).len() == ALL.len() + 1);
    other.stop().is(0);
}

#[test]
fn a_process_that_comes_and_goes_under_load_moves_only_its_own_tables_and_nothing_is_there_twice() {
    let shop = open();
    let rounds = AtomicU32::new(1);
    let capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.lake_is_equal();
    let began = SystemTime::now();
    let kept = shop.under_load(&rounds, || {
        let mut other = shop.member();
        let (kept, _) = shop.are_shared(&one, &mut other);
        std::thread::sleep(Duration::from_millis(500));
        other.stop().is(0);
        shop.has_all(&mut one);
        std::thread::sleep(Duration::from_millis(500));
        kept
    });
    // The tables that stayed went on all the time.
    for table in &kept {
        let times: Vec<_> = shop.commits_of(table).into_iter().filter(|at| *at > began).collect();
        let gaps = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).unwrap_or_default());
        let longest = gaps.max().unwrap_or_default();
        assert!(
            times.len() > 2 && longest < Duration::from_secs(5),
            "{table} stopped for {longest:?} ({} commits)",
            times.len()
        );
    }
    let given: Vec<_> =
        one.errors().lines().filter(|line| line.contains("written here from now on")).map(String::from).collect();
    for table in &kept {
        assert_eq!(given.iter().filter(|line| line.contains(&format!("\"{table}\""))).count(), 1, "{table}: {given:?}");
    }
    shop.lake_is_equal();
    shop.nothing_lags();
    one.stop().is(0);
    capture.stop().is(0);

    let proved =
        shop.place.tidewire(&["replay"], &["--sink", "lake", "--to-earliest", "--prove", "--json"]).is(0).json();
    let sink = &proved["sinks"][0];
    assert!(sink["rows_changed"] == 0 && sink["passes"][0] == sink["passes"][1], "{proved}");
    assert!(sink["passes"][0]["messages"].as_u64().unwrap() > 1000, "{proved}");

    // One process goes on where several were, and several where one was.
    shop.load_all(5000);
    shop.place.catch_up().is(0);
    let whole = shop.place.run();
    shop.load_all(5001);
    let mut whole = whole;
    whole.until("it is equal", |_| shop.place.tidewire(&["reconcile"], &["--sink", "lake"]).code == 0);
    whole.stop().is(0);
    let _capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.load_all(5002);
    shop.has_all(&mut one);
    shop.lake_is_equal();
    assert!(!one.errors().contains("lacks what comes next"), "{}", one.errors());
}

#[test]
fn what_a_process_had_when_it_was_killed_goes_on_in_another_and_nothing_is_lost() {
    let shop = open();
    let rounds = AtomicU32::new(1);
    let _capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.lake_is_equal();
    for die_at in ["parquet written:9", "sink committed:5", "vectors written:30"] {
        let rest = shop.under_load(&rounds, || {
            let mut other = shop.member_with(&[("TIDEWIRE_DIE_AT", die_at)]);
            let deadline = Instant::now() + LIMIT;
            while !other.has_ended() {
                assert!(Instant::now() < deadline, "it lives on: {}", other.errors());
                std::thread::sleep(Duration::from_millis(5));
            }
            let died = Instant::now();
            shop.has_all(&mut one);
            died.elapsed()
        });
        assert!(rest < Duration::from_secs(15), "{die_at}: its tables stood for {rest:?}");
        shop.lake_is_equal();
        shop.nothing_lags();
    }
    one.stop().is(0);
    let proved =
        shop.place.tidewire(&["replay"], &["--sink", "lake", "--to-earliest", "--prove", "--json"]).is(0).json();
    assert_eq!(proved["sinks"][0]["rows_changed"], 0, "{proved}");
}

#[test]
fn a_process_that_was_taken_for_dead_and_wakes_writes_nothing_over_what_its_successor_wrote() {
    let shop = open();
    let rounds = AtomicU32::new(1);
    let _capture = shop.start(&["capture"]);
    let mut one = shop.member();
    let mut other = shop.member();
    shop.are_shared(&one, &mut other);
    for _ in 0..3 {
        shop.under_load(&rounds, || {
            let before = shop.shares(&other);
            assert!(!before.is_empty());
            other.signal("STOP");
            one.until("its tables are written by the other", |one| shop.shares(one).len() == ALL.len());
            let stood: Vec<_> = before.iter().map(|table| shop.commits_of(table).len()).collect();
            one.until("they go on", |_| {
                before.iter().zip(&stood).all(|(table, count)| shop.commits_of(table).len() > *count)
            });
            // It believes that all is as it was, and has half a batch in its hands.
            other.signal("CONT");
            shop.are_shared(&one, &mut other);
        });
        shop.lake_is_equal();
    }
    assert!(!one.has_ended() && !other.has_ended());
    shop.nothing_lags();
    one.stop().is(0);
    other.stop().is(0);
    let proved =
        shop.place.tidewire(&["replay"], &["--sink", "lake", "--to-earliest", "--prove", "--json"]).is(0).json();
    assert_eq!(proved["sinks"][0]["rows_changed"], 0, "{proved}");
}

#[test]
fn a_process_with_a_name_of_its_own_that_is_back_in_time_has_its_tables_again_and_the_group_does_not_move() {
    let shop = open_with(Kafka::start, "6s");
    let _capture = shop.start(&["capture"]);
    let (mut one, mut other) = (shop.member_named("one"), shop.member_named("other"));
    let (ones, others) = shop.are_shared(&one, &mut other);
    shop.load_all(1);
    shop.lake_is_equal();
    // Whatever the group tells one of its members.
    let moves = |running: &Running| running.errors().matches("the group's tables move").count();
    let before = moves(&one);
    for (round, signal) in ["KILL", "TERM"].into_iter().enumerate() {
        other.signal(signal);
        other.end();
        other = shop.member_named("other");
        other.until("it has its tables again", |other| shop.shares(other) == others);
        shop.load_all(round as u32 + 2);
        shop.lake_is_equal();
    }
    assert_eq!((moves(&one), shop.shares(&one)), (before, ones), "{}", one.errors());

    // Two of one name: the later one goes on.
    let mut later = shop.member_named("other");
    other.end().is(2).says("another process has bus.kafka.group.instance, too");
    later.until("it has the tables", |later| shop.shares(later) == others);
    assert_eq!(moves(&one), before, "{}", one.errors());
    // It stays away: its tables go to those that are there.
    later.signal("KILL");
    shop.has_all(&mut one);
    shop.load_all(9);
    shop.lake_is_equal();
    one.stop().is(0);
}

#[test]
fn a_table_that_could_not_be_made_is_made_and_filled_when_the_configuration_is_mended() {
    let shop = open();
    let config = shop.place.config();
    let mended = std::fs::read_to_string(&config).unwrap();
    let bad =
        mended.replace("{path: ./lake}", "{path: ./lake, column_mapping: [public.a], partition_by: {public.a: v}}");
    assert_ne!(bad, mended);
    let _capture = shop.start(&["capture"]);
    std::fs::write(&config, &bad).unwrap();
    let mut one = shop.member();
    shop.has_all(&mut one);
    let parked = |running: &Running| shop.lake_of(running).is_some_and(|lake| lake["parked"].get("public.a").is_some());
    one.until("the table is parked", parked);
    one.until("others are written", |_| shop.place.path("lake/public/b/_delta_log").exists());
    one.stop().is(0);

    std::fs::write(&config, &mended).unwrap();
    let mut one = shop.member();
    shop.has_all(&mut one);
    one.until("it is made", |_| shop.place.path("lake/public/a/_delta_log").exists());
    one.until("nothing is to be mended", |one| {
        shop.status_of(one).is_some_and(|status| status["repairs"] == serde_json::json!([]))
    });
    shop.lake_is_equal();
    one.stop().is(0);
}
