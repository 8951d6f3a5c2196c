use super::transforms::UNWRAP;
use super::*;

const TUTORIAL: &str = r#"{
  "name": "inventory-connector",
  "config": {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "db.example.com", "database.port": "5433", "database.user": "debezium", "database.password": "dbz p@ss",
    "database.dbname": "inventory", "topic.prefix": "shop", "table.include.list": "public.customers,public.orders",
    "slot.name": "shop_slot", "plugin.name": "pgoutput", "publication.autocreate.mode": "filtered", "snapshot.mode": "initial",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter", "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": false
  }
}"#;

fn with(properties: &str) -> String {
    format!(r#"{{"connector.class": "{CLASS}", {properties}}}"#)
}

fn fate(property: &str, value: &str) -> Fate {
    let plan = plan(&with(&format!("\"{property}\": \"{value}\"")), None).unwrap();
    plan.fates.into_iter().find(|(name, _)| name == property).unwrap().1
}

#[test]
fn the_tutorials_connector_becomes_a_configuration() {
    let plan = plan(TUTORIAL, None).unwrap();
    assert_eq!(plan.refused(), 0);
    assert!(plan.fates.iter().all(|(_, fate)| *fate != Fate::Unknown), "{:?}", plan.fates);
    assert_eq!(plan.fates.len(), 16);
    for line in [
        "name: \"shop\"\n",
        "url: \"postgres://debezium:${DATABASE_PASSWORD}@db.example.com:5433/inventory\"\n",
        "- \"public.customers\"\n      - \"public.orders\"\n",
        "slot: \"shop_slot\"\n",
    ] {
        assert!(plan.yaml.contains(line), "{line}\n{}", plan.yaml);
    }
    assert!(!plan.yaml.contains("p@ss") && !plan.yaml.contains("publication:"), "{}", plan.yaml);
}

#[test]
fn the_form_of_put_and_brokers_are_taken_too() {
    let json = with(
        r#""name": "A b", "topic.prefix": "x${y}", "publication.name": "mine", "publication.autocreate.mode": "disabled",
        "slot.failover": "true", "heartbeat.interval.ms": 5000, "snapshot.max.threads": "4", "database.sslmode": "verify-full",
        "decimal.handling.mode": "string", "tombstones.on.delete": "true", "topic.creation.default.partitions": 3,
        "topic.creation.default.replication.factor": "-1", "topic.creation.default.retention.ms": "86400000",
        "topic.creation.default.cleanup.policy": "delete""#,
    );
    let plan = plan(&json, Some("k1:9092,k2:9092")).unwrap();
    for line in [
        "name: \"x__y_\"\n",
        "brokers: \"k1:9092,k2:9092\"\n    topic_prefix: \"x$${y}\"\n    format: debezium-json\n",
        "    partitions: 3\n    retention: 86400000ms\n    cleanup: delete\n",
        "    properties:\n      decimal.handling.mode: \"string\"\n#",
        "slot: \"debezium\"\n    publication: \"mine\"\n    failover: true\n    readers: 4\n    heartbeat: 5000ms\n    messages: [\"*\"]\n",
        "/postgres?sslmode=verify-full\"\n",
    ] {
        assert!(plan.yaml.contains(line), "{line}\n{}", plan.yaml);
    }
}

#[test]
fn nothing_is_dropped_silently() {
    assert_eq!(fate("no.such.thing", "1"), Fate::Unknown);
    for (property, value) in [
        ("table.exclude.list", "public.x"),
        ("table.include.list", "public\\\\.[ab]"),
        ("column.mask.hash.SHA-256.with.salt.x", "public.t.c"),
        ("column.exclude.list", "public.t.c"),
        ("snapshot.mode", "no_data"),
        ("time.precision.mode", "structured"),
        ("decimal.handling.mode", "nonsense"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("transforms.unwrap.type", UNWRAP),
        ("message.key.columns", "public.t:c"),
        ("skipped.operations", "d"),
        ("topic.delimiter", "_"),
        ("snapshot.select.statement.overrides.public.t", "SELECT 1"),
    ] {
        assert!(matches!(fate(property, value), Fate::Refused(_)), "{property}={value}: {:?}", fate(property, value));
    }
    for (property, value) in
        [("max.batch.size", "9"), ("skip.messages.without.change", "false"), ("signal.poll.interval.ms", "1000")]
    {
        assert!(matches!(fate(property, value), Fate::NoMeaning(_)), "{property}");
    }
    assert!(matches!(fate("decimal.handling.mode", "string"), Fate::Becomes(_)));
    assert!(matches!(fate("decimal.handling.mode", "precise"), Fate::Same(_)));
}

#[test]
fn transactions_are_told_where_a_connector_tells_them() {
    let told =
        plan(&with(r#""provide.transaction.metadata": "true", "topic.transaction": "transaction""#), Some("k:1"))
            .unwrap();
    assert_eq!(told.refused(), 0);
    assert!(told.yaml.contains("    properties:\n      provide.transaction.metadata: \"true\"\n"), "{}", told.yaml);
    let named =
        plan(&with(r#""provide.transaction.metadata": "true", "topic.transaction": "tx""#), Some("k:1")).unwrap();
    assert_eq!(named.refused(), 1);
    assert!(matches!(fate("topic.transaction", "tx"), Fate::NoMeaning(_)));
}

#[test]
fn messages_of_the_log_are_told_by_their_prefixes() {
    let of = |list: &str| plan(&with(&format!("\"message.prefix.include.list\": \"{list}\"")), Some("k:1")).unwrap();
    assert!(
        of("app, mine\\\\..*").yaml.contains("    messages: [\"app\", \"mine.*\"]\n"),
        "{}",
        of("app, mine\\\\..*").yaml
    );
    assert_eq!(of("a|b").refused(), 1);
    let without = plan(&with("\"message.prefix.exclude.list\": \"x\""), Some("k:1")).unwrap();
    assert_eq!(without.refused(), 1);
    assert!(matches!(fate("message.prefix.include.list", "x"), Fate::NoMeaning(_)), "without Kafka there is no topic");
}

#[test]
fn channels_of_signals_become_ways_of_signals() {
    let of = |properties: &str, brokers: Option<&str>| {
        plan(&with(&format!("\"topic.prefix\": \"shop\", {properties}")), brokers).unwrap()
    };
    let table = of(r#""signal.data.collection": "public.signals""#, None);
    assert!(table.yaml.contains("    signals:\n      table: \"public.signals\"\n"), "{}", table.yaml);
    let all = r#""signal.enabled.channels": "source, kafka,file,jmx", "signal.data.collection": "public.signals", "signal.file": "s.txt",
        "signal.kafka.bootstrap.servers": "k:1", "signal.kafka.groupId": "g""#;
    let (here, there) = (of(all, Some("k:1")), of(all, Some("k:2")));
    for (plan, brokers) in [(&here, ""), (&there, "      brokers: \"k:1\"\n")] {
        let topic = format!("      topic: \"shop-signal\"\n{brokers}      key: \"shop\"\n      file: \"s.txt\"\n");
        assert!(plan.yaml.contains(&topic), "{}", plan.yaml);
        assert_eq!(plan.refused(), 0);
        assert!(plan.fates.iter().all(|(_, fate)| *fate != Fate::Unknown), "{:?}", plan.fates);
    }
    let other = of(
        r#""signal.enabled.channels": "kafka", "signal.kafka.topic": "t", "signal.data.collection": "public.s""#,
        Some("k:1"),
    );
    assert!(other.yaml.contains("    signals:\n      topic: \"t\"\n      key"), "{}", other.yaml);
    for properties in [
        r#""signal.enabled.channels": "source,mine", "signal.data.collection": "public.s""#,
        r#""signal.enabled.channels": "kafka""#,
        r#""signal.data.collection": "public.s,public.s2""#,
        r#""signal.data.collection": "db.public.s""#,
    ] {
        assert_eq!(of(properties, None).refused(), 1, "{properties}");
    }
    assert!(!of(r#""signal.poll.interval.ms": "1""#, None).yaml.contains("signals"));
}

#[test]
fn topics_that_cant_be_made_so_are_refused_where_there_is_kafka() {
    for (property, value) in
        [("partitions", "0"), ("replication.factor", "x"), ("retention.ms", "-1"), ("cleanup.policy", "compact,delete")]
    {
        let json = with(&format!("\"topic.creation.default.{property}\": \"{value}\""));
        assert_eq!(plan(&json, Some("k:1")).unwrap().refused(), 1, "{property}");
        assert_eq!(plan(&json, None).unwrap().refused(), 0, "{property}");
    }
}

#[test]
fn both_lists_of_schemas_and_tables_hold_at_once() {
    let tables = |properties: &str| plan(&with(properties), None).map(|plan| plan.yaml);
    let yaml = tables(r#""schema.include.list": "a,b""#).unwrap();
    assert!(yaml.contains("- \"a.*\"\n      - \"b.*\"\n"), "{yaml}");
    let yaml = tables(r#""schema.include.list": "a", "table.include.list": "a.x,b.y""#).unwrap();
    assert!(yaml.contains("- \"a.x\"\n") && !yaml.contains("b.y"), "{yaml}");
    assert!(tables(r#""schema.include.list": "c", "table.include.list": "a.x,b.y""#).is_err());
}

#[test]
fn what_is_no_postgresql_connector_is_refused() {
    for json in [
        "",
        "[]",
        "{}",
        r#"{"config": 1}"#,
        r#"{"connector.class": "io.debezium.connector.mysql.MySqlConnector"}"#,
        &with(r#""a": {}"#),
    ] {
        let error = plan(json, None).err().expect("it is refused");
        assert_eq!(error.kind(), tidewire_change::ErrorKind::Invalid, "{json}: {error}");
    }
}

#[test]
fn whatever_the_values_are_they_stay_values() {
    struct Password;
    impl crate::config::Lookup for Password {
        fn variable(&self, name: &str) -> Option<String> {
            (name == "DATABASE_PASSWORD").then(|| "p".to_owned())
        }
        fn file(&self, _: &str) -> std::io::Result<String> {
            panic!("a value of a connector names no file")
        }
    }
    let values = [
        "y",
        "null",
        "~",
        "123",
        "0x1",
        "1e3",
        "a: b",
        "a\nname: other",
        "\"",
        "'",
        "# x",
        "- x",
        "{a}",
        "[",
        "&a",
        "*a",
        "!t",
        "|",
        "${file:/etc/passwd}",
        "${HOME}",
        "$${x}",
        "ü",
        "a b",
        "%41",
        "@",
        "/",
        "",
        "\u{7f}\t",
    ];
    for value in values {
        let json = serde_json::json!({"connector.class": CLASS, "topic.prefix": value, "slot.name": value, "publication.name": value,
            "publication.autocreate.mode": "disabled", "database.user": value, "database.dbname": value,
            "database.password": value, "unavailable.value.placeholder": value, "table.include.list": "public.x"});
        for brokers in [None, Some("k:9092")] {
            let plan = plan(&json.to_string(), brokers).unwrap();
            match crate::config::parse("p.yaml", &plan.yaml, std::path::Path::new("."), &Password) {
                Ok(config) => {
                    assert_eq!(config.postgres().unwrap().slot.as_deref(), Some(value));
                    assert_eq!(config.postgres().unwrap().publication.as_deref(), Some(value));
                    assert_eq!(config.name, pipeline_name(value));
                }
                // A slot or a topic can't be called so, which is told of that key.
                Err(error) => {
                    let said = error.to_string();
                    let keys = ["slot", "publication", "name", "topic_prefix", "properties"];
                    assert!(keys.iter().any(|key| said.contains(key)), "{value:?}: {said}\n{}", plan.yaml);
                }
            }
        }
    }
}

fn unwrapped(options: &str) -> (String, Vec<(String, Fate)>) {
    let json = with(&format!(r#""topic.prefix": "shop", "transforms": "u", "transforms.u.type": "{UNWRAP}"{options}"#));
    let plan = plan(&json, Some("k:1")).unwrap();
    (plan.yaml, plan.fates)
}

#[test]
fn the_transform_that_tells_rows_alone_becomes_a_bus_without_sinks() {
    let (yaml, fates) = unwrapped("");
    assert!(yaml.contains("    format: debezium-json\n    unwrap: {}\n") && !yaml.contains("sinks:"), "{yaml}");
    assert!(fates.iter().all(|(_, fate)| matches!(fate, Fate::Becomes(_))), "{fates:?}");
    let options = r#", "transforms.u.delete.tombstone.handling.mode": "rewrite", "transforms.u.add.fields": "op, source.file,lsn",
        "transforms.u.add.headers": "db", "transforms.u.add.headers.prefix": "x_", "transforms.u.replace.null.with.default": "false",
        "transforms.u.drop.fields.header.name": "none", "transforms.u.route.by.field": """#;
    let (yaml, fates) = unwrapped(options);
    for line in [
        "delete.tombstone.handling.mode: \"rewrite\"",
        "add.fields: \"op,lsn\"",
        "add.headers: \"db\"",
        "add.headers.prefix: \"x_\"",
    ] {
        assert!(yaml.contains(&format!("      {line}\n")), "{line}\n{yaml}");
    }
    assert!(!fates.iter().any(|(_, fate)| matches!(fate, Fate::Refused(_) | Fate::Unknown)), "{fates:?}");
    let told = format!("{:?}", fates.iter().find(|(name, _)| name == "transforms.u.add.fields"));
    assert!(told.contains("no message has source.file"), "{told}");
    let lake = plan(&with(&format!(r#""transforms": "u", "transforms.u.type": "{UNWRAP}""#)), None).unwrap();
    assert!(lake.refused() == 0 && lake.yaml.contains("sinks:"), "{}", lake.yaml);
}

#[test]
fn the_options_of_before_are_translated() {
    for (tombstones, deletes, mode) in [
        (None, Some("rewrite"), "rewrite"),
        (Some("true"), None, "drop"),
        (Some("true"), Some("none"), "tombstone"),
        (Some("false"), Some("rewrite"), "rewrite-with-tombstone"),
        (Some("false"), None, "delete-to-tombstone"),
        (Some("false"), Some("none"), "delete-to-tombstone"),
    ] {
        let of = |name: &str, value: Option<&str>| {
            value.map_or(String::new(), |value| format!(r#", "transforms.u.{name}": "{value}""#))
        };
        let (yaml, _) = unwrapped(&(of("drop.tombstones", tombstones) + &of("delete.handling.mode", deletes)));
        assert!(yaml.contains(&format!("handling.mode: \"{mode}\"\n")), "{mode}\n{yaml}");
    }
}

#[test]
fn other_transforms_and_what_they_are_asked_for_are_refused() {
    let refused = |properties: &str| {
        let plan = plan(&with(properties), Some("k:1")).unwrap();
        plan.fates
            .into_iter()
            .filter(|(_, fate)| matches!(fate, Fate::Refused(_)))
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let unwrap = format!(r#""transforms.u.type": "{UNWRAP}""#);
    let route = r#""transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter""#;
    assert_eq!(refused(&format!(r#""transforms": "r", {route}"#)), ["transforms", "transforms.r.type"]);
    assert_eq!(
        refused(&format!(r#""transforms": "u,r", {unwrap}, {route}"#)),
        ["transforms", "transforms.u.type", "transforms.r.type"]
    );
    for (option, value) in [
        ("predicate", "p"),
        ("route.by.field", "region"),
        ("drop.fields.header.name", "__debezium.oldkey"),
        ("delete.tombstone.handling.mode", "all"),
        ("add.fields", "op,op"),
        ("delete.handling.mode", "all"),
        ("operation.header", "true"),
    ] {
        let name = format!("transforms.u.{option}");
        assert_eq!(refused(&format!(r#""transforms": "u", {unwrap}, "{name}": "{value}""#)), [name]);
    }
    let own = format!(r#""transforms": "u", {unwrap}, "transforms.u.add.headers": "op", "transforms.u.drop.fields"#);
    assert_eq!(refused(&format!(r#"{own}.header.name": "__op""#)), ["transforms.u.drop.fields.header.name"]);
    assert!(refused(&format!(r#"{own}.header.name": "__lsn", "transforms.u.drop.fields.from.key": "true""#)).is_empty());
    let headers =
        r#""transforms.u.add.headers": "op", "header.converter": "org.apache.kafka.connect.json.JsonConverter""#;
    assert_eq!(refused(&format!(r#""transforms": "u", {unwrap}, {headers}"#)), ["header.converter"]);
}
