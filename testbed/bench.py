#!/usr/bin/env python3
"""Measures Tidewire beside PostgreSQL's own client on the same machine and the same log, as ratios in one run.

    testbed/bench.py [--repeats 3] [--changes 2000000] [--rows 5000000] [--only stream,snapshot,…]

stream     W1 (50 % inserts, 40 % updates, 10 % deletes, 8 columns, about 145 bytes a row, transactions of 1,000) waits in a
           slot: PostgreSQL -> journal (durable) -> Delta, beside `pg_recvlogical` (pgoutput, protocol 1) of the same log
           to /dev/null.
snapshot   a table to Delta beside one binary COPY to /dev/null.
freshness  2,000 single-row transactions/s for 20 s with synchronous_commit=on: commit -> visible in the Delta log.
idle       one minute without changes: CPU, memory, and that the slot goes on.
shapes     the stream again: 60 columns, 500 tables, transactions of one change, one transaction, little memory for decoding.
large      one transaction of 10M rows within `memory: 256MB`.
tables     500 tables without changes: memory.
reconcile  5M rows compared with and without load, beside their COPY.
startstop  a caught-up pipeline: start until it streams; stop under full load.
debezium   Debezium's embedded engine (JSON) beside ours to the journal, on the same log (testbed/debezium.sh gets it).
Give it the machine alone. Prints medians and the spread; `--json FILE` keeps the numbers.
"""
import argparse, glob, json, os, shutil, signal, statistics, subprocess, sys, tempfile, threading, time
import psycopg2
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server
from bench_parts import INSERT, TABLE, Parts, durable_ms, rss, spread, timed

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Bench(Parts):
    def __init__(self, o):
        self.o, self.folder, self.figures = o, tempfile.mkdtemp(prefix="tidewire-bench-"), {}
        self.pg = server.Postgres({"wal_level": "logical", "shared_buffers": "1GB", "fsync": "off", "synchronous_commit": "off",
                                   "autovacuum": "off", "max_wal_size": "8GB", "max_replication_slots": 50, "max_wal_senders": 20})

    def sql(self, text, db="bench"):
        c = self.pg.connect(db)
        k = c.cursor()
        k.execute(text)
        out = k.fetchone()[0] if k.description else None
        c.close()
        return out

    def config(self, name, db, **more):
        folder = os.path.join(self.folder, name)
        os.makedirs(folder)
        path = os.path.join(folder, "pipeline.yaml")
        with open(path, "w") as f:
            json.dump({"source": {"postgres": {"url": self.pg.url(db), "slot": "tw_" + name}},
                       "sinks": {"lake": {"delta": {"path": os.path.join(folder, "lake")}}},
                       "data_dir": os.path.join(folder, "journal"), "http": "127.0.0.1:%d" % server.free_port(), **more}, f)
        return path

    def caught_up(self, config):
        return timed([self.o.binary, "run", config, "--until-caught-up"])

    def load_w1(self, changes):
        """Half inserts, then updates and deletes of those rows, in transactions of 1,000."""
        c = self.pg.connect("bench")
        k, n = c.cursor(), changes // 2
        for a in range(1, n + 1, 1000):
            k.execute(INSERT % (a, a + 999))
        for a in range(1, int(n * 0.8) + 1, 1000):
            k.execute("UPDATE w1 SET status = 'sent', qty = qty + 1 WHERE id BETWEEN %d AND %d" % (a, a + 999))
        for a in range(int(n * 0.8) + 1, n + 1, 1000):
            k.execute("DELETE FROM w1 WHERE id BETWEEN %d AND %d" % (a, a + 999))
        c.close()

    def beside_recvlogical(self, name, load, changes, options=""):
        """`load` fills a slot; pg_recvlogical and we read the same log. Reports both, and the ratio."""
        ours, theirs, base = [], [], []
        for i in range(self.o.repeats):
            slot = "tw_%s%d" % (name, i)
            config = self.config(slot[3:], "bench")
            self.caught_up(config)
            base.append(self.caught_up(config))
            load()
            self.sql("CHECKPOINT")
            self.sql("SELECT pg_copy_logical_replication_slot('%s', 'copy%d')" % (slot, i))
            end = self.sql("SELECT pg_current_wal_insert_lsn()")
            publication = self.sql("SELECT pubname FROM pg_publication ORDER BY oid DESC LIMIT 1")
            theirs.append(timed([os.path.join(self.pg.bin, "pg_recvlogical"), "-d", self.pg.url("bench"), "-S", "copy%d" % i, "--start",
                                 "-o", "proto_version=1", "-o", "publication_names=" + publication, "-f", "/dev/null", "-E", end, "--no-loop"]))
            ours.append(self.caught_up(config))
            for s in (slot, "copy%d" % i):
                self.sql("SELECT pg_drop_replication_slot('%s')" % s)
            shutil.rmtree(os.path.dirname(config))
        idle = statistics.median(b[0] for b in base)
        rate = [changes / (t[0] - idle) for t in ours]
        self.report(name + options, {
            "changes": changes, "pg_recvlogical changes/s": spread([changes / t[0] for t in theirs]),
            "pg_recvlogical client CPU us/change": spread([t[1] / changes * 1e6 for t in theirs]),
            "tidewire changes/s (start of %.2f s taken off)" % idle: spread(rate),
            "tidewire CPU us/change": spread([t[1] / changes * 1e6 for t in ours]), "tidewire peak MB": spread([t[2] for t in ours]),
            "ratio": "%.2f" % (statistics.median(rate) / statistics.median(changes / t[0] for t in theirs))})

    def make_bench(self, *tables):
        """An empty database `bench` with these tables."""
        self.sql("DROP DATABASE IF EXISTS bench WITH (FORCE)", "postgres")
        self.sql("CREATE DATABASE bench", "postgres")
        for table in tables:
            self.sql(table)

    def stream(self):
        self.make_bench(TABLE)

        def load():
            self.sql("TRUNCATE w1")
            self.load_w1(self.o.changes)
        self.beside_recvlogical("stream", load, self.o.changes)

    def snapshot(self):
        self.sql("CREATE DATABASE snap", "postgres")
        self.sql(TABLE, "snap")
        self.sql(INSERT % (1, self.o.rows), "snap")
        self.sql("VACUUM (ANALYZE, FREEZE) w1", "snap")
        copies, ours, n = [], [], self.o.rows
        for i in range(self.o.repeats):
            copies.append(timed(["psql", "-qX", self.pg.url("snap"), "-c", "COPY (SELECT * FROM w1) TO STDOUT (FORMAT binary)"]))
            ours.append(self.caught_up(self.config("snap%d" % i, "snap")))
            self.sql("SELECT pg_drop_replication_slot('tw_snap%d')" % i, "snap")
        self.report("snapshot", {
            "rows": n, "binary COPY rows/s": spread([n / t[0] for t in copies]), "tidewire rows/s, start to end": spread([n / t[0] for t in ours]),
            "tidewire CPU s": spread([t[1] for t in ours]), "tidewire peak MB": spread([t[2] for t in ours]),
            "ratio": "%.2f" % (statistics.median(n / t[0] for t in ours) / statistics.median(n / t[0] for t in copies))})

    def freshness(self):
        """Each transaction writes its own wall time; the Delta log's newest `_ts` at each commit's time is compared."""
        self.sql("CREATE DATABASE fresh", "postgres")
        self.sql("CREATE TABLE tick (id bigserial PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())", "fresh")
        config = self.config("fresh", "fresh")
        self.caught_up(config)
        p, started = subprocess.Popen([self.o.binary, "run", config], stdout=subprocess.DEVNULL), time.time()
        seen, stop = {}, threading.Event()
        folder = os.path.join(os.path.dirname(config), "lake", "public", "tick", "_delta_log")

        def watch():
            while not stop.is_set():
                for f in glob.glob(os.path.join(folder, "*.json")):
                    seen.setdefault(f, time.time())
                time.sleep(0.005)
        w = threading.Thread(target=watch, daemon=True)
        w.start()
        time.sleep(2)
        before = {f: t for f, t in seen.items()}
        c = self.pg.connect("fresh")
        k = c.cursor()
        k.execute("SET synchronous_commit = on")
        began, done = time.time(), []
        while time.time() - began < 20:
            due = began + len(done) / 2000
            time.sleep(max(0, due - time.time()))
            k.execute("INSERT INTO tick DEFAULT VALUES")
            done.append(time.time())
        time.sleep(2)
        stop.set()
        w.join()
        durable = durable_ms(config)
        p.send_signal(signal.SIGTERM)
        _, _, used = os.wait4(p.pid, 0)
        rows, lags = 0, []
        for f in sorted(set(seen) - set(before)):
            for line in open(f):
                add = json.loads(line).get("add")
                if add and add.get("dataChange", True):
                    n = json.loads(add["stats"])["numRecords"]
                    lags += [seen[f] - t for t in done[rows:rows + n]]
                    rows += n
        lags.sort()
        alive = time.time() - started
        self.report("freshness", {"transactions": len(done), "transactions/s": "%.0f" % (len(done) / 20), "seen": rows,
                                  "commit to visible p50 s": "%.3f" % lags[len(lags) // 2], "p99 s": "%.3f" % lags[int(len(lags) * 0.99)],
                                  "commit to durable ms at most, p50": durable(0.5), "p95": durable(0.95), "p99": durable(0.99),
                                  "CPU s a minute": "%.2f" % ((used.ru_utime + used.ru_stime) / alive * 60), "peak MB": "%.0f" % (used.ru_maxrss / 1024)})

    def idle(self):
        self.sql("CREATE DATABASE idle", "postgres")
        self.sql(TABLE, "idle")
        config = self.config("idle", "idle")
        self.caught_up(config)
        p = subprocess.Popen([self.o.binary, "run", config], stdout=subprocess.DEVNULL)
        time.sleep(5)
        ticks = lambda: sum(int(x) for x in open("/proc/%d/stat" % p.pid).read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
        at = self.sql("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = 'tw_idle'", "idle")
        a = ticks()
        time.sleep(60)
        b = ticks()
        moved = self.sql("SELECT confirmed_flush_lsn - '%s'::pg_lsn FROM pg_replication_slots WHERE slot_name = 'tw_idle'" % at, "idle")
        memory = rss(p)
        p.send_signal(signal.SIGTERM)
        p.wait()
        self.report("idle", {"CPU % of a core": "%.2f" % ((b - a) / 60 * 100), "RSS MB": "%.0f" % memory, "bytes that the slot went on": str(moved)})

    def report(self, name, figures):
        self.figures[name] = figures
        print("\n## %s" % name)
        for k, v in figures.items():
            print("%-60s %s" % (k, v), flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--repeats", type=int, default=3)
    a.add_argument("--changes", type=int, default=2_000_000)
    a.add_argument("--rows", type=int, default=5_000_000)
    a.add_argument("--only", default="stream,snapshot,freshness,idle")
    a.add_argument("--json")
    a.add_argument("--binary", default=os.environ.get("TIDEWIRE_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "tidewire"))
    b = Bench(a.parse_args())
    print("date %s, %d cores, %.0f GiB" % (time.strftime("%Y-%m-%d"), os.cpu_count(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30))
    try:
        for name in b.o.only.split(","):
            getattr(b, name)()
        if b.o.json:
            with open(b.o.json, "w") as f:
                json.dump(b.figures, f, indent=1, ensure_ascii=False)
    finally:
        b.pg.stop()
        shutil.rmtree(b.folder)


if __name__ == "__main__":
    main()
