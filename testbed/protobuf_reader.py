"""What a Python consumer with Confluent's ProtobufDeserializer reads of one topic, as `foreign.read` prints it. Its classes are made of what the registry says of
each schema. Usage: protobuf_reader.py BROKERS TOPIC COUNT REGISTRY"""

import base64
import sys

import foreign
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common.protobuf import _init_pool, protobuf_to_decimal
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

brokers, topic, count, registry = sys.argv[1:]
client = SchemaRegistryClient({"url": registry})
readers = {}


def reader(raw):
    """A deserializer of the file's first message."""
    ident = foreign.number(raw)
    if ident not in readers:
        file = descriptor_pb2.FileDescriptorProto()
        file.ParseFromString(base64.b64decode(client.get_schema(ident, fmt="serialized").schema_str))
        file.name = f"{ident}.proto"
        pool = DescriptorPool()
        _init_pool(pool)
        pool.Add(file)
        made = pool.FindFileByName(file.name).message_types_by_name[file.message_type[0].name]
        readers[ident] = ProtobufDeserializer(message_factory.GetMessageClass(made), {"use.deprecated.format": False}, client)
    return readers[ident]


def plain(value):
    """As JSON can hold it."""
    if hasattr(value, "DESCRIPTOR"):
        if value.DESCRIPTOR.full_name == "confluent.type.Decimal":
            return str(protobuf_to_decimal(value))
        return {field.name: member(value, field) for field in value.DESCRIPTOR.fields}
    return foreign.plain(value)


def member(message, field):
    value = getattr(message, field.name)
    is_map = field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry
    if is_map:
        return {name: plain(one) for name, one in value.items()}
    if hasattr(value, "extend"):
        return [plain(one) for one in value]
    return plain(value) if not field.has_presence or message.HasField(field.name) else None


foreign.read(brokers, topic, count, lambda raw, context: plain(reader(raw)(raw, context)))
