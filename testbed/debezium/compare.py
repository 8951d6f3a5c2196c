"""A real Debezium and Tidewire on the same place of the same log, in several modes: every message compared, key, value, headers and
schema. `compare.py --binary B`. What differs must be in DIFFERENCES, with its reason, and must be met; docs/debezium.md is for readers."""
import argparse, collections, decimal, json, math, os, re, shutil, signal, struct, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import rows, server, transactions

MODES = {
    "defaults": {},
    "connect": {"decimal.handling.mode": "string", "time.precision.mode": "connect", "binary.handling.mode": "hex", "hstore.handling.mode": "map",
                "interval.handling.mode": "string", "include.unknown.datatypes": "true"},
    "nanoseconds": {"decimal.handling.mode": "double", "time.precision.mode": "nanoseconds", "binary.handling.mode": "base64"},
    "isostring": {"time.precision.mode": "isostring", "binary.handling.mode": "base64-url-safe", "money.fraction.digits": "0"},
    "microseconds": {"time.precision.mode": "microseconds", "unavailable.value.placeholder": "hex:00ff41", "include.unknown.datatypes": "true"},
    "adaptive": {"time.precision.mode": "adaptive_time_microseconds", "interval.handling.mode": "string"},
}
TRUE = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}

# Where Debezium says less or otherwise than the source: (tables, columns) -> why. Only there may a value, or a column's schema, differ.
DIFFERENCES = {
    ("types", "na"): "Debezium has a column of type name in its schema and writes null",
    ("types", "abit ab5"): "Debezium takes an array of bits for one value, and that is null",
    ("types arr odd", "am avb aiv apt axm ax ap adp abox avb anam"): "arrays that Debezium doesn't know: no column, or null",
    ("types", "a2"): "an array of two dimensions: Debezium writes nulls; ours is null, and whole in `exact`",
    ("types", "rc"): "names of tables: ours have their schema, Debezium's follow the search path",
    ("toast arr", "n"): "a number beyond doubles: Debezium writes Infinity; ours is null, and in `exact`",
    ("types", "nneg"): "a negative scale: Debezium reads it as 2046",
    ("types odd", "ati atz"): "times in arrays go through milliseconds or seconds in Debezium and lose the rest",
    ("types arr odd", "ln ls bo pa pg ci_"): "Debezium prints these anew (2 becomes 2.0)",
    ("special odd", "ada"): "infinite dates and dates BC in arrays: Debezium writes days of other centuries",
    ("special", "ts6 ts3"): "timestamps beyond 64 bits of microseconds run over to negative numbers in Debezium; ours is null, and in `exact`",
    ("special", "iv"): "an interval beyond 64 bits of microseconds: Debezium writes the largest number; ours is null, and in `exact`",
    ("special", "an"): "an array that holds NaN is null in Debezium",
    ("types arr toast", "au"): "an unavailable uuid[] holds a UUID made of the placeholder; ours knows only that of Debezium's own placeholder",
    ("strict", "v"): "Connect writes a column's default in the place of NULL",
}


# What can't be read back from Debezium's messages, or only as another text: (tables, columns) -> (why, what both texts are brought to).
ANYTHING = lambda text: None
READ_BACK = {
    ("types odd special", "tz tz3 atz"): ("the offset is lost", ANYTHING),
    ("types odd special arr toast", "n an nneg"): ("zeros at the end are lost", lambda text: text and "".join(canonical(w) for w in re.split("([,{}])", str(text)))),
    ("odd types arr", "vb vb9 bits"): ("leading zeros are lost", lambda text: text and str(text).lstrip("0")),
    ("special", "n n52"): ("NaN and infinity are null in precise", lambda text: text if text and text[0] in "0123456789-" and "I" not in text else None),
    ("odd special", "iv"): ("days less hours look like hours", ANYTHING),
    ("odd", "ai"): ("an array's lower bound is lost", ANYTHING),
    ("special", "t6"): ("24:00:00 is 00:00:00 in isostring", lambda text: text.replace("24", "00")),
    ("toast", "t"): ("data that looks like the placeholder", ANYTHING),
    ("odd types arr toast", "h ah"): ("the order of pairs is another", lambda text: text and sorted(str(text))),
}
LOST = re.compile("may have lost|isn't what (timestamp|date)")


def canonical(word):
    try:
        return format(decimal.Decimal(word).normalize(), "f")
    except decimal.InvalidOperation:
        return word


def same(a, b):
    """Numbers by value."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return (a == b or (isinstance(a, float) and single(a) == single(b))) and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, str) and isinstance(b, str) and a != b and a.startswith("{") and b.startswith("{"):
        # An hstore as JSON: its order means nothing.
        return same(json.loads(a), json.loads(b))
    return type(a) is type(b) and a == b


def single(number):
    """As the float4 that it is: Java prints more digits of it."""
    return struct.pack("f", number) if abs(number) < 3.5e38 else number


class Comparison:
    def __init__(self):
        self.found, self.met, self.messages, self.read, self.refused, self.alone = [], collections.Counter(), 0, 0, 0, 0

    def differ(self, where, what, theirs, ours):
        self.found.append("%s: %s: Debezium %.300s, ours %.300s" % (where, what, json.dumps(theirs), json.dumps(ours)))

    def allowed(self, table, column):
        for (tables, columns), why in DIFFERENCES.items():
            if table in tables.split() and column in columns.split():
                self.met[tables, columns] += 1
                return True
        return False

    def messages_of(self, mode, table, theirs, ours):
        if len(theirs) != len(ours):
            self.differ("%s %s" % (mode, table), "number of messages", len(theirs), len(ours))
        for n, (t, o) in enumerate(zip(theirs, ours)):
            self.messages += 1
            self.message(mode, table, n, t, o)

    def message(self, mode, table, n, t, o):
        where = "%s %s %d" % (mode, table, n)
        key, value = (json.loads(t[part]) if t[part] else None for part in ("key", "value"))
        if not same(key and key["payload"], o["key"] and o["key"]["payload"]):
            self.differ(where, "key", key, o["key"])
        if key and key["schema"] != {**o["key"]["schema"], "name": o["key"]["schema"]["name"].replace("shop.", t["prefix"] + ".", 1)}:
            self.differ(where, "key schema", key["schema"], o["key"]["schema"])
        headers = {name: json.loads(text)["payload"] for name, text in t["headers"] if not name.startswith("__debezium.context.")}
        mine = {name: header["payload"] for name, header in o.get("headers", {}).items()}
        if not same(headers, mine):
            self.differ(where, "headers", headers, mine)
        if (value is None) != (o["value"] is None):
            return self.differ(where, "tombstone", value is None, o["value"] is None)
        if value is not None:
            self.value(where, table, value["payload"], o["value"]["payload"])
            if n == 0:
                self.schema(where, table, value["schema"], o["value"]["schema"])

    def rows(self, mode, table, theirs, ours):
        """What our decoder makes of both."""
        for n, (t, o) in enumerate(zip(theirs, ours)):
            where = "%s %s %d read" % (mode, table, n)
            if "error" in (t or {}):
                self.refused += 1
                if not LOST.search(t["error"]):
                    self.differ(where, "error", t["error"], o)
                continue
            if (t is None) != (o is None) or (t and t["op"] != o["op"]):
                self.differ(where, "op", t, o)
            elif t is not None:
                self.read += 1
                for part in ("before", "after"):
                    if (t[part] is None) != (o[part] is None):
                        self.differ(where, part, t[part], o[part])
                    for column in t[part] or {}:
                        self.cell(where, table, column, t[part][column], o[part][column])

    def cell(self, where, table, column, t, o):
        # Types without a placeholder are null when the log didn't carry them.
        if t == o or (t is None and o == {"unchanged": True}):
            return
        for (tables, columns), (_, form) in READ_BACK.items():
            if table in tables.split() and column in columns.split() and form(t) == form(o):
                return
        if not self.allowed(table, column):
            self.differ(where, column, t, o)

    def value(self, where, table, t, o):
        for name in ("op", "transaction"):
            if t[name] != o[name]:
                self.differ(where, name, t[name], o[name])
        for name in t["source"]:
            if name not in ("version", "name", "lsn", "sequence") and t["source"][name] != o["source"].get(name):
                self.differ(where, "source." + name, t["source"][name], o["source"].get(name))
        order = [name for name in o if name in t], [name for name in t]
        if order[0] != order[1]:
            self.differ(where, "order of fields", order[1], order[0])
        for part in ("before", "after"):
            if (t[part] is None) != (o[part] is None):
                self.differ(where, part, t[part], o[part])
            elif t[part] is not None:
                self.row(where + " " + part, table, t, o, part)

    def row(self, where, table, t, o, part):
        theirs, mine = t[part], o[part]
        unavailable = set(o.get("unavailable", []))
        for column in dict.fromkeys([*theirs, *mine]):
            if column in theirs and column in mine and same(theirs[column], mine[column]):
                continue
            # Debezium gives a default to what the log didn't carry; we say null, and name it.
            if part == "before" and column in unavailable and mine.get(column) is None:
                continue
            if not self.allowed(table, column):
                self.differ(where, column, theirs.get(column, "(no such column)"), mine.get(column, "(no such column)"))

    def schema(self, where, table, t, o):
        """Field by field; ours are optional and without defaults but for the key, and don't list an enum's labels."""
        def plain(field):
            field = {k: v for k, v in field.items() if k not in ("optional", "default")}
            if field.get("name") == "io.debezium.data.Enum":
                field.pop("parameters", None)
            return {k: ([plain(f) for f in v] if k == "fields" else plain(v) if k == "items" else v) for k, v in field.items()}
        fields = [{f["field"]: f for f in schema["fields"]} for schema in (t, o)]
        for name in fields[0]:
            if name not in fields[1]:
                self.differ(where, "schema", name, None)
        rows = [{f["field"]: plain(f) for f in side["after"]["fields"]} for side in fields]
        for column in dict.fromkeys([*rows[0], *rows[1]]):
            if rows[0].get(column) != rows[1].get(column) and not self.allowed(table, column):
                self.differ(where, "schema of " + column, rows[0].get(column), rows[1].get(column))
        source = [{f["field"]: f for f in side["source"]["fields"]} for side in fields]
        for name, field in source[0].items():
            if field != source[1].get(name):
                self.differ(where, "schema of source." + name, field, source[1].get(name))


def whole_updates(messages):
    """An update of a table without a key is a delete and a create here; as the one message that Debezium writes."""
    merged = []
    for m in messages:
        last = merged[-1] if merged else None
        if m["key"] is None and last and m["value"] and last["value"]:
            a, b = last["value"]["payload"], m["value"]["payload"]
            if (a["op"], b["op"]) == ("d", "c") and place(b) == (place(a)[0], place(a)[1] + 1) and place(b)[1] % 2:
                merged[-1] = {**m, "value": {**m["value"], "payload": {**b, "op": "u", "before": a["before"]}}}
                continue
        merged.append(m)
    return merged


def place(payload):
    return payload["source"]["commit_lsn"], payload["source"]["ordinal"]


def decoded(words, properties, table, values):
    """Rows by the example `debezium_rows`."""
    lines = "".join(json.dumps({"table": table, "value": value}) + "\n" for value in values)
    done = subprocess.run([*words, *("%s=%s" % p for p in properties.items())], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def java(prefix, settings, folder, stop):
    paths = subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
    words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx700m", "-cp", paths, "Dump", stop]
    for mode, properties in settings.items():
        path = os.path.join(folder, mode)
        with open(path + ".properties", "w") as f:
            for name, value in {**prefix, **properties}.items():
                f.write("%s=%s\n" % (name, value))
        words += [path + ".properties", path + ".jsonl"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", required=True)
    p.add_argument("--decoder", help="the example debezium_rows: Debezium's messages are read with it, too")
    p.add_argument("--keep", action="store_true", help="keep the messages")
    o = p.parse_args()
    began = time.time()
    folder = tempfile.mkdtemp(prefix="tidewire-debezium-")
    pg = server.Postgres({"wal_level": "logical", "fsync": "off", "max_replication_slots": "20", "max_wal_senders": "20", "TimeZone": "UTC"},
                         server.in_memory())
    try:
        comparison = compare(o.binary, o.decoder, pg, folder)
        told = transactions.compare(o.binary, pg, folder, java, comparison.differ)
    finally:
        pg.process.send_signal(signal.SIGQUIT)
        pg.process.wait()
        shutil.rmtree(pg.folder)
        print("messages are in " + folder) if o.keep else shutil.rmtree(folder)
    for line in comparison.found[:60]:
        print(line)
    unmet = [where for where in DIFFERENCES if not comparison.met[where]]
    for where in unmet:
        print("a difference that is listed wasn't met: %s" % (where,))
    failed = len(comparison.found) + len(unmet)
    print("%d messages compared in %d modes, %d places of listed differences; of Debezium's %d read as they were, %d refused; %d s" % (
        comparison.messages, len(MODES), sum(comparison.met.values()), comparison.read, comparison.refused, time.time() - began))
    print("%d messages of transactions and %d rows alone compared" % (told, comparison.alone))
    print("%d passed, %d failed" % (0 if failed else 1, failed))
    return 1 if failed else 0


def compare(binary, decoder, pg, folder):
    pg.connect().cursor().execute("CREATE DATABASE types")
    cursor = pg.connect("types").cursor()
    cursor.execute(open(os.path.join(HERE, "types.sql")).read())
    config = os.path.join(folder, "pipeline.yaml")
    with open(config, "w") as f:
        json.dump({"name": "shop", "source": {"postgres": {"url": pg.url("types"), "slot": "ours"}},
                   "sinks": {"lake": {"delta": {"path": os.path.join(folder, "lake")}}},
                   "data_dir": os.path.join(folder, "journal"), "http": "127.0.0.1:%d" % server.free_port()}, f)
    tidewire = lambda *words: subprocess.run([binary, *words], capture_output=True, text=True, timeout=90)
    first = tidewire("run", config, "--until-caught-up")
    assert first.returncode == 0, first.stderr
    settings = {}
    for mode, properties in MODES.items():
        cursor.execute("SELECT pg_copy_logical_replication_slot('ours', %s)", ["theirs_" + mode])
        settings[mode] = {**properties, "name": mode, "topic.prefix": "shop_" + mode, "slot.name": "theirs_" + mode}
    cursor.execute("SELECT pubname FROM pg_publication")
    publication = cursor.fetchone()[0]
    with open(os.path.join(HERE, "changes.sql")) as f:
        for statement in f.read().split(";\n"):
            if statement.strip():
                cursor.execute(statement)
    java({"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "127.0.0.1",
          "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "database.port": pg.port, "database.user": "postgres",
          "database.password": "unused", "database.dbname": "types", "plugin.name": "pgoutput", "publication.name": publication,
          "publication.autocreate.mode": "disabled", "snapshot.mode": "no_data", "poll.interval.ms": "10", "skipped.operations": "none"},
         settings, folder, "zz_end")
    second = tidewire("run", config, "--until-caught-up")
    comparison = Comparison()
    schemas = os.path.join(folder, "schemas")
    with open(schemas, "w") as f:
        f.write(tidewire("topic", "read", config, "__schemas").stdout)
    for mode, properties in MODES.items():
        theirs = collections.defaultdict(list)
        for line in open(os.path.join(folder, mode + ".jsonl")):
            message = json.loads(line)
            message["prefix"] = "shop_" + mode
            theirs[message["topic"]].append(message)
        words = [w for name, value in {**properties, **TRUE}.items() for w in ("--property", "%s=%s" % (name, value))]
        topics = json.loads(tidewire("topic", "list", config, "--json").stdout)["topics"]
        for topic in sorted(t["topic"] for t in topics if not t["topic"].startswith("__")):
            read = tidewire("topic", "read", config, topic, "--format", "debezium", *words)
            assert read.returncode == 0, second.stderr + read.stderr
            ours = [json.loads(line) for line in read.stdout.split("\n") if line]
            # Reads, and the truncate before the read of a table without a key, aren't of the log.
            ours = [m for m in ours if m["value"] is None or m["value"]["payload"]["source"]["snapshot"] == "false"]
            ours = [m for m in ours if m["value"] is None or m["value"]["payload"]["source"]["txId"] or m["value"]["payload"]["op"] != "t"]
            if not ours:
                continue
            block = next(m["value"]["payload"]["source"] for m in ours if m["value"])
            name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in "%s.%s" % (block["schema"], block["table"]))
            # Tombstones without a key: ours has none.
            messages = [m for m in theirs["shop_%s.%s" % (mode, name)] if m["key"] or m["value"]]
            comparison.messages_of(mode, block["table"], messages, whole_updates(ours))
            if decoder and block["table"] != "keyless":
                table = "%s.%s" % (block["schema"], block["table"])
                read = [decoded([decoder, schemas], properties, table, [m["value"] for m in messages]),
                        decoded([decoder, schemas, "--ours"], properties, table, [m["value"] and json.dumps(m["value"]) for m in ours])]
                comparison.rows(mode, block["table"], *read)
    topics = sorted({t["topic"] for t in json.loads(tidewire("topic", "list", config, "--json").stdout)["topics"] if not t["topic"].startswith("__")})
    for mode in ("defaults", "connect"):
        comparison.alone += rows.compare(tidewire, [decoder, schemas] if decoder else None, config, topics, MODES[mode], same, comparison.differ)
    return comparison


if __name__ == "__main__":
    sys.exit(main())
