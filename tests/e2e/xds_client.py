"""A client made of Envoy's own generated code, in a process of its own; it knows nothing of ours.

Each line on stdin is a call as JSON: {"address", "request"}. Each line on stdout is its outcome:
{"response"} or {"code", "details"}. Messages are in protobuf's JSON form.
"""

import json
import sys

import grpc
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from google.protobuf.json_format import MessageToDict, ParseDict

TIMEOUT_S = 200


def main() -> None:
    channels: dict[str, grpc.Channel] = {}
    for line in sys.stdin:
        call = json.loads(line)
        address = call["address"]
        if address not in channels:
            channels[address] = grpc.insecure_channel(address)
        sys.stdout.write(json.dumps(answer(channels[address], call["request"])) + "\n")
        sys.stdout.flush()


def answer(channel: grpc.Channel, request: dict[str, object]) -> dict[str, object]:
    stub = rls_pb2_grpc.RateLimitServiceStub(channel)
    message = ParseDict(request, rls_pb2.RateLimitRequest())
    try:
        response = stub.ShouldRateLimit(message, timeout=TIMEOUT_S)
    except grpc.RpcError as exc:
        return {"code": exc.code().name, "details": exc.details()}
    # Values of zero are shown, absent messages are not: so a test sees the difference.
    shown = MessageToDict(
        response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return {"response": shown}


if __name__ == "__main__":
    main()
