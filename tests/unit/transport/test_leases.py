"""The service of leases on the wire: what callers are told, and what becomes of those that go."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import penstock
import pytest
from penstock.config.rates import parse_limits
from penstock.core.lease import MAX_AMOUNT, LeaseAsk, Recorded, Refused
from penstock.core.limits import MILLI
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.service.answer import Options
from penstock.service.leases import Leases
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.telemetry.metrics import Metrics
from penstock.transport.codec import LEASES, decode_leased, encode_lease
from penstock.transport.leases import MAX_AMOUNTS, LeaseService
from penstock.transport.listener import Listener
from penstock.transport.rls import PlainCall, RateLimitService

from tests.support.gates import on_record, set_limits
from tests.support.processes import PATIENCE_S
from tests.support.transports import AnyServer, MakeServer
from tests.unit.transport.conftest import NOW, MoodyStore

USER = Key("user", "gpt-4")
MAX_CALLS = 3


class Served:
    """A server with leases on a store that can be told to wait."""

    def __init__(self, make_server: MakeServer, options: Options | None = None) -> None:
        self.store = MoodyStore()
        self.metrics = Metrics()
        policies = Policies(self.store.policy, 60_000, lambda: NOW)
        leases = Leases(
            self.store,
            policies,
            lambda: NOW,
            parse_limits,
            options,
            self.metrics,
            has_domain=lambda name: name == "llm",
        )
        self.service = LeaseService(leases, self.metrics, max_calls=MAX_CALLS)
        decisions = RateLimitService(Limiter(self.store, Options(), lambda: NOW))
        listener = Listener("127.0.0.1", 0)
        self.server: AnyServer = make_server(decisions, listener, leases=self.service)

    async def start(self) -> None:
        await set_limits(self.store, {"rpm": "10/day", "tpm": "100/day"})
        self.address = await self.server.start()
        self._channel = grpc.aio.insecure_channel(self.address)

    async def stop(self) -> None:
        await self._channel.close()
        await self.server.stop(0)
        await self.service.finish()

    def begin(self, method: str, data: bytes) -> "grpc.aio.UnaryUnaryCall[bytes, bytes]":
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            f"/{LEASES}/{method}"
        )
        return ask(data, timeout=PATIENCE_S)

    async def failure(self, method: str, data: bytes) -> tuple[str, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.begin(method, data)
        return caught.value.code().name, caught.value.details() or ""


@pytest.fixture
async def served(make_server: MakeServer) -> AsyncIterator[Served]:
    running = Served(make_server)
    await running.start()
    yield running
    await running.stop()


def ask(**amounts: int) -> bytes:
    """A request in whole tokens."""
    return encode_lease(LeaseAsk(USER, {name: MILLI * n for name, n in amounts.items()}))


def recorded(**amounts: int) -> Recorded:
    return Recorded(amounts, NOW)


@pytest.mark.parametrize(
    ("method", "asked", "text"),
    [
        ("Take", b"\xff\xff", "not a LeaseRequest"),
        ("Take", LeaseAsk(USER, {}), "the request names no limit"),
        ("Settle", LeaseAsk(USER, {}), "the request names no limit"),
        ("Take", LeaseAsk(USER, {"rpm": -1}), "-0.001 is not an amount to take"),
        ("Settle", LeaseAsk(USER, {"rpm": 1, "tpm": 0}), "0 is not an amount to settle"),
        (
            "Take",
            LeaseAsk(USER, {"rpm": MAX_AMOUNT + 1}),
            "1000000000000000.001 is not an amount to take",
        ),
        ("Settle", LeaseAsk(USER, {"rpm": -MAX_AMOUNT - 1}), "-1000000000000000.001 is not an"),
        (
            "Take",
            LeaseAsk(USER, {f"l{number}": 1 for number in range(MAX_AMOUNTS + 1)}),
            "65 amounts in one request, at most 64",
        ),
        (
            "Take",
            LeaseAsk(Key("user", "new"), {"rpm": 1}, {"rpm": "often"}),
            "'often' is not a rate",
        ),
        (
            "Balances",
            LeaseAsk(Key("user", "new"), {}, {f"l{n}": "1/s" for n in range(11)}),
            "11 limits, at most 10",
        ),
    ],
)
async def test_bad_requests_get_a_code_and_a_message(
    served: Served, method: str, asked: LeaseAsk | bytes, text: str
) -> None:
    """As every other method gives them."""
    data = asked if isinstance(asked, bytes) else encode_lease(asked)
    code, details = await served.failure(method, data)
    assert code == "INVALID_ARGUMENT"
    assert text in details
    assert await on_record(served.store, "user") == {}
    assert served.metrics.request_errors.of("service_error").value == 1


async def test_leases_are_counted(served: Served) -> None:
    """By method, by what came of them, and what was given back."""
    assert decode_leased(await served.begin("Take", ask(rpm=6))) == recorded(rpm=6_000)
    assert isinstance(decode_leased(await served.begin("Take", ask(rpm=6))), Refused)
    await served.begin("Settle", ask(rpm=-4, tpm=7))
    assert decode_leased(await served.begin("Balances", ask())) == {"rpm": 8_000, "tpm": 93_000}
    metrics = served.metrics
    assert metrics.decisions.of("leases", "ok").value == 1
    assert metrics.decisions.of("leases", "over_limit").value == 1
    assert metrics.refunds.value == 4
    metrics.families()
    calls = {name: metrics.requests.of(name).value for name in ("Take", "Settle", "Balances")}
    assert calls == {"Take": 2, "Settle": 1, "Balances": 1}


async def test_decisions_are_counted_under_the_domain_that_a_client_names(served: Served) -> None:
    """If the rules have it. Domains that clients make up share one name, so that they can't fill
    the metrics."""

    async def take(domain: str, amount: int) -> None:
        async with (
            penstock.connect(served.address, timeout_s=PATIENCE_S, domain=domain) as gate,
            gate.acquire("user", "gpt-4", rpm=amount),
        ):
            pass

    for domain in ("llm", "leases", *[f"made-up-{number}" for number in range(3)]):
        await take(domain, 1)
    with pytest.raises(penstock.RateLimited):
        await take("llm", 6)
    # An earlier client names no domain.
    bare = LeaseAsk(USER, {"rpm": MILLI}, domain="")
    await served.begin("Take", encode_lease(bare))
    counted = {labels: value.value for labels, value in served.metrics.decisions.series()}
    assert counted == {
        ("llm", "ok"): 1, ("llm", "over_limit"): 1, ("leases", "ok"): 2, ("unknown", "ok"): 3,
    }  # fmt: skip


async def test_answers_tell_unlimited_limits_and_the_deepest_debts(served: Served) -> None:
    """A debt without a bound may be deeper than the answer can show."""
    limits = {"free": "unlimited", "tpm": "5/day"}
    key = Key("user", "new")
    deep = encode_lease(LeaseAsk(key, {"tpm": MAX_AMOUNT, "free": 5}, limits))
    for _ in range(10):
        assert decode_leased(await served.begin("Settle", deep)) == recorded(tpm=MAX_AMOUNT)
    left = decode_leased(await served.begin("Balances", encode_lease(LeaseAsk(key, {}, limits))))
    assert left == {"free": None, "tpm": -(2**63)}


async def test_a_caller_that_goes_has_no_lease(served: Served) -> None:
    """What its take consumed is given back."""
    served.store.gate = asyncio.Event()
    call = served.begin("Take", ask(rpm=6))
    await served.store.was_asked.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until_told(served)
    served.store.gate.set()
    await served.service.finish()
    assert await on_record(served.store, "user") == {"rpm": 0, "tpm": 0}


async def test_a_caller_whose_time_is_up_has_no_lease(served: Served) -> None:
    """It is told so, and what its take consumes later is given back."""
    served.store.gate = asyncio.Event()
    start = served.service.methods()[f"/{LEASES}/Take"].start
    waiting = start(ask(rpm=6), PlainCall(timeout_s=10))
    assert not isinstance(waiting, bytes)
    assert waiting.within_s == 9
    await served.store.was_asked.wait()
    with pytest.raises(StoreError, match="before the caller's deadline"):
        waiting.expire()
    served.store.gate.set()
    await asyncio.wait([waiting.future])
    await served.service.finish()
    assert await on_record(served.store, "user") == {"rpm": 0, "tpm": 0}
    assert served.metrics.store_errors.of("deadline").value == 1


async def test_a_settlement_is_made_although_its_caller_goes(served: Served) -> None:
    """It tells of what was used."""
    served.store.gate = asyncio.Event()
    call = served.begin("Settle", ask(rpm=6))
    await served.store.was_asked.wait()
    call.cancel()
    await until_told(served)
    served.store.gate.set()
    await served.service.finish()
    assert await on_record(served.store, "user") == {"rpm": 6_000, "tpm": 0}


async def until_told(served: Served) -> None:
    """Wait until the server has noticed that its caller is gone."""
    cancelled = served.metrics.request_errors.of("cancelled")
    async with asyncio.timeout(PATIENCE_S):
        while not cancelled.value:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)


async def test_too_many_leases_at_once_are_turned_away(served: Served) -> None:
    """Settlements may be as many again, and are turned away later."""
    served.store.gate = asyncio.Event()
    waiting = [served.begin("Take", ask(rpm=1)) for _ in range(MAX_CALLS)]
    for _ in waiting:
        await served.store.asked.acquire()
    code, details = await served.failure("Take", ask(rpm=1))
    assert (code, details) == (
        "UNAVAILABLE",
        "3 leases are under way, and PENSTOCK_MAX_CALLS admits no more",
    )
    waiting += [served.begin("Settle", ask(rpm=1)) for _ in range(MAX_CALLS)]
    for _ in range(MAX_CALLS):
        await served.store.asked.acquire()
    assert (await served.failure("Settle", ask(rpm=1)))[0] == "UNAVAILABLE"
    served.store.gate.set()
    for call in waiting:
        assert decode_leased(await call) == recorded(rpm=1_000)
    assert decode_leased(await served.begin("Take", ask(rpm=1))) == recorded(rpm=1_000)
    assert served.metrics.overload.value == 2


async def test_servers_that_allow_grant_leases_without_the_store(make_server: MakeServer) -> None:
    """If the store fails, is too slow, or there are too many calls: with nothing on record."""
    served = Served(make_server, Options(on_unavailable="allow"))
    await served.start()
    try:
        served.store.error = StoreError("away")
        assert decode_leased(await served.begin("Take", ask(rpm=1))) == recorded()
        assert (await served.failure("Settle", ask(rpm=1)))[0] == "UNAVAILABLE"
        served.store.error, served.store.gate = None, asyncio.Event()
        served.store.asked = asyncio.Semaphore(0)
        waiting = [served.begin("Take", ask(rpm=1)) for _ in range(MAX_CALLS)]
        for _ in waiting:
            await served.store.asked.acquire()
        assert decode_leased(await served.begin("Take", ask(rpm=1))) == recorded()
        served.store.gate.set()
        assert [decode_leased(await call) for call in waiting] == [recorded(rpm=1_000)] * MAX_CALLS
        assert served.metrics.blind_answers.of("allow").value == 2
        assert await on_record(served.store, "user") == {"rpm": MAX_CALLS * 1_000, "tpm": 0}
    finally:
        await served.stop()
