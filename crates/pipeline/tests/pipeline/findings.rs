//! The judge: facts in, text out.

use crate::support::EPOCH;
use std::time::Duration;
use tidewire_change::{Identity, Key, TableName};
use tidewire_connector::{Messages, ServerFacts, SlotFacts, TableFacts};
use tidewire_pipeline::{
    check, current, diagnose, live, ready, DriftView, Finding, JournalFacts, LoopView, Parked, Repair, SinkView,
    SlotView, Snapshot, Status, TableView, Trouble,
};

const SECOND: i64 = 1_000_000;

fn text(findings: &[Finding]) -> String {
    findings.iter().map(|f| format!("{f}\n")).collect()
}

/// A server that has all that is needed.
fn server() -> ServerFacts {
    ServerFacts {
        version: 150_018,
        wal_level: "logical".into(),
        user: "tidewire".into(),
        may_replicate: true,
        may_publish: true,
        slots_max: 10,
        senders_max: 10,
        tables: vec![table("orders")],
        ..Default::default()
    }
}

fn table(name: &str) -> TableFacts {
    TableFacts {
        table: TableName::new("shop", name),
        key: Key::Columns(vec![0]),
        identity: Identity::Default,
        rows_estimated: 10,
        bytes: 100,
        may_select: true,
        published: true,
        may_publish: true,
        unlogged: false,
        deferrable_key: false,
        generated_columns: vec![],
    }
}

fn slot(wal_status: &str, active: bool) -> Option<SlotFacts> {
    let wal_status = wal_status.to_string();
    Some(SlotFacts { name: "tw".into(), active, wal_status, safe_wal_bytes: None, retained_bytes: 3_200_000_000 })
}

#[test]
fn a_server_that_has_all_gives_no_finding() {
    assert_eq!(check(&server()), []);
}

#[test]
fn of_topics_as_the_source_nothing_is_advised_that_needs_a_database() {
    let mut status = status();
    (status.source.messages, status.source.recoveries) = (Some(Messages::default()), 1);
    (status.tables[0].state, status.tables[0].parked) = (Snapshot::Parked, Some("no columns".into()));
    (status.sinks[0].dead_letters, status.source.dead_letters) = (1, 1);
    let told = text(&diagnose(&status));
    assert!(told.contains("restart Tidewire: its topic is read from where that was left"), "{told}");
    assert!(!told.contains("tidewire snapshot") && !told.contains("tidewire reconcile"), "{told}");
}

#[test]
fn each_thing_that_a_server_lacks_is_told_with_its_fix() {
    type Case = (fn(&mut ServerFacts), &'static str);
    let cases: [Case; 11] = [
        (|f| f.wal_level = "replica".into(), "CRITICAL: source: wal_level is replica\n  why: the log holds row changes only at wal_level logical\n  do:  ALTER SYSTEM SET wal_level = 'logical'; then restart the server\n"),
        (|f| f.version = 130_012, "CRITICAL: source: the server is PostgreSQL 13\n  why: versions before 14 lack parts of the replication protocol that are relied on\n  do:  upgrade the server to PostgreSQL 14 or later\n"),
        (|f| f.may_replicate = false, "CRITICAL: source: the user may not replicate\n  why: reading the log needs the REPLICATION attribute (on hosted servers: membership in the provider's role)\n  do:  as a superuser: ALTER ROLE tidewire REPLICATION;\n"),
        (|f| f.may_publish = false, "CRITICAL: source: the user may not make the publication\n  why: it needs CREATE on the database\n  do:  GRANT CREATE ON DATABASE … TO tidewire; or make the publication yourself and name it in source.postgres.publication\n"),
        (|f| f.slots_used = 10, "CRITICAL: source: all 10 replication slots are taken\n  why: a slot of its own keeps the log that is still needed\n  do:  drop one that is not used (tidewire slot list), or raise max_replication_slots and restart\n"),
        (|f| f.senders_used = 10, "CRITICAL: source: all 10 WAL senders are busy\n  why: each reader of the log takes one\n  do:  raise max_wal_senders and restart the server\n"),
        (|f| f.slot = slot("lost", false), "CRITICAL: slot tw: its log is gone\n  why: the server removed log that was still needed, since max_slot_wal_keep_size was exceeded\n  do:  nothing: a new slot is made and every table is compared and mended; raise max_slot_wal_keep_size\n"),
        (|f| f.slot = slot("unreserved", false), "CRITICAL: slot tw: its log may be removed at the next checkpoint\n  why: it holds back 3.2 GB, more than max_slot_wal_keep_size\n  do:  raise max_slot_wal_keep_size now: ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();\n"),
        (|f| f.slot = slot("reserved", true), "note: slot tw: it is in use\n  why: a slot has one reader at a time: this may be Tidewire itself, running\n  do:  if it is another process: SELECT pid, application_name, client_addr FROM pg_stat_replication;\n"),
        (|f| f.oldest_transaction = Some(Duration::from_secs(7000)), "warning: source: a transaction is open for 117 min\n  why: a new replication slot is made only when every transaction that is open now has ended\n  do:  SELECT pid, xact_start, state, query FROM pg_stat_activity ORDER BY xact_start LIMIT 5;\n"),
        (|f| f.unmatched = vec!["shop.ordres".into()], "warning: source: the pattern shop.ordres matches no table\n  why: no table that the user can see has such a name\n  do:  did you mean shop.orders? Correct source.postgres.tables\n"),
    ];
    for (spoil, expected) in cases {
        let mut facts = server();
        spoil(&mut facts);
        assert_eq!(text(&check(&facts)), expected);
    }
}

#[test]
fn each_thing_that_is_wrong_with_a_table_is_told_before_the_users_statement_fails() {
    type Case = (fn(&mut TableFacts), &'static str);
    let cases: [Case; 8] = [
        (|t| t.may_select = false, "CRITICAL: table shop.Bestellung: the user may not read it\n  why: the first copy, repairs and comparisons read the table itself\n  do:  GRANT USAGE ON SCHEMA shop TO tidewire; GRANT SELECT ON shop.\"Bestellung\" TO tidewire;\n"),
        (|t| t.may_publish = false, "CRITICAL: table shop.Bestellung: the user may not publish it\n  why: only its owner may put it into a publication\n  do:  GRANT the owner's role TO tidewire; or make the publication as the owner and name it in source.postgres.publication\n"),
        (|t| t.unlogged = true, "CRITICAL: table shop.Bestellung: it is unlogged\n  why: an unlogged table leaves nothing in the log, so its changes can't be followed\n  do:  ALTER TABLE shop.\"Bestellung\" SET LOGGED;\n"),
        (|t| t.identity = Identity::Nothing, "CRITICAL: table shop.Bestellung: updates and deletes will fail\n  why: with REPLICA IDENTITY NOTHING the server refuses every UPDATE and DELETE once it is published\n  do:  ALTER TABLE shop.\"Bestellung\" REPLICA IDENTITY DEFAULT;\n"),
        (|t| t.key = Key::Position, "warning: table shop.Bestellung: updates and deletes will fail\n  why: it has no primary key, and without one the server refuses every UPDATE and DELETE once it is published\n  do:  ALTER TABLE shop.\"Bestellung\" ADD PRIMARY KEY (…); or ALTER TABLE shop.\"Bestellung\" REPLICA IDENTITY FULL;\n"),
        (|t| (t.key, t.identity) = (Key::Position, Identity::Full), "warning: table shop.Bestellung: its copy is append-only\n  why: without a key rows are only added to the copy; updates and deletes are not applied\n  do:  ALTER TABLE shop.\"Bestellung\" ADD PRIMARY KEY (…);\n"),
        (|t| t.deferrable_key = true, "CRITICAL: table shop.Bestellung: its key is deferrable\n  why: one UPDATE may shift keys under a deferrable key; only old rows in the log tell which row is meant\n  do:  ALTER TABLE shop.\"Bestellung\" REPLICA IDENTITY FULL;\n"),
        (|t| t.generated_columns = vec!["total".into()], "note: table shop.Bestellung: generated columns are left out: total\n  why: the log does not carry them\n"),
    ];
    for (spoil, expected) in cases {
        let mut facts = ServerFacts { tables: vec![table("Bestellung")], ..server() };
        spoil(&mut facts.tables[0]);
        assert_eq!(text(&check(&facts)), expected);
    }
}

/// A pipeline that does well.
fn status() -> Status {
    let loop_state = LoopView { last_turn: EPOCH, ..Default::default() };
    let mut status = Status { now: EPOCH, file: "shop.yaml".into(), ..Default::default() };
    (status.source.connected, status.source.open) = (true, true);
    status.source.loop_state = loop_state.clone();
    status.tables = vec![TableView { table: "shop.orders".into(), state: Snapshot::Streaming, ..Default::default() }];
    let sink = SinkView { name: "lake".into(), connected: true, open: true, loop_state, ..Default::default() };
    status.sinks = vec![SinkView { staleness_seconds: Some(0.5), speed: Some(1.0), ..sink }];
    status
}

fn trouble(in_a_row: u32, seconds: i64) -> Option<Trouble> {
    Some(Trouble {
        kind: "unavailable".into(),
        message: "the journal's disk is full".into(),
        hint: Some("make room".into()),
        table: None,
        in_a_row,
        since: EPOCH - seconds * SECOND,
    })
}

fn slot_view(hours: f64) -> Option<SlotView> {
    let (name, wal_status) = ("tw".to_string(), "reserved".to_string());
    Some(SlotView {
        name,
        active: true,
        wal_status,
        retained_bytes: 999,
        runway_hours: Some(hours),
        ..Default::default()
    })
}

#[test]
fn a_pipeline_that_does_well_gives_no_finding() {
    assert_eq!(diagnose(&status()), []);
    assert!(live(&status()).ok && ready(&status()).ok && current(&status(), 10.0).ok);
}

#[test]
fn each_thing_that_goes_wrong_at_run_time_is_told_with_the_way_out() {
    type Case = (fn(&mut Status), &'static str);
    let cases: [Case; 16] = [
        (|s| s.source.loop_state.trouble = trouble(1, 0), "warning: source: capture fails; it is tried again\n  why: the journal's disk is full\n  do:  make room\n"),
        (|s| s.sinks[0].loop_state.trouble = trouble(9, 600), "CRITICAL: sink lake: writing fails, 9 times in a row for 10 min; it is tried again\n  why: the journal's disk is full\n  do:  make room\n"),
        (|s| s.source.connected = false, "warning: source: it is not connected\n  why: the connection is being made, or was cut a moment ago\n  do:  tidewire check shop.yaml, if it stays like this\n"),
        (|s| s.source.waiting = Some("an open transaction".into()), "note: source: it waits\n  why: an open transaction\n"),
        (|s| s.source.slot = slot_view(7.5), "warning: slot tw: 7.5 h of runway left\n  why: it holds back 999 B (a transaction is open or capture is behind); when nothing is left the server removes log that is still needed, and every table has to be compared\n  do:  raise max_slot_wal_keep_size, or mend what holds it back\n"),
        (|s| s.source.slot = slot_view(30.0), ""),
        (|s| (s.sinks[0].loop_state.busy, s.sinks[0].loop_state.busy_since) = (Some("commit".into()), Some(EPOCH - 400 * SECOND)), "CRITICAL: sink lake: one commit takes 7 min so far\n  why: the other side does not answer: a lock, a stopped disk or a lost connection\n  do:  look there for what it waits for; the others go on meanwhile\n"),
        (|s| { s.sinks[0].parked.insert("shop.orders".into(), Parked { why: "text became int".into(), hint: None, since: EPOCH }); }, "CRITICAL: table shop.orders in sink lake: it is parked: its changes are skipped\n  why: text became int\n  do:  mend the cause; then restart Tidewire: the table is compared and mended\n"),
        (|s| (s.tables[0].state, s.tables[0].parked) = (Snapshot::Parked, Some("no right to read it".into())), "CRITICAL: table shop.orders: it is parked: it isn't followed\n  why: no right to read it\n  do:  mend the cause, then: tidewire snapshot shop.yaml --table shop.orders\n"),
        (|s| (s.tables[0].state, s.tables[0].parked) = (Snapshot::Left, Some("it was dropped".into())), "warning: table shop.orders: it is not followed any more, or can't be\n  why: it was dropped\n  do:  nothing, if that is meant; its copies stay as they are. Renamed? Name the new one under source.postgres.tables\n"),
        (|s| (s.sinks[0].staleness_seconds, s.sinks[0].speed) = (Some(90.0), Some(0.4)), "warning: sink lake: it is 90 s behind and falls further behind\n  why: it gets through 0.40 s of the source's changes in a second\n  do:  tidewire status shows where the time goes: commit times, rows per second, memory in use\n"),
        (|s| (s.sinks[0].staleness_seconds, s.sinks[0].speed, s.sinks[0].caught_up_in_seconds) = (Some(90.0), Some(4.0), Some(30.0)), "note: sink lake: it is 90 s behind and catches up in 30 s\n  why: it gets through 4.0 s of the source's changes in a second\n"),
        (|s| s.sinks[0].dead_letters = 2, "warning: sink lake: 2 messages are in the dead letters\n  why: the sink could not take them; their rows may differ from the source\n  do:  tidewire dlq list shop.yaml tells why; mended: tidewire dlq replay shop.yaml, or tidewire reconcile shop.yaml --sink lake --repair\n"),
        (|s| s.drift = vec![DriftView { sink: "lake".into(), table: "shop.orders".into(), rows: 3 }], "CRITICAL: table shop.orders in sink lake: the copy differs\n  why: the last comparison found 3 rows that differ, are missing or too many\n  do:  tidewire reconcile shop.yaml --table shop.orders --sink lake --repair\n"),
        (|s| s.repairs = vec![Repair { sink: "lake".into(), table: None, why: "the slot is gone".into(), since: EPOCH, reread: false, again: 0, apart: false }], "warning: sink lake: every table is to be compared and mended\n  why: the slot is gone\n  do:  nothing while Tidewire runs; or at once: tidewire reconcile shop.yaml --sink lake --repair\n"),
        (|s| s.journal = Some(JournalFacts { bytes: 5_000_000, disk_free_bytes: Some(100 << 20), ..Default::default() }), "CRITICAL: journal: 104.9 MB are free on its disk\n  why: the journal holds 5.0 MB; when the disk is full capture stops, loses nothing, and goes on when there is room\n  do:  make room, or lower the journal's retention\n"),
    ];
    for (spoil, expected) in cases {
        let mut status = status();
        spoil(&mut status);
        assert_eq!(text(&diagnose(&status)), expected);
    }
}

#[test]
fn of_a_source_of_messages_no_finding_promises_what_only_a_database_could_do() {
    let repair = |table: Option<&str>| Repair {
        sink: "lake".into(),
        table: table.map(str::to_string),
        why: "its topic was deleted".into(),
        since: EPOCH,
        reread: false,
        again: 0,
        apart: false,
    };
    let mut status = status();
    status.source.messages = Some(Default::default());
    status.source.recoveries = 1;
    status.repairs = vec![repair(None), repair(Some("shop.orders"))];
    status.sinks[0].parked.insert("shop.orders".into(), Parked { why: "odd".into(), hint: None, since: EPOCH });
    (status.tables[0].state, status.tables[0].parked) = (Snapshot::Left, Some("its topic x was deleted".into()));
    let told = text(&diagnose(&status));
    for part in [
        "CRITICAL: sink lake: table shop.orders may lack rows, or hold old ones\n  why: its topic was deleted\n  do:  nothing here can mend it",
        "CRITICAL: sink lake: every table may lack rows",
        "tidewire dlq drop shop.yaml --sink lake",
        "then restart Tidewire, and have the connector take a snapshot of the table",
        "One of its name that comes is read from its start",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    for promise in ["mended", "reconcile", "source.postgres"] {
        assert!(!told.contains(promise), "{promise}: {told}");
    }
}

#[test]
fn nobody_is_behind_topics_in_which_nobody_writes() {
    let mut status = status();
    status.source.messages = Some(Default::default());
    (status.sinks[0].staleness_seconds, status.sinks[0].speed) = (Some(900.0), Some(0.0));
    status.sinks[0].complete_through = status.source.durable_through;
    assert_eq!(text(&diagnose(&status)), "");
    status.source.durable_through += 1;
    assert!(text(&diagnose(&status)).contains("falls further behind"));
}

#[test]
fn schemas_that_a_registry_lost_are_critical_until_the_retention_of_their_messages_has_passed() {
    let lost = |id: u32, subject: &str, has_aged: bool| tidewire_connector::UnreadSchema {
        id,
        subject: subject.into(),
        since: EPOCH,
        has_aged,
    };
    let mut status = status();
    status.unread = vec![lost(7, "shop.orders-value", true), lost(9, "", false)];
    let told = text(&diagnose(&status));
    assert!(told.starts_with("CRITICAL: bus: messages lie in the topics that nobody can read"), "{told}");
    assert!(told.contains("7 (shop.orders-value), 9\n"), "{told}");
    status.unread[1].has_aged = true;
    assert!(text(&diagnose(&status)).starts_with("note: bus: compacted topics may hold"));
}

#[test]
fn the_worst_comes_first() {
    let mut status = status();
    status.source.waiting = Some("x".into());
    status.sinks[0].dead_letters = 1;
    status.drift = vec![DriftView { sink: "lake".into(), table: "t".into(), rows: 1 }];
    let severities: Vec<_> = diagnose(&status).iter().map(|f| f.severity).collect();
    assert!(severities.windows(2).all(|pair| pair[0] >= pair[1]), "{severities:?}");
}

#[test]
fn probes_tell_dead_from_slow_and_open_from_current() {
    let mut opening = status();
    opening.sinks[0].loop_state.last_turn = EPOCH - 1000 * SECOND;
    assert_eq!(live(&opening).why, ["sink lake made no turn for 1000 s"]);
    opening.sinks[0].loop_state.busy = Some("open".into());
    opening.sinks[0].open = false;
    assert!(live(&opening).ok, "a connection may take its time");
    assert_eq!(ready(&opening).why, ["sink lake is not open"]);

    let mut behind = status();
    behind.sinks[0].staleness_seconds = Some(12.0);
    behind.tables[0].state = Snapshot::Copying;
    assert!(ready(&behind).ok);
    behind.tables.push(TableView { table: "shop.gone".into(), state: Snapshot::Left, ..Default::default() });
    let why = current(&behind, 10.0).why;
    assert_eq!(why, ["sink lake is 12.0 s behind", "table shop.orders is not copied yet or not followed"]);
}
