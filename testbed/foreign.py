"""What a Debezium connector with one of Confluent's converters writes of one table, and how its topics are read: alike, whatever serializes the messages."""

import json
import math
from decimal import Decimal

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.serialization import MessageField, SerializationContext


def row(number, name, price, at=None, raw=None):
    return {"id": number, "name": name, "price": price and Decimal(price), "at": at, "raw": raw, "level": -3}


# By which serializers (the ids before the messages, or in headers), the record's LSN, the operation, the rows, and whether they are a snapshot's.
STORY = [
    ("prefix", 1000, "r", None, row(1, "a\"ü\\", "-12.30", 1700000000123456, b"\x00\xff"), "first"),
    ("headers", 1000, "r", None, row(2, None, None), "last"),
    ("prefix", 2000, "c", None, row(3, "c", "0.05"), "false"),
    ("headers", 3000, "u", None, row(3, "__debezium_unavailable_value", "99999999.99"), "false"),
    ("headers", 4000, "u", None, row(2, "two", "7.00"), "false"),
    ("prefix", 5000, "c", None, row(4, "gone", None), "false"),
    # A delete has its tombstone behind it.
    ("prefix", 6000, "d", row(4, None, None), None, "false"),
]


def write(brokers, topic, story, serializers, key_of, value_of):
    """`serializers`: by `prefix` and `headers`, then by the message's part. `key_of` makes a key of an id, `value_of` an envelope of its fields."""
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    for how, lsn, op, before, after, snapshot in story:
        headers = {}

        def serialized(part, message):
            return serializers[how][part](message, SerializationContext(topic, part, headers))

        key = serialized(MessageField.KEY, key_of((after or before)["id"]))
        source = {"version": "3.6.0.Final", "connector": "postgresql", "name": "other", "ts_ms": 1700000000123, "snapshot": snapshot, "db": "shop",
                  "sequence": json.dumps([str(lsn - 50), str(lsn)]), "ts_us": 1700000000123456, "ts_ns": 1700000000123456000, "schema": "public",
                  "table": topic.split(".")[-1], "txId": 700, "lsn": lsn, "xmin": None, "origin": None, "origin_lsn": None}
        envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1700000000500, "ts_us": None, "ts_ns": None}
        value = serialized(MessageField.VALUE, value_of(envelope))
        producer.produce(topic, key=key, value=value, headers=list(headers.items()), partition=0)
        if op == "d":
            producer.produce(topic, key=key, headers=[head for head in headers.items() if "key" in head[0]], partition=0)
    left = producer.flush(30)
    if left:
        raise SystemExit(f"{left} messages were not taken")


def number(raw):
    """Of the schema that a message names."""
    return int.from_bytes(raw[1:5], "big") if raw else None


def plain(value):
    """A value that holds no others, as JSON can hold it."""
    if isinstance(value, bytes):
        return value.hex()
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return value if not is_odd and isinstance(value, (str, int, float, type(None))) else str(value)


def read(brokers, topic, count, deserialized):
    """Prints so many messages, each a JSON line with partition, key, value, headers and the numbers of both schemas. `deserialized` makes of a part's bytes what
    JSON can hold."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    for _ in range(int(count)):
        message = consumer.poll(60)
        if message is None:
            raise SystemExit(f"no more messages come in {topic}")
        if message.error():
            raise SystemExit(str(message.error()))
        parts = {MessageField.KEY: message.key(), MessageField.VALUE: message.value()}
        key, value = (deserialized(raw, SerializationContext(topic, part)) if raw else None for part, raw in parts.items())
        told = {
            "partition": message.partition(),
            "key": key,
            "value": value,
            "headers": {name: text.decode() for name, text in message.headers() or [] if name != "tw"},
            "schemas": [number(raw) for raw in parts.values()],
        }
        print(json.dumps(told))
    consumer.close()
