"""A real xDS server for tests: it sends rules over gRPC, and notes what clients answer."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from penstock._proto import discovery_pb2, rls_conf_pb2
from penstock.transport.codec import ADS_METHOD, RULES_TYPE

from tests.support.processes import PATIENCE_S, wait_for

Rules = dict[str, Any]
"""A RateLimitConfig in plain values, under the names of the wire."""

_SERVICE, _, _METHOD = ADS_METHOD[1:].partition("/")


def config(domain: str, *descriptors: Rules, name: str | None = None) -> Rules:
    """A resource with the rules of a domain."""
    return {"name": domain if name is None else name, "domain": domain, "descriptors": descriptors}


def limit(key: str, value: str = "", *, per: str = "DAY", n: int = 5, **more: Any) -> Rules:
    """A descriptor with a limit."""
    rate = {"unit": per, "requests_per_unit": n}
    return {"key": key, "value": value, "rate_limit": rate, **more}


def pack_response(
    resources: Sequence[Rules], version: str, nonce: str = "n", type_url: str = RULES_TYPE
) -> bytes:
    """A DiscoveryResponse."""
    message = discovery_pb2.DiscoveryResponse(version_info=version, nonce=nonce, type_url=type_url)
    for resource in resources:
        packed = ParseDict(resource, rls_conf_pb2.RateLimitConfig())
        message.resources.add(type_url=RULES_TYPE, value=packed.SerializeToString())
    return message.SerializeToString()


@dataclass(frozen=True, slots=True)
class Heard:
    """A request of a client."""

    node: str
    metadata: dict[str, str]
    version: str
    nonce: str
    type_url: str
    names: tuple[str, ...]
    error: str
    stream: int
    """Streams are numbered from 1."""
    headers: dict[str, str] = field(default_factory=dict)


class Ads:
    """The state that clients get, and what they answered. Any thread may use this."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.port = 0
        self.heard: list[Heard] = []
        self.streams = 0
        self._loop = loop
        self._state: bytes | None = None
        self._count = 0
        self._changed = asyncio.Event()
        self._cuts = 0
        self.stop: Callable[[], None] = self.cut
        """Be gone, as a control plane that is stopped."""

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def publish(self, *resources: Rules, version: str = "") -> str:
        """Have this state, and send it to all clients. Gives the version."""
        self._count += 1
        version = version or f"v{self._count}"
        self.publish_bytes(pack_response(resources, version, nonce=f"nonce-{self._count}"))
        return version

    def publish_bytes(self, response: bytes) -> None:
        def change() -> None:
            self._state = response
            self._wake()

        self.call_soon(change)

    def cut(self) -> None:
        """End all streams with an error, as a server does that is stopped."""

        def change() -> None:
            self._cuts += 1
            self._wake()

        self.call_soon(change)

    def call_soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def answers(self) -> list[Heard]:
        """The ACKs and NACKs."""
        return [one for one in list(self.heard) if one.nonce]

    def wait_for_ack(self, version: str) -> Heard:
        def found() -> Heard | None:
            matching = (one for one in self.answers() if one.version == version and not one.error)
            return next(matching, None)

        return wait_for(found, f"an ACK of {version} in {self.heard}")

    def wait_for_nack(self, count: int = 1) -> Heard:
        def found() -> Heard | None:
            refused = [one for one in self.answers() if one.error]
            return refused[count - 1] if len(refused) >= count else None

        return wait_for(found, "a NACK")

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """One client, as go-control-plane serves it: an answer comes before the next response."""
        self.streams += 1
        number, cuts = self.streams, self._cuts
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        sent: bytes | None = None
        async for request in requests:
            self.heard.append(_read(request, number, headers))
            while (self._state is None or self._state is sent) and self._cuts == cuts:
                await self._changed.wait()
            if self._cuts != cuts:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut by the test")
            assert self._state is not None
            sent = self._state
            yield sent


def _read(request: bytes, stream: int, headers: dict[str, str]) -> Heard:
    message = discovery_pb2.DiscoveryRequest.FromString(request)
    return Heard(
        message.node.id,
        {key: value.string_value for key, value in message.node.metadata.fields.items()},
        message.version_info,
        message.response_nonce,
        message.type_url,
        tuple(message.resource_names),
        message.error_detail.message,
        stream,
        headers,
    )


@asynccontextmanager
async def serve_ads(
    credentials: grpc.ServerCredentials | None = None, port: int = 0
) -> AsyncIterator[Ads]:
    """Serve on the loop of the caller."""
    ads = Ads(asyncio.get_running_loop())
    options = (("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0))
    server = grpc.aio.server(options=options)
    handler: Any = grpc.stream_stream_rpc_method_handler(ads.stream)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}),)
    )
    address = f"localhost:{port}"
    if credentials is None:
        ads.port = server.add_insecure_port(address)
    else:
        ads.port = server.add_secure_port(address, credentials)
    await server.start()
    try:
        yield ads
    finally:
        await server.stop(0)


@contextmanager
def ads_server(credentials: grpc.ServerCredentials | None = None, port: int = 0) -> Iterator[Ads]:
    """Serve in a thread, for tests that run real processes."""
    started: Future[Ads] = Future()
    stop: Future[asyncio.Event] = Future()

    async def run() -> None:
        ending = asyncio.Event()
        stop.set_result(ending)
        async with serve_ads(credentials, port) as ads:
            started.set_result(ads)
            await ending.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    ads = started.result(PATIENCE_S)
    ending = stop.result(PATIENCE_S)

    def end() -> None:
        if thread.is_alive():
            ads.call_soon(ending.set)
            thread.join()

    ads.stop = end
    try:
        yield ads
    finally:
        end()
