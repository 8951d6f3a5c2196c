//! Bytes that are right, made by the code that writes them: the corpus begins with them (`cargo run -p tidewire-fuzz
//! --example valid`).

use super::{debezium_modes, every_type, folder, registered, schema, Lake};
use bytes::BytesMut;
use std::path::Path;
use tidewire_change::{Change, Datum, Op, Position, Row};
use tidewire_envelope::debezium::{Encoder, Origin};
use tidewire_envelope::native;
use tidewire_journal::outside::Journals;
use tidewire_registry::{Format, Schema};

/// For each target by name.
pub fn valid(target: &str) -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    match target {
        "pgoutput" => pgoutput(),
        "copied_row" => texts(&["\u{3}1\t\\N\ta\\tb\\\\\n", "\u{1}plain", "\u{0}"]),
        "checkpoint" => vec![tidewire_postgres::source::outside::some_checkpoint()],
        "native_message" => native_messages(),
        "debezium_message" => debezium_messages(),
        "registered_message" => {
            let (row, partial) = rows_of_every_type();
            registered::messages(&row, &partial)
        }
        "journal_segment" => {
            let folder = folder();
            let (_, bytes) = journal(folder.path());
            vec![[&[0], &bytes[..]].concat(), [&[1], &bytes[..]].concat()]
        }
        "index_run" => {
            let folder = folder();
            let run = Lake::new(folder.path()).and_then(|lake| lake.some_run()).expect("a run can be written");
            vec![[&[0], &run[..]].concat(), [&[1], &run[..]].concat()]
        }
        "deletion_vector" => vec![tidewire_delta::outside::some_vector()],
        "delta_log" => texts(&[COMMIT, OUTSIDE]),
        "configuration" => texts(&[CONFIGURATION, ALIASES]),
        "http_body" => texts(&[
            r#"{"table":{"schema":"s","name":"t"},"what":{"keys":["000178"]},"ahead":true}"#,
            r#"{"table":{"schema":"s","name":"t"},"what":"table"}"#,
            r#"{"table":{"schema":"s","name":"t"},"what":{"where":"id > 5"}}"#,
            r#"{"sink":"lake","table":"s.t","rows":5,"equal":true,"keys":[],"at":7}"#,
        ]),
        "http_answer" => texts(&[
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nnull",
        ]),
        "contract" => contracts(),
        other => panic!("{other} is no target"),
    }
}

fn contracts() -> Vec<Vec<u8>> {
    let texts = [(0, AVRO), (1, JSON_SCHEMA), (2, PROTO)];
    let mut found: Vec<Vec<u8>> = texts.iter().map(|(which, text)| [&[*which], text.as_bytes()].concat()).collect();
    let Ok(Schema::Protobuf(proto)) = Schema::parse(Format::Protobuf, PROTO, &[]) else { panic!("it is a schema") };
    let descriptor = tidewire_registry::protobuf::descriptor(&proto).expect("it can be told");
    found.push([&[3], descriptor.as_slice()].concat());
    found
}

const AVRO: &str = r#"{"type":"record","name":"x.R","aliases":["Q"],"fields":[
  {"name":"e","type":{"type":"enum","name":"E","symbols":["X","Y"],"default":"X"},"default":"Y","aliases":["f"]},
  {"name":"n","type":["null","R",{"type":"fixed","name":"F","size":3}],"default":null},
  {"name":"m","type":{"type":"map","values":{"type":"array","items":{"type":"long","logicalType":"x"}}}}]}"#;
const JSON_SCHEMA: &str = r##"{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]},
  "c":{"type":"array","items":[{"type":"string","pattern":"^a"}],"additionalItems":false}},"required":["a"],
  "patternProperties":{"^x":{"not":{"const":1}}},"additionalProperties":{"type":["integer","null"],"minimum":0},
  "$defs":{"b":{"oneOf":[{"enum":["p",2]},{"type":"number","multipleOf":0.5}]}}}"##;
const PROTO: &str = r#"syntax = "proto3"; package p; import "google/protobuf/timestamp.proto"; option java_package = "j";
message M { reserved 9, 20 to 30; string a = 1 [deprecated = true]; repeated E e = 2; map<string, N> n = 3;
  oneof o { int32 x = 4; google.protobuf.Timestamp t = 5; } optional bool b = 6; message N { M back = 1; } }
enum E { Z = 0; reserved 5; } service S { rpc Get (M) returns (stream M.N); }"#;

pub(super) fn journal(folder: &Path) -> (Journals, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of one thread");
    runtime.block_on(Journals::new(folder)).expect("a journal can be made")
}

fn pgoutput() -> Vec<Vec<u8>> {
    let row = Row::from_datums([Datum::Text(b"1"), Datum::Null, Datum::Unchanged, Datum::Text(b"long text")]);
    let (oid, row) = (7u32.to_be_bytes(), row.encoded().to_vec());
    let column = |name: &[u8]| [&b"\x01"[..], name, b"\0", &oid, &oid].concat();
    vec![
        [&b"I"[..], &oid, b"N", &row].concat(),
        [&b"U"[..], &oid, b"N", &row].concat(),
        [&b"U"[..], &oid, b"O", &row, b"N", &row].concat(),
        [&b"D"[..], &oid, b"K", &row].concat(),
        [&b"T"[..], &2u32.to_be_bytes(), b"\0", &oid, &oid].concat(),
        [&b"R"[..], &oid, b"public\0t\0d", &2u16.to_be_bytes(), &column(b"id"), &column(b"v")].concat(),
        [&b"M\0"[..], &5u64.to_be_bytes(), b"p\0", &2u32.to_be_bytes(), b"xy"].concat(),
        [&b"B"[..], &5u64.to_be_bytes(), &0i64.to_be_bytes(), &oid].concat(),
        [&b"C\0"[..], &5u64.to_be_bytes(), &6u64.to_be_bytes(), &0i64.to_be_bytes()].concat(),
        [&b"Y"[..], &oid, b"s\0n\0"].concat(),
    ]
}

fn native_messages() -> Vec<Vec<u8>> {
    let schema = schema();
    let row = |note| Some(Row::from_datums([Datum::Text(b"1"), note]));
    let change = |op, before, after| {
        let position = Position::new(5, 3);
        let change = Change { schema: schema.clone(), op, position, committed_at: 9, xid: Some(4), before, after };
        let mut out = BytesMut::from(&b"\0"[..]);
        native::encode(&change, schema.id(), &mut out);
        out.to_vec()
    };
    let (_, described) = native::encode_schema(&schema);
    vec![
        change(Op::Create, None, row(Datum::Text(b"some text"))),
        change(Op::Update, row(Datum::Null), row(Datum::Unchanged)),
        change(Op::Delete, row(Datum::Unchanged), None),
        change(Op::Truncate, None, None),
        [&[1], &described[..]].concat(),
    ]
}

/// A row with a value in every column, and one that lacks most.
fn rows_of_every_type() -> (Row, Row) {
    let texts = [
        "1",
        "t",
        "1.5",
        "123.40",
        "123.45",
        "-$1,234.56",
        "a\"b\\é",
        "\\x00ff",
        "1011",
        "2024-02-29",
        "12:34:56.789012",
        "12:34:56+02",
        "2024-02-29 12:34:56.789012",
        "2024-02-29 12:34:56.789012+00",
        "1 day 00:00:01",
        "\"a\"=>\"1\"",
        "(1.5,2)",
        "((0,0),(1,1))",
        "{a,NULL,\"b c\"}",
        "{1,2}",
    ];
    let row = Row::from_datums(texts.iter().map(|text| Datum::Text(text.as_bytes())));
    let partial = Row::from_datums(texts.iter().enumerate().map(|(at, text)| match at {
        0..6 => Datum::Text(text.as_bytes()),
        _ => Datum::Unchanged,
    }));
    (row, partial)
}

/// In each of the modes, and one as a real Debezium wrote it.
fn debezium_messages() -> Vec<Vec<u8>> {
    let (schema, (whole, partial)) = (every_type(), rows_of_every_type());
    let row = || Some(whole.clone());
    let message = |which: u8, op, before, after| {
        let position = Position::new(5, 3);
        let change = Change { schema: schema.clone(), op, position, committed_at: 9, xid: Some(4), before, after };
        let origin = Origin { name: "t", database: "d", version: "0" };
        let mut out = vec![which];
        Encoder::new(&schema, &debezium_modes(which), &origin).value(&change, 0, &mut out);
        out
    };
    let theirs = message(0, Op::Update, None, row());
    let theirs = String::from_utf8(theirs).expect("JSON is UTF-8");
    let theirs = theirs.replace(",\"commit_lsn\":5,\"ordinal\":3", "").into_bytes();
    let mut messages: Vec<_> = (0..45).step_by(4).map(|which| message(which, Op::Create, None, row())).collect();
    messages.push(message(1, Op::Update, row(), Some(partial)));
    messages.push(message(2, Op::Delete, row(), None));
    messages.push(theirs);
    messages
}

const COMMIT: &str = r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":[]}}
{"metaData":{"id":"i","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":[],"configuration":{}}}
{"txn":{"appId":"a","version":3}}
{"domainMetadata":{"domain":"d","configuration":"{}","removed":false}}
{"add":{"path":"p.parquet","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,"deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}}}
{"remove":{"path":"p.parquet","deletionTimestamp":1,"dataChange":true}}
"#;

const OUTSIDE: &str =
    r#"{"add":{"path":"../../etc/passwd","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}"#;

const CONFIGURATION: &str = r#"source: { postgres: { url: "${DATABASE_URL}", tables: [public.orders, "shop.*"] } }
sinks:
  lake:    { delta: { path: ./lake, types: { s.t.c: "decimal(10,2)" } } }
  replica: { postgres: { url: "${REPLICA_URL}", schema: replica } }
data_dir: x
memory: 64MB
journal: { retention: 7d, limit: 1GB }
commit_interval: 500ms
token: "${file:/secret}"
"#;

const ALIASES: &str = "a: &x [*x, *x]\nb: {c: |\n  text\n}";
