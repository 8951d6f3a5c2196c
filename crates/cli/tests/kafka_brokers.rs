//! Three brokers, each of which may be gone for a while.

mod support;

use std::sync::atomic::AtomicU32;
use support::group::open_by_three;
use tidewire_testbed::Brokers;

/// A partition's leader and the coordinators of transactions and of groups leave a broker only when it goes: when each was killed once,
/// each of them was.
#[test]
#[ignore = "a minute: make kafka-faults"]
fn of_three_brokers_each_may_be_killed_or_restarted_under_load_and_nothing_is_lost_or_there_twice() {
    let (shop, mut brokers) = open_by_three(Brokers::start);
    let rounds = AtomicU32::new(1);
    let mut capture = shop.start_with(&["capture"], &[("TIDEWIRE_LOG", "info")]);
    let mut one = shop.member();
    shop.has_all(&mut one);
    shop.under_load(&rounds, || {
        shop.goes_on(&capture, &one);
        for broker in &mut brokers.0 {
            broker.kill();
            shop.goes_on(&capture, &one);
            broker.start_again();
        }
        // In order, as for an upgrade: it stays away.
        brokers.0[0].stop();
        shop.goes_on(&capture, &one);
    });
    shop.has_all(&mut one);
    shop.lake_is_equal();
    shop.nothing_lags();
    assert!(!capture.has_ended() && !one.has_ended(), "{}{}", capture.errors(), one.errors());
    one.stop().is(0);
    capture.stop().is(0);
}
