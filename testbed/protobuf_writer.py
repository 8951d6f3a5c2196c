"""Writes what a Debezium connector with Confluent's ProtobufConverter writes of one table, by Confluent's own serializer: rows of a snapshot, a create, updates,
a delete and its tombstone, the schemas' ids before the messages and in headers. The messages aren't the first of their file, and what the converter puts into fields
of a meaning has none here. FORM: `optional` (optional.for.nullables) or `plain` (the converter's default, which doesn't tell NULL from 0).
Usage: protobuf_writer.py BROKERS TOPIC REGISTRY FORM"""

import json
import sys
from decimal import Decimal

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.common.protobuf import _init_pool, decimal_to_protobuf
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

brokers, topic, registry, form = sys.argv[1:]
Field = descriptor_pb2.FieldDescriptorProto
TYPES = {"string": Field.TYPE_STRING, "int32": Field.TYPE_INT32, "int64": Field.TYPE_INT64, "bytes": Field.TYPE_BYTES}


def fill(message, fields):
    """Fields by number: name, type, and whether it may lack."""
    for place, (name, of, may_lack) in enumerate(fields, 1):
        field = message.field.add(name=name, number=place, label=Field.LABEL_OPTIONAL)
        if of in TYPES:
            field.type = TYPES[of]
        else:
            field.type, field.type_name = Field.TYPE_MESSAGE, of
        if may_lack and form == "optional":
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


file = descriptor_pb2.FileDescriptorProto(name="envelope.proto", package=topic, syntax="proto3", dependency=["confluent/type/decimal.proto"])
file.message_type.add(name="Beside").field.add(name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
envelope = file.message_type.add(name="Envelope")
fill(envelope, [("before", f".{topic}.Envelope.Value", True), ("after", f".{topic}.Envelope.Value", True),
                ("source", f".{topic}.Envelope.Source", False), ("transaction", f".{topic}.Envelope.block", True), ("op", "string", False),
                ("ts_ms", "int64", True), ("ts_us", "int64", True), ("ts_ns", "int64", True)])
fill(envelope.nested_type.add(name="Value"), [("id", "int32", False), ("name", "string", True), ("price", ".confluent.type.Decimal", True),
                                               ("at", "int64", True), ("raw", "bytes", True), ("level", "int32", False)])
fill(envelope.nested_type.add(name="Source"),
     [("version", "string", False), ("connector", "string", False), ("name", "string", False), ("ts_ms", "int64", False),
      ("snapshot", "string", True), ("db", "string", False), ("sequence", "string", True), ("ts_us", "int64", True), ("ts_ns", "int64", True),
      ("schema", "string", False), ("table", "string", False), ("txId", "int64", True), ("lsn", "int64", True), ("xmin", "int64", True),
      ("origin", "string", True), ("origin_lsn", "int64", True)])
fill(envelope.nested_type.add(name="block"), [("id", "string", False), ("total_order", "int64", False), ("data_collection_order", "int64", False)])
key_file = descriptor_pb2.FileDescriptorProto(name="key.proto", package=topic, syntax="proto3")
fill(key_file.message_type.add(name="Key"), [("id", "int32", False)])
pool = DescriptorPool()
_init_pool(pool)
for one in (file, key_file):
    pool.Add(one)
Envelope = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{topic}.Envelope"))
Key = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{topic}.Key"))

admin = AdminClient({"bootstrap.servers": brokers})
admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
client = SchemaRegistryClient({"url": registry})
PARTS = ((MessageField.KEY, Key), (MessageField.VALUE, Envelope))
by_prefix = {part: ProtobufSerializer(of, client, {"use.deprecated.format": False}) for part, of in PARTS}
in_headers = {part: ProtobufSerializer(of, client, {"use.deprecated.format": False, "schema.id.serializer": header_schema_id_serializer})
              for part, of in PARTS}
producer = Producer({"bootstrap.servers": brokers})


def row(number, name, price, at=None, raw=None):
    value = {"id": number, "name": name, "at": at, "raw": raw, "level": -3}
    if price:
        made = decimal_to_protobuf(Decimal(price), 2)
        price = {"value": made.value, "precision": made.precision, "scale": made.scale}
    return {name: one for name, one in {**value, "price": price}.items() if one is not None}


def send(writers, lsn, op, before, after, snapshot="false"):
    headers = {}
    number = (after or before)["id"]
    key = writers[MessageField.KEY](Key(id=number), SerializationContext(topic, MessageField.KEY, headers))
    source = {"version": "3.6.0.Final", "connector": "postgresql", "name": "other", "ts_ms": 1700000000123, "snapshot": snapshot, "db": "shop",
              "sequence": json.dumps([str(lsn - 50), str(lsn)]), "ts_us": 1700000000123456, "ts_ns": 1700000000123456000, "schema": "public",
              "table": topic.split(".")[-1], "txId": 700, "lsn": lsn}
    value = Envelope(before=before, after=after, source=source, op=op, ts_ms=1700000000500)
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
send(in_headers, 7000, "c", None, row(0, "", "0.00", 0, b""))
left = producer.flush(30)
if left:
    raise SystemExit(f"{left} messages were not taken")
