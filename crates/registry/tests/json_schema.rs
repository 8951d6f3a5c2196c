//! JSON Schema's rules, one test each.

use tidewire_registry::{compare, Budget, Difference, Format, Profile, Schema};

fn schema(text: &str) -> Schema {
    Schema::parse(Format::Json, text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn differences(reader: &str, writer: &str) -> Vec<Difference> {
    compare(&schema(reader), &schema(writer), Profile::Confluent, &mut Budget::default()).unwrap()
}

#[track_caller]
fn reads(reader: &str, writer: &str) {
    assert_eq!(differences(reader, writer), [], "{reader} of {writer}");
}

#[track_caller]
fn fails(reader: &str, writer: &str, expected: &[(&str, &str)]) {
    let found = differences(reader, writer);
    let found: Vec<_> = found.iter().map(|d| (d.rule, d.path.as_str())).collect();
    assert_eq!(found, expected, "{reader} of {writer}");
}

fn object(members: &str) -> String {
    format!(r#"{{"type":"object",{members}}}"#)
}

#[test]
fn a_schema_reads_itself() {
    for text in [
        "true",
        "{}",
        r#"{"type":["string","null"],"maxLength":3}"#,
        r#"{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"],"additionalProperties":false}"#,
        r##"{"type":"object","properties":{"next":{"anyOf":[{"type":"null"},{"$ref":"#"}]}}}"##,
        r#"{"type":"array","items":[{"type":"string"}],"additionalItems":false,"uniqueItems":true}"#,
        r#"{"oneOf":[{"type":"string"},{"type":"number","multipleOf":0.1}],"not":{"const":"x"}}"#,
        r#"{"allOf":[{"type":"object","required":["a"]},{"type":"object","maxProperties":3}]}"#,
        r#"{"if":{"type":"string"},"then":{"minLength":1},"contains":{"type":"null"}}"#,
        r#"{"enum":[1,"a",null,{"b":1}]}"#,
    ] {
        reads(text, text);
    }
}

#[test]
fn types_may_widen_and_not_narrow() {
    reads("{}", r#"{"type":"string"}"#);
    reads("true", r#"{"type":"string"}"#);
    reads(r#"{"type":"string"}"#, "false");
    reads(r#"{"type":"number"}"#, r#"{"type":"integer"}"#);
    reads(r#"{"type":["string","null"]}"#, r#"{"type":"string"}"#);
    fails(r#"{"type":"integer"}"#, r#"{"type":"number"}"#, &[("TYPE_NARROWED", "/type")]);
    fails(r#"{"type":"string"}"#, r#"{"type":["string","null"]}"#, &[("TYPE_NARROWED", "/type")]);
    fails(r#"{"type":"string"}"#, r#"{"type":"boolean"}"#, &[("TYPE_CHANGED", "/type")]);
    fails(r#"{"type":"string"}"#, "{}", &[("TYPE_NARROWED", "")]);
    fails("false", r#"{"type":"string"}"#, &[("TYPE_NARROWED", "")]);
    reads(r#"{"title":"only words"}"#, "{}");
}

#[test]
fn every_bound_may_widen_and_not_narrow() {
    for (of, key, narrow, wide, rule) in [
        ("string", "maxLength", "3", "4", "MAX_LENGTH"),
        ("string", "minLength", "4", "3", "MIN_LENGTH"),
        ("number", "maximum", "3", "3.5", "MAXIMUM"),
        ("number", "minimum", "3.5", "3", "MINIMUM"),
        ("number", "exclusiveMaximum", "3", "4", "EXCLUSIVE_MAXIMUM"),
        ("number", "exclusiveMinimum", "4", "3", "EXCLUSIVE_MINIMUM"),
        ("array", "maxItems", "3", "4", "MAX_ITEMS"),
        ("array", "minItems", "4", "3", "MIN_ITEMS"),
        ("object", "maxProperties", "3", "4", "MAX_PROPERTIES"),
        ("object", "minProperties", "4", "3", "MIN_PROPERTIES"),
    ] {
        let with = |value: &str| format!(r#"{{"type":"{of}","{key}":{value}}}"#);
        let free = format!(r#"{{"type":"{of}"}}"#);
        reads(&with(wide), &with(narrow));
        reads(&free, &with(narrow));
        let path = format!("/{key}");
        let found = differences(&with(narrow), &with(wide));
        assert!(found.len() == 1 && found[0].rule.starts_with(rule) && found[0].path == path, "{found:?}");
        let found = differences(&with(narrow), &free);
        assert!(found.len() == 1 && found[0].rule == format!("{rule}_ADDED") && found[0].path == path, "{found:?}");
    }
    reads(r#"{"type":"string","minLength":0}"#, r#"{"type":"string"}"#);
    let (shut, open) = (r#"{"type":"number","exclusiveMaximum":3}"#, r#"{"type":"number","maximum":3}"#);
    reads(open, shut);
    fails(shut, open, &[("EXCLUSIVE_MAXIMUM_DECREASED", "/exclusiveMaximum")]);
    let draft4 = r#"{"type":"number","maximum":3,"exclusiveMaximum":true}"#;
    reads(draft4, shut);
    fails(draft4, open, &[("EXCLUSIVE_MAXIMUM_DECREASED", "/exclusiveMaximum")]);
}

#[test]
fn multiples_and_patterns() {
    let multiple = |of: &str| format!(r#"{{"type":"integer","multipleOf":{of}}}"#);
    reads(&multiple("5"), &multiple("10"));
    reads(r#"{"type":"number"}"#, &multiple("10"));
    fails(&multiple("10"), &multiple("5"), &[("MULTIPLE_OF_EXPANDED", "/multipleOf")]);
    fails(&multiple("4"), &multiple("10"), &[("MULTIPLE_OF_CHANGED", "/multipleOf")]);
    fails(&multiple("4"), r#"{"type":"integer"}"#, &[("MULTIPLE_OF_ADDED", "/multipleOf")]);
    let pattern = |of: &str| format!(r#"{{"type":"string","pattern":"{of}"}}"#);
    reads(r#"{"type":"string"}"#, &pattern("a"));
    fails(&pattern("a"), r#"{"type":"string"}"#, &[("PATTERN_ADDED", "/pattern")]);
    fails(&pattern("a"), &pattern("b"), &[("PATTERN_CHANGED", "/pattern")]);
}

#[test]
fn listed_values_may_become_more_and_not_fewer() {
    reads(r#"{"enum":["a","b"]}"#, r#"{"enum":["b"]}"#);
    reads(r#"{"enum":["a","b"]}"#, r#"{"const":"b"}"#);
    reads(r#"{"type":"string"}"#, r#"{"enum":["a"]}"#);
    reads(r#"{"type":"string","maxLength":3}"#, r#"{"enum":["abc"]}"#);
    fails(r#"{"type":"string","maxLength":2}"#, r#"{"enum":["abc"]}"#, &[("MAX_LENGTH_ADDED", "/maxLength")]);
    fails(r#"{"enum":["a"]}"#, r#"{"enum":["a","b"]}"#, &[("ENUM_ARRAY_NARROWED", "/enum")]);
    let found = differences(r#"{"type":"string","enum":["a"]}"#, r#"{"type":"string"}"#);
    assert_eq!(found[0].rule, "ENUM_ARRAY_ADDED");
}

#[test]
fn a_property_goes_into_a_closed_model_only_and_out_of_an_open_one_only() {
    let with = object(r#""properties":{"a":{"type":"string"},"b":{"type":"string"}}"#);
    let without = object(r#""properties":{"a":{"type":"string"}}"#);
    let shut = |of: &str| of.replacen('{', r#"{"additionalProperties":false,"#, 1);
    fails(&with, &without, &[("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "/properties/b")]);
    reads(&without, &with);
    reads(&shut(&with), &shut(&without));
    fails(&shut(&without), &shut(&with), &[("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "/properties/b")]);
    reads(&with.replace(r#""b":{"type":"string"}"#, r#""b":{}"#), &without);
    fails(&shut(&without), &without, &[("ADDITIONAL_PROPERTIES_REMOVED", "/additionalProperties")]);
    reads(&without, &shut(&without));
}

#[test]
fn a_partly_open_model_covers_what_it_can_hold() {
    let part = |of: &str, own: &str| {
        object(&format!(r#""properties":{{"a":{{}}{own}}},"additionalProperties":{{"type":"{of}"}}"#))
    };
    let own = |of: &str| format!(r#","b":{{"type":"{of}"}}"#);
    reads(&part("string", &own("string")), &part("string", ""));
    reads(&part("string", ""), &part("string", &own("string")));
    fails(
        &part("string", &own("integer")),
        &part("string", ""),
        &[
            ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "/properties/b"),
            ("TYPE_CHANGED", "/properties/b/type"),
        ],
    );
    fails(
        &part("string", ""),
        &part("string", &own("integer")),
        &[
            ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "/properties/b"),
            ("TYPE_CHANGED", "/properties/b/type"),
        ],
    );
    fails(&part("integer", ""), &part("number", ""), &[("TYPE_NARROWED", "/additionalProperties/type")]);
    fails(
        &part("integer", ""),
        &object(r#""properties":{}"#),
        &[("ADDITIONAL_PROPERTIES_NARROWED", "/additionalProperties")],
    );
    let by_pattern =
        |of: &str| object(&format!(r#""patternProperties":{{"^b":{{"type":"{of}"}}}},"additionalProperties":false"#));
    let named = object(r#""properties":{"bee":{"type":"string"}},"additionalProperties":false"#);
    reads(&by_pattern("string"), &named);
    let found = differences(&by_pattern("integer"), &named);
    assert_eq!(found[0].rule, "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL");
    let unread = object(r#""patternProperties":{"(?<=a)b":{"type":"string"}},"additionalProperties":false"#);
    assert_eq!(differences(&unread, &named)[0].rule, "PATTERN_NOT_UNDERSTOOD");
}

#[test]
fn what_becomes_required_needs_a_default() {
    let of = |required: &str, default: &str| {
        object(&format!(r#""properties":{{"a":{{"type":"string"{default}}}}},"required":[{required}]"#))
    };
    reads(&of("", ""), &of(r#""a""#, ""));
    fails(&of(r#""a""#, ""), &of("", ""), &[("REQUIRED_ATTRIBUTE_ADDED", "/required/a")]);
    reads(&of(r#""a""#, r#","default":"x""#), &of("", ""));
    let shut = object(r#""properties":{},"additionalProperties":false"#);
    let new = object(r#""properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false"#);
    fails(&new, &shut, &[("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", "/required/a")]);
}

#[test]
fn dependencies_and_names_of_properties() {
    let of = |dependency: &str| object(&format!(r#""dependencies":{{"a":{dependency}}}"#));
    reads(&object(r#""title":"x""#), &of(r#"["b"]"#));
    fails(&of(r#"["b"]"#), &object(r#""title":"x""#), &[("DEPENDENCY_ARRAY_ADDED", "/dependencies/a")]);
    fails(&of(r#"["b","c"]"#), &of(r#"["b"]"#), &[("DEPENDENCY_ARRAY_EXTENDED", "/dependencies/a")]);
    fails(&of(r#"{"required":["c"]}"#), &object(r#""title":"x""#), &[("DEPENDENCY_SCHEMA_ADDED", "/dependencies/a")]);
    reads(&of(r#"{"required":["c"]}"#), &of(r#"{"required":["c","d"]}"#));
    let names = object(r#""propertyNames":{"maxLength":3}"#);
    fails(&names, &object(r#""title":"x""#), &[("PROPERTY_NAMES_ADDED", "/propertyNames")]);
    reads(&object(r#""title":"x""#), &names);
}

#[test]
fn items_of_arrays_and_tuples() {
    let list = |of: &str| format!(r#"{{"type":"array","items":{of}}}"#);
    reads(&list(r#"{"type":"number"}"#), &list(r#"{"type":"integer"}"#));
    fails(&list(r#"{"type":"integer"}"#), &list(r#"{"type":"number"}"#), &[("TYPE_NARROWED", "/items/type")]);
    fails(&list(r#"{"type":"integer"}"#), r#"{"type":"array"}"#, &[("ADDITIONAL_ITEMS_NARROWED", "/items")]);
    let tuple = |of: &str, rest: &str| format!(r#"{{"type":"array","items":[{of}],"additionalItems":{rest}}}"#);
    let (one, two) = (r#"{"type":"string"}"#, r#"{"type":"string"},{"type":"integer"}"#);
    reads(&tuple(two, "false"), &tuple(one, "false"));
    fails(&tuple(one, "false"), &tuple(two, "false"), &[("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "/items/1")]);
    reads(&tuple(one, "true"), &tuple(two, "true"));
    fails(&tuple(two, "true"), &tuple(one, "true"), &[("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "/items/1")]);
    fails(&tuple(one, "false"), &tuple(one, "true"), &[("ADDITIONAL_ITEMS_REMOVED", "/additionalItems")]);
    let prefix = r#"{"type":"array","prefixItems":[{"type":"string"}],"items":false}"#;
    reads(prefix, &tuple(one, "false"));
    reads(&tuple(one, "false"), prefix);
    fails(r#"{"type":"array","uniqueItems":true}"#, r#"{"type":"array"}"#, &[("UNIQUE_ITEMS_ADDED", "/uniqueItems")]);
}

#[test]
fn a_choice_may_gain_branches_and_not_lose_them() {
    let of = |key: &str, types: &[&str]| {
        let branches: Vec<_> = types.iter().map(|t| format!(r#"{{"type":"{t}"}}"#)).collect();
        format!(r#"{{"{key}":[{}]}}"#, branches.join(","))
    };
    reads(&of("anyOf", &["string", "integer", "null"]), &of("anyOf", &["integer", "string"]));
    fails(
        &of("oneOf", &["string", "null"]),
        &of("oneOf", &["string", "integer", "null"]),
        &[("SUM_TYPE_NARROWED", "/oneOf")],
    );
    reads(&of("anyOf", &["string", "null"]), &of("oneOf", &["null", "string"]));
    fails(&of("oneOf", &["string", "null"]), &of("anyOf", &["null", "string"]), &[("COMBINED_TYPE_CHANGED", "/oneOf")]);
    // A branch of the writer's that only a branch already given away would take.
    reads(&of("anyOf", &["number", "integer"]), &of("anyOf", &["integer", "number"]));
    let found = differences(&of("anyOf", &["string", "null"]), &of("anyOf", &["string", "integer"]));
    assert_eq!(found[0].rule, "COMBINED_TYPE_SUBSCHEMAS_CHANGED");
    // Between a choice and none.
    reads(&of("anyOf", &["string", "null"]), r#"{"type":"string"}"#);
    reads(&of("anyOf", &["string", "null"]), r#"{"type":["string","null"]}"#);
    reads(r#"{"type":["string","null","integer"]}"#, &of("anyOf", &["string", "null"]));
    reads(&of("anyOf", &["string"]), r#"{"type":"string"}"#);
    fails(&of("anyOf", &["string", "null"]), r#"{"type":"integer"}"#, &[("TYPE_CHANGED", "/anyOf")]);
    fails(r#"{"type":"string"}"#, &of("anyOf", &["string", "null"]), &[("TYPE_CHANGED", "/anyOf/1/type")]);
}

#[test]
fn all_of_must_each_be_kept() {
    let all = |of: &str| format!(r#"{{"allOf":[{of}]}}"#);
    let (a, b) = (r#"{"required":["a"]}"#, r#"{"required":["b"]}"#);
    reads(&all(a), &all(&format!("{b},{a}")));
    fails(&all(&format!("{a},{b}")), &all(a), &[("REQUIRED_ATTRIBUTE_ADDED", "/allOf/1/required/b")]);
    reads(a, &all(&format!("{a},{b}")));
}

#[test]
fn what_is_excluded_may_become_less() {
    let not = |of: &str| format!(r#"{{"not":{{"type":"{of}"}}}}"#);
    reads(&not("integer"), &not("number"));
    fails(&not("number"), &not("integer"), &[("NOT_TYPE_EXTENDED", "/not")]);
    reads(&not("number"), r#"{"type":"string"}"#);
    fails(&not("number"), r#"{"type":["string","number"]}"#, &[("NOT_TYPE_ADDED", "/not")]);
}

#[test]
fn what_cannot_be_judged_must_stay_as_it_is() {
    let of = |then: &str| format!(r#"{{"if":{{"type":"string"}},"then":{{"minLength":{then}}}}}"#);
    fails(&of("2"), &of("1"), &[("KEYWORD_CHANGED", "/then")]);
    reads("{}", &of("1"));
}

#[test]
fn references_are_followed_and_circles_come_to_an_end() {
    let tree = |of: &str| {
        format!(
            r##"{{"$ref":"#/definitions/node","definitions":{{"node":{{"type":"object","properties":{{"a":{{"type":"{of}"}},
            "kids":{{"type":"array","items":{{"$ref":"#/definitions/node"}}}}}}}}}}}}"##
        )
    };
    reads(&tree("number"), &tree("integer"));
    fails(&tree("integer"), &tree("number"), &[("TYPE_NARROWED", "/properties/a/type")]);
    let address = r#"{"$id":"https://example.org/address.json","type":"object","required":["city"]}"#;
    let of = |name: &str| {
        let text = format!(r#"{{"type":"object","properties":{{"home":{{"$ref":"{name}"}}}}}}"#);
        Schema::parse(Format::Json, &text, &[("address.json", address)])
    };
    of("address.json").unwrap();
    of("https://example.org/address.json").unwrap();
    of("address.json#/required/0").unwrap();
    let error = of("other.json").map(|_| ()).unwrap_err();
    assert!(error.message().contains("leads nowhere: other.json"), "{error}");
    schema(r##"{"$ref":"#here","definitions":{"a":{"$anchor":"here","type":"string"}}}"##);
}

#[test]
fn hostile_schemas_end_within_their_bounds() {
    let round = schema(r##"{"$ref":"#"}"##);
    assert!(compare(&round, &round, Profile::Confluent, &mut Budget::default()).is_err());
    // Twice as many parts at every step.
    let doubled: Vec<_> = (0..64)
        .map(|i| format!(r##""d{i}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}}"##, i + 1, i + 1))
        .collect();
    let doubled =
        schema(&format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{},"d64":{{"type":"string"}}}}}}"##, doubled.join(",")));
    let error = compare(&doubled, &doubled, Profile::Confluent, &mut Budget::default()).unwrap_err();
    assert!(error.message().contains("parts"), "{error}");
    let wide = |of: &str| {
        let all: Vec<_> = (0..3000).map(|i| format!(r#"{{"type":"object","required":["{of}{i}"]}}"#)).collect();
        schema(&format!(r#"{{"anyOf":[{}]}}"#, all.join(",")))
    };
    let error = compare(&wide("a"), &wide("b"), Profile::Confluent, &mut Budget::default()).unwrap_err();
    assert!(error.message().contains("steps"), "{error}");
}

#[test]
fn what_is_no_schema_is_refused_with_the_reason() {
    for (text, why) in [
        ("7", "a number"),
        (r#"{"type":"strange"}"#, "`type`"),
        (r#"{"properties":{"a":7}}"#, "in `properties/a`"),
        (r#"{"required":"a"}"#, "`required`"),
        (r#"{"minLength":-1}"#, "`minLength`"),
        (r#"{"multipleOf":0}"#, "above 0"),
        (r#"{"anyOf":[]}"#, "`anyOf`"),
        (r##"{"$ref":"#/definitions/x"}"##, "leads nowhere"),
        (r#"{"items":{"type":7}}"#, "in `items`"),
    ] {
        let told = Schema::parse(Format::Json, text, &[]).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains(why), "{text}: {told}");
    }
}

#[test]
fn karapace_does_not_take_items_without_a_schema() {
    let (with, without) = (r#"{"type":"array","items":{"type":"string"}}"#, r#"{"type":"array"}"#);
    reads(without, with);
    let found = compare(&schema(without), &schema(with), Profile::Karapace, &mut Budget::default()).unwrap();
    assert_eq!((found[0].rule, found[0].path.as_str()), ("SCHEMA_REMOVED", "/items"));
}

#[test]
fn spaces_are_no_part_of_a_schema_and_order_is_none_of_a_normal_one() {
    let (a, b) = (schema(r#"{ "type":"string", "maxLength" : 3 }"#), schema(r#"{"maxLength":3,"type":"string"}"#));
    assert_eq!(a.canonical(), r#"{"type":"string","maxLength":3}"#);
    assert_ne!(a.canonical(), b.canonical());
    assert_eq!(a.normal(), b.normal());
}
