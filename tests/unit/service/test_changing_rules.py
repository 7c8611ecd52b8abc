"""Other rules come into use in slices, while calls come between them."""

import re
from collections.abc import Iterator

from penstock.core.limits import Limit
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule, Rules
from penstock.service.answer import Options
from penstock.service.counting import RULES_A_SLICE
from penstock.service.limiter import Limiter
from penstock.service.metering import METERS_A_SLICE
from penstock.service.prepared import KEPT
from penstock.slices import FREED
from penstock.store.memory import MemoryStore
from penstock.telemetry.exposition import prometheus_pieces
from penstock.telemetry.metrics import Metrics

from tests.support.metrics import read, sample

NOW = 1_794_792_780_000
COUNT = 3_000


def rules(tokens: int, count: int = COUNT) -> Rules:
    limits = (Limit.per(tokens, 60_000),)
    nodes = [Node("user", f"u{n}", Rule(f"d.user_u{n}", limits)) for n in range(count)]
    return {"d": Domain("d", Children(nodes))}


def limiter(metrics: Metrics | None = None) -> Limiter:
    made = Limiter(MemoryStore(), Options(), lambda: NOW, metrics=metrics)
    made.use(rules(5))
    return made


def two() -> Request:
    """The first rule and the last."""
    return Request("d", tuple(Descriptor((("user", f"u{n}"),)) for n in (0, COUNT - 1)))


async def seen(asked: Limiter) -> set[int]:
    """What the rules of two calls allow: one that is known already, and a new one."""
    known = await asked.answer(asked.find(b"two", lambda _: two()))
    new = await asked.answer(asked.prepare(two()))
    statuses = [*known.decision.statuses, *new.decision.statuses]
    return {status.limit.requests_per_unit for status in statuses if status.limit is not None}


async def test_each_call_is_decided_by_the_old_rules_or_by_the_new_ones() -> None:
    """Never by some of both, and never by old ones once new ones were used."""
    asked = limiter(Metrics())
    found = [await seen(asked) for _ in asked.use_in_slices(rules(7))]
    assert await seen(asked) == {7}
    assert found == sorted(found, key=lambda one: one != {5})
    assert {frozenset(one) for one in found} <= {frozenset({5}), frozenset({7})}


def test_a_slice_is_short() -> None:
    """However many rules there are."""
    visited = 0

    class Counted(Domain):
        def rule_nodes(self) -> Iterator[tuple[Node, ...]]:
            nonlocal visited
            for nodes in super().rule_nodes():
                visited += 1
                yield nodes

    asked, before = limiter(Metrics()), 0
    new = {"d": Counted("d", rules(7)["d"].children)}
    for _ in asked.use_in_slices(new):
        assert visited - before <= max(RULES_A_SLICE, METERS_A_SLICE)
        before = visited
    assert visited == 2 * COUNT  # once to show the rules, once to know when they were loaded


def test_what_was_prepared_is_freed_in_slices() -> None:
    """At once it would hold up answers: there may be thousands."""
    asked = limiter()

    def decode(data: bytes) -> Request:
        return Request("d", (Descriptor((("user", data.decode()),)),))

    for number in range(KEPT):
        asked.find(f"u{number}".encode(), decode)
    assert sum(1 for _ in asked.use_in_slices(rules(7))) >= KEPT / FREED


async def test_limits_are_shown_as_they_are_until_new_ones_are_ready() -> None:
    """A scrape between two slices sees all old gauges, or all new ones."""
    metrics = Metrics()
    asked = limiter(metrics)
    name = "penstock_limit_burst"
    found = []
    for number, _ in enumerate(asked.use_in_slices(rules(7, 200))):
        if number % 5 == 0:
            page = "".join(prometheus_pieces(metrics.families()))
            found.append(re.findall(rf"^{name}{{.*}} (\d+)$", page, re.MULTILINE))
    assert found[0] == ["5"] * COUNT
    assert all(values in (["5"] * COUNT, ["7"] * 200) for values in found)
    last = read(metrics)
    assert last[sample(name, domain="d", rule="user_u199")] == 7
    assert sample(name, domain="d", rule="user_u200") not in last


def test_a_limiter_without_metrics_shows_no_rules() -> None:
    """The one that only peeks: nobody reads its metrics."""
    shown, hidden = (limiter(metrics).use_in_slices(rules(7)) for metrics in (Metrics(), None))
    assert sum(1 for _ in hidden) < sum(1 for _ in shown) / 2
