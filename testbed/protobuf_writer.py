"""Writes what a Debezium connector with Confluent's ProtobufConverter writes of one table (`foreign.STORY`, and a row of zeros), by Confluent's own serializer, the
schemas' ids before the messages and in headers. The messages aren't the first of their file, and what the converter puts into fields of a meaning has none here.
FORM: `optional` (optional.for.nullables) or `plain` (the converter's default, which doesn't tell NULL from 0).
Usage: protobuf_writer.py BROKERS TOPIC REGISTRY FORM"""

import sys

import foreign
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.common.protobuf import _init_pool, decimal_to_protobuf
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField
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

client = SchemaRegistryClient({"url": registry})
SERIALIZERS = {how: {part: ProtobufSerializer(of, client, {"use.deprecated.format": False, **conf}) for part, of in
                     ((MessageField.KEY, Key), (MessageField.VALUE, Envelope))}
               for how, conf in (("prefix", {}), ("headers", {"schema.id.serializer": header_schema_id_serializer}))}


def there(fields):
    """Fields that have a value, a decimal's as the type that it has here."""
    made = {name: value for name, value in fields.items() if value is not None}
    if "price" in made:
        price = decimal_to_protobuf(made["price"], 2)
        made["price"] = {"value": price.value, "precision": price.precision, "scale": price.scale}
    return made


def envelope_of(fields):
    return Envelope(**{name: there(value) if isinstance(value, dict) else value for name, value in there(fields).items()})


STORY = [*foreign.STORY, ("headers", 7000, "c", None, foreign.row(0, "", "0.00", 0, b""), "false")]
foreign.write(brokers, topic, STORY, SERIALIZERS, lambda number: Key(id=number), envelope_of)
