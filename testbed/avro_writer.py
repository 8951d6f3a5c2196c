"""Writes what a Debezium connector with Confluent's AvroConverter writes of one table (`foreign.STORY`), by Confluent's own serializer, the schemas' ids before the
messages and in headers. Usage: avro_writer.py BROKERS TOPIC REGISTRY"""

import json
import sys

import foreign
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField

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

client = SchemaRegistryClient({"url": registry})
PARTS = ((MessageField.KEY, KEY), (MessageField.VALUE, ENVELOPE))
SERIALIZERS = {how: {part: AvroSerializer(client, json.dumps(schema), conf=conf) for part, schema in PARTS}
               for how, conf in (("prefix", {}), ("headers", {"schema.id.serializer": header_schema_id_serializer}))}
foreign.write(brokers, topic, foreign.STORY, SERIALIZERS, lambda number: {"id": number}, lambda envelope: envelope)
