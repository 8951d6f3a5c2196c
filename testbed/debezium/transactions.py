"""Transactions as a real Debezium tells them (`provide.transaction.metadata`) beside ours: the block in each message, and the messages that say
where a transaction begins and ends; messages of the log; and what Debezium's own ExtractNewRecordState makes of our topics, which must be the
table. Ours come from Kafka, where alone all that is written. Part of compare.py."""
import collections, json, os, shutil, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import kafkacases, server

SETUP = """CREATE TABLE a (id int PRIMARY KEY, v text); ALTER TABLE a REPLICA IDENTITY FULL;
CREATE TABLE b (id int PRIMARY KEY, v text); CREATE TABLE zz_end (id int PRIMARY KEY);"""
CHANGES = ("SELECT pg_logical_emit_message(false, 'alone', 'outside of a transaction')",
           "BEGIN; SELECT pg_logical_emit_message(true, 'app', 'first'); INSERT INTO b VALUES (7, 'm'); "
           "SELECT pg_logical_emit_message(true, 'app', ''); SELECT pg_logical_emit_message(true, 'app', 'last'); COMMIT",
           "INSERT INTO a VALUES (1, 'x')",
           "BEGIN; INSERT INTO a VALUES (2, 'x'), (3, 'x'); INSERT INTO b VALUES (1, 'y'); UPDATE a SET v = 'z'; COMMIT",
           "BEGIN; UPDATE a SET id = 20 WHERE id = 2; DELETE FROM b; DELETE FROM a WHERE id = 1; COMMIT",
           "BEGIN; INSERT INTO a VALUES (99, 'x'); ROLLBACK",
           "BEGIN; TRUNCATE a, b; INSERT INTO a SELECT g, 'many' FROM generate_series(1, 500) g; COMMIT",
           "INSERT INTO zz_end VALUES (1)")


def compare(binary, pg, folder, java, differ):
    """How many messages were compared. `java`: runs a Debezium; `differ`: is told of each difference."""
    pg.connect().cursor().execute("CREATE DATABASE transactions")
    cursor = pg.connect("transactions").cursor()
    cursor.execute(SETUP)
    broker = kafkacases.Broker(os.path.join(folder, "kafka"))
    try:
        config = os.path.join(folder, "transactions.yaml")
        properties = {"provide.transaction.metadata": True, "key.converter.schemas.enable": True, "value.converter.schemas.enable": True}
        kafka = {"brokers": broker.address, "topic_prefix": "shop", "format": "debezium-json", "partitions": 1, "properties": properties}
        with open(config, "w") as f:
            json.dump({"name": "transactions", "source": {"postgres": {"url": pg.url("transactions"), "slot": "ours_tx", "messages": ["a*"]}}, "bus": {"kafka": kafka},
                       "sinks": {"lake": {"delta": {"path": os.path.join(folder, "lake_tx")}}}, "data_dir": os.path.join(folder, "data_tx"),
                       "http": "127.0.0.1:%d" % server.free_port()}, f)
        run = lambda: subprocess.run([binary, "run", config, "--until-caught-up"], capture_output=True, text=True, timeout=90)
        first = run()
        assert first.returncode == 0, first.stderr
        cursor.execute("SELECT pg_copy_logical_replication_slot('ours_tx', 'theirs_tx')")
        cursor.execute("SELECT pubname FROM pg_publication")
        publication = cursor.fetchone()[0]
        for sql in CHANGES:
            cursor.execute(sql)
        java({"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "database.hostname": "127.0.0.1", "database.port": pg.port,
              "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore", "database.user": "postgres",
              "database.password": "unused", "database.dbname": "transactions", "plugin.name": "pgoutput", "publication.name": publication,
              "publication.autocreate.mode": "disabled", "snapshot.mode": "no_data", "poll.interval.ms": "10", "skipped.operations": "none",
              "provide.transaction.metadata": "true"},
             {"transactions": {"name": "transactions", "topic.prefix": "shop", "slot.name": "theirs_tx"}}, folder, "zz_end")
        second = run()
        assert second.returncode == 0, second.stderr
        theirs = collections.defaultdict(list)
        for line in open(os.path.join(folder, "transactions.jsonl")):
            message = json.loads(line)
            theirs[message["topic"]].append([message[part] and json.loads(message[part]) for part in ("key", "value")])
        count, mine = 0, consumed(broker)
        for topic in ("shop.public.a", "shop.public.b"):
            ours = mine[topic]
            count += blocks(topic, theirs[topic], of_log(ours), differ)
            cursor.execute("SELECT id, v FROM %s" % topic.split(".")[-1])
            count += unwrapped(topic, ours, dict(cursor.fetchall()), differ)
        # Our own heartbeats are messages, too.
        messages = [m for m in theirs["shop.message"] if m[0]["payload"]["prefix"] != "tidewire"]
        count += log_messages(messages, mine["shop.message"], differ)
        return count + borders(theirs["shop.transaction"], mine["shop.transaction"], differ)
    finally:
        broker.stop()


def consumed(broker):
    """All that lies in our topics, as Kafka's own consumer reads it. Which topic it is of its schema tells."""
    libs = subprocess.run([os.path.join(os.path.dirname(HERE), "kafka.sh")], check=True, capture_output=True, text=True).stdout.strip()
    done = subprocess.run(["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", libs + "/*",
                           "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", broker.address, "--include",
                           "shop\\.(public\\..*|message|transaction)", "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "15000",
                           "--formatter-property", "print.key=true"], capture_output=True, text=True, timeout=120)
    topics = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        key, value = (json.loads(part) if part != "null" else None for part in line.split("\t"))
        name = (value or key)["schema"]["name"]
        own = {"io.debezium.connector.postgresql.MessageValue": "shop.message", "io.debezium.connector.common.TransactionMetadataValue": "shop.transaction"}
        topics[own.get(name, name.rpartition(".")[0])].append([key, value])
    assert topics, done.stderr[-2000:]
    return topics


def of_log(messages):
    return [m for m in messages if m[1] is None or (m[1]["payload"]["source"]["snapshot"] == "false" and m[1]["payload"]["source"]["txId"])]


def blocks(topic, theirs, ours, differ):
    if len(theirs) != len(ours):
        differ(topic, "number of messages", len(theirs), len(ours))
    for n, (t, o) in enumerate(zip(theirs, ours)):
        if t[1] is None or o[1] is None:
            if t[1] is not o[1]:
                differ("%s %d" % (topic, n), "tombstone", t, o)
            continue
        a, b = (side[1]["payload"]["transaction"] for side in (t, o))
        if plain(a) != plain(b):
            differ("%s %d" % (topic, n), "transaction", a, b)
    return min(len(theirs), len(ours))


def unwrapped(topic, messages, table, differ):
    """By Debezium's ExtractNewRecordState: the rows, one after the other, are the table; what it adds is what the message says."""
    paths = subprocess.run([os.path.join(HERE, "get.sh")], check=True, capture_output=True, text=True).stdout.strip()
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", paths, "Unwrap", "delete.tombstone.handling.mode=rewrite", "add.headers=op,source.table",
             "add.fields=op,source.commit_lsn,source.ordinal,transaction.total_order"]
    # A truncate has no row: whoever unwraps handles it by itself.
    rows = [m for m in messages if m[1] is None or m[1]["payload"]["op"] != "t"]
    lines = "".join("\t".join([topic, *(json.dumps(part) for part in m)]) + "\n" for m in rows)
    done = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=60)
    told = iter([None if line == "null" else [json.loads(part) for part in line.split("\t")[1:]] for line in done.stdout.splitlines()])
    state, count = {}, 0
    for m in messages:
        if m[1] and m[1]["payload"]["op"] == "t":
            state.clear()
            continue
        one, envelope = next(told, None), m[1] and m[1]["payload"]
        if one is None:
            # A tombstone says nothing behind a delete that is told as a row.
            if envelope:
                differ(topic, "a message is dropped: " + done.stderr[-500:], envelope, None)
            continue
        key, row, headers = one
        count += 1
        source, block = envelope["source"], envelope["transaction"] or {}
        added = {"__op": envelope["op"], "__source_commit_lsn": source["commit_lsn"], "__source_ordinal": source["ordinal"],
                 "__transaction_total_order": block.get("total_order"), "__deleted": str(envelope["op"] == "d").lower()}
        if {name: row[name] for name in added} != added or headers != {"__op": envelope["op"], "__source_table": source["table"]}:
            differ(topic, "what is added", added, [row, headers])
        if row["__deleted"] == "true":
            state.pop(key["id"], None)
        else:
            state[key["id"]] = row["v"]
    if state != table:
        differ(topic, "the rows behind ExtractNewRecordState", table, state)
    return count


def log_messages(theirs, ours, differ):
    if len(theirs) != len(ours):
        differ("messages", "number of messages", [m[0]["payload"] for m in theirs], [m[0]["payload"] for m in ours])
    for n, (t, o) in enumerate(zip(theirs, ours)):
        where = "message %d" % n
        if t[0] != o[0]:
            differ(where, "key", t[0], o[0])
        a, b = t[1]["payload"], o[1]["payload"]
        for name in ("op", "message"):
            if a[name] != b[name]:
                differ(where, name, a[name], b[name])
        # Debezium takes each message for a collection of its own, so that its order there is 1 always; ours counts them.
        alone = lambda block: block and {**plain(block), "data_collection_order": None}
        if alone(a["transaction"]) != alone(b["transaction"]):
            differ(where, "transaction", a["transaction"], b["transaction"])
        if list(a) != list(b):
            differ(where, "order of fields", list(a), list(b))
        for name in a["source"]:
            # Of a message outside of transactions the log tells no time: Debezium writes its own clock's, ours that up to which the log was read.
            if b["transaction"] is None and name.startswith("ts_") and 0 <= a["source"]["ts_ms"] - b["source"]["ts_ms"] < 300_000:
                continue
            if name not in ("version", "lsn", "sequence") and a["source"][name] != b["source"].get(name):
                differ(where, "source." + name, a["source"][name], b["source"].get(name))
        fields = [{f["field"]: f for f in side[1]["schema"]["fields"]} for side in (t, o)]
        for name in fields[0]:
            if name != "source" and fields[0][name] != fields[1].get(name):
                differ(where, "schema of " + name, fields[0][name], fields[1].get(name))
        if t[1]["schema"].get("name") != o[1]["schema"].get("name"):
            differ(where, "schema", t[1]["schema"].get("name"), o[1]["schema"].get("name"))
    return min(len(theirs), len(ours))


def borders(theirs, ours, differ):
    # Debezium also tells transactions in which nothing of these tables changed; and it may not have told the last one's end yet.
    empty = {txid(m[1]["payload"]["id"]) for m in theirs if m[1]["payload"]["event_count"] == 0}
    theirs = [m for m in theirs if txid(m[1]["payload"]["id"]) not in empty]
    last = txid(theirs[-1][1]["payload"]["id"])
    theirs, ours = ([m for m in side if txid(m[1]["payload"]["id"]) != last] for side in (theirs, ours))
    if len(theirs) != len(ours):
        differ("transactions", "number of messages", [m[1]["payload"] for m in theirs], [m[1]["payload"] for m in ours])
    for n, (t, o) in enumerate(zip(theirs, ours)):
        for part, (a, b) in enumerate(zip(t, o)):
            if plain(a["payload"]) != plain(b["payload"]):
                differ("transaction %d" % n, ("key", "value")[part], a["payload"], b["payload"])
            if a["schema"] != b["schema"]:
                differ("transaction %d" % n, ("key schema", "value schema")[part], a["schema"], b["schema"])
    # Ours is one id for the transaction: Debezium's ends in the LSN of each record.
    for m in ours:
        if m[0]["payload"]["id"] != m[1]["payload"]["id"]:
            differ("transactions", "id", m[0]["payload"], m[1]["payload"])
    return min(len(theirs), len(ours))


def txid(text):
    return text.split(":")[0]


def plain(payload):
    """With the part of the id that is the transaction's, and tables in any order."""
    if payload is None:
        return None
    tables = payload.get("data_collections")
    if tables:
        # Debezium names messages by the address of a Java object, each for itself.
        messages = [t for t in tables if "LogicalDecodingMessageId" in t["data_collection"]]
        count = sum(t["event_count"] for t in messages)
        tables = [t for t in tables if t not in messages] + [{"data_collection": "LOGICAL_DECODING_MESSAGE", "event_count": count}] * bool(messages)
    more = {"data_collections": sorted(tables, key=str)} if tables else {}
    return {**payload, "id": txid(payload["id"]), **more}
