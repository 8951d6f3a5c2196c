//! `tidewire registry --kafka`: Confluent's topic `_schemas`, and one process that writes it.

mod support;

use serde_json::{json, Value};
use std::time::{Duration, Instant};
use support::connect::until;
use support::registry::{record, with_default, Registry, BROKER};
use tidewire_testbed::Kafka;

/// Keys and values as another program writes them; `NULL` is a tombstone.
fn send(topic: &str, lines: &[(&str, &str)]) {
    let text: String = lines.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect();
    let words = ["--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "null.marker=NULL"];
    BROKER.tool("ConsoleProducer", &words, &text);
}

fn make(topic: &str, partitions: &str, policy: &str) {
    let policy = format!("cleanup.policy={policy}");
    BROKER.tool("TopicCommand", &["--create", "--topic", topic, "--partitions", partitions, "--config", &policy], "");
}

#[test]
fn a_topic_that_confluents_registry_wrote_is_read_and_gone_on_with() {
    make("theirs", "1", "compact");
    let text = |text: &str| text.replace('"', "\\\"");
    let address = text(r#"{"type":"record","name":"x.Address","fields":[{"name":"city","type":"string"}]}"#);
    let person = text(r#"{"type":"record","name":"x.Person","fields":[{"name":"home","type":"x.Address"}]}"#);
    // As a compacted topic may be: what a schema refers to stands behind it.
    send(
        "theirs",
        &[
            (r#"{"keytype":"NOOP","magic":0}"#, "NULL"),
            (r#"{"keytype":"CONFIG","subject":null,"magic":0}"#, r#"{"compatibilityLevel":"FULL"}"#),
            (
                r#"{"keytype":"SCHEMA","subject":"person","version":1,"magic":1}"#,
                &format!(
                    r#"{{"subject":"person","version":1,"id":2,"md5":"q1==","schemaType":"AVRO","references":[{{"name":"x.Address","subject":"address","version":1}}],"metadata":null,"ruleSet":null,"schema":"{person}","deleted":false}}"#
                ),
            ),
            (
                r#"{"keytype":"SCHEMA","subject":"address","version":1,"magic":1}"#,
                &format!(r#"{{"subject":"address","version":1,"id":1,"schema":"{address}","deleted":false}}"#),
            ),
            (
                r#"{"keytype":"SCHEMA","subject":"gone","version":1,"magic":1}"#,
                r#"{"subject":"gone","version":1,"id":7,"schema":"\"int\"","deleted":false}"#,
            ),
            (r#"{"keytype":"DELETE_SUBJECT","subject":"gone","magic":0}"#, r#"{"subject":"gone","version":1}"#),
            // An older way to write the key.
            (
                r#"{"keytype":"SCHEMA","subject":"old","version":1,"magic":0}"#,
                r#"{"subject":"old","version":1,"id":3,"schema":"\"long\"","deleted":false}"#,
            ),
            (r#"{"keytype":"MODE","subject":"old","magic":0}"#, r#"{"mode":"READONLY"}"#),
        ],
    );
    let registry = Registry::start_by(BROKER.address(), "theirs");
    assert_eq!(registry.yes("GET", "/subjects", None), json!(["address", "old", "person"]));
    assert_eq!(registry.yes("GET", "/subjects?deleted=true", None), json!(["address", "gone", "old", "person"]));
    assert_eq!(registry.yes("GET", "/subjects/person/versions/1", None)["references"][0]["subject"], "address");
    assert_eq!(registry.yes("GET", "/config", None)["compatibilityLevel"], "FULL");
    assert_eq!(registry.yes("GET", "/mode/old", None), json!({"mode": "READONLY"}));
    assert_eq!(registry.register("new", &record(&["a"])), 8, "no id that was given is given again");
    registry.yes("PUT", "/mode/old", Some(json!({"mode": "READWRITE"})));
    registry.yes("DELETE", "/subjects/old", None);
    registry.yes("DELETE", "/subjects/old?permanent=true", None);
    // The key that is taken away is the one that was there.
    let all = BROKER.consume("theirs", 15);
    let last: std::collections::BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(last[r#"{"keytype":"SCHEMA","subject":"old","version":1,"magic":0}"#], "null");
    assert!(!last.contains_key(r#"{"keytype":"SCHEMA","subject":"old","version":1,"magic":1}"#));
}

#[test]
fn what_lies_in_the_topic_has_the_form_that_confluents_registry_reads() {
    let registry = Registry::start_by(BROKER.address(), "ours");
    registry.register("s", r#"{"type":"record","name":"R","fields":[]}"#);
    let references = json!([{"name": "R", "subject": "s", "version": 1}]);
    registry.yes("POST", "/subjects/j%2F1/versions", Some(json!({"schema": r#"["R"]"#, "references": references})));
    registry.yes("POST", "/subjects/k/versions", Some(json!({"schemaType": "JSON", "schema": "{}"})));
    registry.yes("PUT", "/config", Some(json!({"compatibility": "NONE"})));
    registry.yes("PUT", "/config/s", Some(json!({"compatibility": "FULL"})));
    registry.yes("PUT", "/mode/s", Some(json!({"mode": "READWRITE"})));
    registry.yes("DELETE", "/subjects/j%2F1", None);
    registry.yes("DELETE", "/subjects/j%2F1/versions/1?permanent=true", None);
    registry.yes("DELETE", "/subjects/s/versions/1", None);
    let expected = [
        (r#"{"keytype":"NOOP","magic":0}"#, r#"{"highestId":0}"#),
        (
            r#"{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}"#,
            r#"{"subject":"s","version":1,"id":1,"schema":"{\"type\":\"record\",\"name\":\"R\",\"fields\":[]}","deleted":false}"#,
        ),
        (
            r#"{"keytype":"SCHEMA","subject":"j/1","version":1,"magic":1}"#,
            r#"{"subject":"j/1","version":1,"id":2,"references":[{"name":"R","subject":"s","version":1}],"schema":"[\"R\"]","deleted":false}"#,
        ),
        (
            r#"{"keytype":"SCHEMA","subject":"k","version":1,"magic":1}"#,
            r#"{"subject":"k","version":1,"id":3,"schemaType":"JSON","schema":"{}","deleted":false}"#,
        ),
        (r#"{"keytype":"CONFIG","subject":null,"magic":0}"#, r#"{"compatibilityLevel":"NONE"}"#),
        (r#"{"keytype":"CONFIG","subject":"s","magic":0}"#, r#"{"compatibilityLevel":"FULL"}"#),
        (r#"{"keytype":"MODE","subject":"s","magic":0}"#, r#"{"mode":"READWRITE"}"#),
        (r#"{"keytype":"DELETE_SUBJECT","subject":"j/1","magic":0}"#, r#"{"subject":"j/1","version":1}"#),
        (r#"{"keytype":"NOOP","magic":0}"#, r#"{"highestId":3}"#),
        (r#"{"keytype":"SCHEMA","subject":"j/1","version":1,"magic":1}"#, "null"),
        (
            r#"{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}"#,
            r#"{"subject":"s","version":1,"id":1,"schema":"{\"type\":\"record\",\"name\":\"R\",\"fields\":[]}","deleted":true}"#,
        ),
    ];
    let found = BROKER.consume("ours", expected.len());
    let found: Vec<_> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
    let told = BROKER.tool("TopicCommand", &["--describe", "--topic", "ours"], "");
    assert!(told.contains("PartitionCount: 1") && told.contains("cleanup.policy=compact"), "{told}");
}

#[test]
fn the_latest_of_two_processes_writes_and_the_earlier_one_ends() {
    let mut first = Registry::start_by(BROKER.address(), "two");
    assert_eq!(first.register("s", &record(&["a"])), 1);
    // It sees and hears nothing while another one takes over.
    first.running.as_ref().unwrap().signal("STOP");
    let second = Registry::start_by(BROKER.address(), "two");
    assert_eq!(second.register("s", &with_default(&["a"], "b")), 2);
    first.running.as_ref().unwrap().signal("CONT");
    let body = json!({"schema": with_default(&["a"], "mine")}).to_string();
    let port = first.port;
    // It may have ended by then.
    let answered = std::panic::catch_unwind(|| {
        support::connect::http(port, "POST", "/subjects/s/versions", Some(&body), &[]).status
    });
    assert!(answered.is_err() || answered.is_ok_and(|status| status == 500), "what it would have written is refused");
    first.running.take().unwrap().end().is(2).says("another registry has taken over the topic two").says("the latest");
    assert_eq!(second.yes("GET", "/subjects/s/versions", None), json!([1, 2]));
    assert_eq!(second.register("t", &record(&["c"])), 3);

    let mut third = Registry::start_by(BROKER.address(), "two");
    assert_eq!(third.yes("GET", "/subjects", None), json!(["s", "t"]));
    assert_eq!(third.register("u", &record(&["d"])), 4);
    third.running.take().unwrap().stop().is(0);
}

#[test]
fn a_start_or_an_import_that_can_not_go_on_leaves_the_one_that_runs_alone() {
    let mut first = Registry::start_by(BROKER.address(), "alone");
    assert_eq!(first.register("s", &record(&["a"])), 1);
    let kafka = ["--kafka", BROKER.address(), "--kafka-topic", "alone"];
    let other = Registry::new();
    let taken = format!("127.0.0.1:{}", first.port);
    other.command(&[&kafka[..], &["--listen", &taken]].concat()).is(2).says("is taken by another process");
    other.command(&[&kafka[..], &["--listen", "0.0.0.0:0"]].concat()).is(2).says("TIDEWIRE_TOKEN");
    let file = other.folder.path().join("clash.jsonl").display().to_string();
    let gone = r#"{"key":{"keytype":"SCHEMA","subject":"s","version":1},"value":{"subject":"s","version":1,"id":5,"schema":"\"int\""}}"#;
    std::fs::write(&file, gone).unwrap();
    other.command(&[&["import", &file][..], &kafka].concat()).is(2).says("s has a version 1 already");
    std::fs::write(&file, "nonsense").unwrap();
    other.command(&[&["import", &file][..], &kafka].concat()).is(2).says("in line 1");
    assert_eq!(first.register("s", &with_default(&["a"], "b")), 2, "it is still the one that writes");
    first.running.take().unwrap().stop().is(0);
}

#[test]
fn a_change_that_was_broken_off_counts_for_everybody_who_reads_the_topic() {
    let mut registry = Registry::by(BROKER.address(), "broken-off");
    // The first is that the topic is taken over.
    let dying = registry.launch(&[], &[("TIDEWIRE_DIE_AT", "registry sent:2")]);
    until("it answers", || match dying.errors().contains("schemas are taken at") {
        true => Ok(()),
        false => Err(dying.errors()),
    });
    let (port, body) = (registry.port, json!({"schema": record(&["a"])}).to_string());
    let answered = std::panic::catch_unwind(|| {
        support::connect::http(port, "POST", "/subjects/s/versions", Some(&body), &[]).status
    });
    assert!(answered.is_err(), "it died before it answered");
    drop(dying);
    registry.begin(&[], &[]);
    // Confluent's registry, which reads what isn't committed, too, sees it; so it counts, and is committed.
    assert_eq!(registry.yes("GET", "/schemas/ids/1", None)["schema"], record(&["a"]));
    let found = BROKER.consume("broken-off", 3);
    let schema = |(key, value): &&(String, String)| key.contains("SCHEMA") && value.contains(r#""id":1"#);
    assert_eq!(found.iter().filter(schema).count(), 1, "{found:?}");
    assert_eq!(registry.register("s", &with_default(&["a"], "b")), 2);
}

#[test]
fn ids_and_versions_move_between_folder_and_topic() {
    let registry = Registry::start();
    registry.register("a", &record(&["a"]));
    registry.register("gone", &record(&["x"]));
    registry.yes("DELETE", "/subjects/gone", None);
    registry.yes("DELETE", "/subjects/gone?permanent=true", None);
    registry.yes("PUT", "/config/a", Some(json!({"compatibility": "FULL"})));
    let dir = registry.dir();
    let file = registry.folder.path().join("schemas.jsonl");
    let mut registry = registry;
    registry.running.take().unwrap().stop().is(0);
    std::fs::write(&file, registry.command(&["export", "--data-dir", &dir]).is(0).out).unwrap();
    let broker = BROKER.address();
    let kafka = ["--kafka", broker, "--kafka-topic", "moved"];
    registry.command(&[&["export"][..], &kafka].concat()).is(2).says("there is no topic moved");
    registry
        .command(&[&["import", file.to_str().unwrap()][..], &kafka].concat())
        .is(0)
        .says("records are in the topic");
    let moved = Registry::start_by(broker, "moved");
    assert_eq!(moved.yes("GET", "/subjects/a/versions/1", None)["id"], 1);
    assert_eq!(moved.yes("GET", "/config/a", None)["compatibilityLevel"], "FULL");
    // Who only reads stops nobody.
    let exported = registry.command(&[&["export"][..], &kafka].concat()).is(0).out;
    assert!(exported.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{exported}");
    assert_eq!(moved.register("b", &record(&["b"])), 3, "an id that is gone isn't given again");
    std::fs::write(&file, exported).unwrap();
    let back = registry.folder.path().join("back").display().to_string();
    registry.command(&["import", file.to_str().unwrap(), "--data-dir", &back]).is(0);
}

#[test]
fn topics_that_would_lose_schemas_or_that_hold_something_else_are_refused() {
    let broker = BROKER.address();
    let refused = |topic: &str| {
        let registry = Registry::by(broker, topic);
        registry.launch(&[], &[]).end().is(2)
    };
    make("aging", "1", "delete");
    refused("aging").says("schemas would go when they are old").says("cleanup.policy=compact");
    make("wide", "3", "compact");
    refused("wide").says("has 3 partitions");
    make("other", "1", "compact");
    send("other", &[("k", "v")]);
    refused("other").says("in the message at offset 0 of the topic other");
    make("broken", "1", "compact");
    let key = r#"{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}"#;
    send("broken", &[(key, "v")]);
    refused("broken").says("in the message at offset 0 of the topic broken");
    make("contexts", "1", "compact");
    let key = r#"{"keytype":"SCHEMA","subject":":.c:s","version":1,"magic":1}"#;
    send("contexts", &[(key, r#"{"subject":":.c:s","version":1,"id":1,"schema":"\"int\"","deleted":false}"#)]);
    refused("contexts").says("is of a context");
    let registry = Registry::new();
    registry.command(&["--kafka-topic", "x"]).is(2).says("--kafka");
    registry
        .command(&["--kafka", broker, "--kafka-ca", "/no/such.pem"])
        .is(2)
        .says("--kafka-ca /no/such.pem: No such file");
    let told = registry.command(&["--kafka", broker, "--kafka-tls"]).is(3).says("does Kafka speak TLS at --kafka?");
    assert!(told.err.contains("PLAINTEXT") && !told.err.contains("bus.kafka"), "{}", told.err);
    registry.command(&["--kafka", broker, "--kafka-user", "u"]).is(2).says("TIDEWIRE_KAFKA_PASSWORD");
    let nobody = format!("127.0.0.1:{}", support::free_port());
    registry.command(&["--kafka", &nobody]).is(3).says("is Kafka up, and --kafka its address?");
}

#[test]
fn a_registry_whose_broker_is_away_answers_what_it_knows_and_goes_on_behind_it() {
    let mut kafka = Kafka::start();
    let registry = Registry::start_by(kafka.address(), "_schemas");
    assert_eq!(registry.register("s", &record(&["a"])), 1);
    kafka.kill();
    assert_eq!(registry.yes("GET", "/schemas/ids/1", None)["schema"], record(&["a"]));
    let began = Instant::now();
    assert_eq!(registry.register("s", &record(&["a"])), 1, "what is registered already is known");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // Several wait no longer than one.
    std::thread::scope(|scope| {
        let refused = |subject: &str| {
            let path = format!("/subjects/{subject}/versions");
            let told = registry.no("POST", &path, Some(json!({"schema": record(&["b"])})), 50001);
            assert!(told.contains("Kafka"), "{told}");
        };
        let all: Vec<_> = ["t", "t", "t2", "t3"].map(|subject| scope.spawn(move || refused(subject))).into();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    kafka.start_again();
    let body = json!({"schema": record(&["c"])});
    let found = until("it takes schemas", || match registry.ask("POST", "/subjects/u/versions", Some(body.clone())) {
        (200, answer) => Ok(answer["id"].as_u64().unwrap()),
        (_, answer) => Err(answer.to_string()),
    });
    assert!((2..=5).contains(&found), "{found}");
    assert_eq!(registry.yes("GET", "/subjects/s/versions/1", None)["id"], 1);
}

#[test]
fn a_cluster_that_asks_for_tls_and_a_password_gets_both() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(path("ca.pem"), certificate.pem()).unwrap();
    std::fs::write(path("store.pem"), key.serialize_pem() + &certificate.pem()).unwrap();
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let properties = format!(
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT\ninter.broker.listener.name=PLAINTEXT\n\
         sasl.mechanism.inter.broker.protocol=PLAIN\nsasl.enabled.mechanisms=PLAIN\n\
         listener.name.plaintext.plain.sasl.jaas.config={login} username=\"broker\" password=\"w0rd\" user_broker=\"w0rd\" user_reg=\"w0rd\";\n\
         ssl.keystore.type=PEM\nssl.keystore.location={}\nssl.truststore.type=PEM\nssl.truststore.location={}",
        path("store.pem"),
        path("ca.pem")
    );
    let kafka = Kafka::start_with(&properties, None);
    let ca = path("ca.pem");
    let words = ["--kafka-ca", &ca, "--kafka-user", "reg", "--kafka-mechanism", "PLAIN"];
    let mut registry = Registry::by(kafka.address(), "_schemas");
    registry.begin(&words, &[("TIDEWIRE_KAFKA_PASSWORD", "w0rd")]);
    assert_eq!(registry.register("s", &record(&["a"])), 1);
    registry.running.take().unwrap().stop().is(0);
    let wrong = registry.launch(&words, &[("TIDEWIRE_KAFKA_PASSWORD", "guess")]).end().is(2);
    wrong.says("refused the login").says("TIDEWIRE_KAFKA_PASSWORD").says("--kafka-mechanism");
    let untrusted = registry.launch(&["--kafka-tls", "--kafka-user", "reg"], &[("TIDEWIRE_KAFKA_PASSWORD", "w0rd")]);
    untrusted.end().is(2).says("--kafka-ca");
}
