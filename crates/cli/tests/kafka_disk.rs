//! A broker whose disk is full.

mod support;

use support::group::open_by;
use support::shop::Shop;
use support::Running;
use tidewire_testbed::{Kafka, SmallDisk};

const MIB: usize = 1 << 20;

/// All that is left of a disk is taken.
fn fill(file: &std::path::Path) {
    let mut file = std::fs::File::create(file).unwrap();
    for block in [vec![1; MIB], vec![1; 4096]] {
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }
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
    let (place, log, ballast) = (folder.path().join("broker"), disk.path().join("log"), disk.path().join("ballast"));
    let properties = format!("log.dirs={}\nmetadata.log.dir={}", log.display(), place.join("meta").display());
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
