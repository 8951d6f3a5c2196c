//! Several processes write one table, each a part of its keys.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::time::Instant;
use support::shop::Shop;
use support::{Running, LIMIT};

/// Tables of two parts in a group; the bus has three partitions.
fn open(tables: &str) -> Shop {
    let shop = Shop::open_with(", group: {session_timeout: 1500ms}");
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    let (source, lake) = (format!("{}'", shop.server.url()), "{path: ./lake}");
    let text = text.replacen(&source, &format!("{source}, tables: [{tables}]"), 1);
    shop.place.configure(&text.replace(lake, "{path: ./lake, buckets: 4, parts: 2}"));
    shop
}

fn both() -> BTreeSet<String> {
    ["public.orders/0", "public.orders/1"].map(String::from).into()
}

fn has_both(shop: &Shop, one: &mut Running) {
    one.until("it writes both parts", |one| shop.shares(one) == both());
}

fn each_has_one(shop: &Shop, one: &Running, other: &mut Running) {
    other.until("each writes one part", |other| {
        let (ones, others) = (shop.shares(one), shop.shares(other));
        ones.len() == 1 && others.len() == 1 && ones.is_disjoint(&others)
    });
}

/// Which parts the table's commits are of, the oldest first.
fn commits(shop: &Shop) -> Vec<u32> {
    let folder = shop.place.path("lake/public/orders/_delta_log");
    let names = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut names: Vec<_> = names.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    names.sort();
    let part = |text: &String| (0..2).find(|part| text.contains(&format!("\"tidewire.share/{part}\"")));
    names.iter().filter_map(|path| part(&std::fs::read_to_string(path).ok()?)).collect()
}

fn commits_in_all(shop: &Shop) -> usize {
    shop.commits_of("public.orders").len()
}

fn count(all: &[u32], part: u32) -> usize {
    all.iter().filter(|of| **of == part).count()
}

fn is_equal(shop: &Shop) {
    let answer = shop.place.tidewire(&["reconcile"], &["--sink", "lake", "--json"]).is(0).json();
    assert_eq!(answer["equal"], true, "{answer}");
}

/// Both commit, by turns.
fn both_go_on(shop: &Shop, running: &mut Running) {
    let from = commits(shop).len();
    running.until("both parts are committed", |_| {
        let all = commits(shop);
        count(&all[from..], 0) > 3 && count(&all[from..], 1) > 3
    });
    let turns = commits(shop)[from..].windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(turns > 2, "{:?}", &commits(shop)[from..]);
}

#[test]
fn two_processes_write_one_table_and_one_that_is_killed_is_missed_by_its_own_keys_alone() {
    let shop = open("public.orders");
    let rounds = AtomicU32::new(1);
    let load = |round| shop.load(round);
    let capture = shop.start(&["capture"]);
    let mut one = shop.member();
    has_both(&shop, &mut one);
    is_equal(&shop);
    shop.nothing_lags();
    for die_at in ["parquet written:9", "sink committed:5", "vectors written:30"] {
        shop.under(&load, &rounds, || {
            let mut other = shop.member_with(&[("TIDEWIRE_DIE_AT", die_at)]);
            let deadline = Instant::now() + LIMIT;
            while !other.has_ended() {
                assert!(Instant::now() < deadline, "it lives on: {}", other.errors());
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            has_both(&shop, &mut one);
        });
        is_equal(&shop);
    }
    let mut other = shop.member();
    shop.under(&load, &rounds, || {
        each_has_one(&shop, &one, &mut other);
        both_go_on(&shop, &mut other);
        shop.server.psql("ALTER TABLE orders ADD COLUMN note text DEFAULT 'none'");
        both_go_on(&shop, &mut other);
        shop.server.psql("TRUNCATE orders");
        shop.server.psql("INSERT INTO orders SELECT g, 'new', g FROM generate_series(1, 500) g ON CONFLICT DO NOTHING");
        both_go_on(&shop, &mut other);
        // It is taken for dead, and believes that all is as it was.
        let own: u32 = shop.shares(&other).first().unwrap().rsplit('/').next().unwrap().parse().unwrap();
        other.signal("STOP");
        has_both(&shop, &mut one);
        let from = commits(&shop).len();
        one.until("its part goes on", |_| count(&commits(&shop)[from..], own) > 1);
        other.signal("CONT");
        each_has_one(&shop, &one, &mut other);
    });
    is_equal(&shop);
    shop.nothing_lags();
    assert!(!one.has_ended() && !other.has_ended());
    for running in [one, other] {
        assert!(!running.errors().contains("lacks what comes next"), "{}", running.errors());
        running.stop().is(0);
    }
    capture.stop().is(0);

    // All of it once more changes nothing; then one process writes the whole table, and parts again.
    let proved =
        shop.place.tidewire(&["replay"], &["--sink", "lake", "--to-earliest", "--prove", "--json"]).is(0).json();
    let sink = &proved["sinks"][0];
    assert!(sink["rows_changed"] == 0 && sink["passes"][0] == sink["passes"][1], "{proved}");
    shop.load(7001);
    shop.place.catch_up().is(0);
    is_equal(&shop);
    let _capture = shop.start(&["capture"]);
    let (mut one, mut other) = (shop.member(), shop.member());
    each_has_one(&shop, &one, &mut other);
    shop.load(7002);
    is_equal(&shop);
    one.until("nothing was lost on the way", |one| !one.errors().contains("lacks what comes next"));
}

#[test]
fn a_table_without_a_key_has_one_writer_and_rows_that_all_have_to_be_written_anew_wait_for_one_process() {
    let shop = open("public.orders, public.events");
    let rounds = AtomicU32::new(1);
    let load = |round| shop.load(round);
    let capture = shop.start(&["capture"]);
    let (mut one, mut other) = (shop.member(), shop.member());
    shop.under(&load, &rounds, || {
        other.until("each has its share", |other| shop.shares(&one).len() == 2 && shop.shares(other).len() == 2);
    });
    is_equal(&shop);
    shop.server.psql("ALTER TABLE orders ALTER COLUMN total TYPE text");
    shop.load(5000);
    let parked = |running: &Running| {
        shop.lake_of(running).and_then(|lake| Some(lake["parked"].get("public.orders")?.to_string()))
    };
    let has_orders = |running: &Running| shop.shares(running).iter().any(|part| part.starts_with("public.orders/"));
    for running in [&mut one, &mut other] {
        running.until("whoever has a part of it parks it", |running| !has_orders(running) || parked(running).is_some());
    }
    let told = parked(&one).or(parked(&other)).unwrap();
    assert!(told.contains("this process owns only part") && told.contains("`parts: 1`, or `tidewire run`"), "{told}");
    one.stop().is(0);
    other.stop().is(0);
    capture.stop().is(0);
    let mut whole = shop.place.run();
    whole.until("it is equal", |_| shop.place.tidewire(&["reconcile"], &["--sink", "lake"]).code == 0);
    whole.stop().is(0);
    let _capture = shop.start(&["capture"]);
    let mut one = shop.member();
    one.until("it writes all parts", |one| shop.shares(one).len() == 4);
    shop.load(5001);
    is_equal(&shop);
}

#[test]
fn a_table_with_buckets_that_the_parts_do_not_divide_is_parked_with_what_to_do_and_stays_as_it_is() {
    let shop = open("public.orders");
    let text = std::fs::read_to_string(shop.place.config()).unwrap();
    shop.place.configure(&text.replace("buckets: 4, parts: 2", "buckets: 1"));
    shop.place.catch_up().is(0);
    let made = commits_in_all(&shop);
    shop.place.configure(&text);
    let _capture = shop.start(&["capture"]);
    let mut one = shop.member();
    shop.load(1);
    let parked = |running: &Running| Some(shop.lake_of(running)?["parked"].get("public.orders")?.to_string());
    one.until("it is parked", |one| parked(one).is_some());
    let told = parked(&one).unwrap();
    assert!(told.contains("1 buckets can't be shared among the owners of 2 parts"), "{told}");
    assert!(told.contains("set `buckets` to a multiple of the parts' number"), "{told}");
    assert_eq!(commits_in_all(&shop), made);
}
