//! `lag`, `replay` and `dlq`: what is on the bus, seen and used from outside. By the journal; `kafka.rs` has it by Kafka.

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

/// A lake and a replica of tables with and without a key, whose log has all kinds of changes.
fn filled() -> (tidewire_testbed::Postgres, Place) {
    let server = server();
    let replica = server.create_database("replica");
    server.psql(
        "CREATE TABLE orders (id int PRIMARY KEY, note text, total numeric);
         CREATE TABLE events (what text); ALTER TABLE events REPLICA IDENTITY FULL;
         CREATE TABLE gone (id int PRIMARY KEY); INSERT INTO gone VALUES (1), (2);
         INSERT INTO orders SELECT g, 'a', g FROM generate_series(1, 100) g; INSERT INTO events VALUES ('x'), ('x'), ('y')",
    );
    let sinks = format!("{{lake: {{delta: {{path: ./lake}}}}, replica: {{postgres: {{url: '{replica}'}}}}}}");
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), &sinks);
    place.catch_up().is(0);
    server.psql(
        "UPDATE orders SET note = 'b' WHERE id <= 50; DELETE FROM orders WHERE id > 90; UPDATE orders SET id = 500 WHERE id = 7;
         INSERT INTO events VALUES ('z'), ('x'); DELETE FROM events WHERE what = 'y'; TRUNCATE gone; INSERT INTO gone VALUES (3);
         ALTER TABLE orders ADD COLUMN extra text DEFAULT 'e'; UPDATE orders SET extra = 'f' WHERE id = 1;
         INSERT INTO orders VALUES (600, 'n', 1, NULL)",
    );
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
    (server, place)
}

#[test]
fn a_replay_from_any_place_changes_nothing_and_proves_it() {
    let (server, place) = filled();
    let replay = |words: &[&str]| place.tidewire(&["replay"], words);
    replay(&["--to-earliest", "--dry-run"]).is(0).says("public.orders");
    let proved = replay(&["--to-earliest", "--prove", "--json"]).is(0).json();
    for sink in proved["sinks"].as_array().unwrap() {
        assert_eq!(
            (&sink["rows_changed"], sink["tables_changed"].as_array().unwrap().len()),
            (&0.into(), 0),
            "{proved}"
        );
        let passes = sink["passes"].as_array().unwrap();
        assert!(passes.len() == 2 && passes[0] == passes[1], "{proved}");
        assert!(passes[0]["messages"].as_u64().unwrap() > 150, "{proved}");
        assert!(passes[0]["passed_over"].as_u64().unwrap() > 0, "what came before the new column: {proved}");
    }
    place.tidewire(&["reconcile"], &[]).is(0);
    for words in [
        &["--to-offset", "20", "--topic", "public.orders"][..],
        &["--shift-by", "-3"],
        &["--by-duration", "PT1H", "--sink", "lake"],
        &["--to-datetime", "2020-01-01T00:00:00Z", "--topic", "public.events"],
    ] {
        let answer = replay(&[words, &["--prove", "--json"]].concat()).is(0).json();
        assert!(answer["sinks"][0]["passes"][0]["messages"].as_u64().unwrap() > 0, "{words:?}: {answer}");
    }
    let none = replay(&["--to-datetime", "2999-01-01", "--json"]).is(0).json();
    assert_eq!(none["sinks"][0]["passes"][0]["messages"], 0);
    let shifted = replay(&["--shift-by", "-3", "--topic", "public.events", "--json"]).is(0).json();
    assert_eq!(shifted["sinks"][0]["passes"][0]["messages"], 3, "{shifted}");

    // What somebody took out of a copy by hand comes back, and the proof says that it wasn't as it should be.
    server.psql_in("replica", "DELETE FROM public.orders WHERE id = 600");
    let changed = replay(&["--to-earliest", "--sink", "replica", "--prove", "--json"]).is(1).json();
    assert_eq!(changed["sinks"][0]["rows_changed"], 1, "{changed}");
    assert_eq!(changed["sinks"][0]["tables_changed"][0], "public.orders");
    replay(&["--to-earliest", "--sink", "replica", "--prove"]).is(0).says("0 rows changed");
    place.tidewire(&["reconcile"], &[]).is(0);

    // The pipeline goes on as if nothing had been.
    server.psql("UPDATE orders SET note = 'c'; INSERT INTO events VALUES ('w')");
    place.catch_up().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
    let mut run = place.run();
    run.until("it runs", |_| place.path("tidewire-data/run.json").exists());
    replay(&["--to-earliest"]).is(3).says("writes the sink");
    run.stop().is(0);
    replay(&["--shift-by", "3"]).is(2);
    replay(&["--to-earliest", "--topic", "nothing"]).is(2).says("public.events, public.gone, public.orders");
}

#[test]
fn dead_letters_are_listed_without_values_and_go_back_through_the_guard_when_the_cause_is_mended() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'v')");
    let place =
        Place::new(&format!("{{url: '{}'}}", server.url()), &format!("{{r: {{postgres: {{url: '{replica}'}}}}}}"));
    place.catch_up().is(0);
    place.tidewire(&["dlq", "list"], &[]).is(0).says("no dead letters");
    place.tidewire(&["dlq", "replay"], &[]).is(0).says("no dead letters");
    server.psql_in("replica", "ALTER TABLE public.t ADD CHECK (v NOT LIKE 'poison%')");
    server.psql("INSERT INTO t VALUES (102, 'poison one'); INSERT INTO t VALUES (103, 'poison two')");
    let mut run = place.run();
    let letters = || place.tidewire(&["dlq", "list"], &["--json"]).is(0).json()["letters"].as_array().unwrap().clone();
    run.until("both are put aside", |_| letters().len() == 2);
    server.psql("UPDATE t SET v = 'newer' WHERE id = 103");
    let is_there = "SELECT v FROM public.t_current WHERE id = 103";
    run.until("it goes on", |_| server.psql_in("replica", is_there) == "newer");
    place.tidewire(&["dlq", "replay"], &[]).is(3).says("writes the sink");
    run.stop().is(0);

    let listed = place.tidewire(&["dlq", "list"], &[]).is(0).says("public.t").says("constraint t_v_check");
    let id = letters()[0]["letter"].as_str().unwrap().to_string();
    let shown = place.tidewire(&["dlq", "show"], &[&id]).is(0).says("attempts");
    assert!(!listed.out.contains("poison one") && !shown.out.contains("poison one"), "{}{}", listed.out, shown.out);
    place.tidewire(&["dlq", "show"], &[&id, "--values"]).is(0).says("poison one");
    place.tidewire(&["dlq", "show"], &["r/x/0/0"]).is(2).says("tidewire dlq list");

    // The cause is there still: it is refused again, and stays.
    let refused = place.tidewire(&["dlq", "replay"], &["--json"]).is(1).json();
    assert_eq!((&refused["sinks"][0]["delivered"], letters().len()), (&0.into(), 2), "{refused}");
    server.psql_in("replica", "ALTER TABLE public.t DROP CONSTRAINT t_v_check");
    let done = place.tidewire(&["dlq", "replay"], &["--json"]).is(0).json();
    let (delivered, applied, stale) =
        (&done["sinks"][0]["delivered"], &done["sinks"][0]["applied"], &done["sinks"][0]["stale"]);
    assert_eq!((delivered, applied, stale), (&2.into(), &1.into(), &1.into()), "{done}");
    assert_eq!(
        server.psql_in("replica", "SELECT v FROM public.t_current WHERE id > 100 ORDER BY id"),
        "poison one\nnewer"
    );
    assert!(letters().is_empty());
    place.tidewire(&["reconcile"], &[]).is(0);

    server.psql_in("replica", "ALTER TABLE public.t ADD CHECK (v <> 'newest')");
    server.psql("UPDATE t SET v = 'newest'");
    place.catch_up().is(1).says("tidewire dlq list");
    assert_eq!(letters().len(), 3);
    server.psql_in("replica", "ALTER TABLE public.t DROP CONSTRAINT t_v_check");
    place.tidewire(&["reconcile"], &["--repair"]).is(0);
    place.tidewire(&["dlq", "drop"], &[]).is(0).says("r: 3 dropped");
    place.catch_up().is(0);
}

#[test]
fn a_replay_of_one_sink_ends_though_all_that_came_last_is_a_dead_letter_of_another() {
    let (server, place) = filled();
    server.psql_in("replica", "ALTER TABLE public.orders ADD CHECK (note <> 'poison')");
    server.psql("UPDATE orders SET note = 'poison' WHERE id = 1");
    place.catch_up().is(1).says("tidewire dlq list");
    for words in [&["--to-earliest", "--sink", "lake"][..], &["--to-earliest"]] {
        place.tidewire(&["replay"], &[words, &["--prove"]].concat()).is(0).says("lake: 0 rows changed");
    }
    place.tidewire(&["dlq", "drop"], &[]).is(0);
}
