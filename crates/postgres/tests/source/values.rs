//! Values: the same text from the table and from the log.

use crate::follow::{config, server, Follow};

/// Every kind of type that Debian's server and its contrib modules bring, with its edges.
const TYPES: &[(&str, &[&str])] = &[
    ("boolean", &["true", "false"]),
    ("smallint", &["-32768", "32767"]),
    ("integer", &["-2147483648", "0"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807"]),
    ("real", &["3.4028235e38", "1e-45", "'-0'", "'NaN'", "16777217", "0.3"]),
    ("double precision", &["0.1::float8 + 0.2", "5e-324", "'-Infinity'", "-216237.00000035969", "'-0'"]),
    ("numeric", &["'NaN'", "'-Infinity'", "1e-130", "123456789012345678901234567890.000000000001", "1.00"]),
    ("numeric(12,2)", &["'NaN'", "25", "-0.01"]),
    ("numeric(6,-2)", &["1249", "1250"]),
    ("numeric(3,5)", &["0.00999", "-0.00001"]),
    ("money", &["5", "-1234567.89"]),
    ("text", &["''", "'\\N'", "E'a\\tb\\nc\\\\d\\re\\x08\\x0c\\x0b'", "'NULL'", "'é 😀'", "'  pad '", "'\\.'"]),
    ("varchar(8)", &["'trail  '", "''"]),
    ("char(6)", &["'AB'", "''", "'C  D'"]),
    ("\"char\"", &["'x'", "''", "'é'"]),
    ("name", &["repeat('n', 63)", "''"]),
    ("bytea", &["'\\x'", "'\\x00ff5c27'"]),
    ("date", &["'-infinity'", "'0001-01-01'", "'5874897-12-31'", "'4713-01-01 BC'"]),
    ("time", &["'24:00:00'", "'00:00:00.000001'"]),
    ("time(0)", &["'23:59:59.7'"]),
    ("timetz", &["'24:00:00+05:30'", "'00:00:00-15:59'"]),
    ("timestamp", &["'infinity'", "'0214-02-05 15:40 BC'", "'294276-12-31 23:59:59.999999'"]),
    ("timestamptz", &["'-infinity'", "'1582-10-04 00:00+00'", "'15000-12-31 23:40:28+02'"]),
    ("interval", &["'1 mon -1 day +02:03:04.000005'", "'-3 years -2 mons -1 days 01:02:03.14'", "'178000000 years'"]),
    ("interval day to second(2)", &["'1 2:03:04.567'"]),
    ("uuid", &["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"]),
    ("json", &["'{\"a\": 1,   \"a\": 2}'", "'null'", "' [ 1 , 2 ] '"]),
    ("jsonb", &["'{\"a\": 1,   \"a\": 2}'", "'null'", "'\"null\"'"]),
    ("inet", &["'10.0.0.1'", "'10.0.0.1/24'", "'::ffff:1.2.3.4/128'"]),
    ("cidr", &["'2001:db8::/32'"]),
    ("macaddr8", &["'08:00:2b:01:02:03:04:05'"]),
    ("oid", &["4294967295"]),
    ("xid8", &["'18446744073709551615'"]),
    ("pg_lsn", &["'FFFFFFFF/FFFFFFFF'"]),
    ("bit(5)", &["B'10110'"]),
    ("bit varying", &["B''", "B'101'"]),
    ("xml", &["'<i a=\"1\">x</i>'", "'plain content'"]),
    ("tsvector", &["to_tsvector('simple', 'red red fox')", "''"]),
    ("tsquery", &["'fox & !dog'"]),
    ("point", &["'(0.1,1e300)'"]),
    ("circle", &["'<(1,2),3.3333333333333335>'"]),
    ("polygon", &["'((0,0),(1,0),(1,1))'"]),
    ("int4range", &["'[1,5]'", "'empty'", "'(,)'"]),
    ("tstzmultirange", &["'{[2026-01-01 00:00+02, infinity)}'", "'{}'"]),
    (
        "text[]",
        &[
            "ARRAY['a', NULL, 'NULL', '']",
            "'{}'",
            "'[0:1]={zero,one}'",
            "ARRAY['say \"hi\"', 'a,b', '{x}', E'back\\\\slash']",
        ],
    ),
    ("int[][]", &["ARRAY[[1,2],[3,NULL]]", "'[0:1][5:6]={{1,2},{3,4}}'"]),
    ("timestamptz[]", &["ARRAY['2026-01-01 00:00+03'::timestamptz, 'infinity']"]),
    ("bytea[]", &["ARRAY['\\x00ff'::bytea, '\\x', NULL]"]),
    ("regclass", &["'shop.mood_list'", "'pg_class'"]),
    ("shop.mood", &["'sad'", "'so so'"]),
    ("shop.mood[]", &["ARRAY['sad', NULL]::shop.mood[]"]),
    ("shop.pct", &["99.5"]),
    ("shop.pct[]", &["ARRAY[1.25, NULL]::shop.pct[]"]),
    ("shop.pair", &["ROW(1, 'a,b')"]),
    ("public.hstore", &["'\"q\\\"uote\"=>\"back\\\\slash\", a=>NULL'", "''"]),
    ("public.citext", &["'MiXed'"]),
    ("public.ltree", &["'Top.Science'", "''"]),
];

#[tokio::test]
async fn every_type_has_the_same_text_in_the_table_and_in_the_log_whatever_the_database_is_set_to() {
    let server = server(&[]);
    server.psql(
        "CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE SCHEMA shop;
         CREATE TYPE shop.mood AS ENUM ('sad', 'so so'); CREATE DOMAIN shop.pct AS numeric(5,2);
         CREATE TYPE shop.pair AS (a int, b text); CREATE TABLE shop.mood_list (id int PRIMARY KEY);
         ALTER DATABASE postgres SET datestyle = 'German, DMY'; ALTER DATABASE postgres SET intervalstyle = 'iso_8601';
         ALTER DATABASE postgres SET bytea_output = 'escape'; ALTER DATABASE postgres SET extra_float_digits = -3;
         ALTER DATABASE postgres SET timezone = 'America/New_York'; ALTER DATABASE postgres SET quote_all_identifiers = on",
    );
    let columns: Vec<String> = (0..).zip(TYPES).map(|(i, (ty, _))| format!("c{i} {ty}")).collect();
    let mut inserts = String::from("SET search_path = public; SET datestyle = 'ISO, YMD';");
    for (i, (ty, values)) in TYPES.iter().enumerate() {
        for value in values.iter() {
            inserts += &format!("INSERT INTO public.all_types (c{i}) VALUES (({value})::{ty});");
        }
    }
    server.psql(&format!("CREATE TABLE public.all_types (id serial PRIMARY KEY, {})", columns.join(", ")));
    server.psql(&inserts);
    let mut follow = Follow::start(config(&server, &["public.all_types"])).await;
    follow.settle("public.all_types").await;
    let read: Vec<String> = follow.source_rows("public.all_types").await.0;
    let before = follow.replica.rows("public.all_types", &read[1..]);
    server.psql("TRUNCATE public.all_types");
    server.psql(&inserts);
    follow.settle("public.all_types").await;
    assert_eq!(follow.replica.rows("public.all_types", &read[1..]), before);
    let many: usize = TYPES.iter().map(|(_, values)| values.len()).sum();
    assert_eq!(before.len(), many);
}

#[tokio::test]
async fn hostile_names_are_followed() {
    let server = server(&[]);
    server.psql(
        r#"CREATE SCHEMA "Sales.EU"; CREATE TABLE "Sales.EU"."or""der's \ t" ("Id x" int, "se""lect" text, "é'" int,
           "Tag" char(3), PRIMARY KEY ("Tag", "Id x"));
           INSERT INTO "Sales.EU"."or""der's \ t" VALUES (1, 'a', 2, 'x'), (2, 'b', 3, 'y')"#,
    );
    let mut config = config(&server, &[r#""Sales.EU".*"#]);
    config.publication = Some(r#"it's, "mine""#.into());
    let mut follow = Follow::start(config).await;
    let table = r#""Sales.EU"."or""der's \ t""#;
    follow.execute(&format!(r#"UPDATE {table} SET "Id x" = 10 WHERE "Id x" = 1"#)).await;
    let start = std::time::Instant::now();
    loop {
        follow.catch_up().await;
        let (columns, rows) = follow.source_rows(table).await;
        if follow.replica.rows(r#"Sales.EU/or"der's \ t"#, &columns) == rows {
            break;
        }
        assert!(start.elapsed() < crate::follow::PATIENCE);
    }
}
