use super::*;
use tidewire_envelope::debezium::DecimalMode;

struct Env;
impl Lookup for Env {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "DATABASE_URL" => Some("postgres://u:hunter2@db/shop".into()),
            "REPLICA_URL" => Some("postgres://u:hunter2@db/replica".into()),
            "READERS" => Some("hunter2".into()),
            _ => None,
        }
    }
    fn file(&self, _: &str) -> std::io::Result<String> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

fn read(text: &str) -> Result<Config> {
    parse("p.yaml", text, Path::new("/etc/tw"), &Env)
}

fn refusal(text: &str) -> String {
    let error = read(text).expect_err("it must be refused");
    assert_eq!(error.kind(), tidewire_change::ErrorKind::Invalid);
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("hunter2"), "a secret is shown: {shown}");
    error.to_string()
}

const USUAL: &str = r#"source: { postgres: { url: "${DATABASE_URL}", tables: [public.orders, "shop.*"] } }
sinks:
  lake:    { delta: { path: ./lake } }
  replica: { postgres: { url: "${REPLICA_URL}", schema: replica } }
"#;

#[test]
fn the_usual_file_is_read_with_its_defaults() {
    let config = read(USUAL).unwrap();
    let source = config.postgres().unwrap();
    assert_eq!(source.url.reveal(), "postgres://u:hunter2@db/shop");
    assert_eq!(source.tables, ["public.orders", "shop.*"]);
    assert_eq!((config.name.as_str(), source.slot.as_ref(), source.readers), ("main", None, 2));
    assert_eq!(source.heartbeat, Duration::from_secs(10));
    assert_eq!(config.data_dir, Path::new("/etc/tw/tidewire-data"));
    assert_eq!(config.memory, Memory { capture_bytes: 32_000_000, sink_bytes: 48_000_000 });
    assert!(config.http.ip().is_loopback());
    assert_eq!(config.sinks.len(), 2);
    let keep_deleted = Duration::from_secs(7 * 24 * 3600);
    let (path, tables) = (Lake::Folder("/etc/tw/./lake".into()), Default::default());
    assert_eq!(config.sinks[0].kind, SinkKind::Delta { path, tables, keep_deleted, buckets: 1, parts: 1 });
    assert!(!format!("{config:?}").contains("hunter2"), "Debug hides secrets");
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_the_nearest_known_one() {
    let text = "source:\n  postgres:\n    url: x\n    tabels: [a.b]\nsinks: {l: {delta: {path: x}}}\n";
    assert_eq!(refusal(text), "p.yaml:4:5: unknown key `tabels` in `source.postgres`, did you mean `tables`?");
    let text = "source:\n  mysql: {}\nsinks: {}\n";
    assert_eq!(refusal(text), "p.yaml:2:3: unknown key `mysql` in `source`; known here: `postgres`, `debezium`");
    assert!(refusal(&format!("{USUAL}zzz: 1\n")).starts_with("p.yaml:5:1: unknown key `zzz`; known here: `source`"));
}

#[test]
fn a_columns_type_is_checked_where_it_stands() {
    let with = |line: &str| {
        format!(
            "source: {{postgres: {{url: x}}}}\nsinks:\n  l:\n    delta:\n      path: x\n      types:\n        {line}\n"
        )
    };
    let SinkKind::Delta { tables, .. } = &read(&with("shop.orders.note: decimal(10,2)")).unwrap().sinks[0].kind else {
        panic!()
    };
    assert_eq!(tables.types["shop.orders.note"], "decimal(10,2)");
    let message = refusal(&with("shop.orders.note: timestmp"));
    assert!(
        message.starts_with("p.yaml:7:9: `sinks.l.delta.types.shop.orders.note` must be text, boolean,"),
        "{message}"
    );
    assert!(message.ends_with("not `timestmp`, did you mean `timestamp`?"), "{message}");
    assert!(refusal(&with("orders.note: text")).contains("is a type of no column: it must be schema.table.column"));
    assert_eq!(refusal(&with("a.b.c: 5")), "p.yaml:7:16: `sinks.l.delta.types.a.b.c` must be text");
}

#[test]
fn columns_and_tables_of_a_lake_are_checked_where_they_stand() {
    let with = |lines: &str| {
        format!("source: {{postgres: {{url: x}}}}\nsinks:\n  l:\n    delta:\n      path: x\n      {lines}\n")
    };
    let text = with("partition_by: {shop.orders: \"day, region\"}\n      change_data_feed: [shop.orders, \"*\"]");
    let SinkKind::Delta { tables, .. } = &read(&text).unwrap().sinks[0].kind else { panic!() };
    assert_eq!(tables.partition_by["shop.orders"], "day, region");
    assert_eq!(tables.change_data_feed, ["shop.orders", "*"]);
    let message = refusal(&with("sort_by: {orders: day}"));
    assert!(message.contains("`sinks.l.delta.sort_by.orders` belongs to no table"), "{message}");
    let message = refusal(&with("column_mapping: [orders]"));
    assert!(message.contains("`sinks.l.delta.column_mapping` holds `orders`: must be schema.table"), "{message}");
    let message = refusal(&with("change_data_feed: [orders]"));
    assert!(message.contains("`sinks.l.delta.change_data_feed` holds `orders`: must be schema.table"), "{message}");
}

#[test]
fn a_missing_variable_is_named_with_its_line() {
    let text = USUAL.replace("REPLICA_URL", "NOT_THERE");
    assert!(
        refusal(&text).starts_with("p.yaml:4:31: the environment variable NOT_THERE is not set"),
        "{}",
        refusal(&text)
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_where_it_stands() {
    let with = |line: &str| refusal(&format!("{USUAL}{line}\n"));
    assert_eq!(with("memory: lots"), "p.yaml:5:9: `memory` must be a size such as 128MB, not `lots`");
    assert_eq!(with("memory: 1MB"), "p.yaml:5:9: `memory` must be at least 16MB, not `1MB`");
    assert_eq!(with("data_dir: 5"), "p.yaml:5:11: `data_dir` must be text, not 5 — put it in quotes");
    assert_eq!(with("log: xml"), "p.yaml:5:6: `log` must be one of text, json, not `xml`");
    assert!(with("http: 0.0.0.0:80").contains("`token` must be set"));
    assert!(with("name: Shop").contains("must be at most 50 characters"));
    assert!(with("commit_interval: 5").contains("must be a duration with its unit"));
    assert!(with("source: {}").contains("duplicate"), "{}", with("source: {}"));
    let text = USUAL.replace("tables: [", "readers: \"${READERS}\", tables: [");
    assert_eq!(refusal(&text), "p.yaml:1:56: `source.postgres.readers` must be a whole number from 1 to 32");
    assert!(refusal("source: [\n").starts_with("p.yaml:"), "broken YAML has a place");
    assert_eq!(refusal("name: a\nname: b\n"), "p.yaml:2:1: duplicate mapping key: name");
}

#[test]
fn what_is_missing_is_named() {
    assert!(refusal("sinks: {}\n").contains("`source` is missing"));
    assert!(refusal("source: {postgres: {tables: [a.b]}}\nsinks: {}\n").contains("`source.postgres.url` is missing"));
    assert!(refusal("source: {postgres: {url: x, tables: [a.b]}}\nsinks: {}\n").contains("`sinks` names no sink"));
    assert!(refusal("source: {postgres: {url: x, tables: []}}\nsinks: {}\n").contains("names no table"));
    assert!(refusal("").contains("the file is empty"));
}

#[test]
fn two_sinks_at_one_place_are_refused() {
    let text = USUAL.replace(
        "  replica: { postgres: { url: \"${REPLICA_URL}\", schema: replica } }",
        "  b: {delta: {path: lake/}}",
    );
    assert_eq!(refusal(&text), "p.yaml:4:21: `sinks.b.delta.path` is the place of the sink `lake`, too");
    let around = text.replace("lake/}", "x/../lake}");
    assert!(refusal(&around).contains("is the place of the sink `lake`"), "{}", refusal(&around));
}

#[test]
fn kafka_takes_the_journals_place_and_its_faults_are_named() {
    let with = |kafka: &str| format!("{USUAL}bus: {{kafka: {kafka}}}\n");
    let Bus::Kafka(kafka) = read(&with("{brokers: 'k1:9092,k2:9092'}")).unwrap().bus else { panic!("it is Kafka") };
    assert_eq!((kafka.topic_prefix.as_str(), kafka.partitions, kafka.replication), ("main", 4, None));
    assert_eq!((kafka.max_message, kafka.cleanup.as_str(), kafka.tls, kafka.sasl), (16_000_000, "auto", None, None));
    let secure = with("{brokers: 'k:1', tls: {ca: ca.pem}, sasl: {user: u, password: '${READERS}'}}");
    let config = read(&secure).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "Debug hides secrets");
    let Bus::Kafka(kafka) = config.bus else { panic!("it is Kafka") };
    assert_eq!(kafka.sasl.unwrap().mechanism, "SCRAM-SHA-512");
    assert_eq!(kafka.tls.unwrap().authority, Some("/etc/tw/ca.pem".into()));

    let json = with(
        "{brokers: 'k:1', format: debezium-json, properties: {decimal.handling.mode: string, tombstones.on.delete: false}}",
    );
    let Bus::Kafka(kafka) = read(&json).unwrap().bus else { panic!("it is Kafka") };
    let form = kafka.debezium.unwrap();
    assert!(form.modes.decimal == DecimalMode::Text && !form.modes.tombstones && form.registry.is_none());
    let properties =
        |given: &str| refusal(&with(&format!("{{brokers: 'k:1', format: debezium-json, properties: {given}}}")));
    assert!(properties("{decimal.mode: string}").contains("is no property of the format"));
    assert!(properties("{decimal.handling.mode: exact}").contains("precise, string, double"));
    assert!(refusal(&with("{brokers: 'k:1', properties: {tombstones.on.delete: true}}"))
        .contains("only for Debezium's formats"));
    let avro = |more: &str| with(&format!("{{brokers: 'k:1', format: debezium-avro{more}}}"));
    let secret = "registry: {url: 'http://r:8081/base', user: u, password: '${READERS}', naming: record, level: keep}";
    let config = read(&avro(&format!(", {secret}"))).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "Debug hides secrets");
    let Bus::Kafka(kafka) = config.bus else { panic!("it is Kafka") };
    let registry = kafka.debezium.unwrap().registry.unwrap();
    assert_eq!((registry.naming.as_str(), registry.auto_register, registry.level), ("record", true, None));
    let inside = |given: &str| {
        let Bus::Kafka(kafka) = read(&avro(given)).unwrap().bus else { panic!("it is Kafka") };
        let registry = kafka.debezium.unwrap().registry.unwrap();
        (registry.inside.unwrap().to_string(), registry.address.url, registry.level.unwrap())
    };
    let [listen, url, level] = ["127.0.0.1:8081", "http://127.0.0.1:8081", "BACKWARD_TRANSITIVE"].map(str::to_string);
    assert_eq!(inside(""), (listen, url, level));
    assert_eq!(inside(", registry: {listen: '0.0.0.0:80', user: u, password: w}").0, "0.0.0.0:80");
    assert!(refusal(&avro(", registry: {listen: '0.0.0.0:80'}")).contains("so `user` and `password` must be set"));
    assert!(refusal(&avro(", registry: {listen: here}")).contains("must be an address and a port"));
    assert!(refusal(&avro(", registry: {url: 'http://r', listen: '127.0.0.1:1'}")).contains("names one elsewhere"));
    let in_protobuf = with("{brokers: 'k:1', format: debezium-protobuf, registry: {url: 'https://r'}}");
    let Bus::Kafka(kafka) = read(&in_protobuf).unwrap().bus else { panic!("it is Kafka") };
    assert!(kafka.debezium.unwrap().in_protobuf);
    assert!(refusal(&avro(", registry: {url: 'http://r', ca: a.pem}")).contains("is for an address with https://"));
    assert!(refusal(&avro(", registry: {url: 'http://r', user: u}"))
        .contains("`bus.kafka.registry.password` is needed, too"));
    assert!(refusal(&avro(", registry: {url: 'http://r'}, properties: {key.converter.schemas.enable: true}"))
        .contains("is JSON's"));
    assert!(
        refusal(&with("{brokers: 'k:1', registry: {url: 'http://r'}}")).contains("only for `format: debezium-avro`")
    );

    assert!(refusal(&with("{}")).contains("`bus.kafka.brokers` is missing"));
    assert!(refusal(&with("{brokers: k1}")).contains("p.yaml:5:24: `bus.kafka.brokers` must be addresses"));
    assert!(refusal(&with("{brokers: 'k:1', partition: 3}")).contains("did you mean `partitions`?"));
    assert!(refusal(&with("{brokers: 'k:1', topic_prefix: 'a b'}")).contains("`bus.kafka.topic_prefix` must be"));
    assert!(refusal(&with("{brokers: 'k:1', cleanup: compacted}")).contains("auto, compact, delete"));
    assert!(refusal(&with("{brokers: 'k:1', max_message: 10kB}")).contains("between 1MB and 500MB"));
    assert!(refusal(&with("{brokers: 'k:1', tls: {cert: a.pem}}")).contains("`bus.kafka.tls.key` is needed, too"));
    assert!(refusal(&with("{brokers: 'k:1', sasl: {user: u}}")).contains("`bus.kafka.sasl.password` is missing"));
    assert!(refusal(&format!("{}journal: {{retention: 1d}}\n", with("{brokers: 'k:1'}")))
        .contains("takes the journal's place"));
}

#[test]
fn parts_of_a_lake_need_processes_that_own_them_and_buckets_that_they_divide() {
    let with = |lake: &str, bus: &str| USUAL.replace("path: ./lake", &format!("path: ./lake, {lake}")) + bus;
    let group = "bus: {kafka: {brokers: 'k:1', group: {session_timeout: 6s}}}\n";
    let config = read(&with("buckets: 8, parts: 4", group)).unwrap();
    assert!(matches!(config.sinks[0].kind, SinkKind::Delta { buckets: 8, parts: 4, .. }), "{config:?}");
    let undivided = refusal(&with("buckets: 8, parts: 3", group));
    assert!(undivided.contains("`sinks.lake.delta.parts` must divide `buckets`, which is 8"), "{undivided}");
    assert!(refusal(&with("parts: 2", group)).contains("must divide `buckets`, which is 1"));
    for bus in ["bus: {kafka: {brokers: 'k:1'}}\n", ""] {
        let alone = refusal(&with("buckets: 8, parts: 4", bus));
        assert!(alone.contains("`sinks` says `parts` in `lake`, which needs `bus.kafka.group`"), "{alone}");
    }
    assert!(refusal(&with("parts: 0", group)).contains("`sinks.lake.delta.parts` must be"));
    let of_rows = USUAL.replace("schema: replica", "schema: replica, parts: 2") + group;
    assert!(refusal(&of_rows).contains("unknown key `parts` in `sinks.replica.postgres`"));
}

#[test]
fn a_lake_in_a_bucket_is_read_and_half_of_its_settings_is_refused() {
    let with = |lake: &str| {
        USUAL
            .replace("path: ./lake", lake)
            .replace("  replica: { postgres: { url: \"${REPLICA_URL}\", schema: replica } }\n", "")
    };
    let whole = with("path: s3://b/lake, endpoint: \"https://s3:9000\", region: eu, access_key_id: id, secret_access_key: \"${READERS}\"");
    let config = read(&whole).unwrap();
    let SinkKind::Delta { path: Lake::Bucket(bucket), .. } = &config.sinks[0].kind else { panic!("{config:?}") };
    assert_eq!((bucket.url.as_str(), bucket.region.as_deref()), ("s3://b/lake", Some("eu")));
    assert_eq!(bucket.keys.as_ref().unwrap().1.reveal(), "hunter2");
    assert!(!format!("{config:?}").contains("hunter2"), "Debug hides secrets");
    let (google, azure) = (
        with("path: gs://b, service_account: k.json"),
        with("path: \"abfss://c@a.dfs.core.windows.net/x\", account_key: \"${READERS}\""),
    );
    let bucket_of = |text: &str| match &read(text).unwrap().sinks[0].kind {
        SinkKind::Delta { path: Lake::Bucket(bucket), .. } => bucket.clone(),
        kind => panic!("{kind:?}"),
    };
    assert_eq!(bucket_of(&google).service_account, Some("/etc/tw/k.json".into()));
    assert_eq!(bucket_of(&azure).account_key.unwrap().reveal(), "hunter2");
    let refusals = [
        ("path: ftp://b/lake", "must be a folder, s3://bucket/prefix"),
        ("path: \"s3://b/../lake\"", "must be a folder, s3://bucket/prefix"),
        ("path: \"abfss://c@a.example/x\"", "must be a folder, s3://bucket/prefix"),
        ("path: lake, region: eu", "is only for a `path` that begins with s3://"),
        ("path: gs://b, region: eu", "is only for a `path` that begins with s3://"),
        ("path: s3://b, account_key: x", "is only for a `path` that begins with abfss://"),
        ("path: s3://b, service_account: x", "is only for a `path` that begins with gs://"),
        ("path: s3://b, endpoint: \"s3:9000\"", "must begin with https:// or http://"),
        ("path: s3://b, secret_access_key: \"${READERS}\"", "needs `access_key_id`, too"),
    ];
    for (lake, what) in refusals {
        assert!(refusal(&with(lake)).contains(what), "{}", refusal(&with(lake)));
    }
}

#[test]
fn topics_are_a_source_and_say_what_their_tables_look_like() {
    let text = "source:\n  debezium:\n    brokers: k:9092\n    topics: [\"shop.*\"]\n    properties: { decimal.handling.mode: string }\n    tables:\n      \
                public.orders: { columns: [id int, '\"a b\" numeric(10,2)'], key: [id] }\nsinks: { l: { delta: { path: x } } }\n";
    let config = read(text).unwrap();
    let SourceConfig::Debezium(source) = &config.source else { panic!("it is another source") };
    assert_eq!((source.modes.decimal, source.unwrapped, source.replaces), (DecimalMode::Text, false, false));
    let schema = &source.tables[0];
    let columns: Vec<_> = schema.columns.iter().map(|column| (column.name.as_str(), column.ty.name.as_str())).collect();
    assert_eq!(columns, [("id", "integer"), ("a b", "numeric(10,2)")]);
    assert_eq!(schema.key_columns(), [0]);
    assert!(config.postgres().is_err());
    for (from, to, what) in [
        ("id int", "id order_state", "`order_state` is no type"),
        ("key: [id]", "key: [nope]", "has no column `nope`"),
        ("\"shop.*\"", "\"shop/*\"", "names are of A-Z"),
        ("string }", "strong }", "`strong` is no value"),
        ("[id int, '\"a b\" numeric(10,2)'], key: [id]", "[id int, id int]", "twice"),
        ("public.orders", "orders", "names no schema"),
    ] {
        let refused = refusal(&text.replace(from, to));
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn signals_say_by_which_ways_they_come_and_where_a_topic_is() {
    let of = |signals: &str, more: &str| {
        format!("source:\n  postgres:\n    url: x\n    signals: {{ {signals} }}\nsinks: {{ l: {{ delta: {{ path: x }} }} }}\n{more}")
    };
    let kafka = "bus: { kafka: { brokers: \"k:1\" } }\n";
    let config = read(&of("table: public.s, topic: shop-signal, key: shop, file: ./signals.txt", kafka)).unwrap();
    let signals = config.postgres().unwrap().signals.clone().unwrap();
    assert_eq!(signals.table.map(|table| table.to_string()), Some("public.s".to_string()));
    let topic = SignalTopic { name: "shop-signal".into(), brokers: None, key: Some("shop".into()) };
    assert_eq!((signals.topic, signals.file), (Some(topic), Some("/etc/tw/signals.txt".into())));
    for (signals, told) in [
        ("tabel: public.s", "p.yaml:4:16: unknown key `tabel` in `source.postgres.signals`, did you mean `table`?"),
        ("table: \"public.*\"", "`source.postgres.signals.table` must be one table"),
        ("topic: \"a b\", brokers: \"k:1\"", "`source.postgres.signals.topic` must be the name of a topic"),
        ("table: a.b, key: x", "`source.postgres.signals.key` says nothing without `topic`"),
        ("topic: t, brokers: nowhere", "`source.postgres.signals.brokers` must be addresses"),
        ("topic: t", "`brokers`"),
        ("", "`source.postgres.signals.table` or `topic` or `file` is needed"),
    ] {
        let refused = refusal(&of(signals, ""));
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn a_bus_of_rows_alone_has_no_sinks_and_any_other_has() {
    let of = |kafka: &str, more: &str| {
        format!("source: {{ postgres: {{ url: x }} }}\nbus: {{ kafka: {{ brokers: \"k:1\", {kafka} }} }}\n{more}")
    };
    let sinks = "sinks: { l: { delta: { path: x } } }\n";
    let options = "format: debezium-json, unwrap: { delete.tombstone.handling.mode: rewrite, add.fields: \"op,lsn\" }";
    let config = read(&of(options, "")).unwrap();
    let Bus::Kafka(kafka) = &config.bus else { panic!("it is another bus") };
    let unwrap = kafka.debezium.as_ref().and_then(|of| of.unwrap.as_ref()).unwrap();
    assert!(config.has_sinks().is_err() && unwrap.deletes.are_rows() && unwrap.fields.len() == 2);
    assert!(read(&of("format: debezium-json, unwrap: {}", "")).unwrap().sinks.is_empty());
    for (kafka, more, told) in [
        (options, sinks, "p.yaml:3:8: `sinks` can't be filled from rows alone (`bus.kafka.unwrap`)"),
        ("format: debezium-json", "", "p.yaml:1:1: `sinks` is missing"),
        ("unwrap: {}", "", "`bus.kafka.unwrap` is only for Debezium's formats (`format`)"),
        ("format: debezium-json, unwrap: { add.fields: nothing }", "", "`nothing`, which no message has"),
        ("format: debezium-json, unwrap: { route.by.field: x }", "", "`route.by.field` isn't followed"),
    ] {
        let refused = refusal(&of(kafka, more));
        assert!(refused.contains(told), "{refused}");
    }
}
