"""What a Python consumer with Confluent's AvroDeserializer reads of one topic, as `foreign.read` prints it. Usage: avro_reader.py BROKERS TOPIC COUNT REGISTRY"""

import sys

import foreign
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

brokers, topic, count, registry = sys.argv[1:]
read = AvroDeserializer(SchemaRegistryClient({"url": registry}))


def plain(value):
    """As JSON can hold it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return foreign.plain(value)


foreign.read(brokers, topic, count, lambda raw, context: plain(read(raw, context)))
