"""Rows alone: what Debezium's own ExtractNewRecordState makes of our envelopes, beside what we write in their place (`topic read --unwrap`), for each
of its options: topic, key, value, schema and added headers. Part of compare.py."""
import json, os, subprocess

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


def compare(tidewire, config, topics, properties, same, differ):
    """How many messages were compared. `tidewire`: runs the binary; `topics`: ours; `properties`: words that say how values are written."""
    def read(topic, *words):
        done = tidewire("topic", "read", config, topic, "--format", "debezium", *properties, *words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.split("\n") if line]
    envelopes, count = {topic: read(topic, *SCHEMAS) for topic in topics}, 0
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


def name_of(envelope):
    return (envelope["value"] or envelope["key"])["schema"]["name"].rpartition(".")[0]


def transformed(messages, options, schemas):
    paths = subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
    lines = "".join("%s\t%s\t%s\n" % (name_of(m), json.dumps(m["key"]), json.dumps(m["value"])) for m in messages)
    words = ["java", "-XX:TieredStopAtLevel=1", "-Xmx300m", "-cp", paths, "Unwrap", *(["schemas"] if schemas else []), *("%s=%s" % option for option in options.items())]
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
