"""Readers of the topics that Tidewire writes as Debezium's: Flink's SQL with its own format `debezium-json`, with schemas and without, and
Debezium's JDBC sink into PostgreSQL. Each must end with what the source has, behind a snapshot, inserts, updates, deletes and changes of keys.
`readers.py --binary B`."""
import argparse, json, os, shutil, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))
import kafkacases, pipeline, server
from casesteps import connect

# A column of the source, Flink's type for it, and what of the source its value is, as text.
FLINK = [
    ("id", "bigint PRIMARY KEY", "BIGINT", "id::text"),
    ("n", "numeric(12,3)", "DECIMAL(12, 3)", "n::text"),
    ("free", "numeric", "STRING", "free::text"),
    ("f", "float8", "DOUBLE", "f::text"),
    ("r", "real", "FLOAT", "r::text"),
    ("small", "smallint", "SMALLINT", "small::text"),
    ("t", "text", "STRING", "t"),
    ("big", "text", "STRING", "big"),
    ("b", "bytea", "BYTES", "encode(b, 'hex')"),
    ("d", "date", "INT", "(d - date '1970-01-01')::text"),
    ("at", "timestamptz", "TIMESTAMP_LTZ(6)", """to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""),
    ("ts", "timestamp", "BIGINT", "(extract(epoch FROM ts) * 1000000)::bigint::text"),
    ("clock", "time", "BIGINT", "(extract(epoch FROM clock) * 1000000)::bigint::text"),
    ("j", "jsonb", "STRING", "j::text"),
    ("u", "uuid", "STRING", "u::text"),
    ("yes", "boolean", "BOOLEAN", "yes::text"),
    ("many", "int[]", "ARRAY<INT>", r"replace(many::text, 'NULL', '\N')"),
    ("words", "text[]", "ARRAY<STRING>", r"'{' || array_to_string(words, ',', '\N') || '}'"),
    ("mood", "mood", "STRING", "mood::text"),
]
SETUP = """CREATE TYPE mood AS ENUM ('glad', 'so-so');
CREATE TABLE thing (%s);
ALTER TABLE thing REPLICA IDENTITY FULL;
ALTER TABLE thing ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO thing SELECT g, g / 8.0, (g || '1')::numeric * 1e-20, g / 3.0, g / 7.0, g, E't\\t\\\\' || g, repeat(md5(g::text), 100), decode(md5(g::text), 'hex'),
  date '2024-02-29' + g, timestamptz '2024-02-29 12:34:56.123456+02' + g * interval '1 day', timestamp '1969-12-31 23:59:59.999999' + g * interval '1 hour',
  time '23:59:59.999999', '{"a": [1, 2.50, null]}', md5(g::text)::uuid, g %% 2 = 0, ARRAY[g, NULL, -g], ARRAY['x', NULL, 'ü'], 'glad'
  FROM generate_series(1, 300) g;
INSERT INTO thing (id) VALUES (9223372036854775);""" % ", ".join("%s %s" % (name, kind) for name, kind, _, _ in FLINK)
CHANGES = ("UPDATE thing SET t = NULL, n = -0.001, mood = 'so-so' WHERE id <= 100", "UPDATE thing SET big = NULL WHERE id = 3",
           "UPDATE thing SET id = id + 1000 WHERE id BETWEEN 3 AND 20", "DELETE FROM thing WHERE id > 250 AND id < 1000",
           "INSERT INTO thing (id, t) VALUES (251, 'again'), (300, '')", "UPDATE thing SET f = 'NaN', r = '-Infinity' WHERE id = 50",
           "BEGIN; UPDATE thing SET small = -small WHERE id % 3 = 0; DELETE FROM thing WHERE id % 7 = 0; COMMIT")
JDBC_SETUP = """CREATE TYPE mood AS ENUM ('glad', 'so-so');
CREATE TABLE thing (id bigint, part text, n numeric(12,3), free numeric, f float8, r real, small smallint, t text NOT NULL DEFAULT 'x', big text, b bytea, d date,
  at timestamptz, ts timestamp, ts3 timestamp(3), clock time, tz timetz, j jsonb, u uuid, yes boolean, many int[], words text[], bits bit(11), mood mood,
  ip inet, PRIMARY KEY (id, part));
ALTER TABLE thing ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO thing SELECT g, 'p' || g % 3, g / 8.0, (g || '1')::numeric * 1e-20, g / 3.0, g / 7.0, g, E't\\t\\\\' || g, repeat(md5(g::text), 100),
  decode(md5(g::text), 'hex'), date '2024-02-29' + g, timestamptz '2024-02-29 12:34:56.123456+02' + g * interval '1 day',
  timestamp '1969-12-31 23:59:59.999999' + g * interval '1 hour', timestamp '2024-02-29 23:59:59.999', time '23:59:59.999999', '10:11:12.5+00',
  '{"a": [1, 2.50, null]}', md5(g::text)::uuid, g % 2 = 0, ARRAY[g, NULL, -g], ARRAY['x,"y"', NULL, ''], (g % 2048)::bit(11), 'glad', '10.0.0.1'
  FROM generate_series(1, 300) g;
INSERT INTO thing (id, part) VALUES (9223372036854775807, '');"""
JDBC_CHANGES = ("UPDATE thing SET t = 'changed', n = -0.001, mood = 'so-so' WHERE id <= 100", "UPDATE thing SET part = 'moved' WHERE id BETWEEN 3 AND 20",
                "DELETE FROM thing WHERE id > 250 AND id < 1000", "INSERT INTO thing (id, part, t) VALUES (251, 'p2', 'again'), (300, '', '')",
                "UPDATE thing SET f = 'NaN', r = '-Infinity' WHERE id = 50", "ALTER TABLE thing ADD more text", "UPDATE thing SET more = 'ü' WHERE id % 5 = 0",
                "BEGIN; UPDATE thing SET small = -small WHERE id % 3 = 0; DELETE FROM thing WHERE id % 7 = 0; COMMIT")


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--binary", required=True)
    a.add_argument("--only", default="", help="flink or jdbc")
    o = a.parse_args()
    paths = subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.splitlines()
    pg = server.Postgres({"wal_level": "logical", "fsync": "off"}, server.in_memory())
    folder = tempfile.mkdtemp(prefix="tidewire-readers-")
    broker = kafkacases.Broker(os.path.join(folder, "kafka"))
    checks = [("flink truncate", lambda: flink_truncate(o.binary, pg, broker, folder, paths[0])), ("flink false", lambda: flink(o.binary, pg, broker, folder, "false", paths[0])),
              ("flink true", lambda: flink(o.binary, pg, broker, folder, "true", paths[0])), ("jdbc", lambda: jdbc(o.binary, pg, broker, folder, paths[1]))]
    passed = failed = 0
    try:
        for name, check in checks:
            if not name.startswith(o.only):
                continue
            try:
                check()
                passed += 1
            except AssertionError as error:
                print("FAIL: %s: %s" % (name, error))
                failed += 1
    finally:
        broker.stop()
        pg.stop()
        shutil.rmtree(folder)
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)


def written(binary, pg, broker, folder, name, setup, changes, properties):
    """Has Tidewire write the topic; returns the source's address and the topic's name."""
    for db in (name, name + "_replica"):
        pg.connect().cursor().execute("CREATE DATABASE " + db)
    url, where = pg.url(name), os.path.join(folder, name)
    os.mkdir(where)
    c = connect(url)
    c.cursor().execute(setup)
    bus = {"brokers": broker.address, "topic_prefix": name, "partitions": 3, "format": "debezium-json", "properties": properties}
    run = pipeline.Pipeline(binary, where, url, pg.url(name + "_replica"), more={"bus": {"kafka": bus}})
    run.catch_up()
    run.start()
    run.wait_until_streaming()
    for sql in changes:
        c.cursor().execute(sql)
    run.catch_up()
    return url, name + ".public.thing"


def java(paths, *words):
    done = subprocess.run(["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                           "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", paths, *words],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, "%s ended with %d: %s" % (words[0], done.returncode, done.stderr[-6000:])
    return done.stdout


def flink_truncate(binary, pg, broker, folder, paths):
    """Flink stops at a truncate, and with ignore-parse-errors it keeps the rows that are gone: what docs/debezium.md says."""
    _, topic = written(binary, pg, broker, folder, "flink_truncate", "CREATE TABLE thing (id bigint PRIMARY KEY, t text); ALTER TABLE thing REPLICA IDENTITY FULL;"
                       "INSERT INTO thing VALUES (1, 'gone'), (2, 'gone')", ("TRUNCATE thing", "INSERT INTO thing VALUES (2, 'new'), (3, 'new')"), {})
    columns = "id BIGINT, t STRING, PRIMARY KEY (id) NOT ENFORCED"
    try:
        java(paths, "FlinkTable", broker.address, topic, "false", "false", columns)
    except AssertionError as error:
        assert 'Unknown "op" value "t"' in str(error), str(error)[-2000:]
    else:
        raise AssertionError("Flink reads truncates now")
    *found, counted = java(paths, "FlinkTable", broker.address, topic, "false", "true", columns).splitlines()
    same([line.split("\t") for line in found], [("1", "gone"), ("2", "new"), ("3", "new")])
    assert counted == "counted\t3\t6", counted


def escaped(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def flink(binary, pg, broker, folder, schemas, paths):
    properties = {"decimal.handling.mode": "string", "key.converter.schemas.enable": schemas, "value.converter.schemas.enable": schemas}
    url, topic = written(binary, pg, broker, folder, "flink_" + schemas, SETUP, CHANGES, properties)
    columns = ", ".join("`%s` %s" % (name, kind) for name, _, kind, _ in FLINK) + ", PRIMARY KEY (id) NOT ENFORCED"
    *found, counted = java(paths, "FlinkTable", broker.address, topic, schemas, "false", columns).splitlines()
    k = connect(url).cursor()
    k.execute("SELECT %s FROM thing" % ", ".join(text for _, _, _, text in FLINK))
    expected = [["\\N" if v is None else v if kind.startswith("ARRAY") else escaped(v) for v, (_, _, kind, _) in zip(row, FLINK)] for row in k.fetchall()]
    same([same_numbers(line.split("\t")) for line in found], [same_numbers(row) for row in expected])
    k.execute("SELECT count(*) || E'\\t' || sum(id) FROM thing")
    assert counted == "counted\t" + k.fetchone()[0], counted


def same_numbers(row):
    """Numbers with a point, which Java prints otherwise, as numbers."""
    floats = [kind in ("DOUBLE", "FLOAT") for _, _, kind, _ in FLINK]
    return tuple(str(float(v)) if is_float and v != "\\N" else v for v, is_float in zip(row, floats))


def jdbc(binary, pg, broker, folder, paths):
    properties = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    url, topic = written(binary, pg, broker, folder, "jdbc", JDBC_SETUP, JDBC_CHANGES, properties)
    pg.connect().cursor().execute("CREATE DATABASE jdbc_copy")
    file = os.path.join(folder, "sink.properties")
    with open(file, "w") as f:
        f.write("\n".join(("name=copy", "connector.class=io.debezium.connector.jdbc.JdbcSinkConnector", "topics=" + topic, "connection.username=postgres",
            "connection.url=jdbc:postgresql://127.0.0.1:%d/jdbc_copy" % pg.port, "connection.password=x", "insert.mode=upsert", "delete.enabled=true",
            "primary.key.mode=record_key", "schema.evolution=basic", "collection.name.format=copied", "use.time.zone=UTC")))
    java(paths, "JdbcSink", broker.address, file, topic)
    k, copy = connect(url).cursor(), connect(pg.url("jdbc_copy")).cursor()
    for cursor in (k, copy):
        cursor.execute("SET TimeZone = 'UTC'")
    k.execute("SELECT attname FROM pg_attribute WHERE attrelid = 'thing'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum")
    # The copy has the types that the sink gives it: values are compared as text. It makes a double of a numeric without a scale; and Connect's
    # converter takes a number's NaN and infinity, which JSON writes as texts, for 0.
    number = "CASE WHEN {0}::text IN ('NaN', 'Infinity', '-Infinity') THEN '0' ELSE {0}::text END"
    texts = {"free": "free::float8::text", "ip": "host(ip::inet)", "f": number.format("f"), "r": number.format("r")}
    columns = ", ".join(texts.get(name, '"%s"::text' % name) for name, in k.fetchall())
    k.execute("SELECT %s FROM thing" % columns)
    copy.execute("SELECT %s FROM copied" % columns)
    same(copy.fetchall(), k.fetchall())


def same(found, expected):
    found, expected = ({tuple(row) for row in rows} for rows in (found, expected))
    only = lambda a, b: [tuple((v or "")[:60] if v else v for v in row) for row in sorted(a - b, key=str)[:2]]
    assert found == expected, "%d rows and not %d:\nfound    %s\nexpected %s" % (len(found), len(expected), only(found, expected), only(expected, found))


if __name__ == "__main__":
    main()
