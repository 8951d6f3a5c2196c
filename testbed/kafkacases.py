"""Cases whose source is topics that somebody else wrote: records are put into a real broker, `tidewire run` reads them (source.debezium) into
its journal and delivers to a Delta table and a PostgreSQL replica. Each case runs in several ways, and every one has to end with the same rows
in both sinks, the same dead letters, and each record counted once:

  all, 3, 1     so many records at once, with a start of `tidewire` behind each part
  killed        the process dies at each durable step in turn, and is started again
  again         all records are put into the topics once more (where they tell their place)
  mixed         in another order (where every record tells its place and its whole row)

and `tidewire replay --prove` gives the sinks everything once more behind each.

A file has
  case, name    its number and what it is about
  setup         SQL: the tables, in a database that is asked for their columns (left out: messages carry schemas)
  records       topic, key, value (an object, a text as it is, null), partition (0), headers, schema (stands beside the payload)
  partitions    of every topic (as the records have)
  reading       further keys of source.debezium
  rows          the rows that there must be, by table, as text in the order of the table's columns
  letters       numbers of the records that go to the dead letters
  aside         how many say nothing of a row, or nothing new
  incomplete    changes that lacked values of rows that aren't there: the run names them
  notes         table -> a regular expression in its notes, when all was read at once
  parked        a regular expression: why a topic isn't read
  ways          only these
  columns       the columns of tables that `setup` doesn't make
  change_sql    with no records: what happens at a PostgreSQL source, which goes to Kafka and from those topics on
A file of another collection (`kind: kafka-sink`) is run as it is: `setup_sql`, `records`, `expect.tables`.
"""
import base64, hashlib, json, os, random, re, subprocess, threading, time, zlib
import canonical, casechecks, server
from casesteps import connect
from pipeline import Pipeline

HERE = os.path.dirname(os.path.abspath(__file__))
KEYS = {"case", "name", "setup", "records", "partitions", "reading", "rows", "letters", "aside", "incomplete", "notes", "parked", "ways", "columns", "change_sql"}
RECORD = {"topic", "key", "value", "partition", "headers", "schema", "offset", "key_schema"}
WAYS = ("all", "3", "1", "killed", "again", "mixed")
# Durable steps, and how often each is passed before the process dies there.
DEATHS = ("journal append:1", "journal written:2", "source confirm:1", "sink commit:1", "sink committed:1", "source confirmed:1")


class Broker:
    """A private broker, and a program that puts records into it."""

    def __init__(self, folder):
        script = os.path.join(HERE, "kafka.sh")
        self.process = subprocess.Popen([script, "run", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address, "Kafka didn't start"
        libs = subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()
        java = ["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", libs + "/*"]
        self.sender = subprocess.Popen([*java, os.path.join(HERE, "kafka", "Send.java"), self.address], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        self.lock = threading.Lock()

    def tell(self, lines):
        with self.lock:
            self.sender.stdin.write("".join(line + "\n" for line in lines) + "done\n")
            self.sender.stdin.flush()
            answer = self.sender.stdout.readline().strip()
        assert answer == "ok", "the records could not be sent"

    def stop(self):
        self.sender.stdin.close()
        self.sender.wait()
        self.process.communicate("end\n")


def coded(data):
    """One of a record's parts as bytes, in base64. `data`: an object, a text as it is, or null."""
    if data is None:
        return "-"
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return base64.b64encode(text.encode()).decode()


def beside(schema, payload):
    return payload if schema is None or isinstance(payload, str) else {"schema": schema, "payload": payload}


def line_of(record, prefix):
    key, value = (beside(record.get(s), record.get(p)) for s, p in (("key_schema", "key"), ("schema", "value")))
    if record.get("value") is None and not isinstance(record.get("value"), str):
        value = None
    headers = " ".join("%s=%s" % (name, coded(v)) for name, v in record.get("headers", {}).items())
    return ("send %s%s %d %s %s %s" % (prefix, record["topic"], record.get("partition", 0), coded(key), coded(value), headers)).strip()


def load(path, case):
    """A case of ours, checked."""
    wrong = ["unknown key %s" % k for k in case if k not in KEYS]
    wrong += ["missing key %s" % k for k in ("case", "name", "records") if k not in case]
    wrong += ["unknown key %s of a record" % k for r in case.get("records", []) for k in r if k not in RECORD]
    wrong += ["unknown way %s" % w for w in case.get("ways", []) if w not in WAYS]
    if wrong:
        raise SystemExit("%s: %s" % (path, "; ".join(wrong)))
    return case


def from_elsewhere(case):
    """A case as other collections write it."""
    expect, records = case.get("expect") or {}, case.get("records") or []
    decimals = set(re.findall(r"(\w+)\s+(?:numeric|decimal)", case.get("setup_sql") or "", re.I))
    properties = {}
    values = [row.get(c) for r in records if isinstance(r.get("value"), dict) for row in rows_of(r["value"]) for c in decimals]
    values = [v for v in values if v is not None]
    # Text as a person writes it; else the unscaled number's bytes in base64, which is Debezium's default.
    texts = [v for v in values if isinstance(v, str) and re.fullmatch(r"-?\d+(\.\d+)?|NaN", v)]
    numbers = [v for v in values if isinstance(v, (int, float))]
    if texts and 2 * len(texts + numbers) >= len(values):
        properties["decimal.handling.mode"] = "string"
    elif numbers:
        properties["decimal.handling.mode"] = "double"
    tables = expect.get("tables") or {}
    rows = {name: [[None if v is None else str(v) for v in row] for row in t["rows"]] for name, t in tables.items() if t.get("rows") is not None}
    sums = {name: t for name, t in tables.items() if t.get("rows") is None and "rows_md5" in t}
    columns = {name: t["columns"] for name, t in (expect.get("tables") or {}).items() if t.get("columns")}
    reading = {"properties": properties, "extra_fields": "ignore", "absent_fields": "null", "resnapshot": "replace"}
    return {"case": case["id"], "name": case["title"], "setup": case.get("setup_sql"), "records": records, "reading": reading,
            "rows": rows or None, "sums": sums, "columns": columns, "change_sql": case.get("change_sql") or [], "elsewhere": True}


def rows_of(value):
    value = value.get("payload", value) if isinstance(value.get("payload"), dict) else value
    envelope = [value[k] for k in ("before", "after") if isinstance(value.get(k), dict)]
    return envelope if "op" in value else [value]


class Run:
    """One way of one case: topics, a pipeline and a replica of its own."""

    def __init__(self, case, way, env, number):
        self.case, self.way, self.env = case, way, env
        name = "case_%s_%s" % (re.sub("[^a-z0-9]", "_", str(case["case"]).lower()), way)
        self.db, self.prefix = "%s_%d" % (name, number), "%s_%d." % (name, number)
        self.folder = os.path.join(env["folder"], self.db)
        os.mkdir(self.folder)
        self.admin = env["pg"].connect()
        self.admin.cursor().execute("CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'" % self.db)
        self.replica = env["pg"].url(self.db)
        self.topics = {}
        for r in case["records"]:
            self.topics[r["topic"]] = max(self.topics.get(r["topic"], 1), r.get("partition", 0) + 1, case.get("partitions", 1))
        reading = dict(case.get("reading") or {})
        if case.get("setup"):
            reading["tables_from"] = env["pg"].url(env["tables"])
        source = {"debezium": {"brokers": env["broker"].address, "topics": [self.prefix + t for t in self.topics] or ["none"], **reading}}
        self.pipeline = Pipeline(env["binary"], self.folder, None, self.replica, whole=source)
        env["broker"].tell(["topic %s%s %d max.message.bytes=67108864" % (self.prefix, t, n) for t, n in self.topics.items()])

    def send(self, records):
        self.env["broker"].tell([line_of(r, self.prefix) for r in records])

    def catch_up(self, more=None):
        """The run's exit code: 1 where it names what isn't whole."""
        done = subprocess.run([self.env["binary"], "run", self.pipeline.config, "--until-caught-up", "--json"], capture_output=True, text=True,
                              timeout=90, env={**os.environ, **(more or {})})
        with self.pipeline.log() as log:
            log.write(done.stdout + done.stderr)
        return done

    def caught_up(self):
        done = self.catch_up()
        assert done.returncode in (0, 1), "the run ended with %d: %s" % (done.returncode, done.stderr[-1500:])
        return json.loads(done.stdout.splitlines()[-1])

    def rows(self, table):
        schema, _, name = table.rpartition(".")
        columns = self.case["columns"][table]
        lake = os.path.join(self.folder, "lake")
        return {"lake": sorted(canonical.delta_rows(lake, schema or "public", name, columns), key=order),
                "replica": sorted(canonical.replica_rows(connect(self.replica), casechecks.PIN, schema or "public", name, columns), key=order)}

    def letters(self):
        """Those of the source."""
        letters = json.loads(self.pipeline.call("dlq", "list", self.pipeline.config, "--json"))["letters"]
        return [letter for letter in letters if letter["sink"] == "(source)"]

    def end(self):
        self.pipeline.stop()
        k = self.admin.cursor()
        k.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (self.db,))
        k.execute("DROP DATABASE IF EXISTS %s" % self.db)
        self.admin.close()


def order(row):
    return [(v is not None, v or "") for v in row]


def tells_its_place(record):
    value = record.get("value")
    if not isinstance(value, dict):
        return value is None
    source = value.get("source") or {}
    return "op" not in value or "lsn" in source or "sequence" in source or "commit_lsn" in source


def may_be_mixed(case):
    """Every change tells its position in full, and its whole row; nothing depends on what came before it."""
    if case.get("letters") or case.get("incomplete"):
        return False
    for record in case["records"]:
        value = record.get("value")
        if not isinstance(value, dict) or value.get("op") not in ("c", "u", "d") or "unavailable" in value or record.get("key") is None:
            return False
        if "commit_lsn" not in (value.get("source") or {}):
            return False
    return len({json.dumps(sorted(r)) for r in [list((rec["value"].get("after") or {"": 0})) for rec in case["records"]] if r != [""]}) <= 1


def parts_of(records, size):
    return [records[i:i + size] for i in range(0, len(records), size)] or [[]]


def drive(run, way):
    """Sends and reads; the status at the end, and how often each record was sent."""
    records, times = run.case["records"], 1
    if way in ("3", "1"):
        for part in parts_of(records, int(way)):
            run.send(part)
            told = run.caught_up()
        return told, times
    if way == "mixed":
        records = list(records)
        random.Random(zlib.crc32(str(run.case["case"]).encode())).shuffle(records)
    run.send(records)
    if way == "killed":
        for death in DEATHS:
            run.catch_up({"TIDEWIRE_DIE_AT": death})
    told = run.caught_up()
    if way == "again":
        run.send(records)
        told, times = run.caught_up(), 2
    return told, times


def check(run, told, times, first):
    case, what = run.case, "%s, %s" % (run.case["case"], run.way)
    messages = told["status"]["source"]["messages"]
    count = len(case["records"])
    if not case.get("parked"):
        assert messages["read"] == count * times, "%s: %s of %d records were read" % (what, messages, count * times)
        assert messages["read"] == messages["changes"] + messages["aside"] + messages["refused"], "%s: %s" % (what, messages)
    letters = run.letters()
    assert len(letters) == messages["refused"], "%s: %d dead letters, %s" % (what, len(letters), messages)
    for letter in letters:
        assert letter["topic"].startswith(run.prefix) and letter["why"], "%s: a letter without its origin: %s" % (what, letter)
    if "letters" in case and times == 1 and run.way != "mixed":
        wanted = sorted((case["records"][i]["topic"], case["records"][i].get("partition", 0), offset_of(case, i)) for i in case["letters"])
        got = sorted((l["topic"][len(run.prefix):], l["partition"], l["offset"]) for l in letters)
        assert got == wanted, "%s: dead letters %s, expected %s: %s" % (what, got, wanted, [l["why"] for l in letters])
    if "aside" in case and times == 1:
        assert messages["aside"] == case["aside"], "%s: %s" % (what, messages)
    incomplete = sum(s["rows_incomplete"] for s in told["status"]["sinks"])
    if not case.get("elsewhere") and run.way in ("all", "3", "1"):
        assert bool(incomplete) == bool(case.get("incomplete")) or run.way != "all", "%s: %d incomplete" % (what, incomplete)
    for table, pattern in case.get("notes", {}).items() if run.way == "all" else ():
        notes = [t["notes"] for t in told["status"]["tables"] if t["table"] == table]
        assert re.search(pattern, json.dumps(notes, ensure_ascii=False)), "%s: no note like %r in %s" % (what, pattern, notes)
    if case.get("parked"):
        assert re.search(case["parked"], json.dumps(told["status"]["tables"])), "%s: %s" % (what, told["status"]["tables"])
    check_rows(run, what, first)


def offset_of(case, index):
    place = lambda r: (r["topic"], r.get("partition", 0))
    return sum(place(r) == place(case["records"][index]) for r in case["records"][:index])


def check_rows(run, what, first):
    case = run.case
    for table in case["columns"]:
        got = run.rows(table)
        wanted = (case.get("rows") or {}).get(table)
        wanted = sorted((tuple(r) for r in wanted), key=order) if wanted is not None else first.setdefault(table, got["lake"])
        if table in case.get("sums", {}):
            for sink in ("lake", "replica"):
                check_sum("%s: %s in %s" % (what, table, sink), case["sums"][table], case["columns"][table], got[sink])
            continue
        got = {sink: [tuple(map(short, row)) for row in rows] for sink, rows in got.items()} if case.get("elsewhere") else got
        for sink in ("lake", "replica"):
            casechecks.compare("%s: %s in %s" % (what, table, sink), case["columns"][table], wanted, got[sink])


def short(value):
    """Long values as other collections write them."""
    return value if value is None or len(value) <= 200 else "<text len=%d md5=%s>" % (len(value), hashlib.md5(value.encode()).hexdigest())


def check_sum(what, wanted, columns, rows):
    keys = [columns.index(c) for c in wanted["key"]]
    number = lambda v: int(v) if re.fullmatch(r"-?\d+", v or "") else v
    rows = sorted(rows, key=lambda row: [number(row[k]) for k in keys])
    text = "\n".join("\x1f".join("\\N" if v is None else v for v in row) for row in rows)
    assert len(rows) == wanted["row_count"], "%s: %d rows, expected %d" % (what, len(rows), wanted["row_count"])
    assert hashlib.md5(text.encode()).hexdigest() == wanted["rows_md5"], "%s: other rows than expected" % what


def columns_of(case, url):
    """The columns of each table that is looked at, in order."""
    c = connect(url)
    k = c.cursor()
    k.execute("SELECT n.nspname, c.relname, array_agg(attname ORDER BY attnum) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
              "JOIN pg_attribute a ON attrelid = c.oid WHERE relkind = 'r' AND nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' "
              "AND attnum > 0 AND NOT attisdropped GROUP BY 1, 2")
    found = {"%s.%s" % (schema, name): [str(n) for n in names] for schema, name, names in k.fetchall()}
    c.close()
    given = case.get("columns") or {}
    return {name if "." in name else "public." + name: columns for name, columns in {**found, **given}.items()
            if "." in name or "public." + name not in given}


def run_case(case, binary, pg, broker, folder):
    began = time.monotonic()
    if not case["records"]:
        through_kafka(case, binary, pg, broker, folder)
        return time.monotonic() - began
    case = dict(case)
    tables, admin = "tables_%s" % re.sub("[^a-z0-9]", "_", str(case["case"]).lower()), pg.connect()
    admin.cursor().execute("CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'" % tables)
    if case.get("setup"):
        connect(pg.url(tables)).cursor().execute(case["setup"])
    full = lambda name: name if "." in name else "public." + name
    case["rows"] = {full(name): rows for name, rows in (case.get("rows") or {}).items()} or None
    case["sums"] = {full(name): told for name, told in (case.get("sums") or {}).items()}
    case["columns"] = {full(name): columns for name, columns in columns_of(case, pg.url(tables)).items()}
    env = {"binary": binary, "pg": pg, "broker": broker, "folder": folder, "tables": tables}
    first = {}
    for number, way in enumerate(ways_of(case)):
        run = Run(case, way, env, number)
        try:
            told, times = drive(run, way)
            check(run, told, times, first)
            if not case.get("parked"):
                replay(run)
                check_rows(run, "%s, %s, after a replay" % (case["case"], way), first)
        except AssertionError as error:
            raise AssertionError("%s\n%s" % (error, run.pipeline.tail()[-1500:]))
        finally:
            run.end()
    admin.close()
    return time.monotonic() - began


def ways_of(case):
    ways = list(case.get("ways", WAYS))
    if not all(map(tells_its_place, case["records"])):
        ways = [w for w in ways if w != "again"]
    return [w for w in ways if w != "mixed" or may_be_mixed(case)]


def replay(run):
    """Everything that the journal holds, twice; no row may change. A sink without rows has nothing to be proven."""
    for sink in ("lake", "replica"):
        done = subprocess.run([run.env["binary"], "replay", run.pipeline.config, "--to-earliest", "--prove", "--sink", sink], capture_output=True,
                              text=True, timeout=90)
        nothing = "holds nothing" in done.stderr
        assert done.returncode == 0 or nothing, "replay of %s ended with %d: %s %s" % (sink, done.returncode, done.stdout[-500:], done.stderr[-800:])


def through_kafka(case, binary, pg, broker, folder):
    """A database whose changes go to Kafka in Debezium's JSON, and from those topics to further copies: all must be equal."""
    name = "case_%s" % re.sub("[^a-z0-9]", "_", case["case"].lower())
    admin = pg.connect()
    for db in (name, name + "_replica", name + "_second"):
        admin.cursor().execute("CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'" % db)
    url = pg.url(name)
    connect(url).cursor().execute(case["setup"])
    bus = {"kafka": {"brokers": broker.address, "topic_prefix": name, "format": "debezium-json"}}
    where, behind = os.path.join(folder, name), os.path.join(folder, name + "_second")
    os.mkdir(where), os.mkdir(behind)
    first = Pipeline(binary, where, url, pg.url(name + "_replica"), more={"bus": bus})
    first.catch_up()
    for step in case["change_sql"]:
        connect(url).cursor().execute(step.get("sql") or step.get("tx"))
    first.catch_up()
    tables = {"published": {t: casechecks.SINKS for t in columns_of(case, url)}}
    casechecks.check_copies(first, tables, url, pg.url(name + "_replica"), "through Kafka")
    source = {"debezium": {"brokers": broker.address, "topics": [name + ".public.*"], "tables_from": url}}
    second = Pipeline(binary, behind, None, pg.url(name + "_second"), whole=source)
    second.catch_up()
    casechecks.check_copies(second, tables, url, pg.url(name + "_second"), "from the topics")
    second.catch_up()
    casechecks.check_copies(second, tables, url, pg.url(name + "_second"), "from the topics, after a restart")
    admin.close()
