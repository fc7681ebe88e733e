"""Test driver of confluent-kafka: one request per line on stdin, one answer per line on stdout.

    python confluent.py REGISTRY_URL [ACCESS]
"""

import base64
import json
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

URL = sys.argv[1]
ACCESS = json.loads(sys.argv[2]) if len(sys.argv) > 2 else None
SETTINGS = {"url": URL}
if ACCESS:
    SETTINGS["basic.auth.user.info"] = f"{ACCESS['user']}:{ACCESS['password']}"
    SETTINGS["ssl.ca.location"] = ACCESS["ca"]


def fresh():
    """Creates a client with empty caches."""
    return SchemaRegistryClient(dict(SETTINGS))


client = fresh()


def schema_of(request):
    references = [SchemaReference(r["name"], r["subject"], r["version"]) for r in request.get("references") or []]
    return Schema(request["schema"], request["schemaType"], references)


def found(registered):
    schema = registered.schema
    return {
        "id": registered.schema_id,
        "version": registered.version,
        "subject": registered.subject,
        "schema": schema.schema_str,
        "schemaType": schema.schema_type,
        "references": [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references or []],
    }


def message_class(file_set, name):
    """Returns the class of a message of a FileDescriptorSet in its JSON form."""
    pool = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool.Add(timestamp)
    for one in json_format.ParseDict(file_set, descriptor_pb2.FileDescriptorSet()).file:
        pool.Add(one)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def context(topic):
    return SerializationContext(topic, MessageField.VALUE)


CLASSES = {}


def message_class_of(request):
    key = json.dumps([request["set"], request["message"]])
    if key not in CLASSES:
        CLASSES[key] = message_class(request["set"], request["message"])
    return CLASSES[key]


def encode(request):
    if request["schemaType"] == "AVRO":
        serializer = AvroSerializer(fresh(), schema_of(request["schema"]))
        return serializer(request["value"], context(request["topic"]))
    message = message_class_of(request)
    serializer = ProtobufSerializer(message, fresh())
    return serializer(json_format.ParseDict(request["value"], message()), context(request["topic"]))


def decode(request, data):
    if request["schemaType"] == "AVRO":
        reader = request.get("readerSchema")
        return AvroDeserializer(fresh(), schema_str=reader)(data, context(request["topic"]))
    deserializer = ProtobufDeserializer(message_class_of(request), {}, fresh())
    return json_format.MessageToDict(deserializer(data, context(request["topic"])))


def register(request):
    registered = fresh().register_schema_full_response(
        request["subject"], schema_of(request), normalize_schemas=request.get("normalize", False)
    )
    return {"id": registered.schema_id, "version": registered.version}


def by_id(request):
    schema = fresh().get_schema(request["id"], subject_name=request.get("subject"), fmt=request.get("format"))
    return {"schema": schema.schema_str, "schemaType": schema.schema_type}


def send(request):
    """Encodes values and sends them with this client's own producer."""
    producer = Producer({"bootstrap.servers": request["brokers"], "acks": "all"})
    failed = []
    for value in request["values"]:
        data = encode({**request, "value": value})
        producer.produce(request["topic"], data, on_delivery=lambda error, _: error and failed.append(str(error)))
    left = producer.flush(120)
    if failed or left:
        raise RuntimeError(f"not delivered: {failed}, {left} left")
    return len(request["values"])


def receive(request):
    """Reads the first `count` values of partition 0 with this client's own consumer."""
    consumer = Consumer(
        {"bootstrap.servers": request["brokers"], "group.id": f"{request['topic']}-python", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(request["topic"], 0, 0)])
    values = []
    try:
        while len(values) < request["count"]:
            message = consumer.poll(120)
            if message is None:
                raise RuntimeError(f"only {len(values)} records came")
            if message.error():
                raise RuntimeError(str(message.error()))
            values.append(decode(request, message.value()))
    finally:
        consumer.close()
    return values


OPERATIONS = {
    "register": register,
    "lookup": lambda r: found(fresh().lookup_schema(r["subject"], schema_of(r))),
    "byId": by_id,
    "byGuid": lambda r: {"schema": fresh().get_schema_by_guid(r["guid"]).schema_str},
    "latest": lambda r: found(fresh().get_latest_version(r["subject"])),
    "version": lambda r: found(fresh().get_version(r["subject"], r["version"], r.get("deleted", False))),
    "versions": lambda r: client.get_versions(r["subject"]),
    "subjects": lambda r: client.get_subjects(),
    "types": lambda r: client.get_schema_types(),
    "contexts": lambda r: client.get_contexts(),
    "users": lambda r: [[v.subject, v.version] for v in client.get_schema_versions(r["id"])],
    "referencedBy": lambda r: client.get_referenced_by(r["subject"], r["version"]),
    "compatible": lambda r: client.test_compatibility(r["subject"], schema_of(r)),
    "compatibleWithAll": lambda r: client.test_compatibility_all_versions(r["subject"], schema_of(r)),
    "level": lambda r: client.get_compatibility(r["subject"]),
    "setLevel": lambda r: client.set_compatibility(r["subject"], r["level"]),
    "mode": lambda r: client.get_mode(r["subject"]),
    "setMode": lambda r: client.update_mode(r["subject"], r["mode"]),
    "deleteVersion": lambda r: client.delete_version(r["subject"], r["version"], r.get("permanent", False)),
    "deleteSubject": lambda r: client.delete_subject(r["subject"], r.get("permanent", False)),
    "serialize": lambda r: {"bytes": base64.b64encode(encode(r)).decode(), "headers": {}},
    "deserialize": lambda r: decode(r, base64.b64decode(r["bytes"])),
    "send": send,
    "receive": receive,
}


def answer(line):
    request = json.loads(line)
    try:
        operation = OPERATIONS.get(request["op"])
        if operation is None:
            raise RuntimeError(f"this client has no {request['op']}")
        return {"value": operation(request)}
    except Exception as thrown:  # the test checks its type
        refused = isinstance(thrown, SchemaRegistryError)
        return {
            "error": {
                "type": type(thrown).__name__,
                "status": thrown.http_status_code if refused else None,
                "code": thrown.error_code if refused else None,
                "message": str(thrown),
            }
        }


for text in sys.stdin:
    sys.stdout.write(json.dumps(answer(text)) + "\n")
    sys.stdout.flush()
