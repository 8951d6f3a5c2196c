//! Schemas that refer to others: written by Confluent's serializers, read by a source of topics, and judged by `registry check`.

mod support;

use serde_json::json;
use support::registered::{reader, script};
use support::registry::Registry;
use support::shop::Shop;

#[test]
fn topics_under_schemas_that_refer_to_others_are_read_in_every_form_and_check_judges_them_whole() {
    let registry = Registry::start();
    let shop = Shop::open();
    script("referring_writer.py", &shop, &["other", &registry.url()]);
    let told = "public.in_json: {columns: [id int, name text, level text], key: [id]}";
    let place = reader(&shop, &registry, "other.*", &format!(", tables: {{{told}}}"));
    place.catch_up().is(0);
    for table in ["in_avro", "in_protobuf", "in_json", "\"left\"", "\"right\""] {
        let rows = format!("SELECT id, name, level FROM {table} WHERE NOT _deleted ORDER BY id");
        assert_eq!(shop.server.psql_in("copy", &rows), "1|changed|LOW", "{table}");
        let gone = format!("SELECT id FROM {table} WHERE _deleted");
        assert_eq!(shop.server.psql_in("copy", &gone), "2", "{table}");
    }
    let references = registry.yes("GET", "/subjects/other.public.in_protobuf-value/versions/1", None);
    assert_eq!(references["references"][0]["name"], "shared/parts.proto", "{references}");

    // Another version of a part is another schema of whatever refers to it.
    let check = |file: &str, subject: &str, text: &str, references: &[&str]| {
        let path = registry.folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        let url = registry.url();
        let mut words = vec!["check", "--file", path.to_str().unwrap(), "--subject", subject, "--url", &url];
        references.iter().for_each(|reference| words.extend(["--reference", reference]));
        registry.command(&words)
    };
    let text = |subject: &str| {
        let version = registry.yes("GET", &format!("/subjects/{subject}/versions/1"), None);
        version["schema"].as_str().unwrap().to_string()
    };
    let next = |subject: &str, schema_type: &str, schema: &str, references: serde_json::Value| {
        registry.yes("PUT", &format!("/config/{subject}"), Some(json!({"compatibility": "NONE"})));
        let body = json!({"schema": schema, "schemaType": schema_type, "references": references});
        registry.yes("POST", &format!("/subjects/{subject}/versions"), Some(body));
    };
    let level = json!([{"name": "shared.Level", "subject": "shared.Level", "version": 1}]);
    next("shared.Row", "AVRO", &text("shared.Row").replace("\"int\"", "\"string\""), level);
    let (avro, source) = (text("other.public.in_avro-value"), "shared.Source=shared.Source:1");
    let of = |version: &str| format!("shared.Row=shared.Row:{version}");
    check("e.avsc", "other.public.in_avro-value", &avro, &[&of("1"), source]).is(0);
    check("e.avsc", "other.public.in_avro-value", &avro, &[&of("2"), source]).is(1).says("TYPE_MISMATCH");
    check("e.avsc", "other.public.in_avro-value", &avro, &[source]).is(2).says("shared.Row");
    check("e.avsc", "other.public.in_avro-value", &avro, &[&of("9"), source]).is(2);

    let (parts, envelope) = (text("shared%2Fparts.proto"), text("other.public.in_protobuf-value"));
    next("shared%2Fparts.proto", "PROTOBUF", &parts.replace("int32 id", "string id"), json!([]));
    let of = |version: &str| format!("shared/parts.proto=shared/parts.proto:{version}");
    check("e.proto", "other.public.in_protobuf-value", &envelope, &[&of("1")]).is(0);
    check("e.proto", "other.public.in_protobuf-value", &envelope, &[&of("2")]).is(1).says("FIELD_SCALAR_KIND_CHANGED");

    let (row, whole) = (text("row.json"), text("other.public.in_json-value"));
    next("row.json", "JSON", &row.replace("\"integer\"", "\"boolean\""), json!([]));
    let of = |version: &str| format!("row.json=row.json:{version}");
    check("e.json", "other.public.in_json-value", &whole, &[&of("1")]).is(0);
    check("e.json", "other.public.in_json-value", &whole, &[&of("2")]).is(1).says("TYPE_CHANGED");
}
