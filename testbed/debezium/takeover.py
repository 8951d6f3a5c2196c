"""A running Debezium connector is taken over and handed back: Debezium's embedded engine reads a slot and stops in the middle of a
transaction, Tidewire goes on in the same slot by its offset, is stopped, and Debezium goes on by the offset that Tidewire wrote. All the
while rows change. Whoever applies the three parts one after the other must have what the source has, and no change may be in none of
them. `takeover.py --binary B`."""
import argparse, json, os, shutil, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import casechecks, pipeline, server
from casesteps import connect


def work(url, rounds, start):
    """Each round is a transaction of 60 changes; every change of a row has a number of its own."""
    c = connect(url)
    k = c.cursor()
    for n in range(start, start + rounds):
        k.execute("BEGIN")
        k.execute("INSERT INTO thing SELECT %s * 100 + g, nextval('change'), 'new' FROM generate_series(1, 30) g", (n,))
        k.execute("UPDATE thing SET n = nextval('change'), v = 'changed' WHERE id %% 100 <= 20 AND id / 100 = %s", (n - 1,))
        k.execute("DELETE FROM thing WHERE id %% 100 > 20 AND id / 100 = %s", (n - 1,))
        k.execute("COMMIT")
    c.close()


class Engine:
    def __init__(self, folder, pg, database, schemas="false", slot="debezium"):
        self.folder, self.offsets, self.events = folder, os.path.join(folder, "offsets.dat"), os.path.join(folder, "events")
        self.paths = subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
        with open(os.path.join(folder, "connector"), "w") as f:
            f.write("\n".join(("name=inventory", "connector.class=io.debezium.connector.postgresql.PostgresConnector",
                "offset.storage=org.apache.kafka.connect.storage.FileOffsetBackingStore", "offset.storage.file.filename=" + self.offsets,
                "offset.flush.interval.ms=0", "topic.prefix=shop", "database.hostname=127.0.0.1", "database.port=%d" % pg.port,
                "database.user=postgres", "database.password=x", "database.dbname=" + database, "plugin.name=pgoutput", "slot.name=" + slot,
                "publication.name=dbz_publication", "publication.autocreate.mode=filtered", "table.include.list=public.thing",
                "snapshot.mode=initial", "converter.schemas.enable=" + schemas, "poll.interval.ms=20", "slot.drop.on.stop=false")))

    def read(self, events):
        before = len(self.told())
        done = subprocess.run(["java", "-cp", self.paths, "Follow", os.path.join(self.folder, "connector"), self.events, str(events)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        return self.told()[before:]

    def lines(self):
        """Key and value of each event."""
        if not os.path.exists(self.events):
            return []
        with open(self.events) as f:
            return [tuple(line.rstrip("\n").split("\t", 1)) for line in f]

    def told(self):
        values = (json.loads(value) for _, value in self.lines())
        return [(value["op"], value["before"], value["after"]) for value in (v.get("payload", v) for v in values)]


def of_tidewire(run):
    """What a consumer would have got of the second part: the changes, without rows that were read for the copies."""
    found = []
    for line in run.call("topic", "read", run.config, "public.thing", "--format", "debezium").splitlines():
        value = json.loads(line)["value"]
        if value:
            found.append((value["op"], value["before"], value["after"]))
    return found


def apply(events, rows):
    for op, before, after in events:
        if op == "d":
            rows.pop(int(before["id"]), None)
        else:
            rows[int(after["id"])] = (int(after["n"]), after["v"])


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--binary", required=True)
    o = a.parse_args()
    pg = server.Postgres({"wal_level": "logical", "fsync": "off"}, server.in_memory())
    folder = tempfile.mkdtemp(prefix="tidewire-takeover-")
    try:
        check(o.binary, pg, folder)
        print("1 passed, 0 failed")
    except AssertionError as error:
        print("FAIL: %s\n0 passed, 1 failed" % error)
        sys.exit(1)
    finally:
        pg.stop()
        shutil.rmtree(folder)


def check(binary, pg, folder):
    for db in ("shop", "replica"):
        pg.connect().cursor().execute("CREATE DATABASE " + db)
    url = pg.url("shop")
    c = connect(url)
    c.cursor().execute("CREATE SEQUENCE change; CREATE TABLE thing (id int PRIMARY KEY, n bigint, v text);"
                       "INSERT INTO thing SELECT g, nextval('change'), 'first' FROM generate_series(1, 90) g")
    engine = Engine(folder, pg, "shop")
    engine.read(90)
    work(url, 5, 1)
    # 95 lies in the middle of a transaction.
    first = engine.told() + engine.read(95)
    work(url, 3, 6)
    where = os.path.join(folder, "pipeline")
    os.mkdir(where)
    source = {"slot": "debezium", "publication": "dbz_publication", "tables": ["public.thing"]}
    run = pipeline.Pipeline(binary, where, url, pg.url("replica"), source)
    with open(run.config) as f:
        told = json.load(f)
    told["source"]["postgres"]["slot"] = "debezium"
    with open(run.config, "w") as f:
        json.dump(told, f)
    # Beyond the server's log, and before the slot's place.
    for lsn in (1 << 60, 1 << 16):
        other = os.path.join(folder, "other.json")
        with open(other, "w") as f:
            json.dump({"offsets": [{"partition": {"server": "shop"}, "offset": {"lsn": lsn}}]}, f)
        run.call("offsets", "import", run.config, "--from", other, codes=(2,))
    print(run.call("offsets", "import", run.config, "--from", engine.offsets).strip())
    # It has a place of its own now.
    run.call("offsets", "import", run.config, "--from", engine.offsets, codes=(2,))
    run.start()
    run.wait_until_streaming()
    work(url, 4, 9)
    run.catch_up()
    casechecks.check_copies(run, {"published": {"public.thing": casechecks.SINKS}}, url, pg.url("replica"), "after the takeover")
    run.call("reconcile", run.config)
    second = of_tidewire(run)
    work(url, 2, 13)
    print(run.call("offsets", "export", run.config, "--to", engine.offsets, "--force", "--form", "engine", "--connector", "inventory", "--server", "shop").strip())
    work(url, 2, 15)
    third = engine.read(4 * 60)
    rows = {}
    for part in (first, second, third):
        apply(part, rows)
    k = c.cursor()
    k.execute("SELECT id, n, v FROM thing")
    expected = {id: (n, v) for id, n, v in k.fetchall()}
    assert rows == expected, "%d rows after all parts, %d at the source; %s" % (len(rows), len(expected), sorted(set(rows.items()) ^ set(expected.items()))[:6])
    k.execute("SELECT last_value FROM change")
    seen = {int(after["n"]) for part in (first, second, third) for _, _, after in part if after}
    missing = set(range(1, k.fetchone()[0] + 1)) - seen
    assert not missing, "%d changes are in no part: %s" % (len(missing), sorted(missing)[:10])
    again = lambda part: sorted(int(after["n"]) for op, _, after in part if after and op in "cu")
    twice = [n for n in again(first) if n in set(again(second))]
    assert len(twice) < 60, "%d changes were told again: more than those of the transaction in which Debezium stopped" % len(twice)
    assert not set(again(second)) & set(again(third)), "changes that Tidewire told were told again"


if __name__ == "__main__":
    main()
