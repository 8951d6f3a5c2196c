#!/usr/bin/env python3
"""Measures the Delta sink, and deltalake's MERGE beside it, in one run; prints Markdown.

    testbed/bench_delta.py --binary target/release/examples/bench_delta [--sizes 1000000,5000000,20000000] [--only PARTS]

commits   filling, commits of 1,000, 10,000 and 100,000 changes (keys uniform, zipf 1.1, hottest 1 %), the index
touched   commits of 10,000 changes that touch all of 1,000 files
long      1,000 commits on 5M rows: what lies in the folder, bytes written, scans by DuckDB and polars before and after
merge     deltalake's MERGE of 10,000 changes into 5M rows
At the end all figures with goals once more, beside their goals. Give it the machine alone; the load that it saw is printed.
"""
import argparse, datetime, decimal, glob, json, os, random, shutil, statistics, subprocess, sys, tempfile, time

PARTS = ["commits", "touched", "long", "merge"]
# What was measured and has a goal: a name, as it came, the goal.
GOALS = []
# Medians of commits of 10,000 changes of uniform keys, by rows, in milliseconds.
MEDIANS = {}


def goal(name, value, form, most=None, least=None):
    reached = value <= most if least is None else value >= least
    GOALS.append([name, form % value, form % (most if least is None else least), "yes" if reached else "no"])


# As `tidewire` sets them for itself: glibc gives memory back.
ENVIRONMENT = dict(os.environ, MALLOC_ARENA_MAX="2", MALLOC_MMAP_THRESHOLD_="131072", MALLOC_TRIM_THRESHOLD_="131072")


def lines(words):
    """What the binary says, a line of JSON at a time."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        for line in process.stdout:
            yield json.loads(line)
    assert process.returncode == 0, "%s ended with %d" % (words[:4], process.returncode)


def load():
    return open("/proc/loadavg").read().split()[0]


def table(title, heads, rows):
    print("\n%s\n\n| %s |\n|%s|" % (title, " | ".join(heads), "---|" * len(heads)))
    for row in rows:
        print("| %s |" % " | ".join(str(cell) for cell in row))
    sys.stdout.flush()


def millions(rows):
    return "%gM" % (rows / 1e6)


def commits(o):
    fills, times, index = [], [], []
    for found in lines([o.binary, "commits"] + o.sizes.split(",")):
        rows = millions(found["rows"])
        if found["part"] == "fill":
            fills.append([rows, "%.0fk" % (found["rows_per_s"] / 1e3), "%.1f" % found["cpu_us_per_row"],
                          "%.1f s" % found["settled_after_s"], "%d MB" % found["memory_mb"], found["load"]])
        elif found["part"] == "commits":
            times.append([rows, "{:,}".format(found["changes"]), found["keys"].lower()]
                         + ["%.1f" % found[k] for k in ("median_ms", "p90_ms", "p99_ms", "max_ms", "cpu_ms")]
                         + ["%d MB" % found["memory_mb"], found["load"]])
            which = "%s, %s changes, %s" % (rows, found["changes"], found["keys"].lower())
            if found["changes"] == 10_000:
                goal("commits of %s: p99 / median" % which, found["p99_ms"] / found["median_ms"], "%.1f", most=4)
                goal("commits of %s: memory, MB" % which, found["memory_mb"], "%d", most=105)
                if found["keys"] == "Uniform":
                    MEDIANS[found["rows"]] = found["median_ms"]
        else:
            goal("index of %s: bytes a key" % rows, max(found["bytes_a_key"], found["bytes_a_key_rebuilt"]), "%.1f", most=40)
            if found["rows"] == 20_000_000:
                goal("index of 20M: built anew, s", found["rebuild_s"], "%.1f", most=60)
                goal("index of 20M: 10,000 keys looked up, ms", found["median_ms"], "%.1f", most=10)
            index.append([rows, "%.1f" % found["bytes_a_key"], "%.1f" % found["bytes_a_key_rebuilt"],
                          "%.1f" % found["median_ms"], "%.1f s" % found["rebuild_s"], found["files"], found["load"]])
    if {1_000_000, 20_000_000} <= MEDIANS.keys():
        goal("median at 20M / at 1M", MEDIANS[20_000_000] / MEDIANS[1_000_000], "%.2f", most=1.3)
    table("Filling", ["rows", "rows/s", "CPU µs a row", "upkeep after it", "memory", "load"], fills)
    table("Commits, 50 after 3 (milliseconds)",
          ["rows", "changes", "keys", "median", "p90", "p99", "longest", "CPU with upkeep", "memory", "load"], times)
    table("Index", ["rows", "bytes a key", "built anew", "10,000 keys looked up, ms", "built anew in", "files", "load"], index)


def touched(o):
    for found in lines([o.binary, "touched", "5000000", "1000"]):
        table("10,000 changes that touch %d files of 5M rows (milliseconds)" % found["files"],
              ["median", "p90", "p99", "CPU", "load"],
              [["%.1f" % found[k] for k in ("median_ms", "p90_ms", "p99_ms", "cpu_ms")] + [found["load"]]])


def scans(folder):
    """Seconds of a scan that looks at every row, by reader; the best of three."""
    import duckdb, duckdb_extension_delta, polars
    extension = glob.glob(os.path.join(os.path.dirname(duckdb_extension_delta.__file__), "**", "*.duckdb_extension*"),
                          recursive=True)[0]
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("LOAD '%s'" % extension)
    query = "SELECT sum(weight), max(note), count(*) FROM delta_scan('%s') WHERE NOT _deleted" % folder

    def by_polars():
        rows = polars.scan_delta(folder).filter(~polars.col("_deleted"))
        return rows.select(polars.col("weight").sum(), polars.col("note").max(), polars.len()).collect()

    seconds = {}
    for name, scan in [("DuckDB", lambda: connection.execute(query).fetchall()), ("polars", by_polars)]:
        took = []
        for _ in range(3):
            began = time.time()
            scan()
            took.append(time.time() - began)
        seconds[name] = min(took)
    return seconds


def written_files(folder):
    """Bytes of the data files that commits and that merges added, by the log."""
    seen, sums = set(), {True: 0, False: 0}
    for name in sorted(glob.glob(os.path.join(folder, "_delta_log", "*.json"))):
        for line in open(name):
            add = json.loads(line).get("add")
            if add and add["path"] not in seen:
                seen.add(add["path"])
                sums[add["dataChange"]] += add["size"]
    return sums[True], sums[False]


def long(o):
    folder = tempfile.mkdtemp(prefix="tidewire-bench-long-")
    words = [o.binary, "long", str(o.rows), str(o.commits), "--wait", "--folder", folder]
    words += ["--struck=" + o.struck] if o.struck else []
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        before = json.loads(process.stdout.readline())
        delta = os.path.join(folder, "public", "orders")
        scanned = [scans(delta)]
        process.stdin.write("\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
        scanned.append(scans(delta))
        by_commits, by_merges = written_files(delta)
        process.stdin.write("\n")
        process.stdin.flush()
        rested = json.loads(process.stdout.readline())
        assert process.wait() == 0
        scanned.append(scans(delta))
    finally:
        process.kill()
        shutil.rmtree(folder)
    rows = [["live data files, at the end / mean / at most", "",
             "%d / %.0f / %d" % (found["live_files"], found["files_mean"], found["files_max"]), rested["live_files"]],
            ["struck rows among all, at the end / mean / at most", "", "%.1f / %.1f / %.1f %%" % tuple(
                found[k] * 100 for k in ("struck_last", "struck_mean", "struck_max")), "%.1f %%" % (rested["struck"] * 100)],
            ["data files written by commits / by merges", "", "%.0f / %.0f MB" % (by_commits / 1e6, by_merges / 1e6), ""]]
    for kind in ("data", "vectors", "log", "checkpoints", "index"):
        cells = ["%d files, %.1f MB" % (side["folder"][kind]["files"], side["folder"][kind]["bytes"] / 1e6)
                 for side in (before, found, rested)]
        rows.append(["%s in the folder (an hour is kept)" % kind] + cells)
    times = [{name: "%.2f s (%.2f ×)" % (seconds, seconds / scanned[0][name]) for name, seconds in side.items()}
             for side in scanned[1:]]
    rows += [["scan by %s" % name, "%.2f s" % seconds, times[0][name], times[1][name]]
             for name, seconds in scanned[0].items()]
    rows += [["bytes written a byte of change, all in all", "", "%.2f" % found["written_per_byte"],
              "%.2f" % rested["written_per_byte"]],
             ["commit, median / p99 / longest", "", "%.1f / %.1f / %.1f ms" % tuple(
                 found[k] for k in ("median_ms", "p99_ms", "max_ms")), ""],
             ["CPU a commit, with upkeep", "", "%.0f ms" % found["cpu_ms"], ""],
             ["upkeep at rest: takes, CPU, writes", "", "", "%.1f s, %.1f s, %.0f MB" % (
                 rested["seconds"], rested["cpu_ms"] / 1e3, rested["bytes_written"] / 1e6)],
             ["memory at most", "", "%d MB" % found["memory_mb"], "%d MB" % rested["memory_mb"]],
             ["load", "", found["load"], rested["load"]]]
    of = "after %d commits: " % o.commits
    for name, seconds in scanned[0].items():
        goal(of + "scan by %s / before" % name, scanned[1][name] / seconds, "%.2f", most=1.5)
        goal(of + "at rest, scan by %s / before" % name, scanned[2][name] / seconds, "%.2f", most=1.5)
    goal(of + "bytes written a byte of change, rest and all", rested["written_per_byte"], "%.2f", most=4)
    goal(of + "p99 / median", found["p99_ms"] / found["median_ms"], "%.1f", most=4)
    goal(of + "memory, MB", rested["memory_mb"], "%d", most=105)
    table("%d commits of 10,000 changes on %s rows" % (o.commits, millions(o.rows)),
          ["", "before", "right after", "when upkeep has come to rest"], rows)


def merge(o):
    """9,000 updates and 1,000 inserts of uniform keys, as one MERGE."""
    import deltalake, pyarrow as pa
    rows, folder, rng = 5_000_000, tempfile.mkdtemp(prefix="tidewire-bench-merge-"), random.Random(42)

    def batch(ids):
        n = [rng.randrange(1 << 31) for _ in ids]
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
        at = pa.array([now + datetime.timedelta(seconds=k % 86400) for k in n], pa.timestamp("us", "UTC"))
        return pa.table({
            "id": pa.array(ids, pa.int64()), "customer": pa.array([k % 100000 for k in n], pa.int32()),
            "status": [("new", "paid", "shipped", "refunded")[k % 4] for k in n],
            "amount": pa.array([decimal.Decimal(k % 1000000).scaleb(-2) for k in n], pa.decimal128(12, 2)), "created_at": at, "updated_at": at,
            "note": ["order %x of customer, to be left at the door" % k for k in n],
            "weight": pa.array([k % 1000 + .5 for k in n])})

    for start in range(0, rows, 500_000):
        deltalake.write_deltalake(folder, batch(range(start, start + 500_000)), mode="append")
    took = []
    for turn in range(6):
        ids = rng.sample(range(rows), 9000) + list(range(rows + turn * 1000, rows + turn * 1000 + 1000))
        changes, began = batch(ids), time.time()
        (deltalake.DeltaTable(folder).merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
         .when_matched_update_all().when_not_matched_insert_all().execute())
        took.append(time.time() - began)
    shutil.rmtree(folder)
    took = took[1:]
    table("deltalake %s, MERGE of 10,000 rows into 5M" % deltalake.__version__, ["median", "shortest", "longest", "load"],
          [["%.2f s" % f(took) for f in (statistics.median, min, max)] + [load()]])
    if 5_000_000 in MEDIANS:
        times = statistics.median(took) * 1e3 / MEDIANS[5_000_000]
        goal("10,000 changes at 5M: MERGE / ours", times, "%.0f", least=30)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--binary", required=True)
    a.add_argument("--sizes", default="1000000,5000000,20000000")
    a.add_argument("--commits", type=int, default=1000, help="commits of the part `long`")
    a.add_argument("--rows", type=int, default=5_000_000, help="rows of the part `long`")
    a.add_argument("--only", default=",".join(PARTS))
    a.add_argument("--struck", help="part of struck rows at which `long` has files written anew")
    o, began = a.parse_args(), time.time()
    print("%s, %d cores, load %s" % (datetime.date.today(), os.cpu_count(), load()))
    for part in PARTS:
        if part in o.only.split(","):
            globals()[part](o)
    # Memory: 100 MB and the batch, 10,000 changes of about 145 bytes and as much again as columns.
    table("Goals", ["", "measured", "goal", "reached"], GOALS)
    print("\nTook %.0f s, load %s" % (time.time() - began, load()))


if __name__ == "__main__":
    main()
