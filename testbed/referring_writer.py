"""Writes envelopes as Debezium's by Confluent's serializers, under schemas that refer to others: in Avro, Protobuf and JSON Schema, and two tables' in one topic
by a union in Avro. Each table has two rows that are made, one that changes, and one that goes. Usage: referring_writer.py BROKERS PREFIX REGISTRY"""

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

brokers, prefix, registry = sys.argv[1:]
client = SchemaRegistryClient({"url": registry})
producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
topics = [f"{prefix}.public.{name}" for name in ("in_avro", "in_protobuf", "in_json")] + [f"{prefix}.mixed"]
admin = AdminClient({"bootstrap.servers": brokers})
made = admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
for done in made.values():
    done.result(30)


def changes(table):
    """Key, and the envelope."""
    rows = {1: {"id": 1, "name": "one", "level": "LOW"}, 2: {"id": 2, "name": None, "level": "HIGH"}}
    changed = {**rows[1], "name": "changed"}
    for at, (op, before, after) in enumerate([("r", None, rows[1]), ("c", None, rows[2]), ("u", rows[1], changed), ("d", rows[2], None)]):
        source = {"schema": "public", "table": table, "lsn": 1000 + at, "snapshot": "true" if op == "r" else "false"}
        yield {"id": (after or before)["id"]}, {"before": before, "after": after, "source": source, "op": op}


def send(topic, keys, values, table, value_of=lambda value: value, key_of=lambda key: key):
    for key, value in changes(table):
        key = keys(key_of(key), SerializationContext(topic, MessageField.KEY))
        producer.produce(topic, key=key, value=values(value_of(value), SerializationContext(topic, MessageField.VALUE)), partition=0)


# Avro: a row needs the type of its column, an envelope the row's and its source's.
LEVEL = {"type": "enum", "name": "shared.Level", "symbols": ["LOW", "HIGH"]}
ROW = {"type": "record", "name": "shared.Row", "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None},
                                                          {"name": "level", "type": "Level"}]}
SOURCE = {"type": "record", "name": "shared.Source", "fields": [{"name": "schema", "type": "string"}, {"name": "table", "type": "string"},
                                                                {"name": "lsn", "type": "long"}, {"name": "snapshot", "type": "string"}]}
KEY = {"type": "record", "name": "shared.Key", "fields": [{"name": "id", "type": "int"}]}


def envelope(name):
    row = ["null", "shared.Row"]
    return {"type": "record", "name": name, "fields": [{"name": "before", "type": row}, {"name": "after", "type": row},
                                                       {"name": "source", "type": "shared.Source"}, {"name": "op", "type": "string"}]}


def refer(*names):
    return [SchemaReference(name, name, 1) for name in names]


client.register_schema("shared.Level", Schema(json.dumps(LEVEL), "AVRO"))
client.register_schema("shared.Row", Schema(json.dumps(ROW), "AVRO", refer("shared.Level")))
client.register_schema("shared.Source", Schema(json.dumps(SOURCE), "AVRO"))
both = refer("shared.Row", "shared.Source")
keys = AvroSerializer(client, json.dumps(KEY))
send(topics[0], keys, AvroSerializer(client, Schema(json.dumps(envelope("shared.Envelope")), "AVRO", both)), "in_avro")

# Two tables' in one topic.
for name in ("shared.Left", "shared.Right"):
    client.register_schema(name, Schema(json.dumps(envelope(name)), "AVRO", both))
union = AvroSerializer(client, Schema(json.dumps(["shared.Left", "shared.Right"]), "AVRO", refer("shared.Left", "shared.Right")))
for name in ("Left", "Right"):
    send(topics[3], keys, union, name.lower(), lambda value: (f"shared.{name}", value))

# Protobuf: the rows' file is one of proto2.
kinds = descriptor_pb2.FieldDescriptorProto


def add(message, *fields):
    for number, (name, kind, label, of) in enumerate(fields, 1):
        message.field.add(name=name, number=number, label=label, type=kind, type_name=of)


may, must = kinds.LABEL_OPTIONAL, kinds.LABEL_REQUIRED
parts = descriptor_pb2.FileDescriptorProto(name="shared/parts.proto", package="shared", syntax="proto2")
level = parts.enum_type.add(name="Level")
level.value.add(name="LOW", number=0)
level.value.add(name="HIGH", number=1)
add(parts.message_type.add(name="Row"), ("id", kinds.TYPE_INT32, must, None), ("name", kinds.TYPE_STRING, may, None), ("level", kinds.TYPE_ENUM, may, ".shared.Level"))
add(parts.message_type.add(name="Source"), ("schema", kinds.TYPE_STRING, must, None), ("table", kinds.TYPE_STRING, must, None),
    ("lsn", kinds.TYPE_INT64, must, None), ("snapshot", kinds.TYPE_STRING, must, None))
whole = descriptor_pb2.FileDescriptorProto(name="envelope.proto", package="things", syntax="proto3", dependency=["shared/parts.proto"])
add(whole.message_type.add(name="Envelope"), ("before", kinds.TYPE_MESSAGE, may, ".shared.Row"), ("after", kinds.TYPE_MESSAGE, may, ".shared.Row"),
    ("source", kinds.TYPE_MESSAGE, may, ".shared.Source"), ("op", kinds.TYPE_STRING, may, None))
add(whole.message_type.add(name="Key"), ("id", kinds.TYPE_INT32, may, None))
pool = descriptor_pool.Default()
for file in (parts, whole):
    pool.AddSerializedFile(file.SerializeToString())
Row, Source, Envelope, Key = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
                              for name in ("shared.Row", "shared.Source", "things.Envelope", "things.Key"))


def row(of):
    return of and Row(**{**of, "level": level_numbers[of["level"]]})


level_numbers = {value.name: value.number for value in level.value}
plain = {"use.deprecated.format": False}
send(topics[1], ProtobufSerializer(Key, client, plain), ProtobufSerializer(Envelope, client, plain), "in_protobuf",
     lambda of: Envelope(before=row(of["before"]), after=row(of["after"]), source=Source(**of["source"]), op=of["op"]), lambda key: Key(**key))

# JSON Schema.
shape = {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "row.json", "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": ["string", "null"]},
                                                                      "level": {"enum": ["LOW", "HIGH"]}}, "required": ["id"]}
client.register_schema("row.json", Schema(json.dumps(shape), "JSON"))
either = {"oneOf": [{"type": "null"}, {"$ref": "row.json"}]}
schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Envelope", "type": "object",
          "properties": {"before": either, "after": either, "source": {"type": "object"}, "op": {"type": "string"}}}
key = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Key", "type": "object", "properties": {"id": {"type": "integer"}}}
send(topics[2], JSONSerializer(json.dumps(key), client), JSONSerializer(Schema(json.dumps(schema), "JSON", refer("row.json")), client), "in_json")
left = producer.flush(30)
if left:
    raise SystemExit(f"{left} messages were not taken")
