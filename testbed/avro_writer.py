"""Writes what a Debezium connector with Confluent's AvroConverter writes of one table, by Confluent's own serializer: rows of a snapshot, a create, updates, a
delete and its tombstone, the schemas' ids before the messages and in headers. Usage: avro_writer.py BROKERS TOPIC REGISTRY"""

import json
import sys
from decimal import Decimal

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

brokers, topic, registry = sys.argv[1:]


def optional(name, of):
    return {"name": name, "type": ["null", of], "default": None}


def field(name, of):
    return {"name": name, "type": of}


ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        field("id", "int"),
        optional("name", "string"),
        optional("price", {"type": "bytes", "scale": 2, "precision": 10, "connect.version": 1,
                           "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                           "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal"}),
        optional("at", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}),
        optional("raw", "bytes"),
        field("level", {"type": "int", "connect.default": 0, "connect.type": "int16"}),
    ],
    "connect.name": f"{topic}.Value",
}
SNAPSHOT = {"type": "string", "connect.version": 1, "connect.parameters": {"allowed": "true,first,last,false,incremental"},
            "connect.default": "false", "connect.name": "io.debezium.data.Enum"}
SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        field("version", "string"), field("connector", "string"), field("name", "string"), field("ts_ms", "long"),
        {"name": "snapshot", "type": [SNAPSHOT, "null"], "default": "false"},
        field("db", "string"), optional("sequence", "string"), optional("ts_us", "long"), optional("ts_ns", "long"), field("schema", "string"),
        field("table", "string"), optional("txId", "long"), optional("lsn", "long"), optional("xmin", "long"), optional("origin", "string"),
        optional("origin_lsn", "long"),
    ],
    "connect.version": 1,
    "connect.name": "io.debezium.connector.postgresql.Source",
}
BLOCK = {"type": "record", "name": "block", "namespace": "event", "connect.version": 1, "connect.name": "event.block",
         "fields": [field("id", "string"), field("total_order", "long"), field("data_collection_order", "long")]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": topic,
    "fields": [optional("before", ROW), optional("after", "Value"), field("source", SOURCE), optional("transaction", BLOCK), field("op", "string"),
               optional("ts_ms", "long"), optional("ts_us", "long"), optional("ts_ns", "long")],
    "connect.version": 2,
    "connect.name": f"{topic}.Envelope",
}
KEY = {"type": "record", "name": "Key", "namespace": topic, "fields": [field("id", "int")], "connect.name": f"{topic}.Key"}

admin = AdminClient({"bootstrap.servers": brokers})
admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
client = SchemaRegistryClient({"url": registry})
by_prefix = {part: AvroSerializer(client, json.dumps(schema)) for part, schema in ((MessageField.KEY, KEY), (MessageField.VALUE, ENVELOPE))}
in_headers = {part: AvroSerializer(client, json.dumps(schema), conf={"schema.id.serializer": header_schema_id_serializer})
              for part, schema in ((MessageField.KEY, KEY), (MessageField.VALUE, ENVELOPE))}
producer = Producer({"bootstrap.servers": brokers})


def row(number, name, price, at=None, raw=None):
    return {"id": number, "name": name, "price": price and Decimal(price), "at": at, "raw": raw, "level": -3}


def send(writers, lsn, op, before, after, snapshot="false"):
    headers = {}
    number = (after or before)["id"]
    key = writers[MessageField.KEY]({"id": number}, SerializationContext(topic, MessageField.KEY, headers))
    source = {"version": "3.6.0.Final", "connector": "postgresql", "name": "other", "ts_ms": 1700000000123, "snapshot": snapshot, "db": "shop",
              "sequence": json.dumps([str(lsn - 50), str(lsn)]), "ts_us": 1700000000123456, "ts_ns": 1700000000123456000, "schema": "public",
              "table": "things", "txId": 700, "lsn": lsn, "xmin": None, "origin": None, "origin_lsn": None}
    value = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 1700000000500, "ts_us": None, "ts_ns": None}
    value = writers[MessageField.VALUE](value, SerializationContext(topic, MessageField.VALUE, headers))
    producer.produce(topic, key=key, value=value, headers=list(headers.items()), partition=0)
    if op == "d":
        producer.produce(topic, key=key, headers=[head for head in headers.items() if "key" in head[0]], partition=0)


send(by_prefix, 1000, "r", None, row(1, "a\"ü\\", "-12.30", 1700000000123456, b"\x00\xff"), "first")
send(in_headers, 1000, "r", None, row(2, None, None), "last")
send(by_prefix, 2000, "c", None, row(3, "c", "0.05"))
send(in_headers, 3000, "u", None, row(3, "__debezium_unavailable_value", "99999999.99"))
send(in_headers, 4000, "u", None, row(2, "two", "7.00"))
send(by_prefix, 5000, "c", None, row(4, "gone", None))
send(by_prefix, 6000, "d", row(4, None, None), None)
left = producer.flush(30)
if left:
    raise SystemExit(f"{left} messages were not taken")
