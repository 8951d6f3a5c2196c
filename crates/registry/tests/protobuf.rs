//! Protobuf's rules, one test each.

use tidewire_registry::{compare, Budget, Difference, Format, Profile, Schema};

fn schema(text: &str) -> Schema {
    Schema::parse(Format::Protobuf, text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn of_profile(reader: &str, writer: &str, profile: Profile) -> Vec<Difference> {
    compare(&schema(reader), &schema(writer), profile, &mut Budget::default()).unwrap()
}

#[track_caller]
fn reads(reader: &str, writer: &str) {
    assert_eq!(of_profile(reader, writer, Profile::Confluent), []);
}

#[track_caller]
fn fails(reader: &str, writer: &str, expected: &[(&str, &str)]) {
    let found = of_profile(reader, writer, Profile::Confluent);
    let found: Vec<_> = found.iter().map(|d| (d.rule, d.path.as_str())).collect();
    assert_eq!(found, expected);
}

/// What keeps Karapace's reader from reading.
fn karapace(reader: &str, writer: &str) -> Vec<&'static str> {
    of_profile(reader, writer, Profile::Karapace).iter().map(|d| d.rule).collect()
}

fn proto3(body: &str) -> String {
    format!("syntax = \"proto3\"; package p; {body}")
}

fn proto2(body: &str) -> String {
    format!("syntax = \"proto2\"; {body}")
}

fn message(fields: &str) -> String {
    proto3(&format!("message M {{ {fields} }}"))
}

#[test]
fn fields_come_go_and_are_renamed() {
    let (one, two) = (message("string a = 1;"), message("string a = 1; int32 b = 2;"));
    reads(&one, &two);
    reads(&two, &one);
    reads(&message("string z = 1;"), &one);
}

#[test]
fn scalars_are_read_as_others_of_their_group_only() {
    let groups: [&[&str]; 7] = [
        &["int32", "int64", "uint32", "uint64", "bool"],
        &["sint32", "sint64"],
        &["fixed32", "sfixed32"],
        &["fixed64", "sfixed64"],
        &["string", "bytes"],
        &["float"],
        &["double"],
    ];
    for (g, of) in groups.iter().enumerate() {
        for (h, other) in groups.iter().enumerate() {
            let (r, w) =
                (message(&format!("{} a = 1;", of[0])), message(&format!("{} a = 1;", other[other.len() - 1])));
            match g == h {
                true => reads(&r, &w),
                false => fails(&r, &w, &[("FIELD_SCALAR_KIND_CHANGED", "/M/1")]),
            }
        }
    }
    reads(&message("int32 a = 1;"), &message("enum E { X = 0; } E a = 1;"));
    let held = message("message N {} N a = 1;");
    fails(&message("message N {} string a = 1;"), &held, &[("FIELD_KIND_CHANGED", "/M/1")]);
    fails(&message("map<string, int32> a = 1;"), &message("int32 a = 1;"), &[("FIELD_KIND_CHANGED", "/M/1")]);
    fails(
        &message("map<string, string> a = 1;"),
        &message("map<string, int32> a = 1;"),
        &[("FIELD_SCALAR_KIND_CHANGED", "/M/1")],
    );
    reads(&message("map<string, int64> a = 1;"), &message("map<string, int32> a = 1;"));
}

#[test]
fn a_message_stays_where_it_was() {
    fails(&proto3("message A {}"), &proto3("message A {} message B {}"), &[("MESSAGE_REMOVED", "/B")]);
    reads(&proto3("message A {} message B {}"), &proto3("message A {}"));
    reads(&proto3("message B {} message A {}"), &proto3("message A {} message B {}"));
    fails(&message(""), &message("message N {}"), &[("MESSAGE_REMOVED", "/M/N")]);
    reads(&message(""), &message("enum E { X = 0; }"));
}

#[test]
fn another_package_is_another_contract() {
    let other = "syntax = \"proto3\"; package q; message M { M next = 1; }";
    fails(other, &message("M next = 1;"), &[("PACKAGE_CHANGED", "/package")]);
    assert_eq!(karapace(other, &message("M next = 1;")), Vec::<&str>::new());
}

#[test]
fn a_field_keeps_the_message_that_it_holds() {
    let of = |name: &str| proto3(&format!("message A {{}} message B {{}} message M {{ {name} f = 1; }}"));
    fails(&of("A"), &of("B"), &[("FIELD_NAMED_TYPE_CHANGED", "/M/1")]);
    reads(&of("A"), &of("p.A"));
    reads(&of(".p.A"), &of("A"));
    let inner = |of: &str| proto3(&format!("message M {{ N f = 1; }} message N {{ {of} x = 1; }}"));
    fails(&inner("string"), &inner("int32"), &[("FIELD_SCALAR_KIND_CHANGED", "/M/1/1")]);
    reads(&message("google.protobuf.Timestamp t = 1;"), &message("google.protobuf.Timestamp t = 1;"));
    fails(
        &message("google.protobuf.Timestamp t = 1;"),
        &message("google.protobuf.Duration t = 1;"),
        &[("FIELD_NAMED_TYPE_CHANGED", "/M/1")],
    );
}

#[test]
fn numbers_keep_their_label_and_texts_may_change_it() {
    fails(&message("repeated int32 a = 1;"), &message("int32 a = 1;"), &[("FIELD_NUMERIC_LABEL_CHANGED", "/M/1")]);
    fails(&message("bool a = 1;"), &message("repeated bool a = 1;"), &[("FIELD_NUMERIC_LABEL_CHANGED", "/M/1")]);
    reads(&message("repeated string a = 1;"), &message("string a = 1;"));
    reads(&message("repeated M a = 1;"), &message("M a = 1;"));
    reads(&message("optional int32 a = 1;"), &message("int32 a = 1;"));
}

#[test]
fn required_fields_stay() {
    let with = proto2("message M { required string a = 1; }");
    let without = proto2("message M { }");
    let optional = proto2("message M { optional string a = 1; }");
    fails(&with, &without, &[("REQUIRED_FIELD_ADDED", "/M/1")]);
    fails(&without, &with, &[("REQUIRED_FIELD_REMOVED", "/M/1")]);
    fails(&with, &optional, &[("REQUIRED_FIELD_ADDED", "/M/1")]);
    reads(&optional, &with);
    assert_eq!(karapace(&with, &without), Vec::<&str>::new());
}

#[test]
fn a_oneof_takes_one_field_in_when_it_is_new_and_gives_none_away() {
    let free = message("string a = 1; string b = 2;");
    let one = message("oneof o { string a = 1; } string b = 2;");
    let both = message("oneof o { string a = 1; string b = 2; }");
    reads(&one, &free);
    fails(&both, &free, &[("MULTIPLE_FIELDS_MOVED_TO_ONEOF", "/M/o")]);
    fails(&both, &one, &[("FIELD_MOVED_TO_EXISTING_ONEOF", "/M/o")]);
    fails(&one, &both, &[("ONEOF_FIELD_REMOVED", "/M/o/2")]);
    reads(&free, &one);
    reads(&message("oneof o { string a = 1; string c = 3; } string b = 2;"), &one);
    assert_eq!(karapace(&both, &free), ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"]);
    assert_eq!(karapace(&both, &one), Vec::<&str>::new());
}

#[test]
fn karapace_wants_a_name_to_keep_its_number() {
    let (one, two) = (message("string a = 1;"), message("string a = 2;"));
    reads(&two, &one);
    assert_eq!(karapace(&two, &one), ["FIELD_TAG_CHANGED"]);
}

#[test]
fn every_difference_is_told_once_with_its_path() {
    let old = proto3("message A { int32 a = 1; B b = 2; } message B { string s = 1; A a = 2; } message C {}");
    let new = proto3("message A { string a = 1; B b = 2; } message B { double s = 1; A a = 2; }");
    fails(
        &new,
        &old,
        &[("FIELD_SCALAR_KIND_CHANGED", "/A/1"), ("FIELD_SCALAR_KIND_CHANGED", "/A/2/1"), ("MESSAGE_REMOVED", "/C")],
    );
}

/// Nearly everything that a file may hold.
const WHOLE: &str = r#"// a comment
syntax = "proto2";
package a.b;
import public "google/protobuf/timestamp.proto"; /* another */
option java_package = "x" 'y';
option (custom).deep.er = { a: 1, b: "c" d { e: [1, 2] } };
message M {
  option deprecated = true;
  reserved 100, 200 to 300, 1000 to max;
  reserved "old", "older";
  extensions 400 to 500 [declaration = { number: 400 }];
  required string a = 1 [default = "x;\"y", deprecated = true];
  repeated .a.b.M.E e = 2 [packed = true];
  optional group Grp = 3 { optional int32 x = 1; }
  map<string, google.protobuf.Timestamp> at = 4;
  oneof choice { option (o) = -1.5e+3; string s = 5; N n = 0x6; }
  message N { optional M outer = 1; enum Inner { I0 = 0; } }
  extend M { optional string ext = 401; }
  enum E { option allow_alias = true; reserved 9; X = 0; Y = -1 [(v) = inf]; Z = 0; }
}
extend M { optional int32 more = 402; }
service S { option deprecated = true; rpc Get (M) returns (stream M.N) { option (http) = { get: "/x" }; } rpc Put (stream M) returns (M); }
"#;

#[test]
fn what_is_printed_reads_as_the_same_schema() {
    let first = schema(WHOLE);
    let printed = first.canonical();
    assert_eq!(schema(&printed).canonical(), printed);
    assert_eq!(schema(&first.normal()).normal(), first.normal());
    reads(WHOLE, &printed);
    for kept in [
        "syntax = \"proto2\";",
        "package a.b;",
        "import public \"google/protobuf/timestamp.proto\";",
        "java_package = \"x\" 'y'",
        "(custom).deep.er = { a : 1 , b : \"c\" d { e : [ 1 , 2 ] } }",
        "reserved 100, 200 to 300, 1000 to max;",
        "reserved \"old\", \"older\";",
        "extensions 400 to 500 [declaration = { number : 400 }];",
        "required string a = 1 [default = \"x;\\\"y\", deprecated = true];",
        "repeated .a.b.M.E e = 2 [packed = true];",
        "optional group Grp = 3 {",
        "map<string, google.protobuf.Timestamp> at = 4;",
        "option (o) = -1.5e+3;",
        "N n = 6;",
        "Y = -1 [(v) = inf];",
        "extend M {",
        "rpc Get (M) returns (stream M.N) {",
        "option (http) = { get : \"/x\" };",
        "rpc Put (stream M) returns (M);",
    ] {
        assert!(printed.contains(kept), "{kept} is lost:\n{printed}");
    }
}

#[test]
fn order_of_fields_is_no_part_of_a_normal_schema() {
    let (a, b) =
        (schema(&message("string a = 1; int32 b = 2;")), schema(&message("int32 b = 2; /* c */ string a = 1;")));
    assert_ne!(a.canonical(), b.canonical());
    assert_eq!(a.normal(), b.normal());
}

#[test]
fn types_come_from_imported_files() {
    let other = "syntax = \"proto3\"; package q; message Address { string city = 1; }";
    let text = "syntax = \"proto3\"; package p; import \"q.proto\"; message M { q.Address home = 1; }";
    let parse = |of: &str| Schema::parse(Format::Protobuf, text, &[("q.proto", of)]).unwrap();
    let changed = other.replace("string city", "int32 city");
    let found = compare(&parse(other), &parse(&changed), Profile::Confluent, &mut Budget::default()).unwrap();
    assert_eq!((found[0].rule, found[0].path.as_str()), ("FIELD_SCALAR_KIND_CHANGED", "/M/1/1"));
    let error = Schema::parse(Format::Protobuf, text, &[]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("\"q.proto\" is imported and not known"), "{error}");
}

#[test]
fn what_is_no_schema_is_refused_with_its_place() {
    for (text, why) in [
        ("message M {", "line 1 column 12"),
        ("message M { string a = 1 }", "`;` is expected"),
        ("message M { string a = 1; string b = 1; }", "stands twice"),
        ("message M { strin a = 1; }", "`strin` isn't known"),
        ("message M { string a = 19500; }", "can't be a field's number"),
        ("message M { string a = 99999999999; }", "32 bits"),
        ("message M {} message M {}", "defined twice"),
        ("message M { map<double, string> a = 1; }", "can't be the key"),
        ("enum E {}", "no values"),
        ("syntax = \"proto4\";", "isn't known"),
        ("/* no end", "no end"),
        ("message M { string a = 1 [default = \"x]; }", "no end"),
        ("{\"type\":\"record\"}", "line 1 column 1"),
        ("message \u{e4} {}", "isn't expected"),
    ] {
        let told = Schema::parse(Format::Protobuf, text, &[]).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains(why), "{text}: {told}");
    }
}

#[test]
fn hostile_schemas_end_within_their_bounds() {
    let deep = "message M {".repeat(20_000);
    let error = Schema::parse(Format::Protobuf, &deep, &[]).map(|_| ()).unwrap_err();
    assert!(error.message().contains("deep"), "{error}");
    let chain: String = (0..5000).map(|i| format!("message T{i} {{ T{} f = 1; }} ", i + 1)).collect();
    let chain = schema(&proto3(&format!("{chain} message T5000 {{}}")));
    let error = compare(&chain, &chain, Profile::Confluent, &mut Budget::default()).unwrap_err();
    assert!(error.message().contains("deep"), "{error}");
    let long = "/".repeat(10 << 20);
    assert!(Schema::parse(Format::Protobuf, &long, &[]).is_err());
}
