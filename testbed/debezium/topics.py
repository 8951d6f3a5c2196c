"""What a real Debezium writes into topics is applied to a Delta table and a PostgreSQL replica: with schemas, which alone say what the columns
are, and without, by the columns of the database. Both copies must be what the source has. `topics.py --binary B`."""
import argparse, base64, os, shutil, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import casechecks, kafkacases, pipeline, server
from casesteps import connect
from takeover import Engine

SETUP = """CREATE TABLE thing (id bigint PRIMARY KEY, n numeric(12,3), free numeric, f float8, r real, t text, big text, b bytea, d date, at timestamptz,
  ts timestamp, ts3 timestamp(3), clock time, j jsonb, u uuid, yes boolean, many int[], words text[], bits bit(11));
ALTER TABLE thing ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO thing SELECT g, g / 8.0, (g || '1')::numeric * 1e-20, g / 3.0, g / 7.0, 't' || g, repeat(md5(g::text), 100), decode(md5(g::text), 'hex'), date '2024-02-29' + g,
  timestamptz '2024-02-29 12:34:56.123456+02' + g * interval '1 day', timestamp '1969-12-31 23:59:59.999999' + g * interval '1 hour',
  timestamp '2024-02-29 23:59:59.999', time '23:59:59.999999', '{"a": [1, 2.50, null]}', md5(g::text)::uuid, g % 2 = 0, ARRAY[g, NULL, -g],
  ARRAY['x,"y"', NULL, ''], (g % 2048)::bit(11) FROM generate_series(1, 40) g;
INSERT INTO thing (id) VALUES (9223372036854775807);"""
CHANGES = ("UPDATE thing SET t = NULL, n = -0.001 WHERE id <= 10", "UPDATE thing SET big = NULL WHERE id = 3", "UPDATE thing SET id = id + 1000 WHERE id = 3",
           "DELETE FROM thing WHERE id > 30 AND id < 1000", "INSERT INTO thing (id, t) VALUES (31, 'again')", "UPDATE thing SET f = 'NaN', at = 'infinity' WHERE id = 7")


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--binary", required=True)
    o = a.parse_args()
    pg = server.Postgres({"wal_level": "logical", "fsync": "off"}, server.in_memory())
    folder = tempfile.mkdtemp(prefix="tidewire-topics-")
    broker = kafkacases.Broker(os.path.join(folder, "kafka"))
    failed = 0
    try:
        for schemas in ("false", "true"):
            try:
                check(o.binary, pg, broker, folder, schemas)
            except AssertionError as error:
                print("FAIL: schemas.enable=%s: %s" % (schemas, error))
                failed += 1
    finally:
        broker.stop()
        pg.stop()
        shutil.rmtree(folder)
    print("%d passed, %d failed" % (2 - failed, failed))
    sys.exit(1 if failed else 0)


def check(binary, pg, broker, folder, schemas):
    name = "schemas_" + schemas
    for db in (name, name + "_replica"):
        pg.connect().cursor().execute("CREATE DATABASE " + db)
    url, where = pg.url(name), os.path.join(folder, name)
    os.mkdir(where)
    c = connect(url)
    c.cursor().execute(SETUP)
    engine = Engine(where, pg, name, schemas, "debezium_" + schemas)
    engine.read(41)
    for sql in CHANGES:
        c.cursor().execute(sql)
    # The key that changes is a delete and a create. (Its row has no large value: Debezium doesn't tell that of the new key.)
    engine.read(10 + 1 + 2 + 10 + 1 + 1)
    topic = name + ".public.thing"
    broker.tell(["topic %s 1" % topic])
    code = lambda text: base64.b64encode(text.encode()).decode()
    broker.tell(["send %s 0 %s %s" % (topic, code(key), code(value)) for key, value in engine.lines()])
    source = {"brokers": broker.address, "topics": [topic]}
    if schemas == "false":
        source["tables_from"] = url
    run = pipeline.Pipeline(binary, where, None, pg.url(name + "_replica"), whole={"debezium": source})
    run.catch_up()
    casechecks.check_copies(run, {"published": {"public.thing": casechecks.SINKS}}, url, pg.url(name + "_replica"), "schemas.enable=" + schemas)


if __name__ == "__main__":
    main()
