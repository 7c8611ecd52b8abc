"""Server reflection, as grpcurl and other clients ask for it."""

from collections.abc import AsyncIterator

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import (
    ExtensionRequest,
    ServerReflectionRequest,
    ServerReflectionResponse,
)
from penstock.transport.failures import CallError
from penstock.transport.methods import BidiStream
from penstock.transport.reflection import Reflection
from penstock.transport.rls import PlainCall

REQUEST = "envoy.service.ratelimit.v3.RateLimitRequest"


async def serve(*messages: bytes, service: str = "grpc.reflection.v1") -> list[bytes]:
    async def sent() -> AsyncIterator[bytes]:
        for message in messages:
            yield message

    method = Reflection(["a.B"]).methods()[f"/{service}.ServerReflection/ServerReflectionInfo"]
    assert isinstance(method, BidiStream)
    return [answer async for answer in method.serve(sent(), PlainCall())]


async def ask(request: ServerReflectionRequest) -> ServerReflectionResponse:
    (answer,) = await serve(request.SerializeToString())
    return ServerReflectionResponse.FromString(answer)


@pytest.mark.parametrize("service", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
async def test_services_are_listed_with_reflection_itself(service: str) -> None:
    """Under both names that clients use, and with the request that was asked."""
    asked = ServerReflectionRequest(host="h", list_services="*")
    (data,) = await serve(asked.SerializeToString(), service=service)
    answer = ServerReflectionResponse.FromString(data)
    names = [one.name for one in answer.list_services_response.service]
    assert names[0] == "a.B"
    assert names[1:] == [f"grpc.reflection.{v}.ServerReflection" for v in ("v1", "v1alpha")]
    assert (answer.valid_host, answer.original_request) == ("h", asked)


async def test_a_symbol_comes_with_all_files_that_it_needs() -> None:
    """A client can build the messages from the answer alone."""
    answer = await ask(ServerReflectionRequest(file_containing_symbol=REQUEST))
    files = [
        FileDescriptorProto.FromString(data)
        for data in answer.file_descriptor_response.file_descriptor_proto
    ]
    names = [file.name for file in files]
    assert len(names) == len(set(names))
    assert {needed for file in files for needed in file.dependency} <= set(names)
    assert REQUEST in {f"{file.package}.{one.name}" for file in files for one in file.message_type}


async def test_a_file_is_found_by_its_name() -> None:
    """The one that a symbol is in, first."""
    by_symbol = await ask(ServerReflectionRequest(file_containing_symbol=REQUEST))
    first = by_symbol.file_descriptor_response.file_descriptor_proto[0]
    name = FileDescriptorProto.FromString(first).name
    by_name = await ask(ServerReflectionRequest(file_by_filename=name))
    assert by_name.file_descriptor_response == by_symbol.file_descriptor_response


async def test_extensions_are_told() -> None:
    """Messages of ours have none."""
    answer = await ask(ServerReflectionRequest(all_extension_numbers_of_type=REQUEST))
    assert answer.all_extension_numbers_response.base_type_name == REQUEST
    assert not answer.all_extension_numbers_response.extension_number


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ServerReflectionRequest(file_by_filename="no.proto"), 5),
        (ServerReflectionRequest(file_containing_symbol="no.Such"), 5),
        (ServerReflectionRequest(all_extension_numbers_of_type="no.Such"), 5),
        (
            ServerReflectionRequest(
                file_containing_extension=ExtensionRequest(
                    containing_type=REQUEST, extension_number=100
                )
            ),
            5,
        ),
        (ServerReflectionRequest(), 3),
    ],
)
async def test_what_is_not_there_is_an_error_in_the_answer(
    request_: ServerReflectionRequest, code: int
) -> None:
    """The stream goes on: NOT_FOUND, or INVALID_ARGUMENT for a request that asks for nothing."""
    assert (await ask(request_)).error_response.error_code == code


async def test_bytes_that_are_no_request_end_the_stream() -> None:
    """With a status that says what was expected."""
    with pytest.raises(CallError, match="not a ServerReflectionRequest"):
        await serve(b"\xff")
