"""Test driver of grpcio: one request per line on stdin, one answer per line on stdout.
It has no proto file: it loads the messages from the server's reflection.

    python orders.py ADDRESS
"""

import json
import sys

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

DETAILS = {
    kind.DESCRIPTOR.full_name: kind
    for kind in (
        error_details_pb2.BadRequest,
        error_details_pb2.ErrorInfo,
        error_details_pb2.RetryInfo,
        error_details_pb2.RequestInfo,
    )
}

channel = grpc.insecure_channel(sys.argv[1])
reflected = ProtoReflectionDescriptorDatabase(channel)
pool = DescriptorPool(reflected)


def method(name):
    service = pool.FindServiceByName("orders.v1.Orders")
    found = service.FindMethodByName(name)
    request = message_factory.GetMessageClass(found.input_type)
    answer = message_factory.GetMessageClass(found.output_type)
    path = f"/{service.full_name}/{name}"
    call = channel.unary_unary(path, request_serializer=request.SerializeToString, response_deserializer=answer.FromString)
    return call, request


def details(metadata):
    for key, value in metadata or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            for packed in status.details:
                detail = DETAILS[packed.type_url.split("/")[1]]()
                assert packed.Unpack(detail)
                yield {"type": detail.DESCRIPTOR.name, **json_format.MessageToDict(detail)}


def call(request):
    send, kind = method(request["method"])
    metadata = [tuple(pair) for pair in request.get("metadata", [])]
    message = json_format.ParseDict(request["message"], kind())
    try:
        answer, done = send.with_call(message, metadata=metadata, timeout=request.get("timeout", 20))
        value = json_format.MessageToDict(answer, preserving_proto_field_name=True)
        return {"code": "OK", "value": value, "trailers": dict(done.trailing_metadata())}
    except grpc.RpcError as error:
        return {
            "code": error.code().name,
            "text": error.details(),
            "details": list(details(error.trailing_metadata())),
        }


def services(_request):
    return sorted(reflected.get_services())


def health(request):
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=request.get("service", "")), timeout=20)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


OPS = {"call": call, "services": services, "health": health}

for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(OPS[asked["op"]](asked)), flush=True)
