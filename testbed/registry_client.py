"""Confluent's Python client and its serializers against `tidewire registry`: every call of the client that the registry serves, and messages of all
three formats there and back. Ends with the count of what was looked at. Usage: registry_client.py URL"""

import json
import sys

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

client = SchemaRegistryClient({"url": sys.argv[1]})
looked = 0


def same(found, expected):
    global looked
    looked += 1
    if found != expected:
        raise AssertionError(f"{found!r} is not {expected!r}")


def refused(code, call, *args, **kwargs):
    global looked
    looked += 1
    try:
        got = call(*args, **kwargs)
    except SchemaRegistryError as error:
        same(error.error_code, code)
        return error
    raise SystemExit(f"{call} was not refused: {got!r}")


def record(*fields):
    return json.dumps({"type": "record", "name": "User", "namespace": "x", "fields": list(fields)})


NAME = {"name": "name", "type": "string"}
AGE = {"name": "age", "type": ["null", "int"], "default": None}
one, two, bad = (Schema(record(*fields), "AVRO") for fields in ([NAME], [NAME, AGE], [NAME, {"name": "age", "type": "int"}]))

# Subjects, versions, ids.
same(client.get_subjects(), [])
first = client.register_schema("users-value", one)
same(client.register_schema("users-value", one), first)
second = client.register_schema("users-value", two)
same(second, first + 1)
same(json.loads(client.get_schema(first).schema_str), json.loads(one.schema_str))
same(client.lookup_schema("users-value", two).version, 2)
same(client.get_subjects(), ["users-value"])
same(client.get_latest_version("users-value").schema_id, second)
same(client.get_version("users-value", 1).schema_id, first)
same(client.get_versions("users-value"), [1, 2])

# A refused schema, and checks of compatibility.
error = refused(409, client.register_schema, "users-value", bad)
same("TYPE_MISMATCH" in error.error_message and "/fields/1/type/0" in error.error_message, True)
same(client.test_compatibility("users-value", two), True)
same(client.test_compatibility("users-value", Schema(record({"name": "other", "type": "int"}), "AVRO")), False)
same(client.test_compatibility("users-value", one, version="1"), True)

# Levels.
same(client.get_compatibility(), "BACKWARD")
client.set_compatibility(level="FULL")
same(client.get_compatibility(), "FULL")
refused(40408, client.get_compatibility, "users-value")
client.set_compatibility("users-value", "BACKWARD_TRANSITIVE")
same(client.get_compatibility("users-value"), "BACKWARD_TRANSITIVE")
refused(42203, client.set_compatibility, level="SIDEWAYS")
client.set_compatibility(level="BACKWARD")

# What isn't there.
refused(40401, client.get_latest_version, "none")
refused(40402, client.get_version, "users-value", 9)
refused(40403, client.get_schema, 999)
refused(42201, client.register_schema, "users-value", Schema('{"type": "strange"}', "AVRO"))
refused(40401, client.delete_subject, "none")

# References.
address = Schema(json.dumps({"type": "record", "name": "x.Address", "fields": [{"name": "city", "type": "string"}]}), "AVRO")
client.register_schema("address", address)
home = {"type": "record", "name": "x.Person", "fields": [{"name": "home", "type": "x.Address"}]}
person = Schema(json.dumps(home), "AVRO", [SchemaReference("x.Address", "address", 1)])
person_id = client.register_schema("person-value", person)
same(client.get_schema(person_id).references[0].subject, "address")
refused(42206, client.delete_subject, "address")

# Calls that newer clients have.
for name, call, expected in [
    ("get_schema_types", lambda: sorted(client.get_schema_types()), ["AVRO", "JSON", "PROTOBUF"]),
    ("get_contexts", lambda: client.get_contexts(), ["."]),
    ("get_subjects_by_schema_id", lambda: client.get_subjects_by_schema_id(first), ["users-value"]),
    ("get_schema_versions", lambda: [(v.subject, v.version) for v in client.get_schema_versions(first)], [("users-value", 1)]),
    ("get_referenced_by", lambda: client.get_referenced_by("address", 1), [person_id]),
    ("get_version_schema_string", lambda: json.loads(client.get_version_schema_string("users-value", 1)), json.loads(one.schema_str)),
    ("get_schema_string", lambda: json.loads(client.get_schema_string(first)), json.loads(one.schema_str)),
    ("get_global_mode", lambda: client.get_global_mode(), "READWRITE"),
    ("update_global_mode", lambda: client.update_global_mode("READONLY"), "READONLY"),
    ("update_global_mode", lambda: client.update_global_mode("READWRITE"), "READWRITE"),
    ("update_mode", lambda: client.update_mode("users-value", "READONLY"), "READONLY"),
    ("get_mode", lambda: client.get_mode("users-value"), "READONLY"),
    ("delete_mode", lambda: client.delete_mode("users-value"), "READONLY"),
    ("delete_config", lambda: client.delete_config("users-value").compatibility_level or "BACKWARD_TRANSITIVE", "BACKWARD_TRANSITIVE"),
]:
    if hasattr(client, name):
        same(call(), expected)


def there_and_back(topic, value, serializer, deserializer, expected=None):
    context = SerializationContext(topic, MessageField.VALUE)
    data = serializer(value, context)
    same(data[0], 0)
    found = deserializer(data, context)
    same(found, value if expected is None else expected)
    return int.from_bytes(data[1:5], "big")


# Ids in headers in place of the prefix: the schema's guid.
headers = {}
context = SerializationContext("heads", MessageField.VALUE, headers)
write = AvroSerializer(client, two.schema_str, conf={"schema.id.serializer": header_schema_id_serializer})
read = AvroDeserializer(SchemaRegistryClient({"url": sys.argv[1]}))
same(read(write({"name": "Evelyn", "age": None}, context), context), {"name": "Evelyn", "age": None})
same(list(headers), ["__value_schema_id"])

# Serializers: what they register and write comes back, also by a reader with an older schema.
user = {"name": "Ada", "age": 36}
avro_id = there_and_back("users", user, AvroSerializer(client, two.schema_str), AvroDeserializer(client))
same(avro_id, second)
there_and_back("users", user, AvroSerializer(client, two.schema_str), AvroDeserializer(client, one.schema_str), {"name": "Ada"})
there_and_back("person", {"home": {"city": "Rome"}}, AvroSerializer(client, person), AvroDeserializer(client))

schema = json.dumps({"type": "object", "title": "Item", "properties": {"n": {"type": "integer"}}, "additionalProperties": False})
there_and_back("items", {"n": 7}, JSONSerializer(schema, client), JSONDeserializer(schema, schema_registry_client=client))

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2  # noqa: E402

file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
file.dependency.append("google/protobuf/timestamp.proto")
message = file.message_type.add(name="Order")
kinds = descriptor_pb2.FieldDescriptorProto
message.field.add(name="id", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_INT64)
message.field.add(name="at", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
message.field.add(name="tags", number=3, label=kinds.LABEL_REPEATED, type=kinds.TYPE_STRING)
pool = descriptor_pool.Default()
pool.Add(file) if not hasattr(pool, "AddSerializedFile") else pool.AddSerializedFile(file.SerializeToString())
Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
order = Order(id=5, at=timestamp_pb2.Timestamp(seconds=9), tags=["a", "b"])
plain = {"use.deprecated.format": False}
proto_id = there_and_back(
    "orders", order, ProtobufSerializer(Order, client, plain), ProtobufDeserializer(Order, plain, schema_registry_client=client)
)
text = client.get_schema(proto_id).schema_str
same("message Order {" in text and "google.protobuf.Timestamp at = 2;" in text, True)
same(client.get_latest_version("orders-value").schema_id, proto_id)

# Deleting, softly and for good.
same(client.delete_version("users-value", 1), 1)
same(client.get_versions("users-value"), [2])
same(client.delete_subject("users-value"), [2])
same(client.delete_subject("users-value", permanent=True), [1, 2])
refused(40401, client.get_versions, "users-value")

print(f"{looked} answers are as they should be")
