//! Every kind of value, as PostgreSQL prints it.

use crate::support::*;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;

fn numeric(precision: u16, scale: i16) -> Kind {
    Kind::Numeric { precision_scale: Some((precision, scale)) }
}

fn list(element: Kind) -> Kind {
    Kind::Array(Box::new(element))
}

fn pair() -> Kind {
    Kind::Composite(vec![column("n", Kind::Int32, 1), column("some text", Kind::Text, 2)])
}

fn nested() -> Kind {
    Kind::Composite(vec![column("day", Kind::Date, 1), column("list", list(Kind::Int64), 2), column("pair", pair(), 3)])
}

#[tokio::test]
async fn every_value_of_every_type_comes_back_as_it_was_written() {
    let cases: Vec<(&str, Kind, &[&str])> = vec![
        ("i2", Kind::Int16, &["-32768", "32767", "0"]),
        ("i4", Kind::Int32, &["-2147483648", "2147483647", "0"]),
        ("i8", Kind::Int64, &["-9223372036854775808", "9223372036854775807", "0"]),
        ("f4", Kind::Float32, &["0.1", "3.4028235e+38", "1e-45", "-0", "NaN", "-Infinity"]),
        ("f8", Kind::Float64, &["0.1", "1.7976931348623157e+308", "5e-324", "123456789012345.6", "NaN", "Infinity"]),
        ("n5", numeric(5, 0), &["99999", "-1", "NaN"]),
        ("n12", numeric(12, 2), &["9999999999.99", "-0.01", "Infinity", "-Infinity"]),
        ("n38", numeric(38, 10), &["9999999999999999999999999999.9999999999", "-0.0000000001"]),
        ("n39", numeric(39, 0), &["999999999999999999999999999999999999999"]),
        ("negative_scale", numeric(3, -2), &["12300"]),
        ("n", Kind::Numeric { precision_scale: None }, &["0.1000", "1e10", "-123456789012345678901234567890.5", "NaN"]),
        ("b", Kind::Bool, &["t", "f"]),
        ("bytes", Kind::Bytes, &["\\x", "\\x00ff10"]),
        (
            "day",
            Kind::Date,
            &["1970-01-01", "0001-01-01", "9999-12-31", "1582-10-10", "4714-11-24 BC", "5874897-12-31", "infinity"],
        ),
        ("t", Kind::Time, &["24:00:00", "00:00:00.000001"]),
        ("tz", Kind::TimeTz, &["12:00:00+05:30", "24:00:00-15:59"]),
        (
            "at",
            Kind::Timestamp,
            &[
                "1970-01-01 00:00:00",
                "1969-12-31 23:59:59.999999",
                "0001-01-01 00:00:00",
                "294276-12-31 23:59:59.999999",
                "-infinity",
            ],
        ),
        (
            "atz",
            Kind::TimestampTz,
            &["2026-11-29 16:00:00.5+00", "9999-12-31 23:59:59.999999+00", "4714-11-24 00:00:00+00 BC", "infinity"],
        ),
        ("i", Kind::Interval, &["-1 years -2 mons +3 days -04:05:06.000007"]),
        ("u", Kind::Uuid, &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        ("j", Kind::Json, &["{\"a\" : 1.0, \"a\":2}", "null"]),
        ("jb", Kind::Jsonb, &["{\"a\": 100000000000000000000000000000000000000000}"]),
        ("e", Kind::Enum, &["it's"]),
        ("a", list(Kind::Int32), &["[0:1]={1,NULL}", "{{1,2},{3,4}}", "{}", "{1,NULL,-3}"]),
        ("texts", list(Kind::Text), &["{a,\"\",NULL,\"null\",\"a b\",\"{\\\"\\\\,}\"}", "{ä,\"\n\"}"]),
        ("days", list(Kind::Date), &["{2024-02-29,NULL}", "{infinity,2024-02-29}"]),
        ("times", list(Kind::TimestampTz), &["{\"2024-02-29 12:00:00.5+00\"}", "{\"0044-03-15 12:00:00+00 BC\"}"]),
        ("locals", list(Kind::Timestamp), &["{\"2024-02-29 12:00:00.000001\"}"]),
        ("decimals", list(numeric(12, 2)), &["{1.00,-0.01}", "{NaN}"]),
        ("blobs", list(Kind::Bytes), &["{\"\\\\x00ff\",\"\\\\x\"}"]),
        ("flags", list(Kind::Bool), &["{t,f,NULL}"]),
        ("pairs", list(pair()), &["{\"(1,\\\"a b\\\")\",NULL,\"(,)\"}", "{\"(x,y)\"}"]),
        ("maps", list(Kind::Map), &["{\"\\\"a\\\"=>\\\"1\\\"\"}"]),
        ("r", Kind::Range, &["[1,10)", "empty"]),
        ("c", pair(), &["(1,\"a b\")", "(,)", "(,\"\")", "(1,\"\\\\\"\"(\")"]),
        ("nested", nested(), &["(2024-02-29,\"{1,2}\",\"(1,x)\")", "(infinity,,)", "(,{},\"(,)\")", "(,,)"]),
        ("m", Kind::Map, &["\"a\"=>NULL", "", "\"\"=>\"\", \"b\"=>\"\\\"\\\\\", \"cc\"=>\"NULL\""]),
        ("bits", Kind::Bits, &["10110", ""]),
        ("ch", Kind::Char, &["ab   "]),
        ("ci", Kind::CaseInsensitiveText, &["Straße"]),
        ("x", Kind::Other, &["(1,2)", "\u{0001}\u{1F600}"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let mut columns = vec![column("id", Kind::Int32, 1)];
    columns.extend(cases.iter().zip(2..).map(|((name, kind, _), attribute)| column(name, kind.clone(), attribute)));
    let schema = schema("types", columns, Key::Columns(vec![0]));
    let mut expected: Vec<Values> = Vec::new();
    for n in 0..8 {
        let id = n.to_string();
        let values = cases.iter().map(|(.., values)| values.get(n).map(|v| v.to_string()));
        expected.push(std::iter::once(Some(id)).chain(values).collect());
    }
    let changes = expected.iter().zip(1..).map(|(values, n)| {
        change(&schema, Op::Create, n, 0, row(&values.iter().map(|v| v.as_deref()).collect::<Vec<_>>()))
    });
    let mut sink = open(&config).await;
    write(&mut sink, &schema, changes.collect()).await;
    sink.commit(&progress(&schema, 1, 9)).await.unwrap();
    assert_eq!(inspect(&config, &schema, None).await.0, expected);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
}

#[tokio::test]
async fn keys_that_are_equal_but_differently_written_are_one_key() {
    let cases = [
        (Kind::Numeric { precision_scale: None }, ["1.0", "1.00"]),
        (Kind::Char, ["a ", "a"]),
        (Kind::Float64, ["0", "-0"]),
    ];
    for (kind, [first, second]) in cases {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::new(folder.path(), "p", "lake");
        let schema = schema("t", vec![column("k", kind, 1)], Key::Columns(vec![0]));
        let mut sink = open(&config).await;
        write(&mut sink, &schema, vec![change(&schema, Op::Create, 1, 0, row(&[Some(first)]))]).await;
        sink.commit(&progress(&schema, 1, 1)).await.unwrap();
        // From the table's files, too.
        drop(sink);
        std::fs::remove_dir_all(folder_of(&config, &schema).join("_tidewire")).unwrap();
        let mut sink = open(&config).await;
        write(&mut sink, &schema, vec![change(&schema, Op::Create, 2, 0, row(&[Some(second)]))]).await;
        sink.commit(&progress(&schema, 2, 2)).await.unwrap();
        assert_eq!(inspect(&config, &schema, None).await.0, [vec![Some(second.to_string())]]);
    }
}
