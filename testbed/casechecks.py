"""What must hold after a case: the copies equal the source, the events in the journal are the ones expected."""
import json, os, re
import canonical
from events import same_value
from casesteps import connect

PIN = ("SET timezone='UTC'; SET datestyle='ISO, MDY'; SET intervalstyle='postgres'; SET bytea_output='hex'; SET extra_float_digits=1; "
       "SET lc_monetary='C'; SET search_path=''; SET quote_all_identifiers=off; SET statement_timeout=0; SET client_encoding='UTF8'; "
       "SET standard_conforming_strings=on; SET array_nulls=on; SET idle_in_transaction_session_timeout=0; SET lock_timeout=0")
SINKS = ("lake", "replica")
# From this ordinal on a change was placed by a read, not by the log.
PLACED = 0x80000000
EVENT = {"table", "op", "key", "before", "after", "unavailable", "count"}


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def source_rows(url, table):
    """(schema, name, columns, rows as text) of a source table, by the output functions of its types."""
    c = connect(url)
    k = c.cursor()
    k.execute(PIN)
    k.execute("""SELECT n.nspname, c.relname, c.relkind, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                 WHERE nspname || '.' || relname = %s AND relkind IN ('r', 'p')""", (table,))
    found = k.fetchall()
    assert len(found) == 1, "%d tables are called %s" % (len(found), table)
    schema, name, kind, oid = found[0]
    k.execute("""SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
                 AND attgenerated = '' ORDER BY attnum""", (oid,))
    columns = [n for n, in k.fetchall()]
    text = ["CASE WHEN num_nonnulls(%s) = 0 THEN NULL ELSE format('%%s', %s) END" % (quoted(n), quoted(n)) for n in columns]
    k.execute("SELECT %s FROM %s%s.%s" % (", ".join(text), "" if kind == "p" else "ONLY ", quoted(schema), quoted(name)))
    rows = k.fetchall()
    c.close()
    return schema, name, columns, rows


def compare(what, columns, expected, got):
    order = lambda r: [(v is not None, v or "") for v in r]
    expected, got = sorted(expected, key=order), sorted(got, key=order)
    if expected != got:
        missing = [r for r in expected if r not in got][:4]
        extra = [r for r in got if r not in expected][:4]
        # One that is there otherwise stands beside what it should be.
        twins = [r for r in extra if r[0] == missing[0][0]] if missing else []
        if len(twins) == 1:
            missing, extra = missing[:1], twins
        raise AssertionError("%s differs: %d rows at the source, %d in the copy; %s\n%s"
                             % (what, len(expected), len(got), ", ".join(columns)[:200], difference(columns, missing, extra)))


def difference(columns, missing, extra):
    """Only the columns that differ, when one row stands against one."""
    if len(missing) == len(extra) == 1:
        cells = zip(columns, missing[0], extra[0])
        return "  row %.80s\n" % (missing[0][0],) + "\n".join("  %s: %.300r, the copy has %.300r" % c for c in cells if c[1] != c[2])
    return "  missing %.600s\n  extra %.600s" % (missing, extra)


def check_copies(pipeline, case, source_url, replica_url, what, lake=None):
    lake = lake or os.path.join(pipeline.folder, "lake")
    for table, sinks in case["published"].items():
        schema, name, columns, rows = source_rows(source_url, table)
        if "lake" in sinks:
            compare("%s: Delta table %s" % (what, table), columns, rows, canonical.delta_rows(lake, schema, name, columns))
        if "replica" in sinks:
            there = case.get("replica", {}).get("schema", schema)
            compare("%s: replica table %s" % (what, table), columns, rows,
                    canonical.replica_rows(connect(replica_url), PIN, there, name, columns))


def check_reconcile(pipeline):
    """Tidewire's own proof says the same."""
    pipeline.call("reconcile", pipeline.config)


def not_json(word):
    raise AssertionError("%s isn't JSON" % word)


def events(pipeline, table):
    """(place, key, value) of the table's messages in order of position; what a restart appended again is there once."""
    seen = {}
    for line in pipeline.call("topic", "read", pipeline.config, table, "--from", "earliest").splitlines():
        # Numbers as they are written: -0 isn't 0, and no digit is lost.
        message = json.loads(line, parse_constant=not_json, parse_int=str, parse_float=str)
        value = message["value"]
        if value:
            place = (int(value["source"]["commit_lsn"]), int(value["source"]["ordinal"]))
            # The rows of one read share their place.
            seen.setdefault((place, json.dumps(message["key"])), (place, message["key"], value))
    return sorted(seen.values(), key=lambda event: event[0])


def check_ops(pipeline, case):
    """The log's events in the journal, in order per table, are the ones expected: keys, and (fourth, where it is given) the
    values of `before` and `after` and which were `unavailable`, by the text that the server sent. Left out: reads, what goes with
    them (from ordinal PLACED on), tombstones (a topic of ours has none) and logical messages (they have no table). Events
    of the tables in `read_instead` may be missing: of a table that is new under its name, the log tells nothing at first, and a
    read brings the row."""
    expected, tables = {}, set(case["tables"])
    for table, op, key, *rest in case.get("ops", []):
        if op not in ("tombstone", "m"):
            root = table if table in tables else next((t for t in tables if table.startswith(t)), table)
            expected.setdefault(root, []).append((op, key, rest[0] if rest else {}))
    total = 0
    for table, ops in expected.items():
        all_events = events(pipeline, table)
        log = [(value["op"], key, value) for place, key, value in all_events if value["op"] != "r" and place[1] < PLACED]
        total += len(log)
        reads = table in case.get("read_instead", [])
        if "ops_total" in case:
            log = log[:len(ops)]
        rest = iter(ops)
        in_order = all(any(same_event(event, wanted) for wanted in rest) for event in log)
        assert in_order and (len(log) == len(ops) or reads), "events of %s: expected %s, journal has %s" % (table, ops, log)
    if "ops_total" in case:
        assert total == case["ops_total"], "%d events are in the journal, %d are expected" % (total, case["ops_total"])


def same_event(event, wanted):
    (op, key, value), (wanted_op, wanted_key, parts) = event, wanted
    if op != wanted_op:
        return False
    # A key that the final table no longer has (it was redefined) can't be compared by name.
    shared = set(key or {}) & set(wanted_key or {})
    return all(same_value(key[name], wanted_key[name]) for name in shared) and matches(key, value, {"op": op, **parts})


def check_events(pipeline, case):
    """Each of `events` is there: `op`, and all named values of `key`, `before` and `after` (a text, null, or whole: null); with
    `count` that often; `unavailable` names the columns whose value the log didn't carry."""
    for wanted in case.get("events", []):
        hits = [value for _, key, value in events(pipeline, wanted["table"]) if matches(key, value, wanted)]
        count = wanted.get("count")
        assert hits if count is None else len(hits) == count, "events like %s: %d" % (wanted, len(hits))


def matches(key, value, wanted):
    if value["op"] != wanted["op"] or ("unavailable" in wanted and value.get("unavailable", []) != wanted["unavailable"]):
        return False
    for part, got in (("key", key), ("before", value["before"]), ("after", value["after"])):
        if part in wanted and not holds(got, wanted[part]):
            return False
    return True


def holds(row, wanted):
    if wanted is None or row is None:
        return row is wanted
    return all(name in row and same_value(row[name], v) for name, v in wanted.items())


def check_notes(pipeline, case):
    """`notes`: a note or finding about the table, by a regular expression; asked while the pipeline runs."""
    for table, pattern in case.get("notes", {}).items():
        def holds(status):
            of_table = [t for t in status["tables"] if t["table"] == table]
            findings = [f for f in status["findings"] if table in json.dumps(f, ensure_ascii=False)]
            return re.search(pattern, json.dumps(of_table + findings, ensure_ascii=False))
        pipeline.wait_until("a note like %r on %s" % (pattern, table), holds)
