"""The span of a request over real gRPC: whose trace it is in, and what it tells of the answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import grpc
import pytest
from penstock.config.rates import parse_limits
from penstock.core.lease import LeaseAsk
from penstock.core.limits import MILLI
from penstock.core.request import Descriptor, Request
from penstock.core.take import Key, Take, Taken
from penstock.errors import StoreError
from penstock.service.answer import Options
from penstock.service.leases import Leases
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.port import BucketStore
from penstock.transport.codec import LEASES, METHOD, SERVICE, encode_lease, encode_request
from penstock.transport.leases import LeaseService
from penstock.transport.listener import Listener
from penstock.transport.methods import Waiting, wait
from penstock.transport.rls import PlainCall, RateLimitService

from tests.support.gates import set_limits
from tests.support.otlp import Attributes, Span
from tests.support.processes import PATIENCE_S
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
        await method(data, timeout=PATIENCE_S, metadata=grpc.aio.Metadata(*headers.items()))

    async def failure(self, data: bytes) -> tuple[int, str]:
        """The code and the text that a client gets."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(data)
        return caught.value.code().value[0], caught.value.details() or ""

    def span(self) -> Span:
        (span,) = self.tracing.spans()
        return span


async def test_leases_have_spans_too(make_server: MakeServer) -> None:
    """Under the names of their own service, with what came of them."""
    with traced() as tracing:
        store = MemoryStore()
        await set_limits(store, {"rpm": "1/day"})
        leases = Leases(store, Policies(store.policy, 0, lambda: NOW), lambda: NOW, parse_limits)
        service = LeaseService(leases, tracer=tracing.tracer)
        decisions = RateLimitService(Limiter(store, Options(), lambda: NOW))
        server = make_server(decisions, Listener("127.0.0.1", 0), leases=service)
        async with grpc.aio.insecure_channel(await server.start()) as channel:
            for method in ("Take", "Take", "Settle"):
                ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                    f"/{LEASES}/{method}"
                )
                await ask(
                    encode_lease(LeaseAsk(Key("user", "gpt-4"), {"rpm": MILLI})), timeout=PATIENCE_S
                )
        await server.stop(0)
        spans = {
            (span.name, span.attributes["rpc.method"], span.attributes["penstock.code"])
            for span in tracing.spans()
        }
    assert spans == {
        (f"{LEASES}/Take", "Take", "ok"),
        (f"{LEASES}/Take", "Take", "over_limit"),
        (f"{LEASES}/Settle", "Settle", "ok"),
    }


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


@dataclass(frozen=True, slots=True)
class Answering:
    """A service without a transport around it."""

    tracing: Traced
    service: RateLimitService

    def start(self, number: int, timeout_s: float | None = None) -> bytes | Waiting:
        return self.service.start(GOOD, PlainCall(timeout_s, caller(number).items))

    def told(self) -> dict[str, tuple[object, str | None]]:
        """The code and the error of each request, by its trace."""
        return {
            span.trace_id: (span.attributes["penstock.code"], span.error)
            for span in self.tracing.spans()
        }


@pytest.fixture
def tracing() -> Iterator[Traced]:
    with traced() as made:
        yield made


def answering(tracing: Traced, store: BucketStore) -> Answering:
    limiter = Limiter(store, Options(), lambda: NOW)
    limiter.use(rules())
    return Answering(tracing, RateLimitService(limiter, tracer=tracing.tracer))


def test_a_request_that_needs_no_waiting_is_answered_without_a_task(tracing: Traced) -> None:
    """There is not even a loop here."""
    served = answering(tracing, MemoryStore())
    assert isinstance(served.start(7), bytes)
    assert tracing.tracer.caller() is None
    assert served.told() == {trace_id(7): ("ok", None)}


async def test_requests_that_wait_at_once_end_each_in_its_own_trace(tracing: Traced) -> None:
    """Answered, too late, gone: whoever ends them, and in whatever order."""
    store = MoodyStore()
    store.gate = asyncio.Event()
    served = answering(tracing, store)
    answered, late, gone = served.start(1), served.start(2, timeout_s=5), served.start(3)
    assert not isinstance(answered, bytes)
    assert not isinstance(late, bytes)
    assert not isinstance(gone, bytes)
    assert tracing.tracer.caller() is None
    assert late.within_s is not None
    with pytest.raises(StoreError):
        late.expire()
    gone.future.cancel()
    store.gate.set()
    await asyncio.wait([answered.future, gone.future])
    with pytest.raises(asyncio.CancelledError):
        gone.finish()
    assert isinstance(answered.finish(), bytes)
    too_late = "the store did not answer before the caller's deadline"
    assert served.told() == {
        trace_id(1): ("ok", None),
        trace_id(2): ("store_error", too_late),
        trace_id(3): ("cancelled", None),
    }


async def test_the_store_knows_which_request_it_works_for(tracing: Traced) -> None:
    """At once, and in the task that it makes, also after the request has ended."""
    found = []

    class Asked(MoodyStore):
        async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
            await asyncio.sleep(0)
            found.append(tracing.tracer.caller())
            return await super().take(takes, now_ms)

    served = answering(tracing, Asked())
    waiting = [served.start(1), served.start(2)]
    for one in waiting:
        await wait(one)
    assert [f"{span.trace_id:032x}" for span in found if span] == [trace_id(1), trace_id(2)]
