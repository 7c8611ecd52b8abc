"""A client of the Rate Limit Service, for the command line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc

from penstock.core.request import Request
from penstock.errors import ConfigError, PenstockError
from penstock.transport.address import write_address
from penstock.transport.client_tls import FLAGS, ClientTls, read_credentials
from penstock.transport.codec import METHOD, PEEK, SERVICE, decode_response, encode_request
from penstock.transport.diagnosis import explain
from penstock.transport.notes import DOMAIN, PEEK_METHOD, PEEK_SERVICE, UNKNOWN, read_charged

DEFAULT_PORT: Final = 8081

_PORT: Final = re.compile("[0-9]{1,5}")
_MAX_PORT: Final = 65_535
_NAMED_KINDS: Final = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")
"""Addresses that begin like this are passed to gRPC unchanged."""

if TYPE_CHECKING:  # at run time, this class takes no type arguments
    Method = grpc.UnaryUnaryMultiCallable[bytes, bytes]


class CallError(PenstockError):
    """The server did not answer, or answered with an error."""


class UnknownMethodError(CallError):
    """The server does not have the method. It is an older Penstock, or another server."""


class Answered(NamedTuple):
    """A response as plain values, under the names of the wire, and its trailers."""

    response: dict[str, Any]
    charged: tuple[int | None, ...] | None = None
    """How much of each descriptor's own amount was charged. None if the server does not say."""
    domain_is_unknown: bool = False


class Client:
    """Sends requests over one channel."""

    def __init__(
        self, channel: grpc.Channel, address: str, timeout_s: float, tls: ClientTls | None
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._tls = tls
        self._ask: Method = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        self._peek: Method = channel.unary_unary(f"/{PEEK_SERVICE}/{PEEK_METHOD}")

    def ask(self, request: Request) -> Answered:
        """Send a request as Envoy does, and return the decision."""
        return self._call(self._ask, request)

    def peek(self, request: Request) -> Answered:
        """Ask for the decision without taking anything. UnknownMethodError if the server is not
        Penstock."""
        return self._call(self._peek, request)

    def _call(self, method: "Method", request: Request) -> Answered:
        try:
            # The header tells that an operator asks. So an amount of 0 makes no rule metered.
            data, call = method.with_call(
                encode_request(request), timeout=self._timeout_s, metadata=((PEEK, "1"),)
            )
        except grpc.RpcError as exc:
            raise self._error(exc.code(), exc.details() or "") from exc
        trailers = tuple((key, str(value)) for key, value in call.trailing_metadata() or ())
        is_unknown = (DOMAIN, UNKNOWN) in trailers
        return Answered(decode_response(data), read_charged(trailers), is_unknown)

    def _error(self, code: grpc.StatusCode, details: str) -> CallError:
        kind = UnknownMethodError if code is grpc.StatusCode.UNIMPLEMENTED else CallError
        if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in details:
            details = explain(self._address, details, self._tls, self._timeout_s, FLAGS)
        return kind(f"{self._address}: {code.name}: {details}")


@contextmanager
def connect(address: str, timeout_s: float, tls: ClientTls | None = None) -> Iterator[Client]:
    """Open a channel to an address that comes from `full_address`."""
    with _channel(address, tls) as channel:
        yield Client(channel, address, timeout_s, tls)


def full_address(text: str, named_by: str = "--address") -> str:
    """Add the default port to an address without a port. ConfigError if the text is not an
    address; `named_by` is the flag or argument that has it."""
    if text.startswith(_NAMED_KINDS):
        return text
    if "/" in text or not text:
        raise ConfigError(
            f"{named_by}: '{text}' is not an address: write HOST, HOST:PORT or unix:PATH"
        )
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return f"{text}:{DEFAULT_PORT}"
    if ":" in host and not host.startswith("["):  # IPv6: its last part is not a port
        return write_address(text, DEFAULT_PORT)
    if not host or _PORT.fullmatch(port) is None or not 0 < int(port) <= _MAX_PORT:
        raise ConfigError(
            f"{named_by}: '{text}': '{port}' is not a port number: write HOST:PORT, or HOST "
            f"for port {DEFAULT_PORT}"
        )
    return text


def _channel(address: str, tls: ClientTls | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, read_credentials(tls, FLAGS), tls.options)
