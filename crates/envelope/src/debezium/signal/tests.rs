use super::*;

fn read(data: &str) -> Wanted {
    match Meaning::of("execute-snapshot", data).unwrap() {
        Meaning::Read(wanted) => wanted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tables_are_named_by_regular_expressions_that_match_the_whole_name() {
    let wanted = read(r#"{"data-collections": ["public\\.order.*", "shop.items", "odd.a+b"]}"#);
    for (schema, table, is) in [
        ("public", "orders", true),
        ("public", "order_lines", true),
        ("public", "old_orders", false),
        ("shop", "items", true),
        ("shop", "items2", false),
        ("odd", "a+b", true),
    ] {
        assert_eq!(wanted.names.matches(schema, table), is, "{schema}.{table}");
    }
    let there = [("public".to_string(), "orders".to_string())];
    assert_eq!(wanted.names.unmatched(&there), ["shop.items", "odd.a+b"]);
}

#[test]
fn a_condition_is_of_the_table_that_it_names_and_two_of_one_table_are_refused() {
    let wanted = read(
        r#"{"type": "INCREMENTAL", "data-collections": ["s.*"], "surrogate-key": "x",
            "additional-conditions": [{"data-collection": "s.a", "filter": "id > 5"},
                {"data-collection": "s.b|s.c", "filter": "x"}, {"data-collection": "s.c", "filter": "y"}]}"#,
    );
    assert_eq!(wanted.condition("s", "a"), Ok(Some("id > 5".into())));
    assert_eq!(wanted.condition("s", "b"), Ok(Some("x".into())));
    assert!(wanted.condition("s", "c").unwrap_err().contains("two conditions"));
    assert_eq!(wanted.condition("s", "d"), Ok(None));
    assert_eq!(wanted.idle_conditions(&[("s".into(), "b".into())]), ["s.a", "s.c"]);
}

#[test]
fn of_a_blocking_snapshot_s_statement_the_condition_is_taken_and_no_other_statement() {
    let of = |filter: &str| {
        let data = serde_json::json!({"type": "blocking", "data-collections": ["s.a"],
            "additional-conditions": [{"data-collection": "s.a", "filter": filter}]});
        read(&data.to_string()).condition("s", "a")
    };
    assert_eq!(of("SELECT * FROM s.a WHERE id > 5"), Ok(Some("id > 5".into())));
    assert_eq!(of("select *\nfrom \"s\".\"a\" where id IN (SELECT 1);"), Ok(Some("id IN (SELECT 1)".into())));
    assert_eq!(of("selected AND id > 5"), Ok(Some("selected AND id > 5".into())));
    for filter in ["SELECT id FROM s.a WHERE x", "SELECT * FROM s.b WHERE x", "SELECT * FROM s.a"] {
        assert!(of(filter).unwrap_err().contains("condition"), "{filter}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    for (kind, data, told) in [
        ("", "", "no type"),
        ("schema-changes", "{}", "execute-snapshot"),
        ("execute-snapshot", "", "data-collections"),
        ("execute-snapshot", "[]", "no JSON object"),
        ("execute-snapshot", "{", "can't be read"),
        ("execute-snapshot", r#"{"data-collections": []}"#, "empty"),
        ("execute-snapshot", r#"{"data-collections": "s.a"}"#, "list"),
        ("execute-snapshot", r#"{"data-collections": ["s.a("]}"#, "regular expression"),
        ("execute-snapshot", r#"{"data-collections": ["s.a"], "type": "hourly"}"#, "incremental and blocking"),
        ("execute-snapshot", r#"{"data-collections": ["s.a"], "additional-condition": "x"}"#, "additional-condition"),
        (
            "execute-snapshot",
            r#"{"data-collections": ["s.a"], "additional-conditions": [{"data-collection": "s.a"}]}"#,
            "filter",
        ),
        ("stop-snapshot", r#"{"data-collections": [7]}"#, "list"),
        ("pause-snapshot", r#"{"data-collections": ["s.a"]}"#, "data-collections"),
    ] {
        let why = Meaning::of(kind, data).unwrap_err();
        assert!(why.contains(told), "{kind} {data}: {why}");
    }
}

#[test]
fn the_other_types_mean_what_they_mean_to_debezium() {
    assert!(matches!(Meaning::of("stop-snapshot", r#"{"type": "incremental"}"#), Ok(Meaning::Stop(None))));
    let stop = Meaning::of("stop-snapshot", r#"{"type": "incremental", "data-collections": ["s.a"]}"#);
    assert!(matches!(stop, Ok(Meaning::Stop(Some(names))) if names.matches("s", "a")));
    assert!(matches!(Meaning::of("pause-snapshot", r#"{"type": "incremental"}"#), Ok(Meaning::Pause)));
    assert!(matches!(Meaning::of("resume-snapshot", ""), Ok(Meaning::Resume)));
    assert!(matches!(Meaning::of("log", r#"{"message": "hello"}"#), Ok(Meaning::Log(text)) if text == "hello"));
    assert!(matches!(Meaning::of("snapshot-window-open", "{}"), Ok(Meaning::Mark)));
}

#[test]
fn a_signal_in_json_has_a_type_and_data_as_an_object_or_as_text() {
    let one = |json: &str| parts(json.as_bytes(), "t/7");
    assert_eq!(
        one(r#"{"type":"log","data":{"message":"x"}}"#),
        Ok(("t/7".into(), "log".into(), r#"{"message":"x"}"#.into()))
    );
    assert_eq!(one(r#"{"id":"1","type":"log","data":"{}"}"#), Ok(("1".into(), "log".into(), "{}".into())));
    assert_eq!(one(r#"{"id":1,"type":"log"}"#), Ok(("1".into(), "log".into(), String::new())));
    for json in ["", "[]", "{}", r#"{"type":1}"#, r#"{"type":"log","when":"now"}"#] {
        assert!(one(json).is_err(), "{json}");
    }
}
