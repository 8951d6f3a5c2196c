"""What a real Debezium writes into topics is applied to a Delta table and a PostgreSQL replica, and both copies must be what the source has. One connector's
messages are written by several converters, each into topics of its own, as workers of Connect would: JSON with schemas and without, Confluent's AvroConverter
and ProtobufConverter through `tidewire registry`, and rows behind ExtractNewRecordState. `topics.py --binary B [--only FORM,FORM]`."""
import argparse, concurrent.futures, json, os, shutil, signal, subprocess, sys, tempfile, threading, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import canonical, casechecks, kafkacases, pipeline, server
from casesteps import connect

JSON, AVRO, PROTOBUF = ("org.apache.kafka.connect.json.JsonConverter", "io.confluent.connect.avro.AvroConverter",
                        "io.confluent.connect.protobuf.ProtobufConverter")
# What the transform adds: the operation, where the change stands, and what a delete leaves.
UNWRAP = {"add.fields": "op,source.sequence,source.lsn,source.snapshot,source.ts_us", "delete.tombstone.handling.mode": "rewrite-with-tombstone"}
# Of our own topics, the place in full. (`unavailable` and `exact` the transform can't add: arrays and maps.)
UNWRAP_OURS = {"add.fields": "op,source.commit_lsn,source.ordinal", "delete.tombstone.handling.mode": "rewrite-with-tombstone"}
ROWS_ALONE = {"delete.tombstone.handling.mode": "tombstone"}
# The place stands in the headers, of deletes too.
IN_HEADERS = {"add.headers": UNWRAP["add.fields"], "delete.tombstone.handling.mode": "tombstone"}
# Name, converter, its properties, whether the database tells the columns (in Avro the schemas do all the same), and the transform.
FORMS = [
    ("json", JSON, {"schemas.enable": "false"}, True, None),
    ("json_schemas", JSON, {"schemas.enable": "true"}, False, None),
    ("json_rows", JSON, {"schemas.enable": "false"}, True, ROWS_ALONE),
    ("json_rows_schemas", JSON, {"schemas.enable": "true"}, False, UNWRAP),
    ("json_rows_headers", JSON, {"schemas.enable": "false"}, True, IN_HEADERS),
    ("avro", AVRO, {}, False, None),
    ("avro_told", AVRO, {"enhanced.avro.schema.support": "true"}, True, None),
    # Without what Connect says of types.
    ("avro_plain", AVRO, {"connect.meta.data": "false"}, True, None),
    ("avro_rows_headers", AVRO, {"connect.meta.data": "false"}, True, IN_HEADERS),
    ("avro_rows", AVRO, {}, False, UNWRAP),
    ("avro_rows_alone", AVRO, {}, True, ROWS_ALONE),
    # NULL is no zero there only with one of these; what the types are is told by the database alone.
    ("protobuf_optional", PROTOBUF, {"optional.for.nullables": "true"}, True, None),
    ("protobuf_wrapped", PROTOBUF, {"wrapper.for.nullables": "true"}, True, None),
    ("protobuf_rows", PROTOBUF, {"optional.for.nullables": "true"}, True, UNWRAP),
    # With the converter's own defaults: a table without NULLs.
    ("protobuf", PROTOBUF, {}, True, None),
]
# The same of topics that Tidewire wrote in Avro, behind Debezium's transform.
OURS = [("ours_avro_rows", AVRO, {}, False, UNWRAP_OURS), ("ours_protobuf_rows", PROTOBUF, {"optional.for.nullables": "true"}, True, UNWRAP_OURS)]
# How values are written.
MODES = {"interval.handling.mode": "string"}
TABLES = ("thing", "every", "whole", "gaps", "emptied", "kinds")
# Types that no schema names: only where the database tells the columns.
KINDS = "kinds"
# Arrays with NULLs and without elements: the one stops Confluent's ProtobufConverter, the other isn't told from NULL in Protobuf.
GAPS = "gaps"
# It is truncated, which the transform leaves out.
EMPTIED = "emptied"

SETUP = """CREATE TABLE thing (id bigint PRIMARY KEY, n numeric(12,3), free numeric, f float8, r real, t text, big text, b bytea, d date, at timestamptz,
  ts timestamp, ts3 timestamp(3), clock time, j jsonb, u uuid, yes boolean, many int[], words text[], bits bit(11));
ALTER TABLE thing ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO thing SELECT g, g / 8.0, (g || '1')::numeric * 1e-20, g / 3.0, g / 7.0, 't' || g, repeat(md5(g::text), 100), decode(md5(g::text), 'hex'), date '2024-02-29' + g,
  timestamptz '2024-02-29 12:34:56.123456+02' + g * interval '1 day', timestamp '1969-12-31 23:59:59.999999' + g * interval '1 hour',
  timestamp '2024-02-29 23:59:59.999', time '23:59:59.999999', '{"a": [1, 2.50, null]}', md5(g::text)::uuid, g % 2 = 0, ARRAY[g, g, -g],
  ARRAY['x,"y"', 'NULL', ''], (g % 2048)::bit(11) FROM generate_series(1, 40) g;
INSERT INTO thing (id) VALUES (9223372036854775807);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy, \\"so"'); CREATE DOMAIN name20 AS varchar(20);
CREATE TABLE every (id int PRIMARY KEY, b bool, i2 smallint, i4 int, i8 bigint, o oid, f4 real, f8 float8, n numeric, n52 numeric(5,2), n380 numeric(38,0),
  nsmall numeric(3,5), c5 char(5), vc varchar(9), t text, ic "char", by bytea, d date, t0 time(0), t3 time(3), t6 time, ts0 timestamp(0), ts3 timestamp(3), ts6 timestamp,
  tst timestamptz, tst3 timestamptz(3), iv interval, u uuid, j json, jb jsonb, x xml, e mood, dn name20, b5 bit(5), b12 bit(12), inet_ inet, cidr_ cidr,
  mac macaddr, pt point, i4r int4range, i8r int8range, nr numrange, tsr tsrange, dr daterange,
  ab bool[], ai2 smallint[], ai int[], al bigint[], af real[], ad float8[], an2 numeric(6,2)[], at text[], avc varchar(5)[], ada date[], ats timestamp[], au uuid[], aj json[],
  ajb jsonb[], ae mood[], aine inet[], ao oid[]);
INSERT INTO every (id) VALUES (1);
INSERT INTO every VALUES (2, true, 7, 7, 7, 7, 0.1, 0.1, 123.45, 123.4, 123, 0.00123, 'ab', 'nine', E'text "q" \\\\ \\n\\t\\x01 é € 😀', 'c', '\\x00ff10', '2024-02-29', '12:34:56',
  '12:34:56.789', '12:34:56.789012', '2024-02-29 12:34:56', '2024-02-29 12:34:56.789', '2024-02-29 12:34:56.789012', '2024-02-29 12:34:56.789012+02',
  '2024-02-29 12:34:56.789+02', '1 year 2 mons 3 days 04:05:06.789012', '123e4567-e89b-12d3-a456-426614174000', '{"a": 1.0, "b":"é"}', '{"a": 1.0, "b": "é"}', '<a>x</a>',
  'happy, \\"so"', 'dom', B'10110', B'101100111010', '10.0.0.1/24', '10.0.0.0/24', '08:00:2b:01:02:03', '(1.5,2)', '[1,5)', '[1,5)', '[1.5,2.5]',
  '[2024-01-01 00:00,2024-01-02 00:00)', '[2024-01-01,2024-02-01)', '{t,f}', '{1,2}', '{1,3}', '{1,9223372036854775807}', '{1.5,0.1}', '{1.5,0.1}', '{1.50,2.00}',
  '{a,"b c","NULL","q\\"x",""}', '{ab}', '{2024-02-29}', '{"2024-02-29 12:34:56.789012"}', '{123e4567-e89b-12d3-a456-426614174000}', ARRAY['{"a":1}'::json],
  ARRAY['{"a": 1}'::jsonb], ARRAY['ok', 'happy, \\"so"']::mood[], '{10.0.0.1/24}', '{1,4294967295}');
INSERT INTO every (id, b, i2, i4, i8, o, f4, f8, n, n52, n380, nsmall, c5, vc, t, by, d, t0, t3, t6, ts0, ts3, ts6, tst, tst3, iv, u, b5, b12, pt, ai2, al) VALUES
  (3, false, -32768, -2147483648, -9223372036854775808, 0, '-3.4028235e38', '-1.7976931348623157e308', -123456789012345678901234567890.123456789, -999.99,
   -99999999999999999999999999999999999999, -0.00999, '', '', '', '', '0001-01-01', '00:00', '00:00:00.001', '00:00:00.000001', '0001-01-01', '0001-01-01 00:00:00.001',
   '0001-01-01 00:00:00.000001', '0001-01-01 00:00:00.000001+00', '0001-01-01 00:00:00.001+00', '-178000000 years', '00000000-0000-0000-0000-000000000000', B'00000',
   B'000000000001', '(-0,1e300)', '{-32768}', '{-9223372036854775808}'),
  (4, true, 32767, 2147483647, 9223372036854775807, 4294967295, '3.4028235e38', '1.7976931348623157e308', 0.000000000000000000000000000001, 999.99,
   99999999999999999999999999999999999999, 0.00999, 'abcde', 'ninechars', repeat('long ü ', 3000), decode(repeat('00ff', 5000), 'hex'), '9999-12-31', '23:59:59', '23:59:59.999',
   '23:59:59.999999', '9999-12-31 23:59:59', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '9999-12-31 23:59:59.999+00',
   '178000000 years', 'ffffffff-ffff-ffff-ffff-ffffffffffff', B'11111', B'111111111111', '(1e-300,-1)', '{32767}', '{9223372036854775807}'),
  (5, NULL, 0, 0, 0, 0, '-0', '-0', 0, 0, 0, 0, 'a', ' ', ' ', '\\x00', '1970-01-01', '00:00', '00:00', '00:00', '1970-01-01', '1970-01-01', '1970-01-01', '1970-01-01+00',
   '1970-01-01+00', '0', '123e4567-e89b-12d3-a456-426614174000', B'00001', B'100000000000', '(0,0)', '{0}', '{0}');
INSERT INTO every (id, f4, f8, d, tst, n, ts6) VALUES (6, 'NaN', 'NaN', '1582-10-10', 'infinity', -128, '1500-01-01 01:02:03.456789'),
  (7, 'Infinity', 'Infinity', '1500-01-01', '-infinity', 128, '1969-12-31 23:59:59.999999'), (8, '-Infinity', '-Infinity', '20231-05-01', '1900-01-01 00:00:00.000001+00', 255, '20231-05-01'),
  (9, '1e-45', '5e-324', '0044-03-15 BC', '1969-12-31 23:59:59.999999+00', -129, '0044-03-15 01:02:03.456789 BC');
CREATE TABLE whole (id int, part text, yes bool NOT NULL, small smallint NOT NULL, i int NOT NULL DEFAULT 7, l bigint NOT NULL, f float8 NOT NULL, t text NOT NULL DEFAULT 'x',
  b bytea NOT NULL, n numeric(10,2) NOT NULL, free numeric NOT NULL, d date NOT NULL, at timestamptz NOT NULL, ts timestamp NOT NULL, j jsonb NOT NULL, many int[] NOT NULL, PRIMARY KEY (part, id));
INSERT INTO whole SELECT g, 'p' || g % 3, g % 2 = 0, -g, g, g * 10000000000, g / 3.0, CASE WHEN g % 4 = 0 THEN '' ELSE 'ü' || g END, decode(md5(g::text), 'hex'), g / 4.0, trim_scale(g / 8.0),
  date '1970-01-01' + g, timestamptz '1970-01-01 00:00:00+00' + (g - 1) * interval '1 day', timestamp '1970-01-01' + (g - 1) * interval '1 hour', '{}', ARRAY[g, 0]
  FROM generate_series(0, 30) g;
CREATE TABLE gaps (id int PRIMARY KEY, many int[], words text[]);
INSERT INTO gaps VALUES (1, '{1,NULL,-1}', '{"x,\\"y\\"",NULL,""}'), (2, '{}', '{}'), (3, NULL, '{NULL}');
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
CREATE TABLE kinds (id int PRIMARY KEY, h hstore, ci citext, lt ltree, m money, tz timetz, vb varbit, vb9 varbit(9), b1 bit(1), an numeric[], vc varchar(9)[], c3 char(3));
INSERT INTO kinds (id) VALUES (1);
INSERT INTO kinds VALUES (2, 'a=>1', 'CiText', 'Top.A.B', '$1,234.56', '12:34:56.789012+00', B'1011', B'101', B'1', '{1.5,-2}', '{ab,""}', 'x'),
  (3, 'a=>NULL', '', '', '-$92,233,720,368,547,758.08', '00:00:00+00', B'1', B'100000000', B'0', '{0.00001}', '{"a b"}', ''),
  (4, '"q\\"x"=>"y\\\\z"', 'ü', 'a_b', '$92,233,720,368,547,758.07', '23:59:59.999999+00', repeat('10', 50)::varbit, B'111111111', B'1', '{123456789012345678901234567890.5}', '{ninechars}', 'abc');
CREATE TABLE emptied (id int PRIMARY KEY, v text);
INSERT INTO emptied VALUES (1, 'gone'), (2, 'gone');"""
CHANGES = ("UPDATE thing SET t = NULL, n = -0.001 WHERE id <= 10", "UPDATE thing SET big = NULL WHERE id = 3", "UPDATE thing SET id = id + 1000 WHERE id = 3",
           "DELETE FROM thing WHERE id > 30 AND id < 1000", "INSERT INTO thing (id, t) VALUES (31, 'again')", "UPDATE thing SET f = 'NaN', at = 'infinity' WHERE id = 7",
           "UPDATE every SET i4 = i4 WHERE id <= 9", "DELETE FROM every WHERE id = 5", "UPDATE whole SET yes = false, small = 0, i = 0, l = 0, f = 0, t = '' WHERE id <= 10",
           "UPDATE whole SET part = 'moved' WHERE id = 11", "DELETE FROM whole WHERE id > 25",
           "ALTER TABLE whole ADD more text NOT NULL DEFAULT ''", "UPDATE whole SET more = 'later'",
           "UPDATE kinds SET ci = ci", "DELETE FROM kinds WHERE id = 3", "INSERT INTO emptied VALUES (3, 'gone')", "TRUNCATE emptied", "INSERT INTO emptied VALUES (2, 'again'), (4, 'new')")
# How many changes these are, the change of a key being two.
ROWS, CHANGED = 41 + 9 + 31 + 3 + 2 + 4, 10 + 1 + 2 + 10 + 1 + 1 + 9 + 1 + 11 + 2 + 5 + 26 + 4 + 1 + 1 + 1 + 2


class Connector:
    """A Debezium, until it is stopped."""

    def __init__(self, folder, port, database, brokers, forms):
        properties, file = os.path.join(folder, "connector"), os.path.join(folder, "forms.json")
        with open(properties, "w") as f:
            f.write("\n".join(("name=inventory", "connector.class=io.debezium.connector.postgresql.PostgresConnector",
                "offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "topic.prefix=shop", "database.hostname=127.0.0.1", "database.port=%d" % port,
                "database.user=postgres", "database.password=x", "database.dbname=" + database, "plugin.name=pgoutput", "publication.autocreate.mode=filtered",
                "table.include.list=" + ",".join("public." + table for table in TABLES), "snapshot.mode=initial", "poll.interval.ms=20", "skipped.operations=none", *("%s=%s" % mode for mode in MODES.items()))))
        with open(file, "w") as f:
            json.dump(forms, f)
        words = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", paths(), "Topics", properties, brokers, file]
        self.errors = open(os.path.join(folder, "connector.log"), "w+")
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.told, self.more = 0, threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                with self.more:
                    self.told = int(line)
                    self.more.notify()
        with self.more:
            self.process.wait()
            self.more.notify()

    def wait_for(self, changes):
        with self.more:
            self.more.wait_for(lambda: self.told >= changes or self.process.poll() is not None, timeout=120)
        if self.told < changes:
            self.errors.seek(0)
            raise SystemExit("Debezium told %d changes of %d: %s" % (self.told, changes, self.errors.read()[-4000:]))

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--binary", required=True)
    a.add_argument("--only", default="", help="names of forms, with commas between")
    a.add_argument("--property", action="append", default=[], help="of the connector: NAME=VALUE, where it says how values are written")
    o = a.parse_args()
    MODES.update(one.split("=", 1) for one in o.property)
    forms, ours = ([form for form in all_forms if not o.only or form[0] in o.only.split(",")] for all_forms in (FORMS, OURS))
    every = len(forms + ours)
    if not os.path.exists(paths().split(":")[1]):
        # Maven wasn't there to get what Confluent's converter needs.
        forms, ours = ([form for form in some if form[1] != PROTOBUF] for some in (forms, ours))
    skipped = every - len(forms + ours)
    pg = server.Postgres({"wal_level": "logical", "fsync": "off"}, server.in_memory())
    folder = tempfile.mkdtemp(prefix="tidewire-topics-")
    broker = kafkacases.Broker(os.path.join(folder, "kafka"))
    port = server.free_port()
    registry = subprocess.Popen([o.binary, "registry", "--data-dir", os.path.join(folder, "registry"), "--listen", "127.0.0.1:%d" % port],
                                stderr=open(os.path.join(folder, "registry.log"), "w"))
    passed = failed = 0
    try:
        write(o.binary, pg, broker, folder, "http://127.0.0.1:%d" % port, forms, ours)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            checks = [(form[0], pool.submit(check, o.binary, pg, broker, folder, "http://127.0.0.1:%d" % port, form)) for form in forms + ours]
            for name, done in checks:
                try:
                    done.result()
                    passed += 1
                except AssertionError as error:
                    print("FAIL: %s: %s" % (name, error))
                    failed += 1
    finally:
        registry.send_signal(signal.SIGTERM)
        registry.wait(30)
        broker.stop()
        pg.stop()
        shutil.rmtree(folder)
    print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
    sys.exit(1 if failed else 0)


def write(binary, pg, broker, folder, registry, forms, ours):
    """Has Debezium write all topics, and, beside it, Tidewire its own."""
    for database in ("shop", "ours_replica"):
        pg.connect().cursor().execute("CREATE DATABASE " + database)
    k = connect(pg.url("shop")).cursor()
    k.execute(SETUP)
    broker.tell(["topic %s.public.%s 1" % (form[0], table) for form in forms + ours for table in tables_of(form)])
    for name, converter, _, _, unwrap in forms + ours:
        if converter == PROTOBUF and unwrap:
            # Its converter numbers fields as they come: a new column takes the number of what the transform adds behind it, and a registry refuses that.
            asked = urllib.request.Request("%s/config/%s.public.whole-value" % (registry, name), b'{"compatibility": "NONE"}', {"Content-Type": "application/json"}, method="PUT")
            urllib.request.urlopen(asked).close()
    connector = Connector(folder, pg.port, "shop", broker.address, described(forms, registry)) if forms else None
    where = os.path.join(folder, "ours")
    os.mkdir(where)
    bus = {"brokers": broker.address, "topic_prefix": "ours", "partitions": 1, "format": "debezium-avro", "registry": {"url": registry},
           "properties": MODES}
    run = pipeline.Pipeline(binary, where, pg.url("shop"), pg.url("ours_replica"), more={"bus": {"kafka": bus}})
    if ours:
        run.catch_up()
    if connector:
        connector.wait_for(ROWS)
    for sql in CHANGES:
        k.execute(sql)
    if ours:
        run.catch_up()
        # Read as the one converter does, written by the others.
        again(folder, broker.address, described([("ours", AVRO, {}, False, None)] + ours, registry), ["ours.public." + table for table in TABLES])
    if connector:
        connector.wait_for(ROWS + CHANGED)
        connector.stop()


def tables_of(form):
    name, converter, _, is_told, unwrap = form
    if name == "protobuf":
        return ["whole", EMPTIED]
    left_out = {GAPS: converter == PROTOBUF, EMPTIED: unwrap, KINDS: not is_told or converter == AVRO}
    return [table for table in TABLES if not left_out.get(table)]


def described(forms, registry):
    def one(form):
        name, converter, properties, _, unwrap = form
        of_registry = {} if converter == JSON else {"schema.registry.url": registry}
        return {"name": name, "converter": converter, "properties": {**properties, **of_registry}, "tables": tables_of(form), **({"unwrap": unwrap} if unwrap else {})}
    return [one(form) for form in forms]


def paths():
    return subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.strip()


def again(folder, brokers, forms, topics):
    file = os.path.join(folder, "again.json")
    with open(file, "w") as f:
        json.dump(forms, f)
    words = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", paths(), "Again", brokers, file, *topics]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise SystemExit("our topics can't be written again: " + done.stderr[-4000:])


def check(binary, pg, broker, folder, registry, form):
    name, converter, _, is_told, unwrap = form
    where, replica = os.path.join(folder, name), name + "_replica"
    os.mkdir(where)
    pg.connect().cursor().execute("CREATE DATABASE " + replica)
    tables = tables_of(form)
    source = {"brokers": broker.address, "topics": ["%s.public.%s" % (name, table) for table in tables], "properties": MODES}
    source.update({} if converter == JSON else {"registry": {"url": registry}})
    # The database tells the columns that there are now: what was written before one of them lacks it.
    source.update({"tables_from": pg.url("shop"), "absent_fields": "null"} if is_told else {})
    source.update({"unwrapped": True} if unwrap else {})
    run = pipeline.Pipeline(binary, where, None, pg.url(replica), whole={"debezium": source})
    run.catch_up()
    casechecks.check_copies(run, {"published": {"public." + table: casechecks.SINKS for table in tables}}, pg.url("shop"), pg.url(replica), name)


if __name__ == "__main__":
    main()
