"""The span of a request over real gRPC: whose trace it is in, and what it tells of the answer."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import grpc
import pytest
from penstock.core.request import Descriptor, Request
from penstock.errors import StoreError
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.transport.codec import METHOD, SERVICE, encode_request
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService

from tests.support.otlp import Attributes, Span
from tests.support.tracing import Traced, caller, span_id, trace_id, traced
from tests.support.transports import MakeServer
from tests.unit.transport.conftest import NOW, MoodyStore, rules

GOOD = encode_request(Request("d", (Descriptor((("five", "bob"),)), Descriptor((("x", "y"),)))))
NO_DOMAIN = encode_request(Request("", (Descriptor((("five", "bob"),)),)))
RPC = {"rpc.system": "grpc", "rpc.service": SERVICE, "rpc.method": METHOD}


@dataclass(frozen=True, slots=True)
class Serving:
    tracing: Traced
    store: MoodyStore
    channel: grpc.aio.Channel

    async def call(
        self, data: bytes = GOOD, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )
        await method(data, timeout=10, metadata=grpc.aio.Metadata(*headers.items()))

    async def failure(self, data: bytes) -> tuple[int, str]:
        """The code and the text that a client gets."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(data)
        return caught.value.code().value[0], caught.value.details() or ""

    def span(self) -> Span:
        (span,) = self.tracing.spans()
        return span


@pytest.fixture
async def serving(make_server: MakeServer) -> AsyncIterator[Serving]:
    with traced(environment={"OTEL_BSP_SCHEDULE_DELAY": "10"}) as tracing:
        store = MoodyStore()
        limiter = Limiter(store, Options(), lambda: NOW)
        limiter.use(rules())
        service = RateLimitService(limiter, tracer=tracing.tracer)
        server = make_server(service, Listener("127.0.0.1", 0))
        address = await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            yield Serving(tracing, store, channel)
        await server.stop(0)


@pytest.mark.parametrize(
    "headers",
    [
        {**caller(7), "baggage": "user=bob"},
        {"b3": f"{trace_id(7)}-{span_id(7)}-1"},
        {"x-b3-traceid": trace_id(7), "x-b3-spanid": span_id(7), "x-b3-sampled": "1"},
    ],
    ids=["W3C", "B3", "B3 in several headers"],
)
async def test_a_request_continues_the_trace_in_its_metadata(
    serving: Serving, headers: dict[str, str]
) -> None:
    """And tells what was asked, and what the answer was."""
    await serving.call(headers=headers)
    span = serving.span()
    assert (span.name, span.kind) == (f"{SERVICE}/{METHOD}", "server")
    assert (span.trace_id, span.parent_id, span.error) == (trace_id(7), span_id(7), None)
    assert span.attributes == {
        **RPC,
        "rpc.grpc.status_code": 0,
        "penstock.domain": "d",
        "penstock.descriptors": 2,
        "penstock.code": "ok",
    }


@pytest.mark.parametrize(
    "headers",
    [caller(7, sampled=False), {"b3": "0"}, {"x-b3-sampled": "0"}],
    ids=["W3C", "B3", "B3 in several headers"],
)
async def test_a_request_that_its_caller_does_not_sample_is_served_without_a_span(
    serving: Serving, headers: dict[str, str]
) -> None:
    """It is not for us to say."""
    await serving.call(headers=headers)
    assert serving.tracing.spans() == []


async def test_a_denial_is_no_error(serving: Serving) -> None:
    """It is an answer like any other."""
    for _ in range(6):
        await serving.call()
    spans = serving.tracing.spans()
    assert [span.attributes["penstock.code"] for span in spans] == ["ok"] * 5 + ["over_limit"]
    assert {span.error for span in spans} == {None}


@pytest.mark.parametrize(
    ("data", "error", "code", "told"),
    [
        (NO_DOMAIN, None, "service_error", {}),
        (b"\xff\xff", None, "service_error", {}),
        (GOOD, StoreError("the disk is gone"), "store_error", {"penstock.domain": "d"}),
        (GOOD, ValueError("a fault"), "internal_error", {"penstock.domain": "d"}),
    ],
    ids=["no domain", "not a request", "the store fails", "a fault"],
)
async def test_a_request_that_fails_tells_what_its_client_was_told(
    serving: Serving, data: bytes, error: Exception | None, code: str, told: Attributes
) -> None:
    """The code is the same; of faults, here and of the store, the span tells more."""
    serving.store.error = error
    grpc_code, text = await serving.failure(data)
    span = serving.span()
    expected = {**RPC, **told, "rpc.grpc.status_code": grpc_code, "penstock.code": code}
    assert span.attributes.items() >= expected.items()
    match error:
        case ValueError():
            assert span.error == repr(error)
        case StoreError():
            assert span.error == str(error)
        case _:
            assert span.error == text


async def test_a_caller_that_is_gone_is_told_as_such(serving: Serving) -> None:
    """It is nobody's failure."""
    serving.store.hold = True
    call = asyncio.create_task(serving.call())
    await serving.store.was_asked.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await asyncio.to_thread(serving.tracing.collector.wait_for, f"{SERVICE}/{METHOD}")
    span = serving.span()
    assert (span.attributes["penstock.code"], span.attributes["rpc.grpc.status_code"]) == (
        "cancelled",
        1,
    )
    assert span.error is None
