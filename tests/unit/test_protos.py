"""The generated code is that of our .proto files, and on the wire, those are Envoy's and the
reference server's."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, unknown_fields
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from penstock._proto import (
    base_pb2,
    discovery_pb2,
    ratelimit_pb2,
    ratelimit_unit_pb2,
    rls_conf_pb2,
    rls_pb2,
)

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "server/penstock/_proto"

RLS = "envoy.service.ratelimit.v3"
DESCRIPTOR = "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor"
RESPONSE = f"{RLS}.RateLimitResponse"
DISCOVERY = "envoy.service.discovery.v3"
RULES = "ratelimit.config.ratelimit.v3"

MESSAGES = {
    f"{RLS}.RateLimitRequest": (
        "domain=1 string", f"descriptors=2 repeated {DESCRIPTOR}", "hits_addend=3 uint32",
    ),
    DESCRIPTOR: (
        f"entries=1 repeated {DESCRIPTOR}.Entry", f"limit=2 {DESCRIPTOR}.RateLimitOverride",
        "hits_addend=3 google.protobuf.UInt64Value", "is_negative_hits=4 bool",
    ),
    f"{DESCRIPTOR}.Entry": ("key=1 string", "value=2 string"),
    f"{DESCRIPTOR}.RateLimitOverride": (
        "requests_per_unit=1 uint32", "unit=2 envoy.type.v3.RateLimitUnit",
    ),
    RESPONSE: (
        f"overall_code=1 {RESPONSE}.Code", f"statuses=2 repeated {RESPONSE}.DescriptorStatus",
        "response_headers_to_add=3 repeated envoy.config.core.v3.HeaderValue",
        "request_headers_to_add=4 repeated envoy.config.core.v3.HeaderValue",
        "raw_body=5 bytes", "dynamic_metadata=6 google.protobuf.Struct",
        f"quota=7 {RESPONSE}.Quota",
    ),
    f"{RESPONSE}.DescriptorStatus": (
        f"code=1 {RESPONSE}.Code", f"current_limit=2 {RESPONSE}.RateLimit",
        "limit_remaining=3 uint32", "duration_until_reset=4 google.protobuf.Duration",
        f"quota=5 {RESPONSE}.Quota",
    ),
    f"{RESPONSE}.RateLimit": (
        "requests_per_unit=1 uint32", f"unit=2 {RESPONSE}.RateLimit.Unit", "name=3 string",
    ),
    f"{RESPONSE}.Quota": (
        "requests=1 uint32", "valid_until=2 google.protobuf.Timestamp in expiration_specifier",
        "id=3 string",
    ),
    "envoy.config.core.v3.HeaderValue": ("key=1 string", "value=2 string", "raw_value=3 bytes"),
    "envoy.config.core.v3.Node": (
        "id=1 string", "metadata=3 google.protobuf.Struct", "user_agent_name=6 string",
        "user_agent_version=7 string in user_agent_version_type",
    ),
    f"{DISCOVERY}.DiscoveryRequest": (
        "version_info=1 string", "node=2 envoy.config.core.v3.Node",
        "resource_names=3 repeated string", "type_url=4 string", "response_nonce=5 string",
        f"error_detail=6 {DISCOVERY}.DiscoveryRequest.Status",
    ),
    # google.rpc.Status, under a name of our own.
    f"{DISCOVERY}.DiscoveryRequest.Status": ("code=1 int32", "message=2 string"),
    f"{DISCOVERY}.DiscoveryResponse": (
        "version_info=1 string", "resources=2 repeated google.protobuf.Any", "type_url=4 string",
        "nonce=5 string",
    ),
    f"{RULES}.RateLimitConfig": (
        "name=1 string", "domain=2 string", f"descriptors=3 repeated {RULES}.RateLimitDescriptor",
    ),
    f"{RULES}.RateLimitDescriptor": (
        "key=1 string", "value=2 string", f"rate_limit=3 {RULES}.RateLimitPolicy",
        f"descriptors=4 repeated {RULES}.RateLimitDescriptor", "shadow_mode=5 bool",
        "detailed_metric=6 bool", "quota_mode=7 bool", "metadata=8 google.protobuf.Struct",
    ),
    f"{RULES}.RateLimitPolicy": (
        f"unit=1 {RULES}.RateLimitUnit", "requests_per_unit=2 uint32", "unlimited=3 bool",
        "name=4 string", f"replaces=5 repeated {RULES}.RateLimitReplace",
    ),
    f"{RULES}.RateLimitReplace": ("name=1 string",),
}  # fmt: skip
"""Names, numbers and types as Envoy and the reference server have them."""

UNITS = ("UNKNOWN=0", "SECOND=1", "MINUTE=2", "HOUR=3", "DAY=4", "MONTH=5", "YEAR=6")
ENUMS = {
    f"{RESPONSE}.Code": ("UNKNOWN=0", "OK=1", "OVER_LIMIT=2"),
    f"{RESPONSE}.RateLimit.Unit": (*UNITS, "WEEK=7"),
    "envoy.type.v3.RateLimitUnit": UNITS,
    f"{RULES}.RateLimitUnit": (*UNITS, "WEEK=7"),
}

MODULES = (base_pb2, discovery_pb2, ratelimit_pb2, ratelimit_unit_pb2, rls_conf_pb2, rls_pb2)


def all_messages() -> dict[str, Descriptor]:
    """Ours, nested ones too."""
    waiting = [m for module in MODULES for m in module.DESCRIPTOR.message_types_by_name.values()]
    found = {}
    while waiting:
        message = waiting.pop()
        found[message.full_name] = message
        waiting += message.nested_types
    return found


def all_enums() -> dict[str, EnumDescriptor]:
    nested = [enum for message in all_messages().values() for enum in message.enum_types]
    top = [e for module in MODULES for e in module.DESCRIPTOR.enum_types_by_name.values()]
    return {enum.full_name: enum for enum in (*nested, *top)}


def describe(field: FieldDescriptor) -> str:
    """A field in the words of the table above."""
    kind = descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)  # type: ignore[arg-type]
    named = field.message_type or field.enum_type
    text = f"{field.name}={field.number} "
    text += "repeated " if field.is_repeated else ""
    text += named.full_name if named else kind.removeprefix("TYPE_").lower()
    one_of = field.containing_oneof
    return f"{text} in {one_of.name}" if one_of else text


def test_generated_code_is_what_the_proto_files_give(tmp_path: Path) -> None:
    """Byte for byte, and no file more or less. `make protos` mends it."""
    sources = sorted(str(path) for path in (ROOT / "protos").rglob("*.proto"))
    assert sources
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'protos'}"]
    command += [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *sources]
    subprocess.run(command, check=True)
    fresh = {path.name: path.read_bytes() for path in (tmp_path / "penstock/_proto").iterdir()}
    kept = {path.name: path.read_bytes() for path in GENERATED.glob("*_pb2.py*")}
    assert sorted(fresh) == sorted(kept)
    assert [name for name in fresh if fresh[name] != kept[name]] == []


def test_messages_are_envoys() -> None:
    """Every field has Envoy's name, number and type."""
    found = {
        name: tuple(describe(field) for field in message.fields)
        for name, message in all_messages().items()
    }
    assert found == MESSAGES


def test_enums_are_envoys() -> None:
    """Every value has Envoy's name and number."""
    found = {
        name: tuple(f"{value.name}={value.number}" for value in enum.values)
        for name, enum in all_enums().items()
    }
    assert found == ENUMS


def test_the_service_is_envoys() -> None:
    """One unary method, under Envoy's name."""
    (service,) = rls_pb2.DESCRIPTOR.services_by_name.values()
    assert service.full_name == f"{RLS}.RateLimitService"
    (method,) = service.methods
    assert method.name == "ShouldRateLimit"
    assert method.input_type.full_name == f"{RLS}.RateLimitRequest"
    assert method.output_type.full_name == RESPONSE
    assert (method.client_streaming, method.server_streaming) == (False, False)


def test_the_service_of_rules_is_envoys() -> None:
    """One method with a stream in each direction, under Envoy's name."""
    (service,) = discovery_pb2.DESCRIPTOR.services_by_name.values()
    assert service.full_name == f"{DISCOVERY}.AggregatedDiscoveryService"
    (method,) = service.methods
    assert method.name == "StreamAggregatedResources"
    assert method.input_type.full_name == f"{DISCOVERY}.DiscoveryRequest"
    assert method.output_type.full_name == f"{DISCOVERY}.DiscoveryResponse"
    assert (method.client_streaming, method.server_streaming) == (True, True)


def test_generated_code_needs_no_package_named_envoy() -> None:
    """Only the protobuf package has that name, so Envoy's own wheel may be installed beside it."""
    look = "import sys, penstock.transport.codec; print('envoy' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True)
    assert seen.stdout == b"False\n"


WIRE = [
    # What a request of three fields looks like, written by hand: tag, length, value.
    (
        b"\x0a\x01d" b"\x12\x10" b"\x0a\x06\x0a\x01k\x12\x01v" b"\x12\x04\x08\x05\x10\x02"
        b"\x20\x01" b"\x18\x07",
        rls_pb2.RateLimitRequest(
            domain="d",
            descriptors=[
                ratelimit_pb2.RateLimitDescriptor(
                    entries=[ratelimit_pb2.RateLimitDescriptor.Entry(key="k", value="v")],
                    limit=ratelimit_pb2.RateLimitDescriptor.RateLimitOverride(
                        requests_per_unit=5, unit=ratelimit_unit_pb2.MINUTE
                    ),
                    is_negative_hits=True,
                )
            ],
            hits_addend=7,
        ),
    ),
    (
        b"\x08\x02" b"\x12\x0e" b"\x08\x02" b"\x12\x04\x08\x03\x10\x07" b"\x18\x04"
        b"\x22\x02\x08\x05",
        rls_pb2.RateLimitResponse(
            overall_code=rls_pb2.RateLimitResponse.OVER_LIMIT,
            statuses=[
                rls_pb2.RateLimitResponse.DescriptorStatus(
                    code=rls_pb2.RateLimitResponse.OVER_LIMIT,
                    current_limit=rls_pb2.RateLimitResponse.RateLimit(
                        requests_per_unit=3, unit=rls_pb2.RateLimitResponse.RateLimit.WEEK
                    ),
                    limit_remaining=4,
                    duration_until_reset={"seconds": 5},
                )
            ],
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), WIRE)
def test_messages_are_these_bytes(data: bytes, message: Message) -> None:
    """Written by hand from the numbers, not by the code under test."""
    assert type(message).FromString(data) == message
    assert message.SerializeToString(deterministic=True) == data


def test_fields_of_a_newer_envoy_are_no_error() -> None:
    """Unknown fields are skipped and kept, an unknown unit is a number."""
    newer = b"\x0a\x01d" b"\xfa\x07\x03abc" b"\x12\x05\x12\x03\x10\xc8\x01"  # fmt: skip
    request = rls_pb2.RateLimitRequest.FromString(newer)
    assert request.domain == "d"
    assert request.descriptors[0].limit.unit == 200
    unknown = unknown_fields.UnknownFieldSet(request)
    assert [unknown[i].field_number for i in range(len(unknown))] == [127]
    assert b"\xfa\x07\x03abc" in request.SerializeToString()
