"""Java's serializers for a schema registry (Confluent's own, as Debezium's package carries them) with ours: what they register and write comes back, a topic that they wrote is
a source, and they read the topics that Tidewire writes in Avro. `serdes.py --binary B`."""
import argparse, json, os, shutil, signal, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import kafkacases, pipeline, server
from casesteps import connect
from compare import wait


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--binary", required=True)
    o = a.parse_args()
    paths = subprocess.run([os.path.join(os.path.dirname(HERE), "debezium", "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
    pg = server.Postgres({"wal_level": "logical", "fsync": "off"}, server.in_memory())
    folder = tempfile.mkdtemp(prefix="tidewire-serdes-")
    broker = kafkacases.Broker(os.path.join(folder, "kafka"))
    port = server.free_port()
    url, log = "http://127.0.0.1:%d" % port, open(os.path.join(folder, "log"), "w")
    # Schemas lie where Confluent's registry has them, too.
    registry = subprocess.Popen([o.binary, "registry", "--kafka", broker.address, "--listen", "127.0.0.1:%d" % port], stderr=log)

    def java(*words):
        done = subprocess.run(["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", paths,
                               "Serdes", *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, "Serdes %s: %s" % (words[0], done.stderr[-3000:])
        return done.stdout

    passed = failed = 0
    try:
        wait(url, registry, log.name)
        for check in (back, refer, theirs, ours):
            try:
                check(java, o.binary, pg, broker, folder, url)
                passed += 1
            except AssertionError as error:
                print("FAIL: %s: %s" % (check.__name__, error))
                failed += 1
    finally:
        registry.send_signal(signal.SIGTERM)
        registry.wait(30)
        broker.stop()
        pg.stop()
        shutil.rmtree(folder)
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed else 0)


def database(pg, name):
    pg.connect().cursor().execute("CREATE DATABASE " + name)
    return pg.url(name)


def back(java, binary, pg, broker, folder, url):
    assert "they come back" in java("back", url)


def refer(java, binary, pg, broker, folder, url):
    assert "they come back" in java("refer", url)


def theirs(java, binary, pg, broker, folder, url):
    """Java writes, `source.debezium` reads."""
    broker.tell(["topic java.public.things 2"])
    java("write", url, broker.address, "java.public.things", "500")
    where = os.path.join(folder, "theirs")
    os.mkdir(where)
    source = {"brokers": broker.address, "topics": ["java.public.things"], "registry": {"url": url}}
    replica = database(pg, "theirs")
    pipeline.Pipeline(binary, where, None, replica, whole={"debezium": source}).catch_up()
    k = connect(replica).cursor()
    k.execute("SELECT id, name, price::text FROM public.things WHERE NOT _deleted ORDER BY id")
    expected = [(n, None if n % 3 == 0 else "ü%d" % n, None if n % 5 == 0 else "%.2f" % (-n * 101 / 100)) for n in range(1, 501)]
    found = k.fetchall()
    assert found == expected, "%s ... is not %s ..." % (found[:4], expected[:4])


def ours(java, binary, pg, broker, folder, url):
    """Tidewire writes, Java reads."""
    where, source, replica = os.path.join(folder, "ours"), database(pg, "ours"), database(pg, "ours_copy")
    os.mkdir(where)
    c = connect(source)
    k = c.cursor()
    k.execute("CREATE TABLE thing (id bigint PRIMARY KEY, name text, yes boolean, f float8, many int[]);"
              "INSERT INTO thing SELECT g, 'ü' || g, g % 2 = 0, g / 3.0, ARRAY[g, NULL] FROM generate_series(1, 300) g")
    bus = {"brokers": broker.address, "topic_prefix": "ours", "partitions": 3, "format": "debezium-avro", "registry": {"url": url}}
    run = pipeline.Pipeline(binary, where, source, replica, more={"bus": {"kafka": bus}})
    run.catch_up()
    k.execute("UPDATE thing SET f = NULL WHERE id <= 50")
    k.execute("UPDATE thing SET id = id + 1000 WHERE id BETWEEN 10 AND 20")
    k.execute("DELETE FROM thing WHERE id BETWEEN 200 AND 250")
    k.execute("ALTER TABLE thing ADD more text")
    k.execute("UPDATE thing SET more = 'later' WHERE id % 7 = 0")
    run.catch_up()
    rows = {}
    for line in java("read", url, broker.address, "ours.public.thing").splitlines():
        key, value = (json.loads(part) for part in line.split("\t"))
        if value is None or value["op"] == "d":
            rows.pop(key["id"], None)
        else:
            assert value["after"]["id"] == key["id"], line
            rows[key["id"]] = tuple(value["after"].get(name) for name in ("id", "name", "yes", "f", "many", "more"))
    k.execute("SELECT id, name, yes, f, many, more FROM thing")
    expected = {row[0]: row for row in k.fetchall()}
    assert rows == expected, "%d rows and not %d" % (len(rows), len(expected))


if __name__ == "__main__":
    main()
