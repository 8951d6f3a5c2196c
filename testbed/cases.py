#!/usr/bin/env python3
"""Runs the bank of faults (tests/cases/*.yaml) end to end on a private PostgreSQL: the real `tidewire` binary captures into
its journal and delivers to a Delta table (read back by DuckDB) and a PostgreSQL replica; both must equal the source in
canonical text, column by column, also after the whole journal was delivered a second time to the replica and after the
Delta table's index was lost.

    testbed/cases.py [--only 062,029] [--jobs 2] [--keep] [--folder DIR]

Case files: `setup` (SQL before Tidewire starts), `start_and_go` (don't wait for the first copy), `changes` (steps in order: tx, rollback, autocommit, session + sql with
async, must_fail, action), `tables` (name: published), `ops` (events expected in the journal, Debezium's letters; tombstones
are not stored, reads are left out). Ends with `N passed, N failed, N skipped`; skipped ones need another source.
"""
import argparse, concurrent.futures, glob, json, os, re, shutil, signal, subprocess, sys, tempfile, threading, time, traceback
import psycopg2, yaml
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import canonical, server

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PIN = ("SET timezone='UTC'; SET datestyle='ISO, MDY'; SET intervalstyle='postgres'; SET bytea_output='hex'; "
       "SET extra_float_digits=1; SET lc_monetary='C'; SET search_path=public")
LIMIT = 90


class Lacks(Exception):
    """This server comes without an extension that the case needs."""


class Pipeline:
    """One pipeline folder and the processes that run it, one after the other."""

    def __init__(self, binary, folder, source_url, replica_url):
        self.binary, self.folder, self.process = binary, folder, None
        self.config = os.path.join(folder, "pipeline.yaml")
        with open(self.config, "w") as f:
            json.dump({
                "source": {"postgres": {"url": source_url, "slot": "tw_" + re.sub("[^a-z0-9]", "_", os.path.basename(folder).lower())}},
                "sinks": {"lake": {"delta": {"path": os.path.join(folder, "lake")}},
                          "replica": {"postgres": {"url": replica_url}}},
                "data_dir": os.path.join(folder, "journal"), "http": "127.0.0.1:%d" % server.free_port(),
            }, f)

    def log(self):
        return open(os.path.join(self.folder, "log"), "a")

    def start(self):
        self.process = subprocess.Popen([self.binary, "run", self.config], stdout=self.log(), stderr=self.log())

    def stop(self, how=signal.SIGTERM):
        if self.process:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def catch_up(self):
        self.stop()
        done = subprocess.run([self.binary, "run", self.config, "--until-caught-up"], stdout=self.log(), stderr=self.log(),
                              timeout=LIMIT)
        assert done.returncode == 0, "run --until-caught-up ended with %d\n%s" % (done.returncode, self.tail())

    def tail(self):
        with open(os.path.join(self.folder, "log")) as f:
            return f.read()[-2500:]

    def call(self, *words):
        done = subprocess.run([self.binary, *words], capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, "%s ended with %d: %s" % (words, done.returncode, done.stderr[-800:])
        return done.stdout

    def wait_until_streaming(self):
        """Until every table's snapshot is in both sinks."""
        end = time.time() + LIMIT
        while time.time() < end:
            if self.process.poll() is not None:
                raise AssertionError("tidewire ended with %d\n%s" % (self.process.returncode, self.tail()))
            try:
                done = subprocess.run([self.binary, "status", self.config, "--json"], capture_output=True, text=True, timeout=20)
                if done.returncode == 0 and streaming(json.loads(done.stdout)):
                    return
            except (ValueError, subprocess.TimeoutExpired):
                pass
            time.sleep(0.1)
        raise AssertionError("the snapshot was not done within %d s\n%s" % (LIMIT, self.tail()))


def streaming(status):
    source = status["source"]
    states = [t["state"] for t in status["tables"]]
    return source["connected"] and source["pending_reads"] == 0 and all(s in ("streaming", "parked") for s in states)


def connect(url):
    c = psycopg2.connect(url)
    c.autocommit = True
    return c


def apply_step(step, url, sessions, threads, pipeline, fixture):
    if "action" in step:
        act(step["action"], pipeline, fixture)
        return
    c = sessions.setdefault(step["session"], connect(url)) if "session" in step else connect(url)
    k = c.cursor()
    if "tx" in step or "rollback" in step:
        k.execute("BEGIN")
        k.execute(step.get("tx") or step["rollback"])
        k.execute("COMMIT" if "tx" in step else "ROLLBACK")
    elif "autocommit" in step:
        for s in step["autocommit"]:
            c.cursor().execute(s)
    elif "must_fail" in step:
        try:
            k.execute(step["must_fail"])
        except psycopg2.Error:
            return
        raise AssertionError("the source took a statement that it must refuse: " + step["must_fail"][:80])
    elif step.get("async"):
        t = threading.Thread(target=lambda: k.execute(step["sql"]))
        t.start()
        threads.append(t)
        wait_for_lock(c.get_backend_pid(), t, url)
    else:
        k.execute(step["sql"])
    if "session" not in step:
        c.close()


def wait_for_lock(pid, thread, url):
    c = connect(url)
    k = c.cursor()
    while thread.is_alive():
        k.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", (pid,))
        if k.fetchone() == (True,):
            break
        time.sleep(0.02)
    c.close()


def act(action, pipeline, fixture):
    if action == "kill_consumer":
        pipeline.stop(signal.SIGKILL)
        pipeline.start()
    elif action == "restart_consumer":
        pipeline.stop()
        pipeline.start()
    elif action == "stop_consumer":
        pipeline.stop()
    elif action == "start_consumer":
        if not pipeline.process:
            pipeline.start()
    elif action == "sink_fails":
        fixture["admin"].cursor().execute("ALTER DATABASE %s ALLOW_CONNECTIONS false" % fixture["replica"])
        fixture["admin"].cursor().execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                                          (fixture["replica"],))
    elif action == "sink_recovers":
        fixture["admin"].cursor().execute("ALTER DATABASE %s ALLOW_CONNECTIONS true" % fixture["replica"])
    elif action == "failover":
        pass  # the tables name the run on one server; a failover has a test of its own
    else:
        raise AssertionError("unknown action " + action)


def source_rows(url, table):
    """(schema, name, columns, key, rows as text) of a source table, by the output functions of its types."""
    c = connect(url)
    k = c.cursor()
    k.execute(PIN)
    k.execute("""SELECT n.nspname, c.relname, c.relkind, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                 WHERE nspname || '.' || relname = %s AND relkind IN ('r', 'p')""", (table,))
    schema, name, kind, oid = k.fetchone()
    k.execute("""SELECT attname, attgenerated <> '' FROM pg_attribute WHERE attrelid = %s AND attnum > 0
                 AND NOT attisdropped ORDER BY attnum""", (oid,))
    columns = [(n, g) for n, g in k.fetchall()]
    plain = [n for n, g in columns if not g]
    q = lambda s: '"' + s.replace('"', '""') + '"'
    text = ["CASE WHEN num_nonnulls(%s) = 0 THEN NULL ELSE format('%%s', %s) END" % (q(n), q(n)) for n in plain]
    k.execute("SELECT %s FROM %s%s.%s" % (", ".join(text), "" if kind == "p" else "ONLY ", q(schema), q(name)))
    rows = k.fetchall()
    c.close()
    return schema, name, plain, rows


def compare(what, columns, expected, got):
    order = lambda r: [(v is not None, v or "") for v in r]
    expected, got = sorted(expected, key=order), sorted(got, key=order)
    if expected != got:
        missing = [r for r in expected if r not in got][:4]
        extra = [r for r in got if r not in expected][:4]
        raise AssertionError("%s differs: %d rows at the source, %d in the copy; columns %s\n  missing %.600s\n  extra %.600s"
                             % (what, len(expected), len(got), columns, missing, extra))


def check_copies(pipeline, case, source_url, replica_url, what):
    for table, expectation in case["tables"].items():
        if not expectation["published"]:
            continue
        schema, name, columns, rows = source_rows(source_url, table)
        compare("%s: Delta table %s" % (what, table), columns, rows,
                canonical.delta_rows(os.path.join(pipeline.folder, "lake"), schema, name, columns))
        compare("%s: replica table %s" % (what, table), columns, rows,
                canonical.replica_rows(connect(replica_url), PIN, schema, name, columns))


PLACED = 0x80000000


def check_ops(pipeline, case):
    """The log's events in the journal, in order per table, are the ones expected. Left out: reads, what goes with them (from
    ordinal PLACED on), tombstones, and what a restart appended again (same position). An event may be missing when
    placed reads brought its row instead: of a table that is new under its name, the log tells nothing at first."""
    if "ops" not in case or "ops_total" in case:
        return
    expected, tables = {}, set(case["tables"])
    for table, op, key in case["ops"]:
        if op in ("tombstone", "m"):
            continue
        root = table if table in tables else next((t for t in tables if table.startswith(t)), table)
        expected.setdefault(root, []).append(op)
    for table, ops in expected.items():
        got, seen, reads = [], set(), False
        for line in pipeline.call("topic", "read", pipeline.config, table, "--from", "earliest").splitlines():
            value = json.loads(line)["value"]
            if not value:
                continue
            place = (value["source"]["commit_lsn"], value["source"]["ordinal"])
            reads = reads or value["op"] == "r"
            if value["op"] != "r" and place[1] < PLACED and place not in seen:
                got.append((place, value["op"]))
            seen.add(place)
        letters = [op for place, op in sorted(got)]
        rest = iter(ops)
        in_order = all(op in rest for op in letters)
        assert letters == ops or (in_order and reads), "events of %s: expected %s, journal has %s" % (table, ops, letters)


def replay_replica(pipeline, replica_url):
    pipeline.stop()
    c = connect(replica_url)
    c.cursor().execute("DELETE FROM tidewire.progress")
    c.close()
    pipeline.catch_up()


def lose_index(pipeline):
    for path in glob.glob(os.path.join(pipeline.folder, "lake", "**", "_tidewire*"), recursive=True):
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def run_case(case, binary, pg, folder):
    db = "case_" + case["case"].lower().replace("-", "_")
    replica, fixture = db + "_replica", {"admin": pg.connect()}
    fixture["replica"] = replica
    k = fixture["admin"].cursor()
    for name in (db, replica):
        k.execute("CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'" % name)
    where = os.path.join(folder, db)
    os.mkdir(where)
    source_url, replica_url = pg.url(db), pg.url(replica)
    c = connect(source_url)
    try:
        c.cursor().execute(case["setup"])
    except (psycopg2.errors.FeatureNotSupported, psycopg2.errors.UndefinedFile) as e:
        raise Lacks(str(e).splitlines()[0])
    finally:
        c.close()
    pipeline, sessions, threads, steps = Pipeline(binary, where, source_url, replica_url), {}, [], list(case["changes"])
    try:
        while steps and steps[0].get("before_start"):
            apply_step(steps.pop(0), source_url, sessions, threads, pipeline, fixture)
        pipeline.start()
        if not sessions and not case.get("start_and_go"):
            pipeline.wait_until_streaming()
        for step in steps:
            apply_step(step, source_url, sessions, threads, pipeline, fixture)
        for t in threads:
            t.join(20)
        for s in sessions.values():
            s.close()
        pipeline.catch_up()
        check_copies(pipeline, case, source_url, replica_url, "after the run")
        check_ops(pipeline, case)
        lose_index(pipeline)
        replay_replica(pipeline, replica_url)
        check_copies(pipeline, case, source_url, replica_url, "after a second delivery and a lost index")
    finally:
        pipeline.stop(signal.SIGKILL)
        fixture["admin"].cursor().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN (%s, %s)", (db, replica))
        fixture["admin"].cursor().execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s AND NOT active", (db,))
        fixture["admin"].close()


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default="")
    a.add_argument("--jobs", type=int, default=2)
    a.add_argument("--keep", action="store_true")
    a.add_argument("--folder", default=os.path.join(ROOT, "tests", "cases"))
    a.add_argument("--binary", default=os.environ.get("TIDEWIRE_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "debug", "tidewire"))
    o = a.parse_args()
    only = [x for x in o.only.split(",") if x]
    cases = []
    for f in sorted(glob.glob(os.path.join(o.folder, "*.yaml"))):
        if not f.endswith("not-yet.yaml") and (not only or any(x in os.path.basename(f) for x in only)):
            with open(f) as h:
                cases.append(yaml.safe_load(h))
    with open(os.path.join(o.folder, "not-yet.yaml")) as h:
        later = [] if only else yaml.safe_load(h)
    pg = server.Postgres({"wal_level": "logical", "max_prepared_transactions": 10, "max_replication_slots": 100,
                          "max_wal_senders": 40, "max_connections": 200, "synchronous_commit": "on", "fsync": "off"})
    folder, failed, lacking = tempfile.mkdtemp(prefix="tidewire-cases-"), [], []
    try:
        with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
            jobs = {pool.submit(run_case, c, o.binary, pg, folder): c for c in cases}
            for j in concurrent.futures.as_completed(jobs):
                c, e = jobs[j], j.exception()
                if isinstance(e, Lacks):
                    print("skip %s %s (%s)" % (c["case"], c["name"], e), flush=True)
                    lacking.append(c["case"])
                    continue
                print("%s %s %s" % ("FAIL" if e else "ok  ", c["case"], c["name"]), flush=True)
                if e:
                    failed.append(c["case"])
                    print("".join(traceback.format_exception(e))[-2500:] if not isinstance(e, AssertionError) else "  %s" % e, flush=True)
    finally:
        pg.stop()
        if o.keep or failed:
            print("kept: " + folder)
        else:
            shutil.rmtree(folder)
    for c in later:
        print("not yet %s %s (needs %s)" % (c["case"], c["name"], c["needs"]))
    print("%d passed, %d failed, %d skipped" % (len(cases) - len(failed) - len(lacking), len(failed), len(later) + len(lacking)))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
