//! `lag`: what is on the bus, seen from outside. By the journal; `kafka.rs` has the same by Kafka.

mod support;

use support::{server, Place};

#[test]
fn lag_tells_what_a_sink_lacks_of_the_journal_and_goes_back_to_nothing() {
    let server = server();
    server.psql("CREATE TABLE orders (id int PRIMARY KEY, note text); INSERT INTO orders SELECT g, 'a' FROM generate_series(1, 30) g");
    let place = Place::lake(&server.url());
    place.tidewire(&["lag"], &[]).is(2).says("there is no journal");
    place.catch_up().is(0);
    let lag = || place.tidewire(&["lag"], &["--json"]).is(0).json()["sinks"][0].clone();
    assert_eq!((&lag()["sink"], &lag()["records"], &lag()["seconds"]), (&"lake".into(), &0.into(), &0.0.into()));

    // Another sink has read nothing of it.
    let text =
        std::fs::read_to_string(place.config()).unwrap().replace("{lake:", "{other: {delta: {path: ./other}}, lake:");
    place.configure(&text);
    let other = place.tidewire(&["lag"], &["--sink", "other", "--json"]).is(0).json()["sinks"][0].clone();
    assert_eq!(other["records"], 30);
    assert!(other["seconds"].as_f64().unwrap() > 0.0, "{other}");
    assert_eq!(other["partitions"][0]["topic"], "public.orders");
    place.tidewire(&["lag"], &[]).is(0).says("other: 30 records").says("lake: 0 records");
    place.tidewire(&["lag"], &["--sink", "none"]).is(2).says("the sinks are: ");
}
