"""A client of the Rate Limit Service, for the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import grpc

from penstock.core.request import Request
from penstock.errors import PenstockError
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request


class CallError(PenstockError):
    """The server did not answer, or answered with an error."""


class Call(Protocol):
    def __call__(self, request: Request) -> dict[str, Any]: ...


@contextmanager
def connect(address: str, timeout_s: float) -> Iterator[Call]:
    """Open a channel, and give a function that sends a request over it."""
    with grpc.insecure_channel(address) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )

        def call(request: Request) -> dict[str, Any]:
            try:
                return decode_response(method(encode_request(request), timeout=timeout_s))
            except grpc.RpcError as exc:
                code, details = exc.code(), exc.details()
                raise CallError(f"{address}: {code.name}: {details}") from exc

        yield call
