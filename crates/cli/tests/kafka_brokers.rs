//! Three brokers, each of which may be gone for a while.

mod support;

use std::sync::atomic::AtomicU32;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::group::open_by;
use support::shop::Shop;
use support::{Running, LIMIT};
use tidewire_testbed::Brokers;

/// What is committed at the source behind now comes to the lake.
fn goes_on(shop: &Shop, capture: &Running, member: &Running) {
    let now: u64 = shop.server.psql("SELECT pg_current_wal_lsn() - '0/0'").parse().unwrap();
    let came = || shop.lake_of(member).is_some_and(|lake| lake["position"]["commit"].as_u64() >= Some(now));
    let deadline = Instant::now() + LIMIT;
    while !came() {
        let (capture, member) = (|| capture.errors(), || member.errors());
        assert!(Instant::now() < deadline, "nothing comes; capture: {}\ndeliver: {}", capture(), member());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A partition's leader and the coordinators of transactions and of groups leave a broker only when it goes: when each was killed once,
/// each of them was.
#[test]
#[ignore = "a minute: make kafka-faults"]
fn of_three_brokers_each_may_be_killed_or_restarted_under_load_and_nothing_is_lost_or_there_twice() {
    let (give, take) = mpsc::channel();
    let shop = open_by(move || {
        let brokers = Brokers::start();
        let one = brokers.as_one();
        give.send(brokers).unwrap();
        one
    });
    let (mut brokers, rounds) = (take.recv().unwrap(), AtomicU32::new(1));
    let mut capture = shop.start_with(&["capture"], &[("TIDEWIRE_LOG", "info")]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.under_load(&rounds, || {
        goes_on(&shop, &capture, &one);
        for broker in &mut brokers.0 {
            broker.kill();
            goes_on(&shop, &capture, &one);
            broker.start_again();
        }
        // In order, as for an upgrade: it stays away.
        brokers.0[0].stop();
        goes_on(&shop, &capture, &one);
    });
    shop.has_all(&mut one);
    shop.lake_is_equal();
    shop.nothing_lags();
    assert!(!capture.has_ended() && !one.has_ended(), "{}{}", capture.errors(), one.errors());
    one.stop().is(0);
    capture.stop().is(0);
}
