"""Server reflection: tells clients such as grpcurl which services there are, and their messages.

The messages of `grpc.reflection.v1` are those of `v1alpha` under another name, so one code answers
both.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.reflection_pb2 import (
    ErrorResponse,
    ExtensionNumberResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)

from penstock.transport.failures import CallError, Code
from penstock.transport.methods import BidiStream, Call, Methods

SERVICES: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)


class Reflection:
    def __init__(self, services: Sequence[str]) -> None:
        """`services` are the full names of those that the server has beside this one."""
        self._services = sorted([*services, *SERVICES])
        self._pool = descriptor_pool.Default()

    def methods(self) -> Methods:
        return {f"/{name}/ServerReflectionInfo": BidiStream(self._serve) for name in SERVICES}

    async def _serve(self, messages: AsyncIterator[bytes], _: Call) -> AsyncIterator[bytes]:
        async for message in messages:
            try:
                request = ServerReflectionRequest.FromString(message)
            except DecodeError as exc:
                text = f"not a ServerReflectionRequest: {exc}"
                raise CallError(Code.INVALID_ARGUMENT, text) from exc
            answer = self._answer(request)
            answer.valid_host = request.host
            answer.original_request.CopyFrom(request)
            yield answer.SerializeToString()

    def _answer(self, request: ServerReflectionRequest) -> ServerReflectionResponse:
        try:
            match request.WhichOneof("message_request"):
                case "list_services":
                    services = [ServiceResponse(name=name) for name in self._services]
                    listed = ListServiceResponse(service=services)
                    return ServerReflectionResponse(list_services_response=listed)
                case "file_by_filename":
                    return _files(self._pool.FindFileByName(request.file_by_filename))
                case "file_containing_symbol":
                    symbol = request.file_containing_symbol
                    return _files(self._pool.FindFileContainingSymbol(symbol))
                case "file_containing_extension":
                    asked = request.file_containing_extension
                    extended = self._pool.FindMessageTypeByName(asked.containing_type)
                    number = asked.extension_number
                    found = self._pool.FindExtensionByNumber(extended, number)
                    return _files(self._pool.FindFileContainingSymbol(found.full_name))
                case "all_extension_numbers_of_type":
                    name = request.all_extension_numbers_of_type
                    extended = self._pool.FindMessageTypeByName(name)
                    extensions = self._pool.FindAllExtensions(extended)
                    numbers = sorted(extension.number for extension in extensions)
                    found_numbers = ExtensionNumberResponse(
                        base_type_name=name, extension_number=numbers
                    )
                    return ServerReflectionResponse(all_extension_numbers_response=found_numbers)
        except KeyError:
            return _error(Code.NOT_FOUND)
        return _error(Code.INVALID_ARGUMENT)


def _files(file: FileDescriptor) -> ServerReflectionResponse:
    """A file, and all that it imports, each once."""
    seen: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one.name not in seen:
            proto = descriptor_pb2.FileDescriptorProto()
            one.CopyToProto(proto)
            seen[one.name] = proto.SerializeToString()
            waiting += one.dependencies
    answer = FileDescriptorResponse(file_descriptor_proto=list(seen.values()))
    return ServerReflectionResponse(file_descriptor_response=answer)


def _error(code: Code) -> ServerReflectionResponse:
    error = ErrorResponse(error_code=code, error_message=code.name)
    return ServerReflectionResponse(error_response=error)
