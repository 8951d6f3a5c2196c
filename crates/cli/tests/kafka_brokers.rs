//! Several brokers, of which some are gone, and a broker whose disk is full.

mod support;

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::group::{open, open_by};
use support::shop::Shop;
use support::{Running, LIMIT};
use tidewire_testbed::{Brokers, Kafka, SmallDisk};

/// Something more comes to the lake.
fn goes_on(shop: &Shop, running: &mut Running) {
    let (before, deadline) = (shop.rows_in_the_lake(), Instant::now() + 2 * LIMIT);
    while shop.rows_in_the_lake() < before + 3 {
        assert!(!running.has_ended() && Instant::now() < deadline, "nothing is delivered: {}", running.errors());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn of_three_brokers_any_may_be_killed_or_restarted_under_load_and_nothing_is_lost() {
    let (give, take) = mpsc::channel();
    let start = move || {
        let brokers = Brokers::start();
        let one = brokers.as_one();
        give.send(brokers).unwrap();
        one
    };
    let shop = open_by(start);
    let (mut brokers, rounds) = (take.recv().unwrap(), AtomicU32::new(1));
    let mut capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.under_load(&rounds, || {
        goes_on(&shop, &mut one);
        // The leader of a table's partition.
        let leader = brokers.leader("shop.public.orders");
        brokers.0[leader].kill();
        goes_on(&shop, &mut one);
        brokers.0[leader].start_again();
        goes_on(&shop, &mut one);
        // The coordinator of the group.
        let words = ["--describe", "--state", "--group", "tidewire-main-lake"];
        let told = shop.kafka.tool("consumer.group.ConsumerGroupCommand", &words, "");
        let id = told.split('(').nth(2).and_then(|rest| rest.split(')').next()).and_then(|id| id.parse::<usize>().ok());
        let coordinator = id.unwrap_or_else(|| panic!("no coordinator: {told}")) - 1;
        brokers.0[coordinator].kill();
        goes_on(&shop, &mut one);
        brokers.0[coordinator].start_again();
        // All of them, one after the other, in order.
        for broker in &mut brokers.0 {
            broker.stop();
            goes_on(&shop, &mut one);
            broker.start_again();
        }
        goes_on(&shop, &mut one);
    });
    assert!(!capture.has_ended() && !one.has_ended(), "{}{}", capture.errors(), one.errors());
    shop.has_all(&mut one);
    shop.lake_is_equal();
    shop.nothing_lags();
    one.stop().is(0);
    capture.stop().is(0);
    let proved =
        shop.place.tidewire(&["replay"], &["--sink", "lake", "--to-earliest", "--prove", "--json"]).is(0).json();
    assert_eq!(proved["sinks"][0]["rows_changed"], 0, "{proved}");
}

#[test]
fn a_broker_whose_disk_is_full_loses_nothing_and_all_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(disk) = SmallDisk::mount(&disk, 64 << 20) else { return };
    let ballast = disk.path().join("ballast");
    let (place, log): (PathBuf, _) = (folder.path().join("broker"), disk.path().join("log"));
    // The end of the disk comes soon, and nothing is kept open in advance.
    let properties =
        format!("log.dirs={}\nmetadata.log.dir={}\nlog.preallocate=false", log.display(), place.join("meta").display());
    let mut shop = open_by(move || Kafka::start_in(place, &properties, None));
    let mut capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.load_all(1);
    shop.lake_is_equal();

    // What is free but for two megabytes.
    let mut left = std::fs::File::create(&ballast).unwrap();
    let mut filled = 0;
    while filled < 60 << 20 && std::io::Write::write_all(&mut left, &[1; 1 << 20]).is_ok() {
        filled += 1 << 20;
    }
    drop(left);
    let wide = "INSERT INTO a SELECT 100000 + g, (SELECT string_agg(md5((g * 1000 + i)::text), '') FROM generate_series(1, 300) i), 0
        FROM generate_series(1, 2000) g";
    shop.server.psql(wide);
    let status = || shop.place.tidewire(&["status"], &[]);
    capture.until("it says what it waits for", |_| {
        let told = status();
        told.out.contains("capture fails") || told.out.contains("it doesn't answer")
    });
    let count = "SELECT count(*) FROM a WHERE id > 100000";
    assert_eq!(shop.server.psql(count), "2000");
    assert!(!capture.has_ended() && !one.has_ended(), "{}{}", capture.errors(), one.errors());

    // A broker goes down when its disk is full: whoever makes room starts it again.
    shop.kafka.kill();
    std::fs::remove_file(&ballast).unwrap();
    shop.kafka.start_again();
    shop.load_all(2);
    one.until("it goes on", |_| shop.place.duckdb("count(*)", "public.a").parse::<u32>().unwrap() >= 2200);
    shop.has_all(&mut one);
    shop.lake_is_equal();
    assert!(!capture.has_ended() && !one.has_ended(), "{}{}", capture.errors(), one.errors());
}

fn is_found(shop: &Shop, running: &Running) -> bool {
    let answer = shop.findings_of(running);
    answer.contains("doesn't answer") || answer.contains("capture fails") || answer.contains("writing fails")
}

#[test]
fn an_idle_pipeline_whose_broker_is_gone_says_so() {
    let mut shop = open();
    let mut capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.lake_is_equal();
    shop.kafka.kill();
    capture.until("it is found", |running| is_found(&shop, running));
    one.until("here, too", |running| is_found(&shop, running));
    shop.kafka.start_again();
    capture.until("it is over", |running| !is_found(&shop, running));
    shop.load_all(1);
    shop.lake_is_equal();
}
