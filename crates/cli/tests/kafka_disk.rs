//! A broker whose disk is full.

mod support;

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};
use support::group::{open_by, open_by_three};
use support::shop::Shop;
use support::{Running, LIMIT};
use tidewire_testbed::{Brokers, Kafka, SmallDisk};

const MIB: usize = 1 << 20;

/// All that is left of a disk is taken.
fn fill(file: &Path) {
    let mut file = std::fs::File::create(file).unwrap();
    for block in [vec![1; MIB], vec![1; 4096]] {
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }
}

/// Of a broker whose messages lie on a disk of their own.
fn on(disk: &Path, place: &Path) -> String {
    format!("log.dirs={}\nmetadata.log.dir={}\n", disk.join("log").display(), place.join("meta").display())
}

fn finds(shop: &Shop, running: &Running, text: &str) -> bool {
    shop.findings_of(running).contains(text)
}

#[test]
#[ignore = "a minute: make kafka-faults"]
fn a_broker_whose_disk_is_full_loses_nothing_it_is_told_what_to_do_and_all_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(disk) = SmallDisk::mount(&disk, 64 * MIB as u64) else { return };
    let (place, ballast) = (folder.path().join("broker"), disk.path().join("ballast"));
    let properties = on(disk.path(), &place);
    let mut shop = open_by(move || Kafka::start_in(place, &properties, None));
    let mut capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.load_all(1);
    shop.lake_is_equal();

    fill(&ballast);
    let wide = "INSERT INTO a SELECT 100000 + g, (SELECT string_agg(md5((g * 1000 + i)::text), '') FROM generate_series(1, 300) i), 0
        FROM generate_series(1, 2000) g";
    shop.server.psql(wide);
    for running in [&mut capture, &mut one] {
        running.until("it says what it waits for", |running| {
            finds(&shop, running, "is Kafka up") || finds(&shop, running, "a disk full")
        });
    }

    // A broker goes down when its disk is full: whoever makes room starts it again.
    shop.kafka.kill();
    std::fs::remove_file(&ballast).unwrap();
    shop.kafka.start_again();
    shop.load_all(2);
    let wide = "SELECT count(*) FROM a WHERE id > 100000";
    assert_eq!(shop.server.psql(wide), "2000");
    one.until("it goes on", |_| {
        shop.place.duckdb("count(*)", "public.a") == shop.server.psql("SELECT count(*) FROM a")
    });
    shop.has_all(&mut one);
    shop.lake_is_equal();
    shop.nothing_lags();
    for running in [&mut capture, &mut one] {
        running.until("nothing is found any more", |running| {
            !finds(&shop, running, "is Kafka up") && !finds(&shop, running, "a disk full")
        });
    }
    one.stop().is(0);
    capture.stop().is(0);
    drop(shop);
    drop(disk);
}

/// All copies of all partitions are in sync.
fn is_whole(shop: &Shop) {
    let deadline = Instant::now() + LIMIT;
    let lacking = || shop.kafka.tool("TopicCommand", &["--describe", "--under-replicated-partitions"], "");
    loop {
        let lacking = lacking();
        if lacking.trim().is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "still lacking: {lacking}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// It leads a third of the partitions, and some coordinators are on it. That it takes part again is seen when another one is gone: of three
/// copies two have to take each message.
#[test]
#[ignore = "a minute: make kafka-faults"]
fn of_three_brokers_one_whose_disk_is_full_holds_up_nothing_and_what_it_missed_it_gets_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(disk) = SmallDisk::mount(&disk, 64 * MIB as u64) else { return };
    let (properties, ballast) = (on(disk.path(), folder.path()), disk.path().join("ballast"));
    let of = move |broker| if broker == 0 { properties.clone() } else { String::new() };
    let (shop, mut brokers) = open_by_three(move || Brokers::start_with(of));
    let rounds = AtomicU32::new(1);
    let mut capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    is_whole(&shop);
    shop.under_load(&rounds, || {
        shop.goes_on(&capture, &one);
        fill(&ballast);
        let deadline = Instant::now() + LIMIT;
        while brokers.0[0].is_up() {
            assert!(Instant::now() < deadline, "the broker takes more than its disk: {}", brokers.0[0].log());
            shop.goes_on(&capture, &one);
        }
        for _ in 0..5 {
            shop.goes_on(&capture, &one);
        }

        std::fs::remove_file(&ballast).unwrap();
        brokers.0[0].kill();
        brokers.0[0].start_again();
        is_whole(&shop);
        brokers.0[1].kill();
        shop.goes_on(&capture, &one);
        brokers.0[1].start_again();
    });
    shop.has_all(&mut one);
    shop.lake_is_equal();
    shop.nothing_lags();
    for running in [&mut capture, &mut one] {
        running.until("nothing is found any more", |running| {
            !finds(&shop, running, "is Kafka up") && !finds(&shop, running, "a disk full")
        });
    }
    one.stop().is(0);
    capture.stop().is(0);
    drop((shop, brokers));
    drop(disk);
}
