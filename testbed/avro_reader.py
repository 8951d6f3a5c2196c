"""What a Python consumer with Confluent's AvroDeserializer reads of one topic: so many messages, each a JSON line with partition, key, value, headers and
the numbers of both schemas. Usage: avro_reader.py BROKERS TOPIC COUNT REGISTRY"""

import json
import math
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

brokers, topic, count, registry = sys.argv[1:]
read = AvroDeserializer(SchemaRegistryClient({"url": registry}))
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader", "isolation.level": "read_committed"})
partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])


def number(raw):
    return int.from_bytes(raw[1:5], "big") if raw else None


def plain(value):
    """As JSON can hold it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return value if not is_odd and isinstance(value, (str, int, float, type(None))) else str(value)


for _ in range(int(count)):
    message = consumer.poll(60)
    if message is None:
        raise SystemExit(f"no more messages come in {topic}")
    if message.error():
        raise SystemExit(str(message.error()))
    key = read(message.key(), SerializationContext(topic, MessageField.KEY)) if message.key() else None
    value = read(message.value(), SerializationContext(topic, MessageField.VALUE)) if message.value() else None
    told = {
        "partition": message.partition(),
        "key": plain(key),
        "value": plain(value),
        "headers": {name: text.decode() for name, text in message.headers() or [] if name != "tw"},
        "schemas": [number(message.key()), number(message.value())],
    }
    print(json.dumps(told))
consumer.close()
