#!/usr/bin/env python3
"""Kills the pipeline at random moments under a mixed load, then demands that both copies equal the source.

    testbed/kill.py [--seed N] [--kills 20] [--server-restarts 1] [--keep]

One private PostgreSQL, one source and one replica database. Workers with seeded random numbers insert, update (partial TOAST
updates too), delete, move and swap keys, truncate, alter tables and run large transactions, while the `tidewire` process is
ended by SIGKILL again and again and the server is restarted (fast and immediate). At the end the load stops, the pipeline
catches up by itself, `tidewire reconcile` must say equal, and an independent comparison (DuckDB, psql text) must agree.
Ends with `N passed, N failed`: one test a run.
"""
import argparse, os, random, shutil, signal, subprocess, sys, tempfile, threading, time
import psycopg2
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casechecks, server
from pipeline import Pipeline

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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
INSERT INTO account SELECT g, 'o' || g, g * 1.5 FROM generate_series(1, 20000) g;
INSERT INTO item SELECT g % 10, 's' || g, g, repeat('n', 40) FROM generate_series(1, 20000) g;
INSERT INTO doc SELECT g, 't' || g, (SELECT string_agg(md5((g * 1000 + h)::text), '') FROM generate_series(1, 100) h), 0
  FROM generate_series(1, 600) g;
INSERT INTO seat SELECT g, 'w' || g FROM generate_series(1, 200) g;
INSERT INTO event SELECT now(), 'e' || g FROM generate_series(1, 5000) g;
INSERT INTO part SELECT g % 2, g, 'p' || g FROM generate_series(1, 4000) g;
"""
TABLES = ["account", "item", "doc", "seat", "event", "cart", "part"]


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
    elif pick < 0.985:
        k.execute("INSERT INTO account SELECT g, 'big', 2 FROM generate_series(%s, %s) g ON CONFLICT DO NOTHING", (a, a + 8000))
    elif pick < 0.99:
        k.execute("ALTER TABLE cart ADD COLUMN IF NOT EXISTS c%s int DEFAULT %s" % (a % 4, a % 4))
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


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--kills", type=int, default=20)
    a.add_argument("--server-restarts", type=int, default=1)
    a.add_argument("--binary", default=os.environ.get("TIDEWIRE_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "debug", "tidewire"))
    a.add_argument("--keep", action="store_true")
    o = a.parse_args()
    r, began = random.Random(o.seed), time.time()
    pg = server.Postgres({"wal_level": "logical", "max_replication_slots": 20, "max_wal_senders": 20, "fsync": "off"})
    folder = tempfile.mkdtemp(prefix="tidewire-kill-")
    stop, counts, failed = threading.Event(), [0], None
    try:
        for name in ("kill", "kill_replica"):
            pg.connect().cursor().execute("CREATE DATABASE " + name)
        pg.connect("kill").cursor().execute(SETUP)
        p = Pipeline(o.binary, folder, pg.url("kill"), pg.url("kill_replica"))
        workers = [threading.Thread(target=work, args=(o.seed * 100 + i, pg.url("kill"), stop, counts)) for i in range(3)]
        [w.start() for w in workers]
        restarts = set(r.sample(range(o.kills), min(o.server_restarts, o.kills)))
        for i in range(o.kills):
            p.start()
            time.sleep(r.uniform(0.05, 2.5))
            if i in restarts:
                pg.restart(r.choice(["fast", "immediate"]))
                time.sleep(r.uniform(0.2, 2.0))
            if p.process.poll() is not None:
                raise AssertionError("tidewire ended by itself with %d after %d kills\n%s" % (p.process.returncode, i, p.tail()))
            p.stop(signal.SIGKILL)
        p.start()
        stop.set()
        [w.join() for w in workers]
        p.catch_up()
        out = subprocess.run([o.binary, "reconcile", p.config], capture_output=True, text=True, timeout=300)
        print(out.stdout)
        case = {"published": {"public." + t: casechecks.SINKS for t in TABLES}}
        casechecks.check_copies(p, case, pg.url("kill"), pg.url("kill_replica"), "seed %d" % o.seed)
        assert out.returncode == 0, "reconcile ended with %d: %s" % (out.returncode, out.stderr[-800:])
    except Exception as e:
        failed = e
        print("FAIL seed %d: %s" % (o.seed, str(e)[:4000]))
    finally:
        stop.set()
        p.stop(signal.SIGKILL)
        pg.stop()
        if o.keep or failed:
            print("kept: " + folder)
        else:
            shutil.rmtree(folder)
    print("seed %d: %d kills, %d server restarts, %d transactions, %.0f s" % (o.seed, o.kills, o.server_restarts, counts[0], time.time() - began))
    print("%d passed, %d failed" % (0 if failed else 1, 1 if failed else 0))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
