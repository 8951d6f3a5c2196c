//! `tidewire registry` over real HTTP: Confluent's endpoints and codes, and what is kept through kills.

mod support;

use serde_json::{json, Value};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::connect::http;
use support::{free_port, Ended, Running};

struct Registry {
    folder: tempfile::TempDir,
    port: u16,
    running: Option<Running>,
}

impl Registry {
    fn start() -> Registry {
        Registry::start_with(&[], &[])
    }

    fn start_with(more: &[&str], variables: &[(&str, &str)]) -> Registry {
        let mut registry = Registry { folder: tempfile::tempdir().unwrap(), port: free_port(), running: None };
        registry.begin(more, variables);
        registry
    }

    fn dir(&self) -> String {
        self.folder.path().join("registry").display().to_string()
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn begin(&mut self, more: &[&str], variables: &[(&str, &str)]) {
        let (dir, listen) = (self.dir(), format!("127.0.0.1:{}", self.port));
        let words = ["registry", "--data-dir", &dir, "--listen", &listen].into_iter().chain(more.iter().copied());
        let mut running = Running::start_with(words.map(str::to_string), variables);
        running.until("it answers", |running| running.errors().contains("schemas are taken at"));
        self.running = Some(running);
    }

    fn kill(&mut self) {
        self.running.take().unwrap().signal("KILL");
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let answer = http(self.port, method, path, body.map(|body| body.to_string()).as_deref(), &[]);
        (answer.status, answer.body)
    }

    #[track_caller]
    fn yes(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, body) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {body}");
        body
    }

    #[track_caller]
    fn no(&self, method: &str, path: &str, body: Option<Value>, code: u32) -> String {
        let (status, body) = self.ask(method, path, body);
        let expected = if code > 999 { code / 100 } else { code };
        assert_eq!((u32::from(status), &body["error_code"]), (expected, &json!(code)), "{method} {path}: {body}");
        body["message"].as_str().unwrap().to_string()
    }

    #[track_caller]
    fn register(&self, subject: &str, schema: &str) -> u64 {
        self.yes("POST", &format!("/subjects/{subject}/versions"), Some(json!({"schema": schema})))["id"]
            .as_u64()
            .unwrap()
    }

    /// The command with this registry's address.
    fn command(&self, words: &[&str]) -> Ended {
        Running::start(["registry"].iter().chain(words).map(|word| word.to_string())).end()
    }
}

fn record(fields: &[&str]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!(r#"{{"name":"{field}","type":"int"}}"#)).collect();
    format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","))
}

/// The record with one more field that has a default.
fn with_default(fields: &[&str], more: &str) -> String {
    let more = format!(r#",{{"name":"{more}","type":"int","default":0}}]}}"#);
    record(fields).replace("]}", &more)
}

#[test]
fn subjects_versions_and_ids_answer_as_confluents_registry_does() {
    let registry = Registry::start();
    assert_eq!(registry.yes("GET", "/", None), json!({}));
    assert_eq!(registry.yes("GET", "/subjects", None), json!([]));
    assert_eq!(registry.yes("GET", "/schemas/types", None), json!(["JSON", "PROTOBUF", "AVRO"]));
    let (one, two) = (record(&["a"]), with_default(&["a"], "b"));
    assert_eq!(registry.register("s-value", &one), 1);
    assert_eq!(registry.register("s-value", &two), 2);
    assert_eq!(registry.register("other/subject".replace('/', "%2F").as_str(), &two), 2, "one id for one schema");
    assert_eq!(registry.register("s-value", &one.replace(':', " : ")), 1, "the same schema, written otherwise");
    assert_eq!(registry.yes("GET", "/subjects", None), json!(["other/subject", "s-value"]));
    assert_eq!(registry.yes("GET", "/subjects?subjectPrefix=s-", None), json!(["s-value"]));
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions", None), json!([1, 2]));
    let found = json!({"subject": "s-value", "version": 1, "id": 1, "schema": one});
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/1", None), found);
    assert_eq!(registry.yes("POST", "/subjects/s-value", Some(json!({"schema": one}))), found);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/latest", None)["id"], 2);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/-1", None)["id"], 2);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/1/schema", None).to_string(), one);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/1/referencedby", None), json!([]));
    assert_eq!(registry.yes("GET", "/schemas/ids/2", None), json!({"schema": two}));
    assert_eq!(registry.yes("GET", "/schemas/ids/2?fetchMaxId=true", None)["maxId"], 2);
    assert_eq!(registry.yes("GET", "/schemas/ids/2/schema", None).to_string(), two);
    assert_eq!(registry.yes("GET", "/schemas/ids/2/subjects", None), json!(["other/subject", "s-value"]));
    let uses = json!([{"subject": "other/subject", "version": 1}, {"subject": "s-value", "version": 2}]);
    assert_eq!(registry.yes("GET", "/schemas/ids/2/versions", None), uses);
    assert_eq!(registry.yes("GET", "/schemas", None).as_array().unwrap().len(), 3);
    assert_eq!(registry.yes("GET", "/schemas?latestOnly=true&subjectPrefix=s-", None)[0]["version"], 2);
    assert_eq!(registry.yes("GET", "/schemas?offset=1&limit=1", None)[0]["id"], 1);

    registry.no("GET", "/subjects/none/versions", None, 40401);
    registry.no("GET", "/subjects/none/versions/1", None, 40401);
    registry.no("GET", "/subjects/s-value/versions/9", None, 40402);
    registry.no("GET", "/subjects/s-value/versions/0", None, 42202);
    registry.no("GET", "/subjects/s-value/versions/first", None, 42202);
    registry.no("GET", "/schemas/ids/9", None, 40403);
    registry.no("GET", "/schemas/ids/9/subjects", None, 40403);
    registry.no("POST", "/subjects/none", Some(json!({"schema": one})), 40401);
    registry.no("POST", "/subjects/s-value", Some(json!({"schema": record(&["z"])})), 40403);
    let invalid =
        registry.no("POST", "/subjects/s-value/versions", Some(json!({"schema": "{\"type\":\"strange\"}"})), 42201);
    assert!(invalid.contains("`strange` isn't known"), "{invalid}");
    registry.no("POST", "/subjects/s-value/versions", Some(json!({"schema": one, "schemaType": "XML"})), 42201);
    registry.no(
        "POST",
        "/subjects/s-value/versions",
        Some(json!({"schema": one, "ruleSet": {"domainRules": []}})),
        42201,
    );
    registry.no("POST", "/subjects/s-value/versions", Some(json!({})), 42201);
    registry.no("POST", "/subjects/__GLOBAL/versions", Some(json!({"schema": one})), 42208);
    registry.no("POST", "/subjects/:.ctx:s/versions", Some(json!({"schema": one})), 42208);
    registry.no("GET", "/nothing", None, 404);
    registry.no("PUT", "/subjects", Some(json!({})), 405);
    registry.no("GET", "/subjects?deleted=perhaps", None, 400);
}

#[test]
fn a_refused_schema_comes_with_every_difference_and_leaves_nothing_behind() {
    let registry = Registry::start();
    registry.register("s", &record(&["a"]));
    let bad = Some(json!({"schema": record(&["a", "b", "c"])}));
    let (status, body) = registry.ask("POST", "/subjects/s/versions", bad.clone());
    assert_eq!((status, &body["error_code"]), (409, &json!(409)), "{body}");
    let paths: Vec<_> = body["differences"].as_array().unwrap().iter().map(|d| d["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/fields/1", "/fields/2"]);
    let message = body["message"].as_str().unwrap();
    for told in ["READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/2", "oldSchemaVersion: 1", "BACKWARD"] {
        assert!(message.contains(told), "{told}: {message}");
    }
    assert_eq!(registry.yes("GET", "/subjects/s/versions", None), json!([1]));
    registry.no("GET", "/schemas/ids/2", None, 40403);
    assert_eq!(registry.register("s", &with_default(&["a"], "b")), 2, "the refused one took no id");

    let check = |path: &str, schema: String| registry.yes("POST", path, Some(json!({"schema": schema})));
    let versions = "/compatibility/subjects/s/versions";
    assert_eq!(check(versions, record(&["a", "z"])), json!({"is_compatible": false}));
    assert_eq!(check(&format!("{versions}/1"), with_default(&["a"], "z")), json!({"is_compatible": true}));
    let verbose = check(&format!("{versions}/latest?verbose=true"), record(&["a", "z"]));
    assert_eq!(verbose["differences"][0]["rule"], "READER_FIELD_MISSING_DEFAULT_VALUE");
    assert_eq!(verbose["messages"].as_array().unwrap().len(), 1);
    assert_eq!(check("/compatibility/subjects/none/versions", record(&["a"])), json!({"is_compatible": true}));
    registry.no("POST", &format!("{versions}/7"), bad, 40402);
}

#[test]
fn levels_are_set_for_all_and_for_single_subjects() {
    let registry = Registry::start();
    let level = |word: &str| Some(json!({"compatibility": word}));
    assert_eq!(registry.yes("GET", "/config", None), json!({"compatibilityLevel": "BACKWARD"}));
    assert_eq!(registry.yes("PUT", "/config", level("full")), json!({"compatibility": "FULL"}));
    registry.no("PUT", "/config", level("SIDEWAYS"), 42203);
    registry.no("GET", "/config/s", None, 40408);
    registry.no("DELETE", "/config/s", None, 40401);
    assert_eq!(registry.yes("GET", "/config/s?defaultToGlobal=true", None)["compatibilityLevel"], "FULL");
    registry.yes("PUT", "/config/s", level("BACKWARD_TRANSITIVE"));
    assert_eq!(registry.yes("GET", "/config/s", None)["compatibilityLevel"], "BACKWARD_TRANSITIVE");

    // The third reads the second, and not the first: only a transitive level sees that.
    let (first, second) = (record(&["a"]), with_default(&["a"], "b"));
    let third = record(&["a", "b"]);
    registry.register("s", &first);
    registry.register("s", &second);
    registry.no("POST", "/subjects/s/versions", Some(json!({"schema": third})), 409);
    registry.yes("PUT", "/config/s", level("BACKWARD"));
    registry.register("s", &third);
    registry.yes("PUT", "/config/s", level("NONE"));
    registry.register("s", "\"string\"");
    assert_eq!(registry.yes("DELETE", "/config/s", None)["compatibilityLevel"], "NONE");
    registry.no("POST", "/subjects/s/versions", Some(json!({"schema": "\"int\""})), 409);
    registry.yes("DELETE", "/config", None);
    assert_eq!(registry.yes("GET", "/config", None)["compatibilityLevel"], "BACKWARD");

    registry.yes("PUT", "/config/n", Some(json!({"normalize": true})));
    let props = |order: &str| format!(r#"{{"type":"int",{order}}}"#);
    assert_eq!(registry.register("n", &props(r#""x":1,"y":2"#)), registry.register("n", &props(r#""y":2,"x":1"#)));
}

#[test]
fn deleting_is_soft_first_and_then_for_good() {
    let registry = Registry::start();
    let (one, two) = (record(&["a"]), with_default(&["a"], "b"));
    registry.register("s", &one);
    registry.register("s", &two);
    registry.no("DELETE", "/subjects/none", None, 40401);
    registry.no("DELETE", "/subjects/s?permanent=true", None, 40405);
    registry.no("DELETE", "/subjects/s/versions/2?permanent=true", None, 40407);
    registry.no("DELETE", "/subjects/s/versions/7", None, 40402);
    assert_eq!(registry.yes("DELETE", "/subjects/s/versions/latest", None), json!(2));
    registry.no("DELETE", "/subjects/s/versions/2", None, 40406);
    registry.no("GET", "/subjects/s/versions/2", None, 40402);
    assert_eq!(registry.yes("GET", "/subjects/s/versions/2?deleted=true", None)["id"], 2);
    assert_eq!(registry.yes("GET", "/subjects/s/versions?deleted=true", None), json!([1, 2]));
    assert_eq!(registry.yes("GET", "/schemas/ids/2", None)["schema"], two);
    assert_eq!(registry.yes("GET", "/schemas/ids/2/subjects", None), json!([]));
    assert_eq!(registry.register("s", &two), 2, "it comes back with its id");
    assert_eq!(registry.yes("GET", "/subjects/s/versions", None), json!([1, 3]));
    assert_eq!(registry.yes("DELETE", "/subjects/s/versions/2?permanent=true", None), json!(2));
    registry.yes("PUT", "/config/s", Some(json!({"compatibility": "FULL"})));
    assert_eq!(registry.yes("DELETE", "/subjects/s", None), json!([1, 3]));
    registry.no("GET", "/config/s", None, 40408);
    registry.no("DELETE", "/subjects/s", None, 40404);
    registry.no("GET", "/subjects/s/versions", None, 40401);
    registry.no("POST", "/subjects/s", Some(json!({"schema": one})), 40401);
    assert_eq!(registry.yes("POST", "/subjects/s?deleted=true", Some(json!({"schema": one})))["version"], 1);
    assert_eq!(registry.yes("GET", "/subjects?deletedOnly=true", None), json!(["s"]));
    assert_eq!(registry.yes("DELETE", "/subjects/s?permanent=true", None), json!([1, 3]));
    registry.no("DELETE", "/subjects/s?permanent=true", None, 40401);
    registry.no("GET", "/schemas/ids/1", None, 40403);
    assert_eq!(registry.register("s", &record(&["q"])), 3, "an id that is gone isn't given again");
}

#[test]
fn references_hold_what_they_refer_to() {
    let registry = Registry::start();
    let address = r#"{"type":"record","name":"x.Address","fields":[{"name":"city","type":"string"}]}"#;
    registry.register("address", address);
    let person = r#"{"type":"record","name":"x.Person","fields":[{"name":"home","type":"x.Address"}]}"#;
    let with = |version: i32| {
        Some(json!({"schema": person, "references": [{"name": "x.Address", "subject": "address", "version": version}]}))
    };
    registry.no("POST", "/subjects/person/versions", Some(json!({"schema": person})), 42201);
    registry.no("POST", "/subjects/person/versions", with(7), 42201);
    let answer = registry.yes("POST", "/subjects/person/versions", with(1));
    assert_eq!(registry.yes("POST", "/subjects/person/versions", with(-1))["id"], answer["id"], "-1 is the latest");
    assert_eq!(registry.yes("GET", "/subjects/address/versions/1/referencedby", None), json!([2]));
    assert_eq!(registry.yes("GET", "/schemas/ids/2", None)["references"][0]["subject"], "address");
    let whole = registry.yes("GET", "/schemas/ids/2?format=resolved", None)["schema"].to_string();
    assert!(whole.contains("city"), "{whole}");
    registry.no("DELETE", "/subjects/address", None, 42206);
    registry.no("DELETE", "/subjects/address/versions/1", None, 42206);
    registry.yes("DELETE", "/subjects/person", None);
    registry.yes("DELETE", "/subjects/address", None);
    registry.no("DELETE", "/subjects/address?permanent=true", None, 42206);
    registry.yes("DELETE", "/subjects/person?permanent=true", None);
    registry.yes("DELETE", "/subjects/address?permanent=true", None);

    let proto = |schema: &str, references: Value| {
        Some(json!({"schemaType": "PROTOBUF", "schema": schema, "references": references}))
    };
    registry.yes(
        "POST",
        "/subjects/a/versions",
        proto("syntax = \"proto3\"; package q; message A { string c = 1; }", json!([])),
    );
    let using = "syntax = \"proto3\"; import \"a.proto\"; message P { q.A home = 1; }";
    registry.no("POST", "/subjects/p/versions", proto(using, json!([])), 42201);
    let references = json!([{"name": "a.proto", "subject": "a", "version": 1}]);
    let answer = registry.yes("POST", "/subjects/p/versions", proto(using, references));
    let kept = registry.yes("GET", &format!("/schemas/ids/{}", answer["id"]), None);
    assert_eq!((&kept["schemaType"], &kept["schema"]), (&json!("PROTOBUF"), &json!(using)));
    registry.no("POST", "/subjects/p/versions", Some(json!({"schema": "\"int\""})), 409);
    let json_schema = |text: &str| Some(json!({"schemaType": "JSON", "schema": text}));
    registry.yes("POST", "/subjects/j/versions", json_schema(r#"{"type":"object"}"#));
    registry.no("POST", "/subjects/j/versions", json_schema(r#"{"type":"array"}"#), 409);
}

#[test]
fn modes_keep_writers_out_and_let_schemas_in_with_their_ids() {
    let registry = Registry::start();
    let mode = |word: &str| Some(json!({"mode": word}));
    assert_eq!(registry.yes("GET", "/mode", None), json!({"mode": "READWRITE"}));
    registry.no("GET", "/mode/s", None, 40409);
    registry.no("PUT", "/mode", mode("SLEEPING"), 42204);
    registry.no("DELETE", "/mode/s", None, 40401);
    let (one, two) = (record(&["a"]), record(&["b"]));
    let with_id = |schema: &str, id: u32, version: u32| Some(json!({"schema": schema, "id": id, "version": version}));
    registry.no("POST", "/subjects/s/versions", with_id(&one, 40, 4), 42205);
    registry.yes("PUT", "/mode/s", mode("IMPORT"));
    assert_eq!(registry.yes("GET", "/mode/s", None), json!({"mode": "IMPORT"}));
    assert_eq!(registry.yes("POST", "/subjects/s/versions", with_id(&one, 40, 4))["id"], 40);
    registry.no("POST", "/subjects/s/versions", with_id(&two, 40, 5), 42207);
    registry.no("POST", "/subjects/s/versions", with_id(&two, 41, 4), 42205);
    registry.yes("POST", "/subjects/s/versions", with_id(&two, 41, 7));
    registry.no("POST", "/subjects/s/versions", Some(json!({"schema": one})), 42205);
    assert_eq!(registry.yes("DELETE", "/mode/s", None), json!({"mode": "IMPORT"}));
    assert_eq!(registry.yes("GET", "/subjects/s/versions", None), json!([4, 7]));
    assert_eq!(registry.register("t", "\"int\""), 42);
    registry.no("PUT", "/mode", mode("IMPORT"), 42205);
    registry.yes("PUT", "/mode?force=true", mode("IMPORT"));
    registry.yes("PUT", "/mode", mode("READONLY"));
    registry.no("POST", "/subjects/t/versions", Some(json!({"schema": "\"long\""})), 42205);
    registry.no("DELETE", "/subjects/t", None, 42205);
    assert_eq!(registry.yes("GET", "/mode/t?defaultToGlobal=true", None), json!({"mode": "READONLY"}));
    registry.yes("PUT", "/mode/t", mode("READWRITE"));
    registry.register("t", "\"long\"");
}

#[test]
fn many_who_register_at_once_get_one_id_for_one_schema_and_no_gap() {
    let registry = Arc::new(Registry::start());
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

#[test]
fn a_kill_at_any_moment_loses_no_acknowledged_schema() {
    let mut registry = Registry::start();
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
    let by_url = registry.command(&["export", "--url", &registry.url()]).is(0).out;
    let dir = registry.dir();
    registry.command(&["export", "--data-dir", &dir]).is(2).says("in use");
    let schemas = registry.yes("GET", "/schemas?deleted=true", None);
    let file = registry.folder.path().join("schemas.jsonl");
    let mut other = Registry { folder: tempfile::tempdir().unwrap(), port: registry.port, running: None };
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
        assert_eq!(other.register("c", "\"int\""), 5);
        other.running = None;
    }
    let clash = r#"{"key":{"keytype":"SCHEMA","subject":"z","version":1},"value":{"subject":"z","version":1,"id":2,"schema":"\"long\""}}"#;
    std::fs::write(&file, clash).unwrap();
    let dir = other.dir();
    other.command(&["import", file.to_str().unwrap(), "--data-dir", &dir]).is(2).says("stands for another schema");
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
    check(&registry.folder.path().join("none.avsc"), &[]).is(2).says("there is no file");
    check(&file("s.json", "{}"), &["--type", "avro"]).is(2).says("no `type`");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let words = ["check", "--file", bad.to_str().unwrap(), "--subject", "s", "--url", &nobody];
    registry.command(&words).is(3).says("is a registry running");
}

#[test]
fn a_token_is_asked_for_where_one_is_set() {
    let registry = Registry::start_with(&[], &[("TIDEWIRE_TOKEN", "t0ken")]);
    registry.no("GET", "/subjects", None, 401);
    let with =
        |authorization: &str| http(registry.port, "GET", "/subjects", None, &[("Authorization", authorization)]).status;
    assert_eq!(with("Bearer t0ken"), 200);
    // anybody:t0ken, as clients of registries send user and password.
    assert_eq!(with("Basic YW55Ym9keTp0MGtlbg=="), 200);
    assert_eq!(with("Basic YW55Ym9keTp3cm9uZw=="), 401);
    let dir = registry.folder.path().join("other").display().to_string();
    registry.command(&["--data-dir", &dir, "--listen", "0.0.0.0:0"]).is(2).says("TIDEWIRE_TOKEN");
    registry.command(&["--data-dir", &dir, "--level", "SIDEWAYS"]).is(2).says("BACKWARD_TRANSITIVE");
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
