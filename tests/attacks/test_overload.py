"""More calls at once than can be decided: the rest is answered as configured, and counted."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import grpc
import pytest
from penstock.core.request import Descriptor, Request
from penstock.core.take import Take, Taken
from penstock.errors import OverloadError
from penstock.service.answer import OnUnavailable, Options
from penstock.service.limiter import Limiter
from penstock.telemetry.metrics import Metrics
from penstock.transport.codec import decode_response, encode_request
from penstock.transport.rls import RateLimitService

from tests.attacks.calls import ALONE, PATH, RULES
from tests.support.metrics import read, read_text, sample
from tests.support.processes import penstock
from tests.support.stores import AwaitedStore
from tests.support.web import get
from tests.unit.transport.conftest import NOW, rules

CALLS = 1_500
OVERLOAD = sample("penstock_overload_total")


def ask(value: str, hits: int | None = None) -> bytes:
    return encode_request(Request("d", (Descriptor((("many", value),), hits),)))


class Slow(AwaitedStore):
    """Answers once it is let go, and counts what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self._asking = asyncio.Semaphore(0)
        self.let_go = asyncio.Event()

    async def was_asked(self, times: int) -> None:
        for _ in range(times):
            await self._asking.acquire()

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        self.asked += 1
        self._asking.release()
        await self.let_go.wait()
        return await super().take(takes, now_ms)


@pytest.mark.parametrize(
    ("on_unavailable", "outcome"), [("error", "error"), ("allow", "OK"), ("deny", "OVER_LIMIT")]
)
async def test_calls_above_the_bound_are_answered_at_once(
    on_unavailable: OnUnavailable, outcome: str
) -> None:
    """As configured, while those that were admitted still wait for the store."""
    store, metrics = Slow(), Metrics()
    limiter = Limiter(store, Options(on_unavailable=on_unavailable), lambda: NOW, metrics=metrics)
    limiter.use(rules())
    service = RateLimitService(limiter, metrics, max_calls=3)
    told: set[str] = set()

    async def outcome_of(data: bytes) -> str:
        try:
            return str(decode_response(await service.should_rate_limit(data))["overall_code"])
        except OverloadError as exc:
            told.add(str(exc))
            return "error"

    admitted = [asyncio.create_task(outcome_of(ask("bob"))) for _ in range(3)]
    await store.was_asked(3)
    assert [await outcome_of(ask("bob")) for _ in range(5)] == [outcome] * 5
    assert (store.asked, read(metrics)[OVERLOAD]) == (3, 5)
    assert told <= {"3 calls are under way, and PENSTOCK_MAX_CALLS admits no more"}
    store.let_go.set()
    assert await asyncio.gather(*admitted) == ["OK"] * 3
    assert await outcome_of(ask("bob")) == "OK"
    assert read(metrics)[OVERLOAD] == 5


async def test_reports_have_as_much_room_again() -> None:
    """They tell of what was used already. Those that are lost after all are counted as that."""
    store, metrics = Slow(), Metrics()
    limiter = Limiter(store, Options(), lambda: NOW, metrics=metrics)
    limiter.use(rules())
    service = RateLimitService(limiter, metrics, max_calls=2)

    def begin(data: bytes) -> "asyncio.Task[bytes]":
        return asyncio.create_task(service.should_rate_limit(data))

    admitted = [begin(ask("bob")) for _ in range(2)] + [begin(ask("bob", 7)) for _ in range(2)]
    await store.was_asked(4)
    with pytest.raises(OverloadError):
        await service.should_rate_limit(ask("bob", 7))
    assert read(metrics)[sample("penstock_store_not_landed_total")] == 1
    store.let_go.set()
    await asyncio.gather(*admitted)
    status = decode_response(await service.should_rate_limit(ask("bob", 0)))["statuses"][0]
    assert status["limit_remaining"] == 1_000_000 - 2 - 14


async def test_every_one_of_many_calls_at_once_is_seen_and_counted(
    transport: str, tmp_path: Path
) -> None:
    """None is cancelled on the way in, and what is not admitted gets the configured answer."""
    flags = ("--max-calls", "16", "--on-unavailable", "deny")
    with penstock(tmp_path, "--transport", transport, *flags, rules=RULES) as server:
        async with grpc.aio.insecure_channel(server.address, options=ALONE) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)

            async def code(number: int) -> str:
                answer = await method(ask(str(number)), timeout=100)
                return str(decode_response(answer)["overall_code"])

            outcomes = Counter(await asyncio.gather(*map(code, range(CALLS))))
        page = read_text(get(server.http, "/metrics").text)
        assert outcomes["OVER_LIMIT"] == page[OVERLOAD]
        assert outcomes["OK"] == page[sample("penstock_decisions_total", domain="d", code="ok")]
        assert outcomes.total() == CALLS
        assert set(outcomes) <= {"OK", "OVER_LIMIT"}
