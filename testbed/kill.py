#!/usr/bin/env python3
"""Kills the pipeline at random moments and at named ones under a mixed load, with other faults beside, then demands that both
copies equal the source.

    testbed/kill.py [--seed N] [--kills 20] [--seeds 1] [--keep]

One private PostgreSQL, one source and one replica database, each behind a proxy. Workers with seeded random numbers insert,
update (partial TOAST updates too), delete, move and swap keys, truncate, alter tables and run large transactions, while the
`tidewire` process is ended by SIGKILL at random moments or ends itself at a named one (TIDEWIRE_DIE_AT: before and after
each durable step). Beside that the server is restarted (fast and immediate), connections are cut in the middle of a message,
left half-open, slow or refused, the replica is away for a while, the slot is dropped, or invalidated by max_slot_wal_keep_size,
and the disk of journal and lake is full for a while (a small tmpfs; left out, and said so, where it can't be mounted). Upkeep
(merges, checkpoints, vacuum, rolled, rewritten and dropped segments) is due after seconds (TIDEWIRE_HURRY), so that its
moments are reached. At the end load and faults stop, the pipeline catches up by itself, `tidewire reconcile` must say equal,
and an independent comparison (DuckDB, psql text) must agree.
Ends with how often the process died at each named moment, and `N passed, N failed`: one test a seed.
"""
import argparse, errno, os, random, shutil, signal, subprocess, sys, tempfile, threading, time
import psycopg2
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casechecks, pipeline, proxy, server

pipeline.LIMIT = 300  # seconds; a copy that never got its first rows has them all to read at the end

SETUP = """
CREATE TABLE account (id int PRIMARY KEY, owner text, balance numeric(14,2), at timestamptz DEFAULT now());
CREATE TABLE item (shop int, sku text, qty int, note text, PRIMARY KEY (shop, sku));
CREATE TABLE doc (id int PRIMARY KEY, title text, body text, n int);
ALTER TABLE doc ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE seat (id int PRIMARY KEY DEFERRABLE INITIALLY IMMEDIATE, who text);
ALTER TABLE seat REPLICA IDENTITY FULL;
CREATE TABLE event (at timestamptz, what text);
CREATE TABLE cart (id int PRIMARY KEY, v text);
CREATE TABLE part (region int, id int, v text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE part_0 PARTITION OF part FOR VALUES IN (0);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
CREATE TABLE shape (id int PRIMARY KEY, a text, b int, big text);
ALTER TABLE shape ALTER COLUMN big SET STORAGE EXTERNAL;
INSERT INTO shape SELECT g, 'a' || g, g, repeat(md5(g::text), 100) FROM generate_series(1, 300) g;
INSERT INTO account SELECT g, 'o' || g, g * 1.5 FROM generate_series(1, 20000) g;
INSERT INTO item SELECT g % 10, 's' || g, g, repeat('n', 40) FROM generate_series(1, 20000) g;
INSERT INTO doc SELECT g, 't' || g, (SELECT string_agg(md5((g * 1000 + h)::text), '') FROM generate_series(1, 100) h), 0
  FROM generate_series(1, 600) g;
INSERT INTO seat SELECT g, 'w' || g FROM generate_series(1, 200) g;
INSERT INTO event SELECT now(), 'e' || g FROM generate_series(1, 5000) g;
INSERT INTO part SELECT g % 2, g, 'p' || g FROM generate_series(1, 4000) g;
"""
TABLES = ["account", "item", "doc", "seat", "event", "cart", "part", "shape"]


def transaction(r, k):
    """One random transaction's statements."""
    pick, a, b = r.random(), r.randrange(1, 22000), r.randrange(1, 600)
    if pick < 0.30:
        k.execute("UPDATE account SET balance = balance + 1, owner = %s WHERE id BETWEEN %s AND %s", ("x%d" % a, a, a + r.randrange(8)))
    elif pick < 0.42:
        k.execute("INSERT INTO account VALUES (%s, 'new', 1) ON CONFLICT (id) DO UPDATE SET owner = 'again'", (a,))
    elif pick < 0.52:
        k.execute("DELETE FROM account WHERE id = %s", (a,))
    elif pick < 0.60:
        k.execute("UPDATE item SET sku = sku || 'k', qty = qty + 1 WHERE shop = %s AND sku = %s", (a % 10, "s%d" % a))
    elif pick < 0.70:
        k.execute("UPDATE doc SET n = n + 1 WHERE id BETWEEN %s AND %s", (b, b + 3))
        if r.random() < 0.3:
            k.execute("UPDATE doc SET id = id + 100000 WHERE id = %s", (b,))
        if r.random() < 0.3:
            k.execute("UPDATE doc SET body = repeat(%s, 3000) WHERE id = %s", ("z%d" % a, b + 1))
    elif pick < 0.76:
        k.execute("UPDATE seat SET id = CASE id WHEN %s THEN %s ELSE %s END WHERE id IN (%s, %s)" % ((b % 200 + 1, (b + 7) % 200 + 1, b % 200 + 1) + (b % 200 + 1, (b + 7) % 200 + 1)))
    elif pick < 0.84:
        k.execute("INSERT INTO event SELECT now(), 'e' || g FROM generate_series(1, %s) g", (r.randrange(1, 20),))
    elif pick < 0.90:
        k.execute("INSERT INTO cart SELECT g, 'c' FROM generate_series(%s, %s) g ON CONFLICT DO NOTHING", (a, a + 5))
        if r.random() < 0.1:
            k.execute("TRUNCATE cart")
            k.execute("INSERT INTO cart VALUES (1, 'after')")
    elif pick < 0.97:
        k.execute("UPDATE part SET region = 1 - region WHERE id BETWEEN %s AND %s", (a % 4000, a % 4000 + 4))
    elif pick < 0.98:
        k.execute("UPDATE shape SET a = 'u%s' WHERE id %% 7 = %s" % (a, a % 7))
        change = r.randrange(12)
        if change < 4:
            k.execute(("ALTER TABLE shape ADD COLUMN IF NOT EXISTS x%d int DEFAULT %d" % (a % 3, a),
                       "ALTER TABLE shape DROP COLUMN IF EXISTS x%d" % (a % 3),
                       "ALTER TABLE shape RENAME COLUMN a TO aa; ALTER TABLE shape RENAME COLUMN aa TO a",
                       "ALTER TABLE shape ALTER COLUMN b TYPE %s" % ("bigint" if b % 2 else "int"))[change])
            k.execute("INSERT INTO shape (id, a, b, big) VALUES (%s, 'ddl', 1, 'large') ON CONFLICT (id) DO UPDATE SET b = 2", (a,))
    elif pick < 0.99:
        k.execute("INSERT INTO account SELECT g, 'big', 2 FROM generate_series(%s, %s) g ON CONFLICT DO NOTHING", (a, a + 8000))
    elif pick < 0.995:
        # The last three lead to a table that is read anew, beside the one that readers see.
        k.execute(("ALTER TABLE cart ADD COLUMN IF NOT EXISTS c%d int DEFAULT %d" % (a % 4, a % 4),
                   "ALTER TABLE cart DROP CONSTRAINT cart_pkey, ADD CONSTRAINT cart_pkey PRIMARY KEY (id, v)",
                   "ALTER TABLE cart DROP CONSTRAINT cart_pkey, ADD CONSTRAINT cart_pkey PRIMARY KEY (id)",
                   "DROP TABLE cart; CREATE TABLE cart (id int PRIMARY KEY, v text)")[r.randrange(4)])
        k.execute("INSERT INTO cart SELECT g, 'd' FROM generate_series(1, 300) g ON CONFLICT DO NOTHING")
    else:
        k.execute("UPDATE account SET owner = 'everyone' WHERE id % 3 = 0")


def work(seed, url, stop, counts):
    r = random.Random(seed)
    c = None
    while not stop.is_set():
        try:
            c = c or psycopg2.connect(url)
            k = c.cursor()
            for _ in range(r.randrange(1, 4)):
                transaction(r, k)
            c.rollback() if r.random() < 0.1 else c.commit()
            counts[0] += 1
        except psycopg2.OperationalError:  # the server was restarted
            c = None
            stop.wait(0.2)
        except psycopg2.Error:  # a deadlock or a key that is there already
            if c.closed:
                c = None
            else:
                c.rollback()


# Before and after each durable step; crates/connector/src/moment.rs says what they are.
MOMENTS = ["journal append", "journal written", "journal durable", "journal rolled", "progress kept", "source confirm",
           "source confirmed", "sink commit", "sink committed", "parquet written", "vectors written", "delta put", "delta committed",
           "index updated", "delta checkpoint", "delta checkpointed", "merge put", "merge committed", "vacuum", "replica commit",
           "replica committed", "journal rewrite", "journal rewritten", "journal dropped"]


class Killed(pipeline.Pipeline):
    """Its log lies beside the small disk, and it may be told where to die."""

    def __init__(self, binary, folder, logs, source_url, replica_url, journal):
        self.logs = logs
        super().__init__(binary, folder, source_url, replica_url, journal=journal)

    def log(self):
        return open(os.path.join(self.logs, "log"), "a")

    def text(self):
        with open(os.path.join(self.logs, "log")) as f:
            return f.read()

    def start(self, die_at=None):
        """`die_at`: a named moment and how often it is passed before the process ends there, `journal written:3`."""
        e = dict(os.environ, TIDEWIRE_HURRY="1", **({"TIDEWIRE_DIE_AT": die_at} if die_at else {}))
        self.process = subprocess.Popen([self.binary, "run", self.config], stdout=self.log(), stderr=self.log(), env=e)


    def catch_up(self, named=None):
        """What a repair couldn't do in time (a sink was far behind) is tried again, as a service would by itself."""
        for last in (False, False, True):
            try:
                return super().catch_up(named)
            except AssertionError:
                if last or "may differ" not in self.tail():
                    raise


class Disk:
    """A small file system for journal and lake; none where it can't be mounted."""

    def __init__(self, folder, megabytes):
        self.folder, self.filler = folder, os.path.join(folder, "filler")
        os.mkdir(folder)
        words = ["mount", "-t", "tmpfs", "-o", "size=%dm" % megabytes, "tidewire-kill", folder]
        self.is_mounted = os.geteuid() == 0 and subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0

    def fill(self):
        if self.is_mounted:
            # Others write meanwhile: it is full when nothing more goes in.
            with open(self.filler, "wb", buffering=0) as f:
                try:
                    while f.write(bytes(1 << 20)) == 1 << 20:
                        pass
                except OSError as e:
                    if e.errno != errno.ENOSPC:
                        raise

    def empty(self):
        if os.path.exists(self.filler):
            os.remove(self.filler)

    def stop(self):
        if self.is_mounted:
            subprocess.run(["umount", self.folder])


class Slot:
    """The pipeline's slot, which somebody drops, or which the server gives up while its log grows."""

    def __init__(self, pg, name):
        self.pg, self.name = pg, name

    def ask(self, k, what):
        k.execute("SELECT %s FROM pg_replication_slots WHERE slot_name = %%s" % what, (self.name,))
        return k.fetchone()

    def drop(self):
        """Whether there was one."""
        c = self.pg.connect("kill")
        k, was = c.cursor(), False
        while self.ask(k, "active"):
            try:
                self.ask(k, "pg_terminate_backend(active_pid)")
                was = bool(self.ask(k, "pg_drop_replication_slot(slot_name)")) or was
            except psycopg2.errors.ObjectInUse:
                time.sleep(0.05)
        c.close()
        return was

    def invalidate(self):
        """Whether there was one. Changes go on, and the log with them."""
        c = self.pg.connect("kill")
        k, end = c.cursor(), time.time() + 30
        k.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        k.execute("SELECT pg_reload_conf()")
        while self.ask(k, "wal_status <> 'lost'") == (True,):
            assert time.time() < end, "the server keeps a slot that is behind its limit"
            k.execute("SELECT pg_logical_emit_message(false, 'kill', 'more'), pg_switch_wal()")
            k.execute("CHECKPOINT")
        k.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        k.execute("SELECT pg_reload_conf()")
        was = self.ask(k, "wal_status") == ("lost",)
        c.close()
        return was


class Faults:
    """What goes on beside the kills. Each begins and ends within one life of the process, or spans several."""

    def __init__(self, r, pg, source, replica, disk, slot):
        self.r, self.pg, self.source, self.replica, self.disk, self.slot, self.counts = r, pg, source, replica, disk, slot, {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def one(self):
        what = self.r.choice(["none", "none", "cut", "cut", "half-open", "slow", "refuse", "sink away", "full disk", "fast restart",
                              "immediate restart", "slot invalidated"])
        wire = self.r.choice([self.source, self.replica])
        if what == "cut":
            wire.cut_after = self.r.randrange(1, 200000)
        elif what == "half-open":
            wire.stalled = True
        elif what == "slow":
            wire.rate = self.r.randrange(20000, 400000)
        elif what == "refuse":
            wire.refuse = True
            wire.cut()
        elif what == "sink away":
            self.replica.refuse = True
            self.replica.cut()
        elif what == "full disk":
            if not self.disk.is_mounted:
                return
            self.disk.fill()
        elif what.endswith("restart"):
            self.pg.restart(what.split()[0])
        elif what == "slot invalidated":
            self.source.stalled = True  # it falls behind
            if not self.slot.invalidate():
                return
        self.count(what)

    def between_lives(self):
        """The slot is lost while nobody listens."""
        pick = self.r.random()
        if pick < 0.05 and self.slot.drop():
            self.count("slot dropped")
        elif 0.05 < pick < 0.08 and self.slot.invalidate():
            self.count("slot invalidated")

    def end(self):
        self.source.resume()
        self.replica.resume()
        self.disk.empty()


def kill_once(p, r, faults, reached, moments):
    """One life of the process, to its death; `moments`: those that come next, each once before any comes again."""
    if not moments:
        moments += r.sample(MOMENTS, len(MOMENTS))
    moment = moments.pop() if r.random() < 0.6 else None
    p.start("%s:%d" % (moment, r.choice([1, 1, 1, 2, 3, 8])) if moment else None)
    time.sleep(r.uniform(0.05, 1.5))
    faults.one()
    # A moment that is waited for comes late on a busy machine.
    end = time.time() + (r.uniform(0.1, 2.0) if moment is None else 12)
    while time.time() < end and p.process.poll() is None:
        time.sleep(0.02)
    code = p.process.poll()
    if code == -signal.SIGABRT and moment:
        reached[moment] = reached.get(moment, 0) + 1
        p.process = None
    elif code is not None and not (code == 3 and os.path.exists(faults.disk.filler)):  # it can't begin on a full disk
        raise AssertionError("tidewire ended by itself with %d\n%s" % (code, p.tail()))
    else:
        p.stop(signal.SIGKILL)
    faults.between_lives()
    if r.random() < 0.7:
        faults.end()


def one_seed(o, seed, all_reached):
    r, began = random.Random(seed), time.time()
    pg = server.Postgres({"wal_level": "logical", "max_replication_slots": 20, "max_wal_senders": 20, "fsync": "off",
                          "wal_sender_timeout": "3s"})
    folder = tempfile.mkdtemp(prefix="tidewire-kill-")
    stop, counts, failed, reached, kills = threading.Event(), [0], None, {}, 0
    wires, workers, p = [], [], None
    disk = Disk(os.path.join(folder, "disk"), 1500)
    try:
        for name in ("kill", "kill_replica"):
            pg.connect().cursor().execute("CREATE DATABASE " + name)
        pg.connect("kill").cursor().execute(SETUP)
        wires = [proxy.Proxy(pg.port), proxy.Proxy(pg.port)]
        url = lambda wire, database: "postgres://postgres@127.0.0.1:%d/%s" % (wire.port, database)
        p = Killed(o.binary, disk.folder, folder, url(wires[0], "kill"), url(wires[1], "kill_replica"),
                   {"retention": "2s", "compact": seed % 2 == 0})
        faults, moments = Faults(r, pg, wires[0], wires[1], disk, Slot(pg, p.slot)), []
        workers = [threading.Thread(target=work, args=(seed * 100 + i, pg.url("kill"), stop, counts)) for i in range(3)]
        [w.start() for w in workers]
        for _ in range(o.kills):
            kill_once(p, r, faults, reached, moments)
            kills += 1
        faults.end()
        # From here on nobody is meant to be cut off for being slow.
        pg.connect().cursor().execute("ALTER DATABASE kill SET wal_sender_timeout = '60s'")
        p.start()
        stop.set()
        [w.join() for w in workers]
        p.catch_up()
        out = subprocess.run([o.binary, "reconcile", p.config], capture_output=True, text=True, timeout=300)
        case = {"published": {"public." + t: ("lake", "replica") for t in TABLES}}
        casechecks.check_copies(p, case, pg.url("kill"), pg.url("kill_replica"), "seed %d" % seed)
        assert out.returncode == 0, "reconcile ended with %d: %s\n%s" % (out.returncode, out.stdout, out.stderr[-800:])
    except Exception as e:
        failed = e
        print("FAIL seed %d: %s" % (seed, str(e)[:4000]))
    finally:
        stop.set()
        [w.join() for w in workers]
        if p:
            p.stop(signal.SIGKILL)
        [w.stop() for w in wires]
        pg.stop()
        if o.keep or failed:
            shutil.copytree(disk.folder, os.path.join(folder, "kept"), ignore=shutil.ignore_patterns("filler"))
            print("kept: " + folder)
        disk.stop()
        if not (o.keep or failed):
            shutil.rmtree(folder)
    print("seed %d: %s, %d kills (%d at named moments: %s), faults %s%s, %d transactions, %.0f s" % (
        seed, "FAILED" if failed else "equal", kills, sum(reached.values()), reached, faults.counts if p else {},
        "" if disk.is_mounted else " (no full disk: a tmpfs can't be mounted here)", counts[0], time.time() - began), flush=True)
    for moment, n in reached.items():
        all_reached[moment] += n
    return failed is None


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--seeds", type=int, default=1, help="so many seeds, one after the other")
    a.add_argument("--kills", type=int, default=20)
    a.add_argument("--binary", default=os.environ.get("TIDEWIRE_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "target")), "debug", "tidewire"))
    a.add_argument("--keep", action="store_true")
    o = a.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped
    reached = dict.fromkeys(MOMENTS, 0)
    passed = sum(one_seed(o, seed, reached) for seed in range(o.seed, o.seed + o.seeds))
    print("died at named moments: %s" % ", ".join("%s %d" % m for m in reached.items()))
    print("%d passed, %d failed" % (passed, o.seeds - passed))
    return 0 if passed == o.seeds else 1


if __name__ == "__main__":
    sys.exit(main())
