#!/usr/bin/env python3
"""Runs the bank of faults (tests/cases/*.yaml) end to end on a private PostgreSQL: the real `tidewire` binary captures into
its journal and delivers to a Delta table (read back by DuckDB) and a PostgreSQL replica; both must equal the source in
canonical text, column by column, also after the whole journal was delivered a second time to the replica and after the
Delta table's index was lost, and after the journal was delivered in shuffled batches (the example `redeliver` beside the
binary): once more to both, and for the first time to an empty lake.

    testbed/cases.py [--only 062,029] [--jobs 6] [--keep] [--cases DIR]

A case file has
  case, name          its number and what it is about
  setup               SQL on the source before Tidewire starts; `replica_setup`: the same on the replica's database
  encoding            of the source's database (UTF8)
  source, replica     further keys of those sections of the configuration (url: same: the replica is in the source's
                      database); `user`: who connects to the source
  start_and_go        don't wait for the first copy
  slot_before_publication   a slot of our name is there before Tidewire starts
  changes             steps in order: tx, rollback, autocommit, session + sql (async, before_start), must_fail, action, sleep, status (waits until
                      `tidewire status` says it, a regular expression)
  tables              the tables whose copies must be equal: a list, or a map (name: published, `sinks`: in these alone)
  named               the run at the end is complete but for what it names, by this regular expression (exit code 1)
  ops                 [table, op, key, {before, after, unavailable}] as Debezium would tell them, in order; `ops_total`: how
                      many (ops are the first then); `read_instead`: tables of which some may be missing
  events              single events by their contents (casechecks.check_events)
  check, notes, log   regular expressions: in what `tidewire check` prints before the start, in the table's notes and
                      findings while it runs, in the log at the end
  ends                the start must end by itself: `code`, and `says` in the log
  versions            [lowest, highest] of the server
  slow                it takes long, so it begins first, and isn't delivered in shuffled batches

Cases with `records` are topics that somebody else wrote (kafkacases.py).

Ends with `N passed, N failed, N skipped`; skipped ones need another source, or a server that has what they need.
"""
import argparse, concurrent.futures, glob, os, re, shutil, signal, sys, tempfile, time, traceback, zlib
import psycopg2, yaml
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import casechecks, kafkacases, server
from casesteps import Steps, check_step, connect
from pipeline import Pipeline

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = {"case", "name", "setup", "encoding", "replica_setup", "source", "replica", "user", "start_and_go",
        "slot_before_publication", "changes", "tables", "named", "ops", "ops_total", "read_instead", "events", "check", "notes", "log", "ends", "versions", "slow"}


class Lacks(Exception):
    """This server comes without something that the case needs."""


def load(path):
    """A case; refuses what the runner wouldn't look at."""
    with open(path) as f:
        case = yaml.safe_load(f)
    if case.get("kind") == "kafka-sink":
        return kafkacases.from_elsewhere(case)
    if "records" in case and "id" not in case:
        return kafkacases.load(path, case)
    if "id" in case:
        return {"case": case["id"], "name": case["title"], "other": case.get("source", "?")}
    wrong = ["unknown key %s" % k for k in case if k not in KEYS]
    wrong += ["missing key %s" % k for k in ("case", "name", "setup", "changes", "tables") if k not in case]
    wrong += list(filter(None, map(check_step, case["changes"])))
    for event in case.get("events", []):
        wrong += ["unknown key %s of an event" % k for k in event if k not in casechecks.EVENT]
    tables = case["tables"]
    if isinstance(tables, dict):
        wrong += ["table %s says %s" % (t, v) for t, v in tables.items() if not {"published"} <= set(v) <= {"published", "sinks"}]
        case["published"] = {t: v.get("sinks", casechecks.SINKS) for t, v in tables.items() if v.get("published")}
    else:
        case["published"] = {t: casechecks.SINKS for t in tables}
    wrong += ["unknown key %s of ends" % k for k in case.get("ends", {}) if k not in ("code", "says")]
    if wrong:
        raise SystemExit("%s: %s" % (path, "; ".join(wrong)))
    return case


def lose_index(pipeline):
    for path in glob.glob(os.path.join(pipeline.folder, "lake", "**", "_tidewire*"), recursive=True):
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def replay_replica(case, pipeline, replica_url):
    pipeline.stop()
    c = connect(replica_url)
    c.cursor().execute("SET default_transaction_read_only = off")
    c.cursor().execute("DELETE FROM tidewire.progress")
    c.close()
    pipeline.catch_up(case.get("named"))


def prepare(case, url, replica_url):
    for sql, where in ((case["setup"], url), (case.get("replica_setup"), replica_url)):
        if not sql:
            continue
        c = connect(where)
        try:
            c.cursor().execute(sql)
        except (psycopg2.errors.FeatureNotSupported, psycopg2.errors.UndefinedFile) as e:
            raise Lacks(str(e).splitlines()[0])
        except psycopg2.errors.UndefinedObject as e:
            if "-icu" not in str(e):  # a collation that a server without ICU doesn't have
                raise
            raise Lacks(str(e).splitlines()[0])
        finally:
            c.close()


def run_case(case, binary, pg, folder, broker):
    """Seconds that it took."""
    if "other" in case:
        raise Lacks("of another collection, and its source is %s: only cases of Kafka are run as they are" % case["other"])
    if "records" in case:
        return kafkacases.run_case(case, binary, pg, broker, folder)
    began = time.monotonic()
    db = "case_" + case["case"].lower().replace("-", "_")
    replica, fixture = db + "_replica", {"admin": pg.connect()}
    fixture["replica"] = replica
    k = fixture["admin"].cursor()
    lowest, highest = case.get("versions", [0, 99])
    version = fixture["admin"].server_version // 10000
    if not lowest <= version <= highest:
        raise Lacks("PostgreSQL %s to %s" % (lowest, highest))
    for name, encoding in ((db, case.get("encoding", "UTF8")), (replica, "UTF8")):
        k.execute("CREATE DATABASE %s TEMPLATE template0 ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C'" % (name, encoding))
    where = os.path.join(folder, db)
    os.mkdir(where)
    url, replica_url, replica_keys = pg.url(db), pg.url(replica), dict(case.get("replica", {}))
    if replica_keys.pop("url", None) == "same":
        replica_url = url
    pipeline = Pipeline(binary, where, pg.url(db, case.get("user", "postgres")), replica_url, case.get("source"), replica_keys)
    steps = Steps(url, pipeline, fixture)
    try:
        prepare(case, url, replica_url)
        drive(case, pipeline, steps, url)
        if "ends" not in case:
            prove(case, pipeline, url, replica_url)
        if "log" in case:
            assert re.search(case["log"], pipeline.text()), "the log doesn't say %r\n%s" % (case["log"], pipeline.tail())
    finally:
        pipeline.stop(signal.SIGKILL)
        clean(fixture["admin"], db, replica)
    return time.monotonic() - began


def drive(case, pipeline, steps, url):
    todo = list(case["changes"])
    if case.get("slot_before_publication"):
        connect(url).cursor().execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (pipeline.slot,))
    while todo and todo[0].get("before_start"):
        steps.apply(todo.pop(0))
    if "check" in case:
        said = pipeline.call("check", pipeline.config, codes=(0, 1, 2))
        assert re.search(case["check"], said), "check doesn't say %r but %s" % (case["check"], said)
    pipeline.start()
    if "ends" in case:
        code, says = pipeline.ended(), case["ends"]["says"]
        assert code == case["ends"]["code"] and re.search(says, pipeline.text()), "ended with %d\n%s" % (code, pipeline.tail())
    elif not steps.sessions and not case.get("start_and_go"):
        pipeline.wait_until_streaming()
    for step in todo:
        steps.apply(step)
    steps.end()
    casechecks.check_notes(pipeline, case)


def prove(case, pipeline, url, replica_url):
    pipeline.catch_up(case.get("named"))
    casechecks.check_copies(pipeline, case, url, replica_url, "after the run")
    casechecks.check_ops(pipeline, case)
    casechecks.check_events(pipeline, case)
    if "named" not in case:
        casechecks.check_reconcile(pipeline)
    lose_index(pipeline)
    replay_replica(case, pipeline, replica_url)
    casechecks.check_copies(pipeline, case, url, replica_url, "after a second delivery and a lost index")
    if not case.get("slow") and "replica" not in case and "named" not in case:
        shuffle(case, pipeline, url, replica_url)


def shuffle(case, pipeline, url, replica_url):
    """The journal in batches at random: once more to both sinks, and to empty ones as far as whole rows allow it."""
    seed = str(zlib.crc32(case["case"].encode()))
    lake, fresh = os.path.join(pipeline.folder, "lake"), os.path.join(pipeline.folder, "fresh")
    lose_index(pipeline)
    pipeline.redeliver(seed, "delta", lake, "lake")
    pipeline.redeliver(seed, "postgres", replica_url, "replica")
    casechecks.check_copies(pipeline, case, url, replica_url, "after a delivery in shuffled batches")
    tables = pipeline.redeliver(seed, "delta", fresh, "fresh", "--fresh").splitlines()
    wanted = {"published": {table: ("lake",) for table in case["published"] if table in tables}}
    casechecks.check_copies(pipeline, wanted, url, replica_url, "after a first delivery in shuffled batches", fresh)


def clean(admin, db, replica):
    """What a case leaves on the shared server: sessions, slots, prepared transactions, databases."""
    k = admin.cursor()
    k.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN (%s, %s)", (db, replica))
    end = time.time() + 5
    while time.time() < end:
        k.execute("SELECT count(*) FROM pg_replication_slots WHERE database = %s AND active", (db,))
        if k.fetchone() == (0,):
            break
        time.sleep(0.05)
    k.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s AND NOT active", (db,))
    admin.close()


def show(case, job, failed, lacking):
    error = job.exception()
    if isinstance(error, Lacks):
        print("skip %s %s (%s)" % (case["case"], case["name"], error), flush=True)
        lacking.append(case["case"])
        return
    took = "" if error else " (%.0f s)" % job.result()
    print("%s %s %s%s" % ("FAIL" if error else "ok  ", case["case"], case["name"], took), flush=True)
    if error:
        failed.append(case["case"])
        print("".join(traceback.format_exception(error))[-2500:] if not isinstance(error, AssertionError) else "  %s" % error, flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--only", default="")
    a.add_argument("--jobs", type=int, default=6)
    a.add_argument("--keep", action="store_true")
    a.add_argument("--folder", "--cases", default=os.path.join(ROOT, "tests", "cases"))
    a.add_argument("--binary", default=os.environ.get("TIDEWIRE_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "debug", "tidewire"))
    o = a.parse_args()
    only = [x for x in o.only.split(",") if x]
    files = [f for f in sorted(glob.glob(os.path.join(o.folder, "*.yaml"))) if not f.endswith("not-yet.yaml")]
    cases = [load(f) for f in files if not only or any(x in os.path.basename(f) for x in only)]
    cases.sort(key=lambda case: not case.get("slow"))
    with open(os.path.join(ROOT, "tests", "cases", "not-yet.yaml")) as h:
        later = [] if only or o.folder != os.path.join(ROOT, "tests", "cases") else yaml.safe_load(h)
    pg = server.Postgres({"wal_level": "logical", "max_prepared_transactions": 10, "max_replication_slots": 200,
                          "max_wal_senders": 40, "max_connections": 200, "synchronous_commit": "on", "fsync": "off"},
                         server.in_memory())
    folder, failed, lacking = tempfile.mkdtemp(prefix="tidewire-cases-"), [], []
    broker = kafkacases.Broker(os.path.join(folder, "kafka")) if any("records" in case for case in cases) else None
    try:
        with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
            jobs = {pool.submit(run_case, c, o.binary, pg, folder, broker): c for c in cases}
            for j in concurrent.futures.as_completed(jobs):
                show(jobs[j], j, failed, lacking)
    finally:
        if broker:
            broker.stop()
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
