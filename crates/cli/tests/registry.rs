//! `tidewire registry` over real HTTP: Confluent's endpoints and codes, over its file and over Kafka's topic.

mod support;

use serde_json::{json, Value};
use support::registry::{record, with_default, Registry};

over_both! {
    subjects_versions_and_ids_answer_as_confluents_registry_does
    a_refused_schema_comes_with_every_difference_and_leaves_nothing_behind
    levels_are_set_for_all_and_for_single_subjects
    deleting_is_soft_first_and_then_for_good
    references_hold_what_they_refer_to
    modes_keep_writers_out_and_let_schemas_in_with_their_ids
    what_no_subject_can_be_called_has_no_settings_either
    ids_and_versions_end_where_clients_and_messages_do
    versions_follow_one_another_unless_they_are_imported
    a_schema_that_leads_back_to_itself_is_refused_and_blocks_nobody
}

fn subjects_versions_and_ids_answer_as_confluents_registry_does(registry: Registry) {
    assert_eq!(registry.yes("GET", "/", None), json!({}));
    assert_eq!(registry.yes("GET", "/subjects", None), json!([]));
    assert_eq!(registry.yes("GET", "/schemas/types", None), json!(["JSON", "PROTOBUF", "AVRO"]));
    let (one, two) = (record(&["a"]), with_default(&["a"], "b"));
    assert_eq!(registry.register("s-value", &one), 1);
    assert_eq!(registry.register("s-value", &two), 2);
    assert_eq!(registry.register("other/subject".replace('/', "%2F").as_str(), &two), 2, "one id for one schema");
    assert_eq!(registry.register("s-value", &one.replace(':', " : ")), 1, "the same schema, written otherwise");
    assert_eq!(registry.yes("GET", "/subjects", None), json!(["other/subject", "s-value"]));
    for prefix in ["s-", ":.:s-", "%3A*%3As-"] {
        assert_eq!(registry.yes("GET", &format!("/subjects?subjectPrefix={prefix}"), None), json!(["s-value"]));
    }
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions", None), json!([1, 2]));
    let found = json!({"subject": "s-value", "version": 1, "id": 1, "schema": one});
    assert_eq!(registry.plain("GET", "/subjects/s-value/versions/1", None), found);
    assert_eq!(registry.plain("POST", "/subjects/s-value", Some(json!({"schema": one}))), found);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/latest", None)["id"], 2);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/-1", None)["id"], 2);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/1/schema", None).to_string(), one);
    assert_eq!(registry.yes("GET", "/subjects/s-value/versions/1/referencedby", None), json!([]));
    assert_eq!(registry.plain("GET", "/schemas/ids/2", None), json!({"schema": two}));
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
    registry.no("GET", "/schemas/guids/9", None, 40403);
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

fn a_refused_schema_comes_with_every_difference_and_leaves_nothing_behind(registry: Registry) {
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

fn levels_are_set_for_all_and_for_single_subjects(registry: Registry) {
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

fn deleting_is_soft_first_and_then_for_good(registry: Registry) {
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

fn references_hold_what_they_refer_to(registry: Registry) {
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

fn modes_keep_writers_out_and_let_schemas_in_with_their_ids(registry: Registry) {
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
    registry.no("PUT", "/config", Some(json!({"compatibility": "NONE"})), 42205);
    registry.no("DELETE", "/config", None, 42205);
    assert_eq!(registry.yes("GET", "/mode/t?defaultToGlobal=true", None), json!({"mode": "READONLY"}));
    registry.yes("PUT", "/mode/t", mode("READWRITE"));
    registry.register("t", "\"long\"");
}

fn what_no_subject_can_be_called_has_no_settings_either(registry: Registry) {
    for name in [":.c:s", ":.c:", "__GLOBAL", "__EMPTY", "a%0Ab"] {
        registry.no("PUT", &format!("/config/{name}"), Some(json!({"compatibility": "NONE"})), 42208);
        registry.no("PUT", &format!("/mode/{name}"), Some(json!({"mode": "READONLY"})), 42208);
        registry.no("POST", &format!("/subjects/{name}/versions"), Some(json!({"schema": "\"int\""})), 42208);
    }
}

fn ids_and_versions_end_where_clients_and_messages_do(registry: Registry) {
    registry.yes("PUT", "/mode/s", Some(json!({"mode": "IMPORT"})));
    let last = |schema: &str, id: u32, version: u32| Some(json!({"schema": schema, "id": id, "version": version}));
    registry.no("POST", "/subjects/s/versions", last("\"int\"", 1 << 31, 1), 422);
    registry.yes("POST", "/subjects/s/versions", last("\"int\"", (1 << 31) - 1, (1 << 31) - 1));
    registry.yes("PUT", "/mode/s", Some(json!({"mode": "READWRITE"})));
    assert_eq!(registry.register("t", "\"int\""), (1 << 31) - 1, "it has its id already");
    let told = registry.no("POST", "/subjects/t/versions", Some(json!({"schema": "\"long\""})), 42205);
    assert!(told.contains("No id is left"), "{told}");
    assert_eq!(registry.yes("GET", "/subjects/t/versions", None), json!([1]));
}

fn versions_follow_one_another_unless_they_are_imported(registry: Registry) {
    let asked = |fields: &[&str], version: u32| Some(json!({"schema": record(fields), "version": version}));
    registry.no("POST", "/subjects/s/versions", asked(&["a"], 5), 42201);
    registry.yes("POST", "/subjects/s/versions", asked(&["a"], 1));
    assert_eq!(registry.yes("POST", "/subjects/s/versions", asked(&["a"], 1))["version"], 1, "it is there");
    registry.yes("PUT", "/config/s", Some(json!({"compatibility": "NONE"})));
    let told = registry.no("POST", "/subjects/s/versions", asked(&["b"], 3), 42201);
    assert!(told.contains("not one more than previous version: 3 was asked for, 1 is the last"), "{told}");
    registry.no("POST", "/subjects/s/versions", asked(&["b"], 1), 42201);
    assert_eq!(registry.yes("POST", "/subjects/s/versions", asked(&["b"], 2))["version"], 2);
}

fn a_schema_that_leads_back_to_itself_is_refused_and_blocks_nobody(registry: Registry) {
    let json = |schema: Value| Some(json!({"schemaType": "JSON", "schema": schema.to_string()}));
    for endless in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"type": "object"}, {"$ref": "#"}]}),
        json!({"anyOf": [{"type": "object"}, {"not": {"$ref": "#"}}]}),
        json!({"properties": {"a": {"$ref": "#/definitions/a"}},
            "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"oneOf": [{"$ref": "#/definitions/a"}, {}]}}}),
    ] {
        let told = registry.no("POST", "/subjects/s/versions", json(endless.clone()), 42201);
        assert!(told.contains("leads back to itself"), "{told}");
        registry.no("POST", "/compatibility/subjects/s/versions", json(endless), 42201);
    }
    let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "all": {"items": {"$ref": "#"}}}});
    registry.yes("POST", "/subjects/s/versions", json(tree.clone()));
    let more = json!({"type": "object", "properties": tree["properties"], "description": "a tree"});
    registry.yes("POST", "/subjects/s/versions", json(more));
}
