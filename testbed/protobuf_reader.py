"""What a Python consumer with Confluent's ProtobufDeserializer reads of one topic: so many messages, each a JSON line with partition, key, value, headers and
the numbers of both schemas. Its classes are made of what the registry says of each schema. Usage: protobuf_reader.py BROKERS TOPIC COUNT REGISTRY"""

import base64
import json
import math
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common.protobuf import _init_pool, protobuf_to_decimal
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

brokers, topic, count, registry = sys.argv[1:]
client = SchemaRegistryClient({"url": registry})
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "isolation.level": "read_committed"})
partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
readers = {}


def number(raw):
    return int.from_bytes(raw[1:5], "big") if raw else None


def reader(raw):
    """A deserializer of the file's first message."""
    ident = number(raw)
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
    if isinstance(value, bytes):
        return value.hex()
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return value if not is_odd and isinstance(value, (str, int, float, type(None))) else str(value)


def member(message, field):
    value = getattr(message, field.name)
    is_map = field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.GetOptions().map_entry
    if is_map:
        return {name: plain(one) for name, one in value.items()}
    if hasattr(value, "extend"):
        return [plain(one) for one in value]
    return plain(value) if not field.has_presence or message.HasField(field.name) else None


for _ in range(int(count)):
    message = consumer.poll(60)
    if message is None:
        raise SystemExit(f"no more messages come in {topic}")
    if message.error():
        raise SystemExit(str(message.error()))
    raw_key, raw = message.key(), message.value()
    key = reader(raw_key)(raw_key, SerializationContext(topic, MessageField.KEY)) if raw_key else None
    value = reader(raw)(raw, SerializationContext(topic, MessageField.VALUE)) if raw else None
    told = {
        "partition": message.partition(),
        "key": plain(key),
        "value": plain(value),
        "headers": {name: text.decode() for name, text in message.headers() or [] if name != "tw"},
        "schemas": [number(raw_key), number(raw)],
    }
    print(json.dumps(told))
consumer.close()
