//! `tidewire registry`: what is kept through kills and moves, who is let in, and other programs that use it.

mod support;

use serde_json::{json, Value};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::connect::http;
use support::free_port;
use support::registry::{record, with_default, Registry};
use tidewire_testbed::SmallDisk;

over_both! {
    many_who_register_at_once_get_one_id_for_one_schema_and_no_gap
    a_kill_at_any_moment_loses_no_acknowledged_schema
}

fn many_who_register_at_once_get_one_id_for_one_schema_and_no_gap(registry: Registry) {
    let registry = Arc::new(registry);
    registry.yes("PUT", "/config", Some(json!({"compatibility": "NONE"})));
    let ids = Arc::new(Mutex::new(std::collections::BTreeMap::<usize, std::collections::BTreeSet<u64>>::new()));
    let threads: Vec<_> = (0..8)
        .map(|thread: usize| {
            let (registry, ids) = (registry.clone(), ids.clone());
            std::thread::spawn(move || {
                for at in 0..24 {
                    let which = (at * (thread + 1)) % 24;
                    let name = format!("f{which}");
                    let id = registry.register("s", &record(&[&name]));
                    ids.lock().unwrap().entry(which).or_default().insert(id);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let ids = ids.lock().unwrap();
    assert!(ids.values().all(|of| of.len() == 1), "{ids:?}");
    let mut all: Vec<u64> = ids.values().flatten().copied().collect();
    all.sort_unstable();
    assert_eq!(all, (1..=24).collect::<Vec<_>>());
    assert_eq!(registry.yes("GET", "/subjects/s/versions", None), json!((1..=24).collect::<Vec<_>>()));
}

fn a_kill_at_any_moment_loses_no_acknowledged_schema(mut registry: Registry) {
    let kept: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    for round in 0..6u64 {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (stop, kept, port) = (stop.clone(), kept.clone(), registry.port);
                std::thread::spawn(move || {
                    for at in 0.. {
                        let name = format!("r{round}w{writer}n{at}");
                        let body = json!({"schema": record(&[&name])}).to_string();
                        // The process is killed in the middle: what isn't answered may be there or not.
                        let answered = std::panic::catch_unwind(|| {
                            http(port, "POST", &format!("/subjects/{name}/versions"), Some(&body), &[])
                        });
                        match answered {
                            Ok(answer) if answer.status == 200 => {
                                kept.lock().unwrap().push((name, answer.body["id"].as_u64().unwrap()));
                            }
                            _ => return,
                        }
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                })
            })
            .collect();
        let enough = kept.lock().unwrap().len() + 20 + 17 * round as usize;
        support::connect::until("there is something to lose", || match kept.lock().unwrap().len() {
            len if len >= enough => Ok(()),
            len => Err(format!("{len} of {enough}")),
        });
        registry.kill();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        registry.begin(&[], &[]);
        for (name, id) in kept.lock().unwrap().iter() {
            let found = registry.yes("GET", &format!("/subjects/{name}/versions/1"), None);
            assert_eq!(found["id"], *id, "{name}");
            assert_eq!(found["schema"], record(&[name]));
        }
    }
    let ids: std::collections::HashSet<u64> = kept.lock().unwrap().iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), kept.lock().unwrap().len(), "no id is given twice");
}

#[test]
fn what_is_exported_comes_back_with_its_ids_and_settings() {
    let registry = Registry::start();
    registry.register("gone", &record(&["x"]));
    registry.register("a", &record(&["a"]));
    registry.register("a", &with_default(&["a"], "b"));
    registry.yes("DELETE", "/subjects/gone", None);
    registry.yes("DELETE", "/subjects/gone?permanent=true", None);
    registry.yes("DELETE", "/subjects/a/versions/1", None);
    let references = json!([{"name": "R", "subject": "a", "version": 2}]);
    registry.yes("POST", "/subjects/b/versions", Some(json!({"schema": "\"R\"", "references": references})));
    registry.yes("PUT", "/config/a", Some(json!({"compatibility": "FULL"})));
    registry.yes("PUT", "/config", Some(json!({"compatibility": "NONE"})));
    registry.register("last", &record(&["y"]));
    registry.yes("DELETE", "/subjects/last", None);
    registry.yes("DELETE", "/subjects/last?permanent=true", None);
    // Settings of a subject that has no schemas yet.
    registry.yes("PUT", "/config/later", Some(json!({"compatibility": "NONE", "normalize": true})));
    registry.yes("PUT", "/mode/later", Some(json!({"mode": "READONLY"})));
    let by_url = registry.command(&["export", "--url", &registry.url()]).is(0).out;
    let dir = registry.dir();
    registry.command(&["export", "--data-dir", &dir]).is(2).says("in use").says("--url");
    let schemas = registry.yes("GET", "/schemas?deleted=true", None);
    let file = registry.folder.path().join("schemas.jsonl");
    let mut other = Registry { port: registry.port, ..Registry::new() };
    drop(registry.running);
    let by_dir = other.command(&["export", "--data-dir", &dir]).is(0).out;
    for exported in [by_url, by_dir] {
        std::fs::write(&file, exported).unwrap();
        let _ = std::fs::remove_dir_all(other.dir());
        let dir = other.dir();
        other.command(&["import", file.to_str().unwrap(), "--data-dir", &dir]).is(0).says("records");
        // Once more changes nothing.
        other.command(&["import", file.to_str().unwrap(), "--data-dir", &dir]).is(0);
        other.begin(&[], &[]);
        assert_eq!(other.yes("GET", "/schemas?deleted=true", None), schemas);
        assert_eq!(other.yes("GET", "/subjects/a/versions", None), json!([2]));
        assert_eq!(other.yes("GET", "/config/a", None)["compatibilityLevel"], "FULL");
        assert_eq!(other.yes("GET", "/config", None)["compatibilityLevel"], "NONE");
        let later = json!({"compatibilityLevel": "NONE", "normalize": true});
        assert_eq!(other.yes("GET", "/config/later", None), later);
        assert_eq!(other.yes("GET", "/mode/later", None)["mode"], "READONLY");
        assert_eq!(other.register("c", "\"int\""), 6, "no id that was given is given again");
        other.running = None;
    }
    let clash = r#"{"key":{"keytype":"SCHEMA","subject":"z","version":1},"value":{"subject":"z","version":1,"id":2,"schema":"\"long\""}}"#;
    std::fs::write(&file, clash).unwrap();
    let dir = other.dir();
    other.command(&["import", file.to_str().unwrap(), "--data-dir", &dir]).is(2).says("stands for another schema");
}

#[test]
fn import_takes_records_in_any_order_and_takes_away_nothing_that_is_referred_to() {
    let registry = Registry::new();
    let (file, dir) = (registry.folder.path().join("schemas.jsonl"), registry.dir());
    let import = |lines: &[String]| {
        std::fs::write(&file, lines.join("\n")).unwrap();
        registry.command(&["import", file.to_str().unwrap(), "--data-dir", &dir])
    };
    let key = |subject: &str| json!({"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1});
    let line = |subject: &str, id: u32, schema: &str, references: Value| {
        let value = json!({"subject": subject, "version": 1, "id": id, "schema": schema, "references": references});
        json!({"key": key(subject), "value": value}).to_string()
    };
    let referring = line("user", 3, "\"R\"", json!([{"name": "R", "subject": "part", "version": 1}]));
    let gone = json!({"key": key("part"), "value": null}).to_string();
    // What is referred to has the higher id, as an import may give it.
    import(&[referring.clone(), line("part", 7, &record(&["a"]), json!([]))]).is(0);
    import(std::slice::from_ref(&gone)).is(2).says("version 1 of part would go for good").says("ids 3");
    import(&[line("x", u32::MAX, "\"int\"", json!([]))]).is(2).says("at most 2147483647");
    // Together they may go, and what goes and comes again is there.
    let user_gone = json!({"key": key("user"), "value": null}).to_string();
    import(&[gone.clone(), user_gone.clone()]).is(0);
    import(&[gone, user_gone, referring, line("part", 9, &record(&["a"]), json!([]))]).is(0);
    let exported = registry.command(&["export", "--data-dir", &dir]).is(0).out;
    let ids = exported.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["value"]["id"].as_u64());
    assert_eq!(ids.collect::<Vec<_>>(), [9, 3]);
}

#[test]
fn a_disk_that_is_full_for_a_while_refuses_changes_and_the_registry_goes_on_by_itself() {
    let mut registry = Registry::new();
    std::fs::create_dir(registry.dir()).unwrap();
    let Some(disk) = SmallDisk::mount(registry.dir().as_ref(), 1 << 20) else { return };
    registry.begin(&[], &[]);
    registry.register("s", &record(&["a"]));
    let ballast = disk.path().join("ballast");
    let _ = std::fs::write(&ballast, vec![7; 2 << 20]);
    let large = format!(r#"{{"type":"int","doc":"{}"}}"#, "x".repeat(100_000));
    let told = registry.no("POST", "/subjects/large/versions", Some(json!({"schema": large})), 50001);
    assert!(told.contains("No space left"), "{told}");
    assert_eq!(registry.register("s", &record(&["a"])), 1, "what is known is answered");
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(registry.register("large", &large), 2);
    registry.kill();
    registry.begin(&[], &[]);
    assert_eq!(registry.yes("GET", "/subjects", None), json!(["large", "s"]));
    registry.kill();
}

#[test]
fn check_serves_a_pipeline_of_ci() {
    let registry = Registry::start();
    registry.register("s", &record(&["a"]));
    let file = |name: &str, text: &str| -> PathBuf {
        let path = registry.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let url = registry.url();
    let check = |file: &PathBuf, more: &[&str]| {
        let words = ["check", "--file", file.to_str().unwrap(), "--subject", "s", "--url", &url];
        registry.command(&words.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let bad = file("bad.avsc", &record(&["a", "b"]));
    check(&file("good.avsc", &with_default(&["a"], "b")), &[]).is(0).says("may follow");
    check(&bad, &[]).is(1).says("/fields/1: the field `b` was not written").says("READER_FIELD_MISSING_DEFAULT_VALUE");
    let told = check(&bad, &["--json"]).is(1).json();
    assert_eq!(told["differences"][0]["path"], "/fields/1");
    check(&file("broken.avsc", "{"), &[]).is(2).says("isn't JSON");
    check(&file("what.txt", "{}"), &[]).is(2).says("--type");
    check(&registry.folder.path().join("none.avsc"), &[]).is(2).says("none.avsc: No such file");
    check(&file("s.json", "{}"), &["--type", "avro"]).is(2).says("no `type`");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let words = ["check", "--file", bad.to_str().unwrap(), "--subject", "s", "--url", &nobody];
    registry.command(&words).is(3).says("is a registry running");
}

#[test]
fn a_token_is_asked_for_where_one_is_set() {
    let registry = Registry::start_with(&[], &[("TIDEWIRE_TOKEN", "t0ken")]);
    assert!(registry.no("GET", "/subjects", None, 401).contains("a token is required"));
    let with =
        |authorization: &str| http(registry.port, "GET", "/subjects", None, &[("Authorization", authorization)]).status;
    assert_eq!(with("Bearer t0ken"), 200);
    // anybody:t0ken, as clients of registries send user and password.
    assert_eq!(with("Basic YW55Ym9keTp0MGtlbg=="), 200);
    assert_eq!(with("Basic YW55Ym9keTp3cm9uZw=="), 401);
    let wrong = http(registry.port, "GET", "/subjects", None, &[("Authorization", "Bearer other")]);
    assert_eq!((wrong.status, wrong.body["message"].as_str()), (401, Some("the token is wrong")));
    let dir = registry.folder.path().join("other").display().to_string();
    registry.command(&["--data-dir", &dir, "--listen", "0.0.0.0:0"]).is(2).says("TIDEWIRE_TOKEN");
    registry.command(&["--data-dir", &dir, "--level", "SIDEWAYS"]).is(2).says("BACKWARD_TRANSITIVE");
    // The scheme's case means nothing.
    assert_eq!((with("bearer t0ken"), with("basic YW55Ym9keTp0MGtlbg==")), (200, 200));
    let taken = format!("127.0.0.1:{}", registry.port);
    let told = registry.command(&["--data-dir", &dir, "--listen", &taken]).is(2).says("is taken").says("another port");
    assert!(!told.err.contains("TIDEWIRE_TOKEN"), "{}", told.err);
    std::fs::write(&dir, "").unwrap();
    registry.command(&["--data-dir", &dir, "--listen", "127.0.0.1:0"]).is(2).says("is no folder").says("--data-dir");
    let below = format!("{dir}/below");
    registry
        .command(&["--data-dir", &below, "--listen", "127.0.0.1:0"])
        .is(2)
        .says("Not a directory")
        .says("name a folder");
}

/// `testbed/python.sh` gets the client.
#[test]
fn pythons_client_and_its_serializers_work_with_it() {
    let registry = Registry::start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/registry_client.py");
    let done = std::process::Command::new(support::python()).args([script, &registry.url()]).output();
    let done = done.expect("python can be run");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("answers are as they should be"), "{out}{err}");
}

#[test]
fn large_and_hostile_bodies_are_refused_and_the_registry_goes_on() {
    let registry = Registry::start();
    let deep = "[".repeat(100_000);
    registry.no("POST", "/subjects/s/versions", Some(json!({"schema": deep})), 42201);
    registry.no("POST", "/subjects/s/versions", Some(json!({"schema": " ".repeat(10 << 20)})), 42201);
    let wide = |of: char| {
        let all: Vec<_> = (0..9000).map(|i| format!(r#"{{"type":"record","name":"{of}{i}","fields":[]}}"#)).collect();
        format!("[{}]", all.join(","))
    };
    registry.register("s", &wide('a'));
    let told = registry.no("POST", "/subjects/s/versions", Some(json!({"schema": wide('b')})), 42201);
    assert!(told.contains("steps"), "{told}");
    assert_eq!(registry.yes("GET", "/subjects/s/versions", None), json!([1]));
}
