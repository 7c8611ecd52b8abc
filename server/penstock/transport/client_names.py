"""Lets in only clients whose certificate has a certain name.

Asked of each call, not in the handshake, where gRPC for Python has no place for it.
"""

import inspect
import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import grpc

from penstock.core.foreign_text import show

LOG: Final = logging.getLogger(__name__)

REMEMBERED: Final = 1024
"""Certificates that were looked at, by their names: a server has a few clients, often one."""

_LABEL: Final = "[a-z0-9_][a-z0-9_-]*"
_HOST: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
"""How a URI begins (RFC 3986, section 3.1). No DNS name has a colon."""

if TYPE_CHECKING:  # at run time these can't be given types
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Names:
    """The subject alternative names of a certificate, by their kind."""

    dns: tuple[str, ...] = ()
    uri: tuple[str, ...] = ()
    ip: tuple[str, ...] = ()

    def include(self, wanted: str) -> bool:
        """Whether one is meant by a name, URI or address.

        What is wanted decides which kind is looked at: a CA that hands out any DNS name may not
        hand out any URI, so a DNS name that reads like a URI must not pass as one.
        """
        address = _address(wanted.removeprefix("[").removesuffix("]"))
        if address is not None:
            return any(_address(ip) == address for ip in self.ip)
        if _SCHEME.match(wanted):
            return wanted in self.uri
        return any(_dns_fits(pattern, wanted) for pattern in self.dns)


def _dns_fits(pattern: str, name: str) -> bool:
    """As the reference server's language has it: a leading `*` is for exactly one label."""
    pattern, name = pattern.lower(), name.lower()
    if pattern == name:
        return True
    host = name.removesuffix(".")
    if not _HOST.fullmatch(host):
        return False
    parent = host.partition(".")[2]
    return pattern == host or (parent != "" and pattern == f"*.{parent}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


class NamedClients(grpc.aio.ServerInterceptor):
    """Answers PERMISSION_DENIED to others, whatever they call.

    Not UNAUTHENTICATED: who they are is known, and no other try with this certificate would help.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lets_in = lru_cache(REMEMBERED)(self._look)

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        make, behaviour = _parts(handler)

        async def checked(request: Any, context: "Context") -> Any:
            if not self._lets_in(_names(context)):
                await context.abort(
                    grpc.StatusCode.PERMISSION_DENIED,
                    "the client's certificate does not have the name that this server asks for",
                )
            answer = behaviour(request, context)
            if not inspect.isasyncgen(answer):
                return await answer
            async for response in answer:
                await context.write(response)
            return None

        return make(checked, handler.request_deserializer, handler.response_serializer)

    def _look(self, names: Names) -> bool:
        """Only once for each certificate's names, so the log holds a line and not a flood."""
        found = names.include(self._name)
        if not found:
            shown = show(repr(names))
            LOG.warning("refusing clients with %s: GRPC_CLIENT_TLS_SAN is %r", shown, self._name)
        return found


def _parts(handler: "Handler") -> "tuple[Callable[..., Handler], Any]":
    """What makes such a handler, and what it does."""
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler, handler.stream_stream
    if handler.request_streaming:
        return grpc.stream_unary_rpc_method_handler, handler.stream_unary
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler, handler.unary_stream
    return grpc.unary_unary_rpc_method_handler, handler.unary_unary


def _names(context: "Context") -> Names:
    peer = context.auth_context()

    def texts(kind: str) -> Iterable[str]:
        return (value.decode("ascii", "backslashreplace") for value in peer.get(kind, ()))

    return Names(tuple(texts("peer_dns")), tuple(texts("peer_uri")), tuple(texts("peer_ip")))
