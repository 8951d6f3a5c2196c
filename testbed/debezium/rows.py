"""Rows alone: what Debezium's own ExtractNewRecordState makes of our envelopes, beside what we write in their place (`topic read --unwrap`), for each
of its options: topic, key, value, schema and added headers; in Avro and Protobuf the bytes and the schemas of Confluent's converters behind the transform. Part of
compare.py."""
import json, os, re, subprocess

HERE = os.path.dirname(os.path.abspath(__file__))

# What is asked of both.
OPTIONS = [
    {},
    {"delete.tombstone.handling.mode": "drop", "add.fields": "op,table"},
    {"delete.tombstone.handling.mode": "rewrite", "add.fields": "op,source.ts_ms,source.snapshot,source.sequence,source.txId,source.commit_lsn,source.ordinal"},
    {"delete.tombstone.handling.mode": "rewrite-with-tombstone", "add.fields": "op:operation, lsn", "add.headers": "op,source.lsn,version", "add.fields.prefix": "x_"},
    {"delete.tombstone.handling.mode": "delete-to-tombstone", "add.headers": "db,op:how,source.xmin,schema,origin", "add.headers.prefix": ""},
    {"delete.tombstone.handling.mode": "tombstone", "add.headers": "op", "add.fields": "before.id:was,after.id,transaction.id,total_order,connector,name"},
    {"delete.tombstone.handling.mode": "rewrite", "add.fields": "ts_ms,ts_us,ts_ns,source.op", "add.fields.prefix": ""},
]
TIMES = ("ts_ms", "ts_us", "ts_ns")
SCHEMAS = ("--property", "key.converter.schemas.enable=true", "--property", "value.converter.schemas.enable=true")


def compare(tidewire, decoder, config, topics, settings, same, differ):
    """How many messages were compared. `tidewire`: runs the binary; `decoder`: words of the example `debezium_rows`, or none; `topics`: ours; `settings`: how
    values are written."""
    properties = [word for setting in settings.items() for word in ("--property", "%s=%s" % setting)]

    def read(topic, *words):
        done = tidewire("topic", "read", config, topic, "--format", "debezium", *properties, *words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.split("\n") if line]
    envelopes, count = {topic: read(topic, *SCHEMAS) for topic in topics}, 0
    if decoder:
        count += compare_registered(decoder, {table_of(all[0]): all for all in envelopes.values() if all}, settings, differ)
    for options in OPTIONS:
        for schemas in (False, True):
            theirs = transformed([m for topic in topics for m in envelopes[topic]], options, schemas)
            words = [word for option in options.items() for word in ("--unwrap", "%s=%s" % option)]
            for topic in topics:
                ours = read(topic, "--unwrap", *words, *(SCHEMAS if schemas else ()))
                told = [theirs.pop(0) for _ in envelopes[topic]]
                told = [m for m in told if m is not None]
                where = "rows alone %s %s" % (topic, options)
                if len(told) != len(ours):
                    differ(where, "number of messages", len(told), len(ours))
                for n, (t, o) in enumerate(zip(told, ours)):
                    count += 1
                    message("%s %d" % (where, n), t, o, schemas, same, differ)
    return count


def compare_registered(decoder, envelopes, properties, differ):
    """The same in Avro and Protobuf. `decoder`: words of the example `debezium_rows`; `envelopes`: ours, with schemas, by table."""
    tables = [table for table in envelopes if table.isascii() and " " not in table]
    count = 0
    for form in ("avro", "protobuf"):
        for options in OPTIONS[:-1]:
            theirs = transformed([m for table in tables for m in envelopes[table]], options, form)
            for table in tables:
                told, mine = [theirs.pop(0) for _ in envelopes[table]], encoded(decoder, properties, form, options, table, envelopes[table])
                for n, (envelope, t, o) in enumerate(zip(envelopes[table], told, mine)):
                    count += 1
                    registered("%s rows alone %s %d %s" % (form, table, n, options), form, envelope, t, o, differ)
    return count


def encoded(decoder, properties, form, options, table, envelopes):
    words = [*decoder, "--alone=" + form, *("%s=%s" % p for p in properties.items()), *("--unwrap=%s=%s" % option for option in options.items())]
    lines = "".join(json.dumps({"table": table, "value": m["value"] and json.dumps(m["value"])}) + "\n" for m in envelopes)
    done = subprocess.run(words, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def registered(where, form, envelope, theirs, ours, differ):
    if envelope["value"] is None:
        return
    kinds = ["nothing" if side is None else "error" if "error" in side else "row" for side in (theirs, ours)]
    if kinds[0] != kinds[1] and "nothing" not in kinds and form == "protobuf":
        # A map with NULLs in it, or a date beyond four digits: Confluent's converter writes a part of it, ours refuses it. A time after year 9999: that one refuses it.
        return
    if "row" not in kinds or kinds[0] != kinds[1]:
        if kinds[0] != kinds[1]:
            differ(where, "what is told", theirs, ours)
        return
    value, mine = theirs[2] or None, ours["value"]
    if value is None or mine is None:
        if value is not mine:
            differ(where, "a value", value, mine)
        return
    text = json.dumps(envelope["value"]["payload"])
    if not is_same_message(form, value, mine) and not re.search(NO_NUMBERS, text) and not (form == "protobuf" and re.search(OLD_DAYS, text)):
        differ(where, "bytes", value, mine)
    schema, mine = plain_schema(form, json.loads(theirs[4])), plain_schema(form, ours["schema"])
    if schema != mine:
        differ(where, "schema", schema, mine)


# Connect's own JSON converter, by which the transform is given our messages, reads them as 0.
NO_NUMBERS = r'"NaN"|Infinity|: -0(\.0)?[,}]'


# Days before the calendar of today and 24:00 go through Java's old calendar in Confluent's converter, and come out as others.
OLD_DAYS = r'"(julian|1582|24)"'
LIST_OF_MAPS = re.compile(" ah = \\d+;$")


def plain_schema(form, text):
    if form == "protobuf":
        text = re.sub(r"\s*\[[^;]*\](?=;)", "", text).replace(" .", " ")
        # A map is a list of such entries to Confluent's converter, which is the same in Protobuf.
        text = re.sub(r"repeated ConnectDefault\d+Entry", "map<string, string>", re.sub(r"  message ConnectDefault\d+Entry {[^}]*}", "", text))
        # Nothing of ours holds a list of maps: a row with one is refused.
        lines = [line.strip() for line in text.split("\n") if not line.startswith("import") and not LIST_OF_MAPS.search(line)]
        return [re.sub(r"\d+;$", "", line) for line in lines if line]
    schema = json.loads(text)
    for field in schema["fields"]:
        for branch in field["type"] if isinstance(field["type"], list) else []:
            # Avro knows no decimals with such scales; Confluent's converter calls them decimals all the same.
            if isinstance(branch, dict) and not 0 <= branch.get("scale", 0) <= branch.get("precision", 0):
                branch.pop("logicalType", None)
    return schema


def is_same_message(form, theirs, ours):
    a, b = (bytes.fromhex(side)[5 if form == "avro" else 6:] for side in (theirs, ours))
    if form == "avro":
        # Maps have no order: then the same bytes stand in another one.
        return a == b or sorted(a) == sorted(b)
    return is_same_wire(a, b)


def is_same_wire(a, b):
    """Two messages in Protobuf: a zero is as good as nothing, a packed list as one that isn't, and maps have no order."""
    a, b = wire(a), wire(b)
    if a is None or b is None or a.keys() != b.keys():
        return False
    for number in a:
        x, y = a[number], b[number]
        if b"".join(x) != b"".join(y) and sorted(x) != sorted(y) and not (len(x) == len(y) and all(map(is_same_wire, x, y))):
            return False
    return True


def wire(message):
    """The values of a message in Protobuf, by the numbers of their fields. None: it is none."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            number, at, shift = number | (byte & 127) << shift, at + 1, shift + 7
            if byte < 128:
                return number
    try:
        while at < len(message):
            tag, start = varint(), at
            size = varint() if tag & 7 in (0, 2) else {1: 8, 5: 4}[tag & 7]
            start, at = (start, at) if tag & 7 == 0 else (at, at + size)
            if at > len(message):
                return None
            fields.setdefault(tag >> 3, []).append(message[start:at])
    except (IndexError, KeyError):
        return None
    return {number: values for number, values in fields.items() if values != [b"\0"]}


def table_of(envelope):
    source = envelope["value"]["payload"]["source"]
    return "%s.%s" % (source["schema"], source["table"])


def name_of(envelope):
    return (envelope["value"] or envelope["key"])["schema"]["name"].rpartition(".")[0]


def transformed(messages, options, schemas):
    paths = subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
    lines = "".join("%s\t%s\t%s\n" % (name_of(m), json.dumps(m["key"]), json.dumps(m["value"])) for m in messages)
    words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx300m", "-cp", paths, "Unwrap", *(["schemas"] if schemas is True else [schemas] if schemas else []), *("%s=%s" % option for option in options.items())]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=120)
    told = [None if line == "null" else line.split("\t") for line in done.stdout.split("\n")[:-1]]
    assert len(told) == len(messages), done.stderr[-3000:]
    return told


def message(where, theirs, ours, schemas, same, differ):
    _, key, value, headers = theirs
    key, value, headers = json.loads(key), json.loads(value) if value else None, json.loads(headers)
    mine = {name: text for name, text in ours.get("headers", {}).items() if not name.startswith("__debezium.")}
    if list(headers.items()) != list(mine.items()):
        differ(where, "headers", headers, mine)
    if not same(key, ours["key"]):
        differ(where, "key", key, ours["key"])
    if schemas and (value is None or ours["value"] is None):
        if value is not ours["value"]:
            differ(where, "a value", value, ours["value"])
        return
    if schemas:
        if value["schema"] != ours["value"]["schema"]:
            differ(where, "schema", value["schema"], ours["value"]["schema"])
        value, mine = value["payload"], ours["value"]["payload"]
    else:
        mine = ours["value"]
    if value is None or mine is None:
        if value is not mine:
            differ(where, "a row", value, mine)
        return
    if list(value) != list(mine):
        return differ(where, "fields", list(value), list(mine))
    for name in value:
        # Both say when they were written.
        if name in TIMES and isinstance(mine[name], int) and abs(value[name] - mine[name]) / 1000 ** TIMES.index(name) < 120_000:
            continue
        if not same(value[name], mine[name]) and not is_lost_on_the_way(value[name], mine[name]):
            differ(where, name, value[name], mine[name])


def is_lost_on_the_way(theirs, ours):
    """Connect's own JSON converter, by which the transform is given our messages, reads a NaN or an infinity as 0, and -0 as 0."""
    if type(theirs) is type(ours) and isinstance(ours, (list, dict)) and len(theirs) == len(ours):
        pairs = zip(theirs, ours) if isinstance(ours, list) else ((theirs.get(name), ours[name]) for name in ours)
        return all(a == b or is_lost_on_the_way(a, b) for a, b in pairs)
    return ours in ("NaN", "Infinity", "-Infinity", 0) and theirs == 0
