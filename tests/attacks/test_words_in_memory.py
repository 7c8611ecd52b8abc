"""What clients send stays out of memory: thousands of long values leave a few megabytes behind.

In this process, to measure what is kept: a service as the server builds it, on a real store.
"""

import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from penstock.config.rules import RulesSource
from penstock.core.decision import Decision, Status
from penstock.core.entities import Scope, StoredLimits
from penstock.core.foreign_text import MAX_SHOWN
from penstock.core.limits import Limit, Unit
from penstock.core.request import Descriptor, Entries, Override, Request
from penstock.errors import StoreError
from penstock.service.answer import Answer, Options
from penstock.service.limiter import Limiter
from penstock.service.missing import MAX_WARNED
from penstock.service.policies import Policies
from penstock.service.prepared import KEPT_BYTES
from penstock.store.open import open_store, open_table
from penstock.store.policy_port import Change
from penstock.telemetry.exposition import prometheus_pieces, stats_pieces
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.repeats import MAX_KEPT, Repeats
from penstock.transport.codec import encode_answer, encode_request
from penstock.transport.rls import RateLimitService

NOW = 1_794_792_780_000
COUNT = 150
LENGTH = 160_000
"""24 megabytes and more in all, were they kept. To trace allocations takes time for each request,
and little more for a long one."""

SMALL_COUNT = 600

MOST_BYTES = 6 * 2**20

RULES = """\
domain: d
descriptors:
  - {key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: path, value: "/a*", value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
entities:
  - {keys: [api_key, model], entity: "{api_key}", resource: "{model}"}
"""


def long(number: int) -> str:
    """A value of its own for each number, which differs at both ends and is not ASCII."""
    return f"{number:05}é{'v' * LENGTH}{number:05}"


ATTACKS: dict[str, Callable[[int], tuple[Entries, Override | None]]] = {
    "limit": lambda n: ((("entity", "bob"), ("resource", "gpt-4"), ("limit", long(n))), None),
    "entity": lambda n: ((("entity", long(n)), ("resource", "gpt-4")), None),
    "resource": lambda n: ((("entity", "bob"), ("resource", long(n))), None),
    "mapped": lambda n: ((("api_key", long(n)), ("model", long(n))), None),
    "rule": lambda n: ((("user", long(n)),), None),
    "wildcard": lambda n: ((("path", f"/a{long(n)}"),), None),
    "key": lambda n: (((long(n), "x"),), None),
    "override": lambda n: (((long(n), long(n)),), Override(5, Unit.DAY)),
}


@asynccontextmanager
async def serving(url: str, rules: Path, metrics: Metrics) -> AsyncIterator[RateLimitService]:
    store = await open_store(url, metrics)
    try:
        limits = StoredLimits((Limit.per(5, 60_000, name="rpm"),), 0)
        await store.policy.write_limits(Scope(None, "gpt-4"), limits, Change("test", NOW))
        policies = Policies(store.policy, 60_000, lambda: NOW)
        limiter = Limiter(store, Options(dynamic_metadata=True), lambda: NOW, policies, metrics)
        limiter.use(RulesSource(rules).load().rules)
        yield RateLimitService(limiter, metrics)
    finally:
        await store.close()


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


class Kept:
    """How many bytes are kept of what a block does."""

    def __enter__(self) -> "Kept":
        tracemalloc.start()
        gc.collect()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        gc.collect()
        self.bytes = tracemalloc.get_traced_memory()[0] - self._before
        tracemalloc.stop()


async def attack(url: str, rules: Path, kind: str, count: int) -> int:
    """Send requests with long values; gives the bytes that are kept of them."""
    metrics = Metrics()
    async with serving(url, rules, metrics) as service:
        with Kept() as kept:
            for number in range(count):
                entries, override = ATTACKS[kind](number)
                request = Request("d", (Descriptor(entries, override=override),))
                assert await service.should_rate_limit(encode_request(request))
                if number % 50 == 0:  # a scrape now and then
                    assert "".join(prometheus_pieces(metrics.families()))
                    assert "".join(stats_pieces(metrics.families()))
    return kept.bytes


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_long_values_are_not_kept(tmp_path: Path, rules: Path, store: str, kind: str) -> None:
    """Neither by the limiter, nor by caches, stores, metrics or the log."""
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/s.db"}[store]
    assert await attack(url, rules, kind, COUNT) < MOST_BYTES


@pytest.mark.parametrize("kind", ["limit", "mapped", "rule"])
async def test_long_values_are_not_kept_on_dynamodb(
    dynamodb_url: str, rules: Path, kind: str
) -> None:
    """Nor by its hints, denials and lanes."""
    url = f"dynamodb://words-{uuid4().hex}?region=eu-west-1&endpoint={dynamodb_url}"
    admin = open_table(url)
    await admin.create("test", lambda _what, _since_s: None)
    assert await attack(url, rules, kind, COUNT // 4) < MOST_BYTES / 2
    await admin.delete(lambda _what, _since_s: None)


async def test_missing_limits_are_kept_as_they_are_shown(
    rules: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A thousand of a megabyte each would be a gigabyte."""
    async with serving("memory:", rules, Metrics()) as service:
        with Kept() as kept:
            for number in range(20):
                limit = f"{number}{'x' * 1_000_000}"
                entries = (("entity", "bob"), ("resource", "gpt-4"), ("limit", limit))
                request = Request("d", (Descriptor(entries),))
                await service.should_rate_limit(encode_request(request))
    assert kept.bytes < 3_000_000  # the last one is still at hand
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 20
    assert max(map(len, messages)) < MAX_SHOWN + 100


async def test_small_requests_with_many_entries_are_not_kept_ready(rules: Path) -> None:
    """An empty entry is two bytes on the wire, and thirty times as much here."""
    async with serving("memory:", rules, Metrics()) as service:
        with Kept() as kept:
            for number in range(SMALL_COUNT):
                # A descriptor with a key, and then 490 entries without anything in them.
                entries = b"\x0a\x06\x0a\x04%04d" % number + b"\x0a\x00" * 490
                small = b"\x0a\x01d\x12" + bytes([len(entries) % 128 + 128, len(entries) // 128])
                small += entries
                assert len(small) <= KEPT_BYTES
                await service.should_rate_limit(small)
    assert kept.bytes < MOST_BYTES


def test_answers_with_long_names_are_not_kept() -> None:
    """Entities and resources, which clients name, stand in the names of limits."""
    with Kept() as kept:
        for number in range(SMALL_COUNT):
            names = [f"{number}{'😀' * 250}/{'é' * 250}/limit-{i}" for i in range(4)]
            limits = [Limit.per(5, 60_000, name=name) for name in names]
            decision = Decision(False, tuple(Status(False, limit, 4) for limit in limits))
            assert encode_answer(Answer(decision))
    assert kept.bytes < MOST_BYTES


def test_long_messages_are_not_kept_to_be_counted() -> None:
    """A library may log whatever it was sent."""
    repeats = Repeats()
    with Kept() as kept:
        for number in range(MAX_KEPT):
            fault = StoreError(f"{number} {'y' * LENGTH}")
            fields = {"name": "grpc", "levelno": logging.ERROR, "levelname": "ERROR"}
            for more in (
                {"msg": f"{number} {'x' * LENGTH}"},
                {"msg": f"{number} %s", "args": ("z" * LENGTH,)},
                {"msg": str(number), "exc_info": (StoreError, fault, None)},
            ):
                assert repeats.filter(logging.makeLogRecord(fields | more))
    assert kept.bytes < MOST_BYTES


def test_so_many_missing_limits_have_a_bound() -> None:
    """Of characters that take four bytes each."""
    assert MAX_WARNED * (MAX_SHOWN + 30) * 4 < MOST_BYTES
