//! What one side refuses: a certificate that isn't valid any more, a value that a sink can't take, a disk that is full.

mod support;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use support::{server, Place};
use tidewire_testbed::SmallDisk;

#[test]
fn an_expired_certificate_ends_with_2_and_is_named_as_such() {
    let server = server();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let certificate = params.self_signed(&key).unwrap().pem();
    let trusted = server.write_file("server.crt", certificate.as_bytes(), 0o600);
    server.write_file("server.key", key.serialize_pem().as_bytes(), 0o600);
    server.psql("ALTER SYSTEM SET ssl = on");
    server.reload();
    let port = server.port();
    let root = trusted.display();
    let url = format!("postgres://postgres@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={root}");
    let place = Place::lake(&url);
    place.tidewire(&["run"], &[]).is(2).says("has expired");
    place.tidewire(&["check"], &[]).says("has expired");
}

#[test]
fn a_value_that_a_sink_refuses_goes_to_the_dead_letters_and_all_others_are_applied() {
    let server = server();
    let replica = server.create_database("replica");
    server
        .psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' FROM generate_series(1, 50) g");
    let place =
        Place::new(&format!("{{url: '{}'}}", server.url()), &format!("{{r: {{postgres: {{url: '{replica}'}}}}}}"));
    place.catch_up().is(0);
    server.psql_in("replica", "ALTER TABLE public.t ADD CHECK (v <> 'poison')");
    server.psql(
        "INSERT INTO t VALUES (101, 'before'), (102, 'poison'), (103, 'after'); UPDATE t SET v = 'w' WHERE id = 1",
    );
    let mut run = place.run();
    let rows = |database: &str, table: &str| {
        server.psql_in(database, &format!("SELECT id, v FROM {table} WHERE id <> 102 ORDER BY 1"))
    };
    run.until("the others are applied", |_| rows("replica", "public.t_current") == rows("postgres", "public.t"));
    run.until("it is put aside", |_| place.tidewire(&["topic", "read"], &["__dead_letters"]).out.contains("public.t"));
    place.tidewire(&["status"], &[]).says("dead letters").says("reconcile");
    assert!(!run.errors().contains("poison"), "{}", run.errors());
    // The way out that it names.
    server.psql("UPDATE t SET v = 'mended' WHERE id = 102");
    run.until("it goes on", |_| {
        server.psql_in("replica", "SELECT v FROM public.t_current WHERE id = 102").trim() == "mended"
    });
    run.stop().is(0);
    place.tidewire(&["reconcile"], &[]).is(0);
}

#[test]
fn a_table_that_can_not_be_compared_holds_up_no_other() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql_in("replica", "CREATE TABLE public.a (taken int)");
    server.psql("CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (1); CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let place =
        Place::new(&format!("{{url: '{}'}}", server.url()), &format!("{{r: {{postgres: {{url: '{replica}'}}}}}}"));
    let mut run = place.run();
    let rows = || server.psql_in("replica", "SELECT count(to_regclass('public.t_current'))");
    run.until("it runs", |_| place.path("tidewire-data/run.json").exists() && rows().trim() == "1");
    place.tidewire(&["reconcile"], &[]).is(2).says("public.a in r").says("public.t").says("equal");
    run.stop().is(0);
}

#[test]
fn a_full_lake_waits_for_room_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), 4 << 20) else { return };
    let server = server();
    server
        .psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT g, 'v' FROM generate_series(1, 50) g");
    let lake = disk.path().join("lake");
    let place = Place::new(
        &format!("{{url: '{}'}}", server.url()),
        &format!("{{lake: {{delta: {{path: '{}'}}}}}}", lake.display()),
    );
    place.catch_up().is(0);
    let ballast = disk.path().join("ballast");
    // To the last byte: writing fails at the end.
    let _ = std::fs::write(&ballast, vec![7; 4 << 20]);
    let mut run = place.run();
    server.psql("INSERT INTO t SELECT g, md5(g::text) FROM generate_series(51, 5000) g; DELETE FROM t WHERE id = 7");
    run.until("it says that the disk is full", |run| run.errors().contains("make room"));
    place.tidewire(&["status"], &[]).says("lake").says("make room");
    std::fs::remove_file(&ballast).unwrap();
    run.until("it goes on by itself", |_| place.tidewire(&["reconcile"], &[]).code == 0);
    run.stop().is(0);
}

#[test]
fn a_slot_by_which_somebody_else_keeps_his_place_is_left_to_him() {
    let server = server();
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION theirs FOR TABLE t; \
         SELECT pg_create_logical_replication_slot('debezium', 'pgoutput'); INSERT INTO t VALUES (1)",
    );
    let read = "pg_logical_slot_get_binary_changes('debezium', NULL, NULL, 'proto_version', '1', 'publication_names', 'theirs')";
    server.psql(&format!("SELECT count(*) FROM {read}"));
    let source = format!("{{url: '{}', slot: debezium}}", server.url());
    let place = Place::new(&source, "{lake: {delta: {path: ./lake}}}");
    place.tidewire(&["check"], &[]).is(1).says("the replication slot debezium is there already");
    place.tidewire(&["run"], &[]).is(2).says("the replication slot debezium is there already").says("slot drop --yes");
    assert_eq!(server.psql("SELECT count(*) FROM pg_publication"), "1", "nothing was made");
    place.tidewire(&["slot", "drop"], &["--yes"]).is(0).says("dropped slot debezium");
    place.catch_up().is(0);
    assert_eq!(place.duckdb("count(*)", "public.t"), "1");
    std::fs::remove_dir_all(place.path("tidewire-data")).unwrap();
    place.catch_up().is(0);

    place.tidewire(&["slot", "drop"], &["--yes"]).is(0).says("dropped slot debezium and publication");
    assert_eq!(server.psql("SELECT count(*) FROM pg_replication_slots"), "0");
    assert_eq!(server.psql("SELECT pubname FROM pg_publication"), "theirs");
}

#[test]
fn a_publication_of_the_users_own_that_is_not_there_is_not_made() {
    let server = server();
    server.psql("CREATE TABLE t (id int PRIMARY KEY)");
    let source = format!("{{url: '{}', publication: mine}}", server.url());
    let place = Place::new(&source, "{lake: {delta: {path: ./lake}}}");
    place.tidewire(&["check"], &[]).is(1).says("there is no publication mine");
    place
        .tidewire(&["run"], &[])
        .is(2)
        .says("there is no publication mine")
        .says("CREATE PUBLICATION \"mine\" FOR TABLE");
    assert_eq!(server.psql("SELECT count(*) FROM pg_publication"), "0");
}

#[test]
fn a_read_that_the_server_refuses_is_told_by_who_asked_for_it() {
    let server = server();
    server.psql(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE ROLE reader LOGIN REPLICATION; \
                 GRANT SELECT ON t TO reader; CREATE PUBLICATION mine FOR TABLE t",
    );
    let url = server.url().replacen("postgres@", "reader@", 1);
    let place = Place::new(&format!("{{url: '{url}', publication: mine}}"), "{lake: {delta: {path: ./lake}}}");
    let mut run = place.run();
    run.until("the copy", |_| place.path("lake/public/t/_delta_log").exists());
    server.psql("REVOKE SELECT ON t FROM reader");
    place
        .tidewire(&["snapshot"], &["--table", "public.t"])
        .is(2)
        .says("public.t could not be read")
        .says("permission denied");
    run.stop().is(0);
}

#[test]
fn tables_of_which_the_source_has_none_are_no_complete_copy() {
    let server = server();
    let source = format!("{{url: '{}', tables: [shop.orders]}}", server.url());
    let place = Place::new(&source, "{lake: {delta: {path: ./lake}}}");
    place.catch_up().is(1).says("no table of the source is among `tables`");
}

#[test]
fn what_a_sink_that_was_taken_out_lacks_says_nothing_of_the_others() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    server.psql_in("replica", "CREATE TABLE t (other text)");
    let source = format!("{{url: '{}'}}", server.url());
    let place = Place::new(&source, "{lake: {delta: {path: ./lake}}}");
    let without = std::fs::read_to_string(place.config()).unwrap();
    let extra = format!("{{lake: {{delta: {{path: ./lake}}}}, extra: {{postgres: {{url: '{replica}'}}}}}}");
    place.configure(&without.replace("{lake: {delta: {path: ./lake}}}", &extra));
    place.catch_up().is(1).says("public.t is parked in extra");
    place.configure(&without);
    place.catch_up().is(0);
}

#[test]
fn a_setting_for_a_column_that_the_source_does_not_have_is_told_by_check() {
    let server = server();
    server.psql("CREATE TABLE t (id int PRIMARY KEY, v text)");
    let lake =
        "{lake: {delta: {path: ./lake, types: {public.t.nocol: string, public.t.v: string}, sort_by: {public.t: v}}}}";
    let place = Place::new(&format!("{{url: '{}'}}", server.url()), lake);
    let told = place.tidewire(&["check"], &[]).is(0).says("`sinks.lake.delta.types` names public.t.nocol");
    assert!(!told.out.contains("sort_by") && !told.out.contains("public.t.v"), "{}", told.out);
}

#[test]
fn a_comparison_before_there_is_a_copy_makes_nothing() {
    let server = server();
    server.psql("CREATE TABLE t (id int PRIMARY KEY)");
    let place = Place::lake(&server.url());
    place.tidewire(&["reconcile"], &[]).is(2).says("nothing was copied yet").says("tidewire run");
    assert_eq!(server.psql("SELECT count(*) FROM pg_replication_slots"), "0");
    assert!(!place.path("tidewire-data").exists() && !place.path("lake").exists());
}

#[test]
fn a_check_while_it_runs_finds_nothing_wrong_with_its_own_sinks() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql("CREATE TABLE t (id int PRIMARY KEY)");
    let place =
        Place::new(&format!("{{url: '{}'}}", server.url()), &format!("{{r: {{postgres: {{url: '{replica}'}}}}}}"));
    place.catch_up().is(0);
    let mut run = place.run();
    run.until("it runs", |_| place.tidewire(&["status"], &[]).code == 0);
    place.tidewire(&["check"], &[]).is(0).says("ready");
    run.stop().is(0);
}

#[test]
fn a_slot_for_failovers_is_refused_where_the_server_knows_none_before_anything_is_made() {
    let server = server();
    server.psql("CREATE TABLE t (id int PRIMARY KEY)");
    let place = Place::new(
        &format!("{{url: '{}', failover: true}}", server.url()),
        &format!("{{lake: {{delta: {{path: '{}'}}}}}}", tempfile::tempdir().unwrap().path().display()),
    );
    if server.psql("SELECT current_setting('server_version_num')::int >= 170000") == "t" {
        place.catch_up().is(0);
        assert_eq!(server.psql("SELECT failover FROM pg_replication_slots"), "t");
        return;
    }
    place.tidewire(&["check"], &[]).is(1).says("needs PostgreSQL 17");
    place.catch_up().is(2).says("needs PostgreSQL 17").says("take `failover` out");
    assert_eq!(
        server.psql("SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots)"),
        "0"
    );
}

#[test]
fn check_says_of_settings_and_tables_what_a_run_would_park_them_for() {
    let server = server();
    let replica = server.create_database("replica");
    server.psql_in("replica", "CREATE SCHEMA copy; CREATE TABLE copy.t (somebody_elses int)");
    server.psql("CREATE TABLE t (id int PRIMARY KEY, price double precision, day date); INSERT INTO t VALUES (1, 1.5, '2026-01-01')");
    let source = format!("{{url: '{}'}}", server.url());
    let lake = |settings: &str| format!("{{s: {{delta: {{path: ./lake, {settings}}}}}}}");
    let cases = [
        (lake("partition_by: {public.t: price}"), "names price, whose type isn't date"),
        (lake("sort_by: {public.t: nobody}"), "names nobody, which isn't a column"),
        (lake("column_mapping: ['*'], partition_by: {public.t: day}"), "doesn't go together with `partition_by`"),
        (lake("column_mapping: [public.t], change_data_feed: ['*']"), "doesn't go together with `change_data_feed`"),
        (
            format!("{{s: {{postgres: {{url: '{replica}', schema: copy}}}}}}"),
            "exists in the target and isn't this sink's",
        ),
    ];
    for (sinks, what) in &cases {
        let place = Place::new(&source, sinks);
        let checked = place.tidewire(&["check"], &[]).is(1).says("CRITICAL: sink s").says(what);
        assert!(!checked.out.contains("ready"), "{}", checked.out);
        place.catch_up().is(1).says(what);
        place.tidewire(&["slot", "drop"], &["--yes"]).is(0);
    }
    // What is there was made without it, and stays so: the setting does nothing.
    let place = Place::new(&source, &lake("buckets: 1"));
    place.tidewire(&["check"], &[]).is(0).says("ready");
    place.catch_up().is(0);
    for (setting, what) in [
        ("column_mapping: [public.t]", "was made without column mapping"),
        ("partition_by: {public.t: price}", "written without"),
    ] {
        place.configure(&format!(
            "source: {{postgres: {source}}}\nsinks: {}\nhttp: 127.0.0.1:{}\n",
            lake(setting),
            place.http
        ));
        place.tidewire(&["check"], &[]).is(0).says(what).says("ready");
        place.catch_up().is(0);
    }
}

#[test]
fn check_refuses_a_source_that_is_its_own_bus_though_no_broker_answers() {
    let place = Place::lake("");
    let kafka = "brokers: '127.0.0.1:1'";
    place.configure(&format!(
        "source: {{debezium: {{{kafka}, topics: ['shop.*']}}}}\nbus: {{kafka: {{{kafka}, topic_prefix: shop}}}}\n\
         sinks: {{lake: {{delta: {{path: ./lake}}}}}}\nhttp: 127.0.0.1:{}\n",
        place.http
    ));
    let checked = place.tidewire(&["check"], &[]).is(3).says("are among source.debezium.topics");
    assert!(checked.out.contains("source.debezium.brokers"), "the key that is in the file: {}", checked.out);
    place.tidewire(&["run"], &[]).is(2).says("are among source.debezium.topics");
}
