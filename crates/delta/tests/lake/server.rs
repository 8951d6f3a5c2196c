//! Values that a real PostgreSQL prints, made at random by the server itself: they come back as the very same text.

use crate::support::*;
use tidewire_change::*;
use tidewire_connector::Sink;
use tidewire_delta::Config;
use tidewire_testbed::Postgres;

/// Rows made in one run.
const ROWS: usize = 1500;

const TYPES: &str = "
CREATE EXTENSION hstore;
CREATE TYPE pair AS (n int, \"some text\" text);
CREATE TYPE many AS (day date, at timestamptz, amount numeric(12,2), ratio float8, flags bool[], pair pair, raw bytea);
CREATE FUNCTION num(digits int) RETURNS numeric VOLATILE LANGUAGE sql AS $$
  SELECT (CASE WHEN random() < 0.5 THEN -1 ELSE 1 END) *
    left(lpad((random() * 1e15)::bigint::text, 15, '7') || (random() * 1e15)::bigint || (random() * 1e15)::bigint,
         1 + (random() * (digits - 1))::int)::numeric / power(10::numeric, (random() * digits)::int) $$;
CREATE FUNCTION bits8() RETURNS float8 VOLATILE LANGUAGE sql AS $$
  SELECT CASE (random() * 12)::int WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' WHEN 2 THEN '-0' WHEN 3 THEN 5e-324
    WHEN 4 THEN round(random() * 1e6) WHEN 5 THEN 1.7976931348623157e308 WHEN 6 THEN round((random() * 1e6)::numeric, 2)
    ELSE (random() - 0.5) * power(10::float8, (random() * 600 - 300)::int) END $$;
CREATE FUNCTION bits4() RETURNS float4 VOLATILE LANGUAGE sql AS $$
  SELECT CASE (random() * 12)::int WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-0' WHEN 3 THEN 1e-45
    WHEN 4 THEN 16777216 WHEN 5 THEN 3.4028235e38
    ELSE ((random() - 0.5) * power(10::float8, (random() * 74 - 37)::int))::float4 END $$;
CREATE FUNCTION moment() RETURNS timestamp VOLATILE LANGUAGE sql AS $$
  SELECT CASE (random() * 20)::int WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' WHEN 2 THEN '0044-03-15 12:00:00 BC'
    WHEN 3 THEN '294276-12-31 23:59:59.999999' WHEN 4 THEN '9999-12-31 23:59:59.999999' WHEN 5 THEN '0001-01-01'
    WHEN 6 THEN date_trunc('second', timestamp '2024-02-29' + random() * interval '1000 years')
    WHEN 7 THEN date_trunc('milliseconds', timestamp '1582-10-04' + random() * interval '20 days')
    ELSE timestamp '0001-01-01' + random() * interval '9998 years' END::timestamp $$;
CREATE FUNCTION word() RETURNS text VOLATILE LANGUAGE sql AS $$
  SELECT CASE (random() * 9)::int WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'NULL' WHEN 3 THEN 'null'
    ELSE (SELECT string_agg(substr(E'ab \"\\'\\\\{}(),=>;|\\t\\n\\r\\v\\f\u{e4}\u{1F600}\u{a0}\u{2003}', 1 + (random() * 22)::int, 1), '')
      FROM generate_series(0, (random() * 6)::int)) END $$;
";

/// Name, kind as the source's type map gives it, expression that makes a value.
fn columns() -> Vec<(&'static str, Kind, &'static str)> {
    let numeric = |precision, scale| Kind::Numeric { precision_scale: Some((precision, scale)) };
    let array = |kind| Kind::Array(Box::new(kind));
    let pair = || Kind::Composite(vec![column("n", Kind::Int32, 1), column("some text", Kind::Text, 2)]);
    let many = Kind::Composite(vec![
        column("day", Kind::Date, 1),
        column("at", Kind::TimestampTz, 2),
        column("amount", numeric(12, 2), 3),
        column("ratio", Kind::Float64, 4),
        column("flags", array(Kind::Bool), 5),
        column("pair", pair(), 6),
        column("raw", Kind::Bytes, 7),
    ]);
    let words =
        "(SELECT array_agg(CASE WHEN g IS NOT NULL THEN word() END) FROM generate_series(1, (random() * 4)::int) g)";
    vec![
        ("i2", Kind::Int16, "(random() * 65535 - 32768)::int2"),
        ("i4", Kind::Int32, "(random() * 4294967295 - 2147483648)::int4"),
        ("i8", Kind::Int64, "((random() - 0.5) * 1.8e19)::int8"),
        ("f4", Kind::Float32, "bits4()"),
        ("f8", Kind::Float64, "bits8()"),
        ("n12", numeric(12, 2), "CASE WHEN random() < 0.1 THEN 'NaN' ELSE (num(10)) END::numeric(12,2)"),
        ("n38", numeric(38, 20), "(num(17))::numeric(38,20)"),
        ("whole", numeric(30, 0), "(num(29))::numeric(30,0)"),
        ("negative", numeric(9, -3), "(num(11))::numeric(9,-3)"),
        ("n", Kind::Numeric { precision_scale: None }, "num(40)"),
        ("b", Kind::Bool, "random() < 0.5"),
        ("raw", Kind::Bytes, "convert_to(coalesce(word(), ''), 'UTF8')"),
        ("day", Kind::Date, "moment()::date"),
        ("at", Kind::Timestamp, "moment()"),
        ("at3", Kind::Timestamp, "moment()::timestamp(3)"),
        ("atz", Kind::TimestampTz, "moment()::timestamptz"),
        ("t", Kind::Time, "(random() * interval '1 day')::time"),
        ("span", Kind::Interval, "(random() - 0.5) * interval '1 year 40 days 5 hours'"),
        ("word", Kind::Text, "word()"),
        ("words", array(Kind::Text), words),
        ("numbers", array(Kind::Int64), "ARRAY[(random() * 1e12)::int8, NULL, -1]"),
        ("grid", array(Kind::Int32), "CASE WHEN random() < 0.5 THEN '[0:1]={1,2}' ELSE '{{1},{2}}' END::int[]"),
        ("doubles", array(Kind::Float64), "ARRAY[bits8(), bits8(), NULL]"),
        ("reals", array(Kind::Float32), "ARRAY[bits4()]"),
        ("amounts", array(numeric(12, 2)), "ARRAY[num(10)::numeric(12,2), num(10)::numeric(12,2)]::numeric(12,2)[]"),
        ("loose", array(Kind::Numeric { precision_scale: None }), "ARRAY[num(40), 'NaN']"),
        ("days", array(Kind::Date), "ARRAY[moment()::date, moment()::date]"),
        ("times", array(Kind::TimestampTz), "ARRAY[moment()::timestamptz, NULL]"),
        ("blobs", array(Kind::Bytes), "ARRAY[convert_to(coalesce(word(), ''), 'UTF8'), NULL]"),
        ("ranges", array(Kind::Range), "ARRAY[int4range(1, (random() * 9)::int + 2), 'empty']"),
        ("addresses", array(Kind::Other), "ARRAY['10.0.0.1/8', NULL]::inet[]"),
        ("jsons", array(Kind::Jsonb), "ARRAY[to_jsonb(word()), jsonb_build_object('a', word())]"),
        ("pair", pair(), "ROW((random() * 9)::int, word())::pair"),
        ("empty", pair(), "ROW(NULL, NULL)::pair"),
        ("pairs", array(pair()), "ARRAY[ROW(NULL, word())::pair, NULL, ROW(7, word())::pair]"),
        (
            "many",
            many,
            "ROW(moment()::date, moment()::timestamptz, num(10)::numeric(12,2), bits8(), ARRAY[true, NULL],
              ROW(1, word())::pair, convert_to(coalesce(word(), ''), 'UTF8'))::many",
        ),
        ("map", Kind::Map, "hstore(ARRAY['a', coalesce(word(), 'k'), '']::text[], ARRAY[word(), word(), NULL])"),
        ("maps", array(Kind::Map), "ARRAY[hstore('a', word()), ''::hstore]"),
    ]
}

/// The rows that the server prints under the settings that the source pins.
fn rows_of(server: &Postgres, seed: f64) -> Vec<Values> {
    let texts: Vec<String> = columns().iter().map(|(.., made)| format!("({made})::text")).collect();
    server
        .psql_in(
            "values",
            &format!(
        "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET extra_float_digits = 1;
         SET bytea_output = 'hex'; SELECT setseed({seed}) IS NULL;
         SELECT json_build_array({}) FROM generate_series(1, {ROWS});",
        texts.join(",")
    ),
        )
        .lines()
        .filter(|line| line.starts_with('['))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn what_a_server_prints_of_any_type_comes_back_as_the_same_text_and_every_reader_sees_it() {
    let server = Postgres::start(&[]);
    server.create_database("values");
    server.psql_in("values", TYPES);
    let seed = 0.421;
    let made = rows_of(&server, seed);
    assert_eq!(made.len(), ROWS);
    let folder = tempfile::tempdir().unwrap();
    let config = Config::new(folder.path(), "p", "lake");
    let mut wide = vec![column("id", Kind::Int32, 1)];
    wide.extend(columns().into_iter().zip(2..).map(|((name, kind, _), attribute)| column(name, kind, attribute)));
    let schema = schema("t", wide, Key::Columns(vec![0]));
    let with_id = |(n, values): (usize, Values)| std::iter::once(Some(n.to_string())).chain(values).collect();
    let mut expected: Vec<Values> = made.into_iter().enumerate().map(with_id).collect();
    let changes = expected.iter().zip(1..).map(|(values, n)| {
        change(&schema, Op::Create, n, 0, row(&values.iter().map(|v| v.as_deref()).collect::<Vec<_>>()))
    });
    let mut sink = open(&config).await;
    write(&mut sink, &schema, changes.collect()).await;
    sink.commit(&progress(&schema, 1, ROWS as u64)).await.unwrap();
    expected.sort();
    let (held, _) = inspect(&config, &schema, None).await;
    for (held, made) in held.iter().zip(&expected) {
        for ((held, made), column) in held.iter().zip(made).zip(&schema.columns) {
            assert_eq!(held, made, "column {}", column.name);
        }
    }
    assert_eq!(held.len(), ROWS);
    validator::check(&folder_of(&config, &schema));
    readers::check(&config, &schema, &expected);
}
