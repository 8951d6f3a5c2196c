#!/usr/bin/env python3
"""PostgreSQL -> Kafka in Debezium's JSON, beside Debezium's embedded engine on the same log, as ratios in one run.

    testbed/bench_kafka.py [--repeats 3] [--changes 1000000] [--only capture,latency,deliver,parts]

capture   W1 (see bench.py) waits in a slot: `tidewire capture` (JSON without schemas, acks=all, a transaction an append, lz4) into a broker
          on this machine, beside Debezium 3.6's embedded engine with Kafka's own producer (acks=all, idempotent, lz4).
latency   2,000 single-row transactions/s for 30 s with synchronous_commit=on: the commit's time -> a consumer of Kafka's own client that
          reads what is committed; with transactions and without, beside Debezium (which has none) at poll.interval.ms=1. The first 10 s,
          in which the JVMs of broker, consumer and Debezium warm up, aren't counted.
deliver   as many changes of 8 tables on the bus, in our own form: two `tidewire deliver` processes of one group into a lake, the rate of both;
          then one of them is killed under 200 transactions/s over all tables: how long its tables had no commit.
parts     W1 on the bus, in our own form: one table into a lake by one `tidewire deliver` (`buckets: 4`), and by two of one group with
          `parts: 2`; both copies are compared with the source.
Give it the machine alone. Prints medians and the spread; `--json FILE` keeps the numbers.
"""
import argparse, glob, json, os, shutil, statistics, subprocess, sys, threading, time, urllib.request
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server
from bench import Bench, ROOT
from bench_parts import HERE, TABLE, lsn, spread, status, wait

MODES = {"format": "debezium-json"}


class Broker:
    def __init__(self, folder):
        self.folder, self.script = folder, os.path.join(HERE, "kafka.sh")
        # A line of standard input ends it; so does our own end.
        self.process = subprocess.Popen([self.script, "run", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address, "Kafka didn't start"
        self.libs = subprocess.run([self.script], check=True, capture_output=True, text=True).stdout.strip()

    def tool(self, name, *words):
        java = ["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", self.libs + "/*"]
        return subprocess.run([*java, "org.apache.kafka.tools." + name, "--bootstrap-server", self.address, *words],
                              check=True, capture_output=True, text=True).stdout

    def stop(self):
        self.process.communicate("end\n")


class KafkaBench(Bench):
    def __init__(self, o):
        super().__init__(o)
        self.kafka = Broker(os.path.join(self.folder, "kafka"))

    def pipeline(self, name, **more):
        bus = {"kafka": {"brokers": self.kafka.address, "topic_prefix": name, "partitions": 4, **MODES}}
        return self.config(name, "bench", bus=bus, **more)

    def run_part(self, part, config, *words):
        http = "127.0.0.1:%d" % server.free_port()
        with open(config) as f:
            told = json.load(f)
        with open(config, "w") as f:
            json.dump({**told, "http": http}, f)
        return subprocess.Popen([self.o.binary, part, config, *words], stdout=subprocess.DEVNULL)

    def durable(self, config, end):
        told = (status(config) or {}).get("source", {}).get("durable") or {}
        return told.get("commit", 0) >= end - 4096

    def capture(self):
        paths = subprocess.run([os.path.join(HERE, "debezium", "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
        self.make_bench(TABLE)
        n, theirs, ours = self.o.changes, [], []
        for i in range(self.o.repeats):
            name = "ours%d" % i
            config = self.pipeline(name)
            p = self.run_part("capture", config)
            wait("the tables are there", lambda: (status(config) or {}).get("source", {}).get("open"))
            self.end(p)
            self.sql("TRUNCATE w1")
            self.load_w1(n)
            self.sql("CHECKPOINT")
            self.sql("SELECT pg_copy_logical_replication_slot('tw_%s', 'theirs')" % name)
            end = lsn(self.sql("SELECT pg_current_wal_insert_lsn()::text"))
            publication = self.sql("SELECT pubname FROM pg_publication ORDER BY oid DESC LIMIT 1")
            p, began = self.run_part("capture", config), time.time()
            wait("all is durable", lambda: self.durable(config, end), pause=0.02)
            seconds = time.time() - began
            ours.append((seconds, *self.end(p)[1:]))
            topic = "theirs%d.public.w1" % i
            self.kafka.tool("TopicCommand", "--create", "--topic", topic, "--partitions", "4")
            java = subprocess.Popen(["java", "-cp", paths, "Produce", str(self.pg.port), "bench", "theirs", publication, "theirs%d" % i,
                                     str(n), self.kafka.address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            told = java.stdout.read().split()
            _, _, used = os.wait4(java.pid, 0)
            assert len(told) == 2, "Debezium failed"
            theirs.append((float(told[0]), float(told[1]), used.ru_maxrss / 1024))
            for slot in ("tw_" + name, "theirs"):
                wait("nobody reads it", lambda: not self.sql("SELECT active FROM pg_replication_slots WHERE slot_name = '%s'" % slot))
                self.sql("SELECT pg_drop_replication_slot('%s')" % slot)
            shutil.rmtree(os.path.dirname(config))
        middle = lambda figures, i: statistics.median(f[i] for f in figures)
        self.report("capture", {
            "changes": n, "Debezium events/s": spread([n / t[0] for t in theirs]), "Debezium CPU us/event": spread([t[1] / n * 1e6 for t in theirs]),
            "Debezium peak MB": spread([t[2] for t in theirs]), "tidewire capture changes/s, start included": spread([n / t[0] for t in ours]),
            "tidewire capture CPU us/change": spread([t[1] / n * 1e6 for t in ours]), "tidewire capture peak MB": spread([t[2] for t in ours]),
            "events per CPU second beside Debezium": "%.1f" % (middle(theirs, 1) / middle(ours, 1)),
            "events/s beside Debezium": "%.1f" % (middle(theirs, 0) / middle(ours, 0)),
            "memory beside Debezium": "1/%.1f" % (middle(theirs, 2) / middle(ours, 2))})

    def ticks(self, seconds=30, a_second=2000):
        """Single-row transactions at a steady rate; how many."""
        c = self.pg.connect("bench")
        k, began, n = c.cursor(), time.time(), 0
        k.execute("SET synchronous_commit = on")
        while n < seconds * a_second:
            time.sleep(max(0, began + n / a_second - time.time()))
            k.execute("INSERT INTO tick DEFAULT VALUES")
            n += 1
        c.close()
        return n / (time.time() - began)

    def consumed(self, paths, topic, capturing):
        """Drives the ticks beside a consumer; (rate, p50, p99, maximum in ms, CPU seconds of the capturing process meanwhile)."""
        consumer = subprocess.Popen(["java", "-cp", paths, "Latency", self.kafka.address, topic, "20000", "40000"], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True)
        assert consumer.stdout.readline().strip() == "ready", "the consumer failed"
        before, rate = self.used(capturing), self.ticks()
        told = consumer.stdout.read().split()
        assert consumer.wait() == 0 and len(told) == 3, "the consumer failed"
        return (rate, *map(float, told), self.used(capturing) - before)

    def of_capture(self, paths, name, exactly_once):
        bus = {"kafka": {"brokers": self.kafka.address, "topic_prefix": name, "partitions": 4, "exactly_once": exactly_once, **MODES}}
        config = self.config(name, "bench", bus=bus)
        p = self.run_part("capture", config)
        wait("the tables are there", lambda: (status(config) or {}).get("source", {}).get("open"))
        wait("the topic is there", lambda: name + ".public.tick" in self.kafka.tool("TopicCommand", "--list"), pause=0.5)
        figures = self.consumed(paths, name + ".public.tick", p)
        self.end(p)
        return figures

    def latency(self):
        paths = subprocess.run([os.path.join(HERE, "debezium", "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
        self.make_bench("CREATE TABLE tick (id bigserial PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())", "INSERT INTO tick DEFAULT VALUES")
        ours = self.of_capture(paths, "exact", True)
        plain = self.of_capture(paths, "plain", False)
        self.sql("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
        publication = self.sql("SELECT pubname FROM pg_publication ORDER BY oid DESC LIMIT 1")
        self.kafka.tool("TopicCommand", "--create", "--topic", "slow.public.tick", "--partitions", "4")
        java = subprocess.Popen(["java", "-Dpoll=1", "-Dlinger=0", "-cp", paths, "Produce", str(self.pg.port), "bench", "theirs", publication, "slow",
                                 "1000000000", self.kafka.address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            reads = "SELECT active FROM pg_replication_slots WHERE slot_name = 'theirs'"
            wait("Debezium reads", lambda: self.sql(reads), pause=0.1)
            theirs = self.consumed(paths, "slow.public.tick", java)
        finally:
            java.kill()
            java.wait()
        for name, f in (("a Kafka transaction an append (default)", ours), ("exactly_once: false", plain), ("Debezium", theirs)):
            self.report("latency, " + name, {"transactions/s": "%.0f" % f[0], "commit to consumer p50 ms": "%.1f" % f[1], "p99 ms": "%.1f" % f[2],
                                             "maximum ms": "%.0f" % f[3], "CPU % of a core": "%.0f" % (f[4] / 30 * 100)})


    def member(self, config, sink="lake"):
        """A process that delivers to the sink, and what it says of it."""
        http = "127.0.0.1:%d" % server.free_port()
        process = subprocess.Popen([self.o.binary, "deliver", config, "--sink", sink, "--http", http], stdout=subprocess.DEVNULL)

        def lake():
            try:
                with urllib.request.urlopen("http://%s/status" % http, timeout=5) as answer:
                    return json.load(answer)["sinks"][0]
            except OSError:
                return {}
        return process, lake

    def deliver(self):
        tables, n, figures = ["s%d" % i for i in range(8)], self.o.changes // 8, []
        for i in range(self.o.repeats):
            self.make_bench(*["CREATE TABLE %s (id bigint PRIMARY KEY, v text, n int)" % t for t in tables])
            bus = {"kafka": {"brokers": self.kafka.address, "topic_prefix": "shared%d" % i, "partitions": 4, "group": {"session_timeout": "1s"}}}
            config = self.config("shared%d" % i, "bench", bus=bus)
            capturing = self.run_part("capture", config)
            wait("the tables are there", lambda: (status(config) or {}).get("source", {}).get("open"))
            for t in tables:
                self.sql("INSERT INTO %s SELECT g, md5(g::text), 0 FROM generate_series(1, %d) g" % (t, n))
            end = lsn(self.sql("SELECT pg_current_wal_insert_lsn()::text"))
            wait("all is on the bus", lambda: self.durable(config, end), pause=0.02)
            began = time.time()
            (one, of_one), (other, of_other) = self.member(config), self.member(config)
            rows = lambda: of_one().get("rows_applied", 0) + of_other().get("rows_applied", 0)
            wait("all rows are in the lake", lambda: rows() >= n * 8, pause=0.05)
            seconds = time.time() - began
            wait("both have a part", lambda: len(of_one().get("shares", [])) == len(of_other().get("shares", [])) == 4, pause=0.05)
            figures.append((n * 8 / seconds, *self.killed(config, tables, other, of_other, of_one)))
            for process in (one, capturing):
                process.terminate()
                process.wait()
            reads = "SELECT active FROM pg_replication_slots WHERE slot_name = 'tw_shared%d'" % i
            wait("nobody reads it", lambda: not self.sql(reads))
            self.sql("SELECT pg_drop_replication_slot('tw_shared%d')" % i)
        self.report("deliver", {"changes": n * 8, "two processes rows/s, start included": spread([f[0] for f in figures]),
                                "longest pause of a killed process's tables s": spread([f[1] for f in figures]),
                                "of the other tables s": spread([f[2] for f in figures]), "copies that differ at the end": sum(f[3] for f in figures)})

    def parts(self):
        n, figures, unequal = self.o.changes, {"whole": [], "parted": []}, 0
        for i in range(self.o.repeats):
            self.make_bench(TABLE)
            name = "parts%d" % i
            bus = {"kafka": {"brokers": self.kafka.address, "topic_prefix": name, "partitions": 4, "group": {"session_timeout": "6s"}}}
            lake = lambda sink, **more: {"delta": {"path": os.path.join(self.folder, name, sink), "buckets": 4, **more}}
            sinks = {"whole": lake("whole"), "parted": lake("parted", parts=2)}
            config = self.config(name, "bench", bus=bus, sinks=sinks)
            capturing = self.run_part("capture", config)
            wait("the table is there", lambda: (status(config) or {}).get("source", {}).get("open"))
            self.load_w1(n)
            end = lsn(self.sql("SELECT pg_current_wal_insert_lsn()::text"))
            wait("all is on the bus", lambda: self.durable(config, end), pause=0.02)
            # By turns: what comes first finds a colder machine.
            for sink, processes in (("whole", 1), ("parted", 2)) if i % 2 == 0 else (("parted", 2), ("whole", 1)):
                *figure, is_equal = self.delivered(config, sink, processes, end)
                figures[sink].append(figure)
                unequal += not is_equal
            self.end(capturing)
            self.sql("SELECT pg_drop_replication_slot('tw_%s')" % name)
        rate = {sink: [n / f[0] for f in of] for sink, of in figures.items()}
        cpu = {sink: [f[1] / n * 1e6 for f in of] for sink, of in figures.items()}
        self.report("parts", {
            "changes": n, "one process changes/s, start included": spread(rate["whole"]), "CPU us/change": spread(cpu["whole"]),
            "two processes with parts: 2 changes/s": spread(rate["parted"]), "their CPU us/change": spread(cpu["parted"]),
            "two beside one": "%.2f" % (statistics.median(rate["parted"]) / statistics.median(rate["whole"])),
            "copies that differ at the end": unequal})

    def delivered(self, config, sink, processes, end):
        """Processes of a group write the table up to here: the seconds, their CPU seconds, and whether it is equal."""
        began = time.time()
        members = [self.member(config, sink) for _ in range(processes)]

        def is_all():
            told = [lake() for _, lake in members]
            has_part = all(lake.get("shares") for lake in told)
            return has_part and all(lake["position"]["commit"] >= end - 4096 for lake in told)
        wait("all is in the lake", is_all, pause=0.05)
        seconds = time.time() - began
        used = [self.used(process) for process, _ in members]
        told = subprocess.run([self.o.binary, "reconcile", config, "--sink", sink, "--json"], capture_output=True, text=True)
        for process, _ in members:
            self.end(process)
        return seconds, sum(used), json.loads(told.stdout)["equal"]

    def used(self, process):
        """CPU seconds of a process that runs."""
        with open("/proc/%d/stat" % process.pid) as f:
            return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")

    def killed(self, config, tables, process, lake, of_other):
        """Kills it under load. The longest time without a commit of its tables and of the others, and whether a copy differs at last."""
        moved, ends, ticks = set(t.split(".")[1] for t in lake()["shares"]), threading.Event(), [0]

        def load():
            c = self.pg.connect("bench")
            k, began = c.cursor(), time.time()
            while not ends.is_set():
                time.sleep(max(0, began + ticks[0] / 200 - time.time()))
                ticks[0] += 1
                k.execute("; ".join("INSERT INTO %s VALUES (%d, 'tick', 1)" % (t, 10**9 + ticks[0]) for t in tables))
            c.close()
        loading = threading.Thread(target=load)
        loading.start()
        time.sleep(5)
        began = time.time()
        process.kill()
        process.wait()
        wait("its tables go on", lambda: len(of_other().get("shares", [])) == len(tables), pause=0.05)
        time.sleep(5)
        ends.set()
        loading.join()
        lake = os.path.join(os.path.dirname(config), "lake", "public")
        commits = lambda t: sorted(os.path.getmtime(f) for f in glob.glob(os.path.join(lake, t, "_delta_log", "*[0-9].json")))
        pause = lambda t: max(b - a for a, b in zip(commits(t), commits(t)[1:]) if b > began - 1)
        compared = subprocess.run([self.o.binary, "reconcile", config, "--sink", "lake", "--json"], capture_output=True, text=True)
        told = json.loads(compared.stdout)
        lacking = 0 if told["equal"] else 1
        return max(map(pause, moved)), max(map(pause, set(tables) - moved)), lacking


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--repeats", type=int, default=3)
    a.add_argument("--changes", type=int, default=1_000_000)
    a.add_argument("--only", default="capture,latency,deliver,parts")
    a.add_argument("--json")
    a.add_argument("--binary", default=os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "tidewire"))
    b = KafkaBench(a.parse_args())
    print("date %s, %d cores, %.0f GiB" % (time.strftime("%Y-%m-%d"), os.cpu_count(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30))
    try:
        for name in b.o.only.split(","):
            getattr(b, name)()
        if b.o.json:
            with open(b.o.json, "w") as f:
                json.dump(b.figures, f, indent=1, ensure_ascii=False)
    finally:
        b.kafka.stop()
        b.pg.stop()
        shutil.rmtree(b.folder)


if __name__ == "__main__":
    main()
