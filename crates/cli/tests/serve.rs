//! `tidewire serve` over real HTTP and on a real server: connectors as Debezium's tutorials have them.

mod support;

use serde_json::{json, Value};
use std::os::unix::fs::PermissionsExt;
use support::connect::{http, until, Worker};
use support::{free_port, Place, Running};

#[test]
fn a_tutorials_connector_is_run_paused_resumed_restarted_stopped_and_deleted() {
    let mut worker = Worker::start();
    let root = worker.ask("GET", "/", None).is(200);
    assert!(root["version"].as_str().unwrap().starts_with("4.") && root["kafka_cluster_id"].is_null(), "{root}");
    assert_eq!(worker.ask("GET", "/health", None).is(200)["status"], "healthy");
    assert_eq!(worker.ask("GET", "/connectors", None).is(200), json!([]));
    let plugins = worker.ask("GET", "/connector-plugins", None).is(200);
    assert_eq!(plugins[0]["type"], "source");

    let made = worker.create("shop-connector");
    let task = json!([{"connector": "shop-connector", "task": 0}]);
    assert_eq!((&made["name"], &made["type"], &made["tasks"]), (&json!("shop-connector"), &json!("source"), &task));
    assert_eq!(made["config"]["database.password"], "[hidden]");
    let status = worker.is_in_state("shop-connector", "RUNNING");
    assert_eq!(status["tasks"][0]["state"], "RUNNING");
    assert_eq!(status["tasks"][0]["worker_id"], format!("127.0.0.1:{}", worker.place.http));
    worker.arrives();
    let expanded = worker.ask("GET", "/connectors/?expand=status&expand=info", None).is(200);
    assert_eq!(expanded["shop-connector"]["status"]["connector"]["state"], "RUNNING");
    assert_eq!(expanded["shop-connector"]["info"]["config"]["topic.prefix"], "shop");
    assert_eq!(worker.ask("GET", "/connectors/shop-connector/tasks/0/status", None).is(200)["id"], 0);
    worker.ask("GET", "/connectors/shop-connector/tasks/1/status", None).is(404);
    let metrics = worker.ask("GET", "/connectors/shop-connector/metrics", None).is(200);
    assert!(metrics.as_str().unwrap().contains("public.orders"), "{metrics}");
    worker.ask("GET", "/connectors/shop-connector/findings", None).is(200);

    let snapshot = |body: Value| worker.ask("POST", "/connectors/shop-connector/snapshot", Some(body));
    let unknown = snapshot(json!({"data-collections": ["public.nothing"]})).is(400);
    assert!(unknown["message"].as_str().unwrap().contains("public.orders"), "{unknown}");
    let condition = json!([{"data-collection": "public.orders", "filter": "no sql"}]);
    snapshot(json!({"data-collections": ["public.orders"], "additional-conditions": condition})).is(400);
    snapshot(json!({"data-collections": ["public.orders"]})).is(202);

    // Paused: nobody reads the log. Resumed: what was missed comes.
    worker.ask("PUT", "/connectors/shop-connector/pause", None).is(202);
    let paused = worker.is_in_state("shop-connector", "PAUSED");
    assert_eq!(paused["tasks"][0]["state"], "PAUSED");
    until("the slot rests", || match worker.slots_in_use() {
        slots if slots == "shop_slot false" => Ok(()),
        slots => Err(slots),
    });
    let before = worker.place.duckdb("id, status", "public.orders");
    worker
        .server
        .psql("INSERT INTO orders VALUES (1000, 'while it is paused'); UPDATE orders SET status = 'x' WHERE id < 5");
    worker.ask("POST", "/connectors/shop-connector/restart", None).is(204);
    snapshot(json!({"data-collections": ["public.orders"]})).is(503);
    assert_eq!(worker.is_in_state("shop-connector", "PAUSED")["tasks"][0]["state"], "PAUSED");
    assert_eq!(worker.place.duckdb("id, status", "public.orders"), before);
    worker.ask("PUT", "/connectors/shop-connector/resume", None).is(202);
    worker.arrives();

    let restarted = worker.ask("POST", "/connectors/shop-connector/restart?includeTasks=true", None).is(202);
    assert_eq!(restarted["name"], "shop-connector");
    worker.ask("POST", "/connectors/shop-connector/tasks/0/restart", None).is(204);
    worker.is_in_state("shop-connector", "RUNNING");
    worker.server.psql("DELETE FROM orders WHERE id = 7");
    worker.arrives();

    // It stays stopped over a restart of the worker, and goes on then.
    worker.ask("DELETE", "/connectors/shop-connector/offsets", None).is(400);
    worker.ask("PUT", "/connectors/shop-connector/stop", None).is(204);
    assert_eq!(worker.is_in_state("shop-connector", "STOPPED")["tasks"], json!([]));
    worker.stop().is(0);
    worker.begin();
    worker.is_in_state("shop-connector", "STOPPED");
    let offsets = worker.ask("GET", "/connectors/shop-connector/offsets", None).is(200);
    let lsn = offsets["offsets"][0]["offset"]["lsn"].as_u64().unwrap();
    assert_eq!(offsets["offsets"][0]["partition"], json!({"server": "shop"}));
    let alter = |lsn: Value| {
        let offset = json!([{"partition": {"server": "shop"}, "offset": lsn}]);
        worker.ask("PATCH", "/connectors/shop-connector/offsets", Some(json!({"offsets": offset})))
    };
    alter(json!({"lsn": lsn - 1})).is(400);
    alter(json!({"lsn": lsn + 1})).is(400);
    alter(json!({"lsn": lsn})).is(200);
    worker.ask("DELETE", "/connectors/shop-connector/offsets", None).is(200);
    assert_eq!(worker.ask("GET", "/connectors/shop-connector/offsets", None).is(200), json!({"offsets": []}));
    worker.ask("PUT", "/connectors/shop-connector/resume", None).is(202);
    let mut running = worker.running.take().unwrap();
    running.until("every table is read again", |running| running.errors().contains("every table was read again"));
    worker.running = Some(running);
    worker.arrives();

    worker.ask("DELETE", "/connectors/shop-connector", None).is(204);
    worker.ask("GET", "/connectors/shop-connector", None).is(404);
    worker.ask("DELETE", "/connectors/shop-connector", None).is(404);
    // As with Debezium the slot stays: made anew, the connector goes on.
    assert_eq!(worker.slots_in_use(), "shop_slot false");
    worker.server.psql("INSERT INTO orders VALUES (2000, 'while it was away')");
    worker.create("another name");
    worker.arrives();
    worker.ask("DELETE", "/connectors/another%20name", None).is(204);
    worker.stop().is(0);
}

#[test]
fn after_a_kill_connectors_come_back_by_themselves_none_is_doubled_and_no_password_is_told() {
    let mut worker = Worker::start();
    worker.create("a");
    let second = json!({"topic.prefix": "crm", "slot.name": "crm_slot", "table.include.list": "public.other"});
    let mut config = worker.tutorial();
    config.as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
    worker.ask("PUT", "/connectors/b/config", Some(config)).is(201);
    worker.ask("PUT", "/connectors/b/pause", None).is(202);
    worker.arrives();
    let file = worker.place.path("connect/connectors/a.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(file.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);

    for round in 0..2 {
        let running = worker.running.take().unwrap();
        assert!(!running.errors().contains("s3cret"), "{}", running.errors());
        let (dir, http) = (worker.place.path("connect").display().to_string(), format!("127.0.0.1:{}", free_port()));
        let twin = Running::start(["serve", "--dir", &dir, "--http", &http].map(str::to_owned));
        twin.end().is(2).says("in use by another `tidewire serve`");
        running.signal("KILL");
        running.end();
        worker
            .server
            .psql(&format!("INSERT INTO orders SELECT {round} * 100 + g, 'k' FROM generate_series(3001, 3050) g"));
        worker.begin();
        assert_eq!(worker.ask("GET", "/connectors", None).is(200), json!(["a", "b"]));
        worker.is_in_state("a", "RUNNING");
        worker.is_in_state("b", "PAUSED");
        worker.arrives();
        assert_eq!(worker.slots_in_use().matches("true").count(), 1, "{}", worker.slots_in_use());
    }
    // Only the connector's file holds it.
    let found = std::process::Command::new("grep").args(["-rlF", "s3cret"]).arg(worker.place.path("connect")).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let expected: Vec<_> = ["a", "b"].map(|n| worker.place.path(&format!("connect/connectors/{n}.json"))).into();
    let mut found: Vec<_> = found.lines().map(std::path::PathBuf::from).collect();
    found.sort();
    assert_eq!(found, expected);
    worker.ask("PUT", "/connectors/b/resume", None).is(202);
    worker.is_in_state("b", "RUNNING");
    worker.stop().is(0);
}

#[test]
fn a_wrong_password_is_a_failure_with_a_trace_and_the_right_one_mends_it() {
    let worker = Worker::start();
    let mut config = worker.tutorial();
    config["database.password"] = json!("s3cret-but-wrong");
    worker.ask("POST", "/connectors", Some(json!({"name": "x", "config": config}))).is(201);
    let failed = worker.is_in_state("x", "FAILED");
    let trace = failed["tasks"][0]["trace"].as_str().unwrap();
    assert!(trace.contains("password authentication failed") && failed["tasks"][0]["state"] == "FAILED", "{failed}");
    worker.ask("POST", "/connectors/x/restart?onlyFailed=true&includeTasks=true", None).is(202);
    worker.is_in_state("x", "FAILED");
    assert!(!worker.errors().contains("s3cret"), "{}", worker.errors());

    // What a client reads and puts back with a mask keeps what is kept, for the same server.
    worker.ask("PUT", "/connectors/x/config", Some(worker.tutorial())).is(200);
    worker.is_in_state("x", "RUNNING");
    let mut shown = worker.ask("GET", "/connectors/x/config", None).is(200);
    shown["heartbeat.interval.ms"] = json!("2000");
    worker.ask("PUT", "/connectors/x/config", Some(shown.clone())).is(200);
    worker.arrives();
    let patched = worker.ask("PATCH", "/connectors/x/config", Some(json!({"heartbeat.interval.ms": null}))).is(200);
    assert!(patched["config"].get("heartbeat.interval.ms").is_none(), "{patched}");
    shown["database.hostname"] = json!("elsewhere.example.com");
    let refused = worker.ask("PUT", "/connectors/x/config", Some(shown)).is(400);
    assert!(refused["message"].as_str().unwrap().contains("database.password"), "{refused}");
}

#[test]
fn a_slot_that_somebody_else_reads_is_left_to_him_until_somebody_says_otherwise() {
    let worker = Worker::start();
    let source = format!("{{url: '{}', slot: shop_slot, tables: [public.other]}}", worker.server.url());
    let other = Place::new(&source, "{lake: {delta: {path: ./lake}}}");
    let mut before = other.run();
    before.until("it reads", |_| worker.slots_in_use() == "shop_slot true");
    worker.create("x");
    let failed = worker.is_in_state("x", "FAILED");
    assert!(failed["tasks"][0]["trace"].as_str().unwrap().contains("somebody else reads"), "{failed}");
    before.stop().is(0);
    assert_eq!(worker.is_in_state("x", "FAILED")["tasks"][0]["state"], "FAILED");
    worker.ask("POST", "/connectors/x/tasks/0/restart", None).is(204);
    worker.is_in_state("x", "RUNNING");
    worker.arrives();
}

#[test]
fn what_cant_be_honoured_is_refused_with_the_list_and_what_isnt_known_is_listed() {
    let worker = Worker::start();
    for (method, path, body, status) in [
        ("POST", "/connectors", "{", 400),
        ("POST", "/connectors", "[]", 400),
        ("POST", "/connectors", "{\"name\": \"x\"}", 400),
        ("PUT", "/connectors", "{}", 405),
        ("PUT", "/connectors/x/config", "{\"a\": {}}", 400),
        ("GET", "/connectors/x/nothing", "", 404),
        ("PUT", "/connectors/x/pause", "", 404),
        ("PATCH", "/connectors/x/config", "{}", 404),
        ("GET", "/connectors/x/status", "", 404),
        ("GET", "/connectors/x/offsets", "", 404),
    ] {
        worker.send(method, path, body).is(status);
    }
    let with = |more: Value| {
        let mut config = worker.tutorial();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let refused = with(json!({"column.exclude.list": "public.orders.status", "snapshot.mode": "no_data",
        "database.user": "${file:/etc/secrets:user}"}));
    let answer = worker.ask("PUT", "/connectors/x/config", Some(refused.clone())).is(400);
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains("contains the following 3 error(s)"), "{message}");
    for property in ["column.exclude.list: ", "snapshot.mode: ", "database.user: "] {
        assert!(message.contains(property), "{message}");
    }
    let path = "/connector-plugins/PostgresConnector/config/validate";
    let validated = worker.ask("PUT", path, Some(refused)).is(200);
    assert_eq!(validated["error_count"], 4, "the name is missing, too: {validated}");
    worker.ask("PUT", "/connector-plugins/Nonsense/config/validate", Some(with(json!({})))).is(400);
    let validated = worker.ask("PUT", path, Some(with(json!({"name": "x"})))).is(200);
    assert_eq!(validated["error_count"], 0, "{validated}");

    let body =
        json!({"name": "x", "config": with(json!({"no.such.thing": "1", "odd ü": "2"})), "initial_state": "STOPPED"});
    let made = worker.ask("POST", "/connectors", Some(body.clone()));
    assert!(made.head.contains("tidewire-unknown-properties: no.such.thing, odd%20%c3%bc"), "{}", made.head);
    assert!(made.head.contains("location: /connectors/x"), "{}", made.head);
    assert_eq!(made.is(201)["tasks"], json!([]));
    let plan = worker.ask("GET", "/connectors/x/plan", None).is(200);
    let fate =
        plan["properties"].as_array().unwrap().iter().find(|p| p["property"] == "no.such.thing").unwrap().clone();
    assert_eq!(fate["fate"], "unknown");
    worker.ask("POST", "/connectors", Some(body)).is(409);
    worker.is_in_state("x", "STOPPED");
    for same in [json!({"slot.name": "y"}), json!({"topic.prefix": "y"})] {
        let answer = worker.ask("PUT", "/connectors/y/config", Some(with(same))).is(400);
        assert!(answer["message"].as_str().unwrap().contains("of the connector x already"), "{answer}");
    }
    let page = [("Origin", "http://evil.example.com")];
    http(worker.place.http, "POST", "/connectors/x/restart", None, &page).is(403);
}

#[test]
fn configurations_put_at_once_leave_one_whole_connector() {
    let worker = Worker::start();
    let put = |n: u32| {
        let mut config = worker.tutorial();
        config["heartbeat.interval.ms"] = json!((1000 + n).to_string());
        let body = config.to_string();
        let port = worker.place.http;
        std::thread::spawn(move || http(port, "PUT", "/connectors/x/config", Some(&body), &[]).status)
    };
    let threads: Vec<_> = (0..8).map(put).collect();
    let mut statuses: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    statuses.sort();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 201]);
    worker.is_in_state("x", "RUNNING");
    worker.arrives();
    let kept = std::fs::read_to_string(worker.place.path("connect/connectors/x.json")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    let shown = worker.ask("GET", "/connectors/x/config", None).is(200);
    assert_eq!(kept["config"]["heartbeat.interval.ms"], shown["heartbeat.interval.ms"]);
    assert_eq!(worker.slots_in_use(), "shop_slot true");
}

#[test]
fn other_machines_need_the_token() {
    let mut worker = Worker::start();
    worker.stop().is(0);
    let anywhere = format!("0.0.0.0:{}", worker.place.http);
    let dir = worker.place.path("connect").display().to_string();
    let words = ["serve", "--dir", &dir, "--http", &anywhere].map(str::to_owned);
    Running::start(words).end().is(2).says("TIDEWIRE_TOKEN");
    worker.begin_with(&[], &[("TIDEWIRE_TOKEN", "open sesame")]);
    let port = worker.place.http;
    http(port, "GET", "/connectors", None, &[]).is(401);
    http(port, "GET", "/connectors", None, &[("Authorization", "Bearer open sesamE")]).is(401);
    http(port, "GET", "/connectors", None, &[("Authorization", "Bearer open sesame")]).is(200);
    http(port, "GET", "/health", None, &[]).is(200);
}
