//! Values survive exactly.

use crate::bench::*;
use tidewire_change::{Datum, ErrorKind, Key, Position, Row};
use tidewire_connector::Sink;

/// Type, and texts as PostgreSQL prints them under the pinned settings.
const EDGES: &[(&str, &[&str])] = &[
    ("boolean", &["t", "f"]),
    ("smallint", &["-32768", "32767"]),
    ("integer", &["-2147483648", "2147483647"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807"]),
    ("real", &["3.4028235e+38", "1e-45", "-0", "NaN", "-Infinity", "1.6777216e+07"]),
    ("double precision", &["5e-324", "1.7976931348623157e+308", "-0", "NaN", "Infinity", "-216237.0000003597"]),
    (
        "numeric",
        &[
            "NaN",
            "Infinity",
            "-Infinity",
            "1.00",
            "-123456789012345678901234567890123456789012345678901234567890.000000000000000000001",
            "0.000000000000000000000000000000069388939039072280",
        ],
    ),
    ("numeric(12,2)", &["NaN", "-0.01"]),
    ("numeric(60,4)", &["99999999999999999999999999999999999999999999999999999999.9999"]),
    ("numeric(6,-2)", &["1300"]),
    ("numeric(3,5)", &["-0.00001"]),
    (
        "text",
        &[
            "",
            "NULL",
            "\\N",
            "\\\\N",
            "line\r\nbreak\ttab",
            "\u{1}\u{8}\u{b}\u{c}\u{7f}",
            "e\u{301} vs é",
            "😀",
            "\u{feff}bom",
            "a\\",
            "   ",
        ],
    ),
    ("character varying(8)", &["trail  ", "   "]),
    ("character(6)", &["AB    ", "      "]),
    ("\"char\"", &["x", "", "\\303"]),
    ("name", &["plain", ""]),
    ("bytea", &["\\x", "\\x00ff5c0a"]),
    ("date", &["4713-01-01 BC", "5874897-12-31", "infinity", "-infinity", "1582-10-04"]),
    ("time without time zone", &["00:00:00", "24:00:00", "23:59:59.999999"]),
    ("time with time zone", &["24:00:00-15:59:59", "00:00:00+15:59"]),
    ("timestamp without time zone", &["4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999", "infinity"]),
    ("timestamp with time zone", &["0001-12-31 23:40:28+00 BC", "15000-12-31 23:40:28+00", "-infinity"]),
    ("interval", &["-1 years -2 mons +3 days -04:05:06.000007", "00:00:00", "178000000 years"]),
    ("interval year to month", &["1 year 2 mons"]),
    ("uuid", &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    (
        "json",
        &[
            "{\"a\": 1,   \"a\": 2}",
            "{\"nul\": \"\\u0000\", \"pair\": \"\\ud83d\\ude00\"}",
            "null",
            " [ 1 , 2 ] ",
            "\"\"",
        ],
    ),
    ("jsonb", &["null", "\"null\"", "\"\"", "{\"a\": \"\\\\n\"}"]),
    ("xml", &["<i a=\"1\">x</i>", "plain content", ""]),
    ("inet", &["10.0.0.1", "10.0.0.1/24", "::ffff:1.2.3.4"]),
    ("cidr", &["10.0.0.0/8", "::/0"]),
    ("macaddr", &["08:00:2b:01:02:03"]),
    ("macaddr8", &["08:00:2b:01:02:03:04:05"]),
    ("money", &["$92,233,720,368,547,758.07", "-$0.01"]),
    ("oid", &["4294967295"]),
    ("xid8", &["18446744073709551615"]),
    ("pg_lsn", &["FFFFFFFF/FFFFFFFF"]),
    ("bit(3)", &["101"]),
    ("bit varying", &["", "0101"]),
    ("point", &["(1e-300,-0)"]),
    ("path", &["[(0,0),(1,1)]", "((0,0),(1,1))"]),
    ("circle", &["<(0,0),1>"]),
    ("int4range", &["empty", "[1,5)", "(,)"]),
    ("tstzrange", &["[\"2026-01-01 00:00:00+00\",infinity)"]),
    ("nummultirange", &["{[1.0,1.5),(2.00,)}"]),
    ("tsvector", &["'fox':3 'red':1,2", "'it''s':3A", ""]),
    ("tsquery", &["'fox' & !'dog'"]),
    ("jsonpath", &["$.\"a\"[*]"]),
    ("regclass", &["shop.orders", "\"Shop\".t", "-"]),
    ("regtype", &["shop.order_state"]),
    ("regrole", &["nobody_here"]),
    (
        "text[]",
        &[
            "{a,NULL,\"NULL\",\"\"}",
            "{\"say \\\"hi\\\"\",\"a,b\",\"back\\\\slash\",\"new\nline\"}",
            "[0:1]={zero,one}",
            "{}",
        ],
    ),
    ("integer[]", &["{{1,2},{3,NULL}}", "[0:1][5:6]={{1,2},{3,4}}"]),
    ("bytea[]", &["{\"\\\\x00ff\",\"\\\\x\",NULL}"]),
    ("numeric(5,2)[]", &["{1.00,NaN}"]),
    ("timestamp with time zone[]", &["{\"2026-01-01 00:00:00+00\",infinity}"]),
    // Types that the target doesn't know.
    ("shop.order_state", &["new", "half paid"]),
    ("shop.order_state[]", &["{new,\"half paid\"}"]),
    ("oid 99999", &["whatever 'it' is"]),
];

/// Like `row`, but every text means itself.
fn literal(values: &[&str]) -> Row {
    Row::from_datums(values.iter().map(|value| match *value {
        "\u{0}null" => Datum::Null,
        text => Datum::Text(text.as_bytes()),
    }))
}

#[tokio::test]
async fn every_builtin_types_edges_come_back_as_the_same_text() {
    let db = Db::new("edges");
    let mut sink = db.sink().await;
    let columns: Vec<(String, &str)> = EDGES.iter().enumerate().map(|(i, (ty, _))| (format!("c{i}"), *ty)).collect();
    let mut columns: Vec<(&str, &str)> = columns.iter().map(|(name, ty)| (name.as_str(), *ty)).collect();
    columns.insert(0, ("id", "integer"));
    let mut s = (*schema("edges", &columns, Key::Columns(vec![0]))).clone();
    for column in &mut s.columns {
        column.ty.builtin = !column.ty.name.starts_with("shop.") && !column.ty.name.starts_with("oid ");
    }
    let s = std::sync::Arc::new(s);
    let most = EDGES.iter().map(|(_, values)| values.len()).max().unwrap();
    let ids: Vec<String> = (0..=most).map(|i| i.to_string()).collect();
    let rows: Vec<Vec<&str>> = (0..=most)
        .map(|i| {
            let value = |(_, values): &(&str, &[&'static str])| values.get(i).copied().unwrap_or("\u{0}null");
            std::iter::once(ids[i].as_str()).chain(EDGES.iter().map(value)).collect()
        })
        .collect();
    let changes: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(i, values)| tidewire_change::Change {
            after: Some(literal(values)),
            ..change(&s, 'c', (1, i as u32), &vec!["\\N"; values.len()])
        })
        .collect();
    apply(&mut sink, changes).await;

    use tidewire_connector::{Inspect, Scan};
    let mut inspect = tidewire_postgres::sink::PostgresInspect::sink(db.config());
    let mut found = Vec::new();
    inspect.scan(&Scan { schema: s.clone(), keys: None }, &mut |row| found.push(row)).await.unwrap();
    found.sort_by_key(|row| match row.get(0) {
        Some(Datum::Text(id)) => std::str::from_utf8(id).unwrap().parse::<u32>().unwrap(),
        other => panic!("{other:?}"),
    });
    let expected: Vec<_> = rows.iter().map(|values| literal(values)).collect();
    for (found, expected) in found.iter().zip(&expected) {
        for ((found, expected), column) in found.columns().zip(expected.columns()).zip(&s.columns) {
            assert_eq!(found, expected, "{}", column.ty.name);
        }
    }
    assert_eq!(found.len(), expected.len());
}

#[tokio::test]
async fn an_extensions_type_is_taken_by_name_where_it_exists_and_a_users_own_is_text() {
    let db = Db::new("user_types");
    db.sql("CREATE SCHEMA shop; CREATE TYPE shop.state AS ENUM ('new', 'paid'); CREATE EXTENSION hstore");
    let mut sink = db.sink().await;
    let columns = [("id", "shop.state"), ("h", "public.hstore"), ("g", "public.geometry"), ("a", "shop.state[]")];
    let s = schema("t", &columns, Key::Columns(vec![0]));
    apply(&mut sink, vec![change(&s, 'c', (1, 0), &["paid", "\"a\"=>NULL", "0101", "{new}"])]).await;
    apply(&mut sink, vec![change(&s, 'u', (2, 0), &["paid", "~", "02", "~"])]).await;
    let types = "SELECT pg_typeof(id), pg_typeof(h), pg_typeof(g), pg_typeof(a) FROM replica.t";
    assert_eq!(db.sql(types), "text|hstore|text|text");
    assert_eq!(db.sql("SELECT id, h, g, a FROM replica.t"), "paid|\"a\"=>NULL|02|{new}");
}

#[tokio::test]
async fn a_value_that_the_target_cannot_take_is_found_and_named_by_its_position_without_the_value() {
    let db = Db::new("blame");
    let mut sink = db.sink().await;
    let s = schema("t", &[("id", "integer"), ("day", "date"), ("v", "text")], Key::Columns(vec![0]));
    let mut changes: Vec<_> =
        (0..100).map(|i| change(&s, 'c', (7, i), &[&i.to_string(), "2020-01-01", "secret-4711"])).collect();
    changes[63] = change(&s, 'c', (7, 63), &["63", "secret-4711", "v"]);
    let good = change(&s, 'c', (6, 0), &["1", "2020-01-01", "kept"]);
    apply(&mut sink, vec![good]).await;
    for bad in ["secret-4711", "nul\0byte"] {
        changes[63] = if bad.contains('\0') {
            change(&s, 'c', (7, 63), &["63", "2020-01-01", bad])
        } else {
            change(&s, 'c', (7, 63), &["63", bad, "v"])
        };
        let error = write(&mut sink, changes.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.position()), (ErrorKind::Malformed, Some(Position::new(7, 63))), "{error}");
        assert_eq!(error.table(), Some("public.t"));
        assert!(!format!("{error} {error:?}").contains("4711"), "{error:?}");
        assert!(sink.write(batch(changes.clone())).await.is_err(), "the session is over");
        sink.open().await.unwrap();
    }
    changes.remove(63);
    apply(&mut sink, changes).await;
    assert_eq!(db.sql("SELECT count(*) FROM replica.t"), "99");
    // A key too long for the index fails later than the COPY.
    let long = schema("long", &[("k", "text")], Key::Columns(vec![0]));
    let mut seed = 1u64;
    let noise: String = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        char::from(b'!' + (seed >> 33) as u8 % 90)
    })
    .take(9000)
    .collect();
    let changes = vec![change(&long, 'c', (8, 0), &["a"]), change(&long, 'c', (8, 1), &[&noise])];
    let error = write(&mut sink, changes).await.unwrap_err();
    assert_eq!((error.kind(), error.position()), (ErrorKind::Malformed, Some(Position::new(8, 1))), "{error}");
}
