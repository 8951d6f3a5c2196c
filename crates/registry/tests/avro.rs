//! Avro's rules, one test each.

use tidewire_registry::{compare, Budget, Difference, Format, Profile, Schema};

fn schema(text: &str) -> Schema {
    Schema::parse(Format::Avro, text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The differences that keep the reader from reading.
fn differences(reader: &str, writer: &str) -> Vec<Difference> {
    compare(&schema(reader), &schema(writer), Profile::Confluent, &mut Budget::default()).unwrap()
}

#[track_caller]
fn reads(reader: &str, writer: &str) {
    assert_eq!(differences(reader, writer), []);
}

/// Rules and paths, in order.
#[track_caller]
fn fails(reader: &str, writer: &str, expected: &[(&str, &str)]) {
    let found = differences(reader, writer);
    let found: Vec<_> = found.iter().map(|d| (d.rule, d.path.as_str())).collect();
    assert_eq!(found, expected);
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}

fn refused(text: &str) -> String {
    Schema::parse(Format::Avro, text, &[]).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn a_new_field_is_read_from_old_data_only_with_a_default() {
    let old = record(r#"{"name":"a","type":"int"}"#);
    let with = record(r#"{"name":"a","type":"int"},{"name":"b","type":"string","default":""}"#);
    let null = record(r#"{"name":"a","type":"int"},{"name":"b","type":["null","string"],"default":null}"#);
    let without = record(r#"{"name":"a","type":"int"},{"name":"b","type":"string"}"#);
    reads(&with, &old);
    reads(&null, &old);
    fails(&without, &old, &[("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")]);
    reads(&old, &without);
}

#[test]
fn every_difference_is_told_with_its_path() {
    let old = record(
        r#"{"name":"a","type":"string"},{"name":"m","type":{"type":"map","values":"long"}},
           {"name":"l","type":{"type":"array","items":"double"}},{"name":"n","type":{"type":"record","name":"N","fields":[]}}"#,
    );
    let new = record(
        r#"{"name":"a","type":"int"},{"name":"m","type":{"type":"map","values":"int"}},{"name":"b","type":"int"},
           {"name":"l","type":{"type":"array","items":"float"}},
           {"name":"n","type":{"type":"record","name":"N","fields":[{"name":"x","type":"int"}]}}"#,
    );
    fails(
        &new,
        &old,
        &[
            ("TYPE_MISMATCH", "/fields/0/type"),
            ("TYPE_MISMATCH", "/fields/1/type/values"),
            ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/2"),
            ("TYPE_MISMATCH", "/fields/3/type/items"),
            ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/4/type/fields/0"),
        ],
    );
}

#[test]
fn numbers_are_promoted_upwards_and_bytes_and_strings_are_read_as_each_other() {
    let order = ["int", "long", "float", "double"];
    for (r, reader) in order.iter().enumerate() {
        for (w, writer) in order.iter().enumerate() {
            let (reader, writer) = (format!("{reader:?}"), format!("{writer:?}"));
            assert_eq!(differences(&reader, &writer).is_empty(), r >= w, "{reader} of {writer}");
        }
    }
    reads(r#""bytes""#, r#""string""#);
    reads(r#""string""#, r#""bytes""#);
    fails(r#""string""#, r#""int""#, &[("TYPE_MISMATCH", "")]);
    fails(r#""boolean""#, r#""int""#, &[("TYPE_MISMATCH", "")]);
    fails(r#""null""#, r#""int""#, &[("TYPE_MISMATCH", "")]);
}

#[test]
fn logical_types_are_passed_over() {
    reads(r#"{"type":"long","logicalType":"timestamp-micros"}"#, r#"{"type":"int","logicalType":"date"}"#);
    let decimal = |scale| format!(r#"{{"type":"bytes","logicalType":"decimal","precision":9,"scale":{scale}}}"#);
    reads(&decimal(2), &decimal(3));
}

#[test]
fn a_union_is_read_branch_by_branch() {
    reads(r#"["null","string"]"#, r#""string""#);
    reads(r#"["null","string"]"#, r#"["string","null"]"#);
    reads(r#"["null","long"]"#, r#"["null","int"]"#);
    reads(r#""long""#, r#"["int","long"]"#);
    fails(r#""long""#, r#"["int","string"]"#, &[("TYPE_MISMATCH", "/1")]);
    fails(r#"["null","string"]"#, r#"["null","string","int"]"#, &[("MISSING_UNION_BRANCH", "/2")]);
    fails(r#"["null","string"]"#, r#""int""#, &[("MISSING_UNION_BRANCH", "")]);
    fails(r#""string""#, r#"["null","string"]"#, &[("TYPE_MISMATCH", "/0")]);
    reads(r#"["int"]"#, r#"[]"#);
}

#[test]
fn a_branch_that_was_clearly_meant_tells_why_it_does_not_read() {
    let nested = |fields: &str| {
        record(&format!(
            r#"{{"name":"before","type":["null",{{"type":"record","name":"Value","fields":[{fields}]}}]}}"#
        ))
    };
    let old = nested(r#"{"name":"id","type":"int"}"#);
    let new = nested(r#"{"name":"id","type":"int"},{"name":"note","type":"string"}"#);
    fails(
        &new,
        &old,
        &[
            ("MISSING_UNION_BRANCH", "/fields/0/type/1"),
            ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0/type/1/fields/1"),
        ],
    );
}

#[test]
fn fields_and_types_are_found_by_their_aliases() {
    let old = r#"{"type":"record","name":"ns.Old","fields":[{"name":"a","type":"int"}]}"#;
    let new = |aliases: &str, field: &str| {
        format!(
            r#"{{"type":"record","name":"ns.New","aliases":{aliases},"fields":[{{"name":"b","type":"int","aliases":{field}}}]}}"#
        )
    };
    reads(&new(r#"["Old"]"#, r#"["a"]"#), old);
    reads(&new(r#"["ns.Old"]"#, r#"["x","a"]"#), old);
    fails(
        &new(r#"["other.Old"]"#, "[]"),
        old,
        &[("NAME_MISMATCH", "/name"), ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")],
    );
    let two = record(r#"{"name":"a","type":"int"},{"name":"c","type":"int"}"#);
    let both = record(r#"{"name":"b","type":"int","aliases":["a","c"]}"#);
    fails(&both, &two, &[("READER_FIELD_AMBIGUOUS_ALIAS", "/fields/0")]);
}

#[test]
fn another_namespace_is_no_difference_as_for_java() {
    let of = |space: &str| format!(r#"{{"type":"fixed","name":"{space}.F","size":4}}"#);
    reads(&of("a"), &of("b"));
}

#[test]
fn named_types_may_stand_in_another_order() {
    let a = r#"{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}"#;
    let b = r#"{"type":"record","name":"B","fields":[{"name":"x","type":"string"}]}"#;
    let one = record(&format!(r#"{{"name":"p","type":{a}}},{{"name":"q","type":{b}}},{{"name":"r","type":"A"}}"#));
    let two = record(&format!(r#"{{"name":"q","type":{b}}},{{"name":"r","type":{a}}},{{"name":"p","type":"A"}}"#));
    reads(&one, &two);
    reads(&two, &one);
    reads(&format!("[{a},{b}]"), &format!("[{b},{a}]"));
}

#[test]
fn symbols_that_the_reader_lacks_need_its_default() {
    let of = |symbols: &str, default: &str| format!(r#"{{"type":"enum","name":"E","symbols":[{symbols}]{default}}}"#);
    reads(&of(r#""A","B""#, ""), &of(r#""B""#, ""));
    fails(&of(r#""A""#, ""), &of(r#""A","B","C""#, ""), &[("MISSING_ENUM_SYMBOLS", "/symbols")]);
    reads(&of(r#""A""#, r#","default":"A""#), &of(r#""A","B""#, ""));
    let found = differences(&of(r#""A""#, ""), &of(r#""A","B","C""#, ""));
    assert!(found[0].message.contains("B, C"), "{}", found[0]);
}

#[test]
fn sizes_and_names_of_fixed_types_must_be_the_same() {
    let of = |name: &str, size: u8| format!(r#"{{"type":"fixed","name":"{name}","size":{size}}}"#);
    fails(&of("F", 4), &of("F", 5), &[("FIXED_SIZE_MISMATCH", "/size")]);
    fails(&of("F", 4), &of("G", 5), &[("NAME_MISMATCH", "/name"), ("FIXED_SIZE_MISMATCH", "/size")]);
}

#[test]
fn a_type_that_holds_itself_is_compared_to_its_end() {
    let list = |of: &str, more: &str| {
        format!(
            r#"{{"type":"record","name":"List","fields":[{{"name":"v","type":"{of}"}},{{"name":"next","type":["null","List"]}}{more}]}}"#
        )
    };
    reads(&list("long", ""), &list("int", ""));
    fails(&list("int", ""), &list("long", ""), &[("TYPE_MISMATCH", "/fields/0/type")]);
    // What was taken to go together on the way doesn't: its later uses must not be believed.
    let tree = |leaf: &str| {
        record(&format!(
            r#"{{"name":"t","type":[{{"type":"record","name":"A","fields":[{{"name":"b","type":
               {{"type":"record","name":"B","fields":[{{"name":"a","type":["null","A"]}}]}}}},{{"name":"x","type":"{leaf}"}}]}},"null"]}},
               {{"name":"b","type":"B"}}"#
        ))
    };
    let found = differences(&tree("int"), &tree("string"));
    assert!(found.iter().any(|d| d.path.starts_with("/fields/1/type")), "{found:#?}");
}

#[test]
fn hostile_schemas_end_within_their_bounds() {
    // A chain of types, each flat to read and all of them deep to walk.
    let mut chain = r#"{"type":"record","name":"T0","fields":[]}"#.to_string();
    for i in 1..5000 {
        chain += &format!(r#",{{"type":"record","name":"T{i}","fields":[{{"name":"f","type":"T{}"}}]}}"#, i - 1);
    }
    let chain = Schema::parse(Format::Avro, "\"T4999\"", &[("chain", &format!("[{chain}]"))]).unwrap();
    let error = compare(&chain, &chain, Profile::Confluent, &mut Budget::default()).unwrap_err();
    assert!(error.message().contains("deep"), "{error}");
    // A union whose every branch must be tried with every other.
    let branches = |name: char| {
        let all = (0..10_000).map(|i| format!(r#"{{"type":"record","name":"{name}{i}","fields":[]}}"#));
        schema(&format!("[{}]", all.collect::<Vec<_>>().join(",")))
    };
    let error = compare(&branches('a'), &branches('b'), Profile::Confluent, &mut Budget::default()).unwrap_err();
    assert!(error.message().contains("steps"), "{error}");
    assert!(refused(&r#"{"type":"array","items":"#.repeat(20_000)).contains("deep"));
}

#[test]
fn differences_without_number_are_cut_and_it_is_told() {
    let many = |of: &str| {
        record(&(0..3000).map(|i| format!(r#"{{"name":"f{i}","type":"{of}"}}"#)).collect::<Vec<_>>().join(","))
    };
    let found = differences(&many("int"), &many("string"));
    assert_eq!(found.len(), tidewire_registry::MOST_DIFFERENCES + 1);
    assert!(found.last().unwrap().message.contains("more"));
}

#[test]
fn what_is_no_schema_is_refused_with_the_reason() {
    for (text, why) in [
        (r#""nothing""#, "`nothing` isn't known"),
        (r#"{"type":"record","fields":[]}"#, "no `name`"),
        (r#"{"type":"record","name":"1x","fields":[]}"#, "`1x` is no name"),
        (r#"{"type":"record","name":"R"}"#, "`fields` is missing"),
        (r#"{"type":"record","name":"int","fields":[]}"#, "Avro's own"),
        (r#"{"type":"enum","name":"E","symbols":["A","A"]}"#, "stands twice"),
        (r#"{"type":"enum","name":"E","symbols":["A"],"default":"B"}"#, "none of the symbols"),
        (r#"{"type":"fixed","name":"F","size":-1}"#, "no number of bytes"),
        (r#"["int","int"]"#, "twice"),
        (r#"["null",["int"]]"#, "within a union"),
        (r#"{"type":"array"}"#, "`items` is missing"),
        ("{}", "no `type`"),
        ("7", "a number stands there"),
    ] {
        let told = refused(text);
        assert!(told.contains(why), "{text}: {told}");
    }
    let twice = record(r#"{"name":"a","type":"int"},{"name":"a","type":"int"}"#);
    assert!(refused(&twice).contains("stands twice"));
    let again = record(r#"{"name":"a","type":{"type":"fixed","name":"R","size":1}}"#);
    assert!(refused(&again).contains("defined twice"));
}

#[test]
fn a_default_that_is_no_value_of_its_type_is_told() {
    let check = |of: &str, default: &str| {
        let text = record(&format!(r#"{{"name":"a","type":{of},"default":{default}}}"#));
        schema(&text).check_use(&mut Budget::default()).is_ok()
    };
    for (of, default) in [
        ("\"int\"", "1"),
        ("\"long\"", "-9223372036854775808"),
        ("\"double\"", "1"),
        ("\"double\"", "\"NaN\""),
        ("\"bytes\"", "\"\\u00ff\""),
        ("[\"null\",\"int\"]", "null"),
        ("[\"null\",\"int\"]", "1"),
        (r#"{"type":"array","items":"int"}"#, "[1,2]"),
        (r#"{"type":"map","values":"int"}"#, r#"{"a":1}"#),
        (r#"{"type":"record","name":"N","fields":[{"name":"x","type":"int","default":1}]}"#, "{}"),
        (r#"{"type":"enum","name":"E","symbols":["A"]}"#, "\"A\""),
        (r#"{"type":"fixed","name":"F","size":2}"#, "\"ab\""),
    ] {
        assert!(check(of, default), "{of} {default}");
    }
    for (of, default) in [
        ("\"int\"", "2147483648"),
        ("\"int\"", "1.5"),
        ("\"string\"", "null"),
        ("[\"null\",\"int\"]", "\"null\""),
        ("\"bytes\"", "\"ā\""),
        (r#"{"type":"array","items":"int"}"#, "[\"a\"]"),
        (r#"{"type":"record","name":"N","fields":[{"name":"x","type":"int"}]}"#, "{}"),
        (r#"{"type":"enum","name":"E","symbols":["A"]}"#, "\"B\""),
        (r#"{"type":"fixed","name":"F","size":2}"#, "\"abc\""),
    ] {
        assert!(!check(of, default), "{of} {default}");
    }
}

#[test]
fn one_schema_has_one_canonical_text_however_it_is_written() {
    let one = r#"{ "fields": [{"type": {"type":"string"}, "name":"a", "order":"ascending"}], "namespace":"x", "name":"R", "type":"record" }"#;
    let two = r#"{"type":"record","name":"x.R","fields":[{"name":"a","type":"string"}]}"#;
    assert_eq!(schema(one).canonical(), schema(two).canonical());
    assert_eq!(
        schema(one).canonical(),
        r#"{"type":"record","name":"R","namespace":"x","fields":[{"name":"a","type":"string"}]}"#
    );
    // What tells schemas apart stays: texts for people, defaults to the digit, what Avro gives no meaning.
    let base = record(r#"{"name":"a","type":"double","default":1.0}"#);
    for other in [
        record(r#"{"name":"a","type":"double","default":1.00}"#),
        record(r#"{"name":"a","type":"double","default":1.0,"doc":"d"}"#),
        record(r#"{"name":"a","type":"double","default":1.0,"x":1}"#),
        record(r#"{"name":"a","type":{"type":"double","x":1},"default":1.0}"#),
    ] {
        assert_ne!(schema(&base).canonical(), schema(&other).canonical());
    }
    let props = |order: &str| record(&format!(r#"{{"name":"a","type":{{"type":"int",{order}}}}}"#));
    let (ab, ba) = (props(r#""a":1,"b":{"c":1,"d":2}"#), props(r#""b":{"d":2,"c":1},"a":1"#));
    assert_ne!(schema(&ab).canonical(), schema(&ba).canonical());
    assert_eq!(schema(&ab).normal(), schema(&ba).normal());
}

#[test]
fn what_is_printed_reads_as_the_same_schema() {
    let text = r#"{"type":"record","name":"a.R","doc":"d","aliases":["Q"],"p":1,"fields":[
        {"name":"e","type":{"type":"enum","name":"b.E","symbols":["X","Y"],"default":"X"},"default":"Y"},
        {"name":"f","type":["null","b.E",{"type":"fixed","name":"F","size":3}],"order":"descending"},
        {"name":"g","type":{"type":"map","values":{"type":"array","items":"F"}}},
        {"name":"h","type":{"type":"error","name":"Oops","namespace":"","fields":[{"name":"r","type":"a.R"},{"name":"o","type":"Oops"}]}}]}"#;
    let first = schema(text);
    let again = schema(&first.canonical());
    assert_eq!(first.canonical(), again.canonical());
    reads(text, &first.canonical());
    reads(&first.canonical(), text);
}

#[test]
fn types_of_referenced_schemas_are_known_and_not_printed_again() {
    let address = r#"{"type":"record","name":"x.Address","fields":[{"name":"city","type":"string"}]}"#;
    let text = r#"{"type":"record","name":"x.Person","fields":[{"name":"home","type":"Address"}]}"#;
    let person = Schema::parse(Format::Avro, text, &[("Address", address)]).unwrap();
    assert_eq!(
        person.canonical(),
        r#"{"type":"record","name":"Person","namespace":"x","fields":[{"name":"home","type":"Address"}]}"#
    );
    let wide = address.replace("string", "int");
    let other = Schema::parse(Format::Avro, text, &[("Address", &wide)]).unwrap();
    let found = compare(&person, &other, Profile::Confluent, &mut Budget::default()).unwrap();
    assert_eq!((found[0].rule, found[0].path.as_str()), ("TYPE_MISMATCH", "/fields/0/type/fields/0/type"));
}
