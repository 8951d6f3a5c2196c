"""Further parts of `testbed/bench.py`: its class `Bench` has them."""
import json, os, shutil, signal, statistics, subprocess, threading, time, urllib.request
import server

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = """CREATE TABLE w1 (id bigint PRIMARY KEY, customer int, status text, amount numeric(12,2), created timestamptz,
                            note text, qty int, flag boolean)"""
INSERT = """INSERT INTO w1 SELECT g, g %% 1000, 'paid', (g %% 10000) / 100.0, now(), md5(g::text) || md5((g + 1)::text), g %% 7,
            g %% 2 = 0 FROM generate_series(%d, %d) g"""


def timed(words, **more):
    """(seconds, CPU seconds, peak MB) of one process, by wait4."""
    began = time.time()
    p = subprocess.Popen(words, stdout=subprocess.DEVNULL, **more)
    _, status, used = os.wait4(p.pid, 0)
    assert status == 0, "%s ended with %d" % (words[:3], status)
    return time.time() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def rss(process):
    """MB that a running process has in memory."""
    return [int(line.split()[1]) / 1024 for line in open("/proc/%d/status" % process.pid) if line.startswith("VmRSS")][0]


def spread(values):
    return "%.3g (%.3g–%.3g)" % (statistics.median(values), min(values), max(values))


def address(config):
    return "http://" + json.load(open(config))["http"]


def status(config):
    """What the pipeline says of itself; None while it doesn't answer."""
    try:
        with urllib.request.urlopen(address(config) + "/status", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return None


def durable_ms(config):
    """Share -> the bound of the histogram, in ms, below which so many commits were durable in the journal."""
    with urllib.request.urlopen(address(config) + "/metrics", timeout=5) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("tidewire_durable_seconds_bucket")]
    bounds = [(line.split('le="')[1].split('"')[0], float(line.split()[-1])) for line in lines]
    return lambda share: next("%g" % (float(bound) * 1000) for bound, n in bounds if n >= share * bounds[-1][1])


def wait(what, so, limit=600, pause=0.005):
    """Waits until `so()` is true; the seconds that it took."""
    began = time.time()
    while not so():
        assert time.time() < began + limit, "it never came to this: " + what
        time.sleep(pause)
    return time.time() - began


def lsn(text):
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


class Parts:
    def run(self, config, **more):
        return subprocess.Popen([self.o.binary, "run", config], stdout=subprocess.DEVNULL, **more)

    def end(self, process):
        """Stops it; (seconds until it had ended, its CPU seconds, its peak MB)."""
        began = time.time()
        process.send_signal(signal.SIGTERM)
        _, code, used = os.wait4(process.pid, 0)
        assert code == 0, "it ended with %d" % code
        return time.time() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024

    def many(self, count, text):
        """One statement again and again, each a transaction."""
        c = self.pg.connect("bench")
        k = c.cursor()
        for i in range(count):
            k.execute(text % i if "%" in text else text)
        c.close()

    def shapes(self):
        n = self.o.changes
        columns = ", ".join("c%d %s" % (i, ["int", "text", "timestamptz", "numeric(12,2)", "boolean"][i % 5]) for i in range(59))
        values = ", ".join(["g", "md5(g::text)", "now()", "g / 100.0", "g % 2 = 0"][i % 5] for i in range(59))
        self.make_bench("CREATE TABLE wide (id bigint PRIMARY KEY, %s)" % columns)
        at = iter(range(1000))

        def wide():
            a = next(at)
            for part in range(100):
                first = (a * 100 + part) * n // 1000
                self.sql("INSERT INTO wide SELECT g, %s FROM generate_series(%d, %d) g" % (values, first, first + n // 1000 - 1))
        self.beside_recvlogical("wide", wide, n // 10, ", 60 columns")

        table = "CREATE TABLE t%03d (id bigint PRIMARY KEY, v text, n int)"
        self.make_bench(*[table % t for t in range(500)])

        def tables():
            a = next(at)
            for part in range(10):
                for t in range(500):
                    first = (a * 10 + part) * n // 10000
                    self.sql("INSERT INTO t%03d SELECT g, md5(g::text), g FROM generate_series(%d, %d) g" % (t, first, first + n // 10000 - 1))
        self.beside_recvlogical("tables", tables, 500 * 10 * (n // 10000), ", 500 of them")

        self.make_bench("CREATE TABLE single (id bigserial PRIMARY KEY, v text)")
        single = "DO $$BEGIN FOR i IN 1..10000 LOOP INSERT INTO single (v) VALUES (md5(i::text)); COMMIT; END LOOP; END$$"
        self.beside_recvlogical("single", lambda: self.many(n // 50000, single), n // 50000 * 10000, ", transactions of one change")

        self.make_bench("CREATE TABLE one (id bigserial PRIMARY KEY, v text, n int)")
        whole = "INSERT INTO one (v, n) SELECT md5(g::text) || md5(g::text), g FROM generate_series(1, %d) g" % n
        self.beside_recvlogical("one", lambda: self.sql(whole), n, " transaction of all changes")
        self.sql("ALTER SYSTEM SET logical_decoding_work_mem = '64kB'", "postgres")
        self.sql("SELECT pg_reload_conf()", "postgres")
        self.beside_recvlogical("spilled", lambda: self.sql(whole), n, " transaction of all changes: logical_decoding_work_mem of 64 kB")
        self.sql("ALTER SYSTEM RESET logical_decoding_work_mem", "postgres")
        self.sql("SELECT pg_reload_conf()", "postgres")

    def large(self):
        n = 5 * self.o.changes
        self.make_bench("CREATE TABLE large (id bigint PRIMARY KEY, v text, n int)")
        config = self.config("large", "bench", memory="256MB")
        self.caught_up(config)
        self.sql("INSERT INTO large SELECT g, md5(g::text) || md5(g::text), g FROM generate_series(1, %d) g" % n)
        seconds, cpu, peak = self.caught_up(config)
        self.report("large", {"one transaction of rows, memory: 256MB": n, "seconds": "%.0f" % seconds, "CPU s": "%.0f" % cpu, "peak MB": "%.0f" % peak})

    def tables(self):
        self.make_bench(*["CREATE TABLE t%03d (id bigint PRIMARY KEY, v text)" % t for t in range(500)])
        config = self.config("idle500", "bench")
        seconds, _, _ = self.caught_up(config)
        p = self.run(config)
        wait("it streams", lambda: (status(config) or {}).get("source", {}).get("open"))
        time.sleep(20)
        memory = rss(p)
        self.end(p)
        self.report("tables", {"tables": 500, "first start until caught up s": "%.1f" % seconds, "RSS MB after 20 s": "%.0f" % memory})

    def reconcile(self):
        """Needs no load of its own: rows of `snapshot` are made anew."""
        n = self.o.rows
        self.make_bench(TABLE, INSERT % (1, n), "VACUUM (ANALYZE, FREEZE) w1")
        config = self.config("reconcile", "bench")
        self.caught_up(config)
        p = self.run(config)
        wait("it streams", lambda: (status(config) or {}).get("source", {}).get("open"))
        words = [self.o.binary, "reconcile", config, "--sink", "lake"]
        copy = ["psql", "-qX", self.pg.url("bench"), "-c", "COPY (SELECT * FROM w1) TO STDOUT (FORMAT binary)"]
        both = lambda: [(timed(copy)[0], timed(words)[0]) for _ in range(self.o.repeats)]
        quiet = both()
        stop = threading.Event()

        def load():
            c = self.pg.connect("bench")
            k, i = c.cursor(), 0
            while not stop.is_set():
                k.execute("UPDATE w1 SET qty = qty + 1 WHERE id BETWEEN %d AND %d" % (i * 100 % n, i * 100 % n + 99))
                i += 1
                time.sleep(0.05)
        loader = threading.Thread(target=load)
        loader.start()
        loaded = both()
        stop.set()
        loader.join()
        self.end(p)
        figures = {"rows": n}
        for name, pairs in (("", quiet), (", 2,000 updates/s", loaded)):
            copies, times = zip(*pairs)
            figures |= {"binary COPY s" + name: spread(copies), "reconcile s" + name: spread(times),
                        "in COPYs" + name: "%.2f" % (statistics.median(times) / statistics.median(copies))}
        self.report("reconcile", figures)

    def startstop(self):
        self.make_bench(TABLE, INSERT % (1, 100_000))
        config = self.config("startstop", "bench")
        self.caught_up(config)
        starts, stops = [], []
        for i in range(self.o.repeats):
            p = self.run(config)
            starts.append(wait("it streams", lambda: (status(config) or {}).get("source", {}).get("open"), pause=0.002))
            self.end(p)
        for i in range(self.o.repeats):
            p = self.run(config)
            first = 100_001 + i * 1_000_000
            loader = threading.Thread(target=lambda: [self.sql(INSERT % (a, a + 9999)) for a in range(first, first + 500_000, 10_000)])
            loader.start()
            wait("changes come", lambda: ((status(config) or {}).get("source", {}).get("written_bytes_per_second") or 0) > 1e6)
            stops.append(self.end(p)[0])
            loader.join()
        self.report("startstop", {"start until it streams s": spread(starts), "stop under full load s": spread(stops)})

    def debezium(self):
        """Debezium's embedded engine, JSON, to a consumer that counts; ours to the durable journal, and the journal as JSON lines."""
        paths = subprocess.run([os.path.join(HERE, "debezium", "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
        self.make_bench(TABLE)
        n, theirs, ours, lines = self.o.changes, [], [], []
        for i in range(self.o.repeats):
            name = "debezium%d" % i
            # A sink that isn't there: the journal is all that is written.
            nowhere = {"postgres": {"url": "postgres://nobody@127.0.0.1:%d/none" % server.free_port()}}
            config = self.config(name, "bench", sinks={"nowhere": nowhere})
            p = self.run(config)
            wait("the tables are there", lambda: (status(config) or {}).get("source", {}).get("open"))
            self.end(p)
            self.sql("TRUNCATE w1")
            self.load_w1(n)
            self.sql("CHECKPOINT")
            self.sql("SELECT pg_copy_logical_replication_slot('tw_%s', 'theirs')" % name)
            end = lsn(self.sql("SELECT pg_current_wal_insert_lsn()::text"))
            publication = self.sql("SELECT pubname FROM pg_publication ORDER BY oid DESC LIMIT 1")
            p, began = self.run(config), time.time()
            wait("all is durable", lambda: ((status(config) or {}).get("source", {}).get("durable") or {}).get("commit", 0) >= end - 4096, pause=0.02)
            seconds = time.time() - began
            ours.append((seconds, *self.end(p)[1:]))
            lines.append(timed([self.o.binary, "topic", "read", config, "public.w1"]))
            java = subprocess.Popen(["java", "-cp", paths, "Count", str(self.pg.port), "bench", "theirs", publication, str(n)],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            told = java.stdout.read().split()
            _, _, used = os.wait4(java.pid, 0)
            theirs.append((float(told[0]), float(told[1]), used.ru_maxrss / 1024))
            for slot in ("tw_" + name, "theirs"):
                wait("nobody reads it", lambda: not self.sql("SELECT active FROM pg_replication_slots WHERE slot_name = '%s'" % slot))
                self.sql("SELECT pg_drop_replication_slot('%s')" % slot)
            shutil.rmtree(os.path.dirname(config))
        middle = lambda figures, i: statistics.median(f[i] for f in figures)
        both = middle(ours, 1) + middle(lines, 1)
        self.report("debezium", {
            "changes": n, "Debezium events/s": spread([n / t[0] for t in theirs]), "Debezium CPU us/event": spread([t[1] / n * 1e6 for t in theirs]),
            "Debezium peak MB": spread([t[2] for t in theirs]), "tidewire to the journal changes/s, start included": spread([n / t[0] for t in ours]),
            "tidewire to the journal CPU us/change": spread([t[1] / n * 1e6 for t in ours]),
            "the journal as JSON lines CPU us/change": spread([t[1] / n * 1e6 for t in lines]), "tidewire peak MB": spread([t[2] for t in ours]),
            "events per CPU second, journal and lines beside Debezium": "%.1f" % (middle(theirs, 1) / both),
            "events/s beside Debezium": "%.1f" % (middle(theirs, 0) / middle(ours, 0)), "memory beside Debezium": "1/%.1f" % (middle(theirs, 2) / middle(ours, 2))})
