"""What is counted of decisions: as the reference server does, and never without a bound."""

import asyncio
import struct
from collections.abc import Sequence
from math import floor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from penstock.config.rules import RulesSource
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.limits import UINT32_MAX, Limit, Unit
from penstock.core.plan import Behaviour
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rules import Children, Domain, Node, Rule, Rules
from penstock.core.take import Take, Taken
from penstock.errors import PenstockError, StoreError
from penstock.service import counting
from penstock.service.answer import OnUnavailable, Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change
from penstock.telemetry.hits import MAX_DETAILED
from penstock.telemetry.metrics import Metrics
from penstock.transport.codec import encode_request
from penstock.transport.rls import RateLimitService

from tests.support.metrics import Samples, changed, read, sample
from tests.support.stores import AwaitedStore

NOW = 1_794_792_780_000
MINUTE = 60_000
PREFIX = "ratelimit_service_rate_limit_"
METERED = """
domain: d
entities:
  - {keys: [api_key], entity: "{api_key}", resource: llm, consume: {rpm: 1, tpm: hits}}
"""


def rules(*nodes: Node, name: str = "d") -> Rules:
    return {name: Domain(name, Children(nodes))}


def node(key: str, tokens: int = 10, *, shadow: bool = False, shown: bool = False) -> Node:
    rule = Rule(f"d.{key}", (Limit.per(tokens, MINUTE),), shadow_mode=shadow)
    return Node(key, rule=rule, value_to_metric=shown)


def on(*keys: str, hits: int = 0, domain: str = "d") -> Request:
    return Request(domain, tuple(Descriptor(((key, "v"),)) for key in keys), hits)


def stored(entity: str, *limit: str, hits: int | None = None) -> Request:
    entries = (("entity", entity), ("resource", "r"), *(("limit", name) for name in limit))
    return Request("d", (Descriptor(entries, hits),))


class Counted:
    """A limiter on a store of its own, whose time stands still, and what it counts."""

    def __init__(
        self, used: Rules, options: Options | None = None, store: MemoryStore | None = None
    ) -> None:
        self.metrics = Metrics()
        self.store = store or MemoryStore()
        policies = Policies(self.store.policy, MINUTE, lambda: NOW)
        options = options or Options()
        self.limiter = Limiter(self.store, options, lambda: NOW, policies, self.metrics)
        self.limiter.use(used)

    async def ask(self, *requests: Request) -> Samples:
        """What is counted of requests."""
        before = read(self.metrics)
        for request in requests:
            await self.limiter.answer(self.limiter.prepare(request))
        return changed(before, read(self.metrics))


def hits(key1: str = "user", key2: str = "", **counts: int) -> Samples:
    """The hits of a rule."""
    labels = {"domain": "d", "key1": key1} | ({"key2": key2} if key2 else {})
    return {sample(PREFIX + name, **labels): value for name, value in counts.items()}


def decided(*, ok: int = 0, over_limit: int = 0, domain: str = "d") -> Samples:
    """Decisions."""
    counts = {"ok": ok, "over_limit": over_limit}
    return {
        sample("penstock_decisions_total", domain=domain, code=code): count
        for code, count in counts.items()
        if count
    }


async def test_hits_are_counted_as_the_reference_server_does() -> None:
    """Of ten, with a ratio of 0.8, the ninth and tenth come near; a denial counts whole."""
    counted = Counted(rules(node("user")))
    assert await counted.ask(*[on("user")] * 8) == {
        **hits(total_hits=8, within_limit=8),
        **decided(ok=8),
    }
    assert await counted.ask(*[on("user")] * 2) == {
        **hits(total_hits=2, within_limit=2, near_limit=2),
        **decided(ok=2),
    }
    assert await counted.ask(on("user"), on("user", hits=4)) == {
        **hits(total_hits=5, over_limit=5),
        **decided(over_limit=2),
    }


def float32(number: float) -> float:
    """As the reference server counts here."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


@given(
    st.integers(1, 100),
    st.sampled_from([0.0, 0.5, 0.57, 0.8, 0.9, 1.0]),
    st.lists(st.integers(1, 30), max_size=12),
)
@example(100, 0.57, [30, 27, 1])
async def test_near_the_limit_is_where_the_reference_server_says(
    tokens: int, ratio: float, amounts: list[int]
) -> None:
    """By its arithmetic on a window, which a bucket is while no time passes."""
    counted = Counted(rules(node("user", tokens)), Options(near_limit_ratio=ratio))
    threshold = floor(float32(tokens * float32(ratio)))
    used = near = over = 0
    for amount in amounts:
        if used + amount > tokens:
            over += amount
        else:
            near += max(used + amount - max(used, threshold), 0)
            used += amount
    found = await counted.ask(*[on("user", hits=amount) for amount in amounts])
    expected = hits(total_hits=used + over, within_limit=used, near_limit=near, over_limit=over)
    assert {key: found.get(key, 0) for key in expected} == expected


async def test_a_shadow_rule_counts_what_it_would_have_denied() -> None:
    """As over the limit, and as in shadow mode; the decision is OK."""
    counted = Counted(rules(node("user", 1, shadow=True)))
    assert await counted.ask(on("user"), on("user", hits=3)) == {
        **hits(total_hits=4, within_limit=1, near_limit=1, over_limit=3, shadow_mode=3),
        **decided(ok=2),
    }


async def test_a_server_in_shadow_mode_counts_whom_it_let_pass() -> None:
    """The rule counts as it does without; the decision is OK."""
    counted = Counted(rules(node("user", 1)), Options(Behaviour(shadow_mode=True)))
    assert await counted.ask(on("user"), on("user"), on("user")) == {
        **hits(total_hits=3, within_limit=1, near_limit=1, over_limit=2),
        **decided(ok=3),
        sample("ratelimit_service_global_shadow_mode"): 2,
    }


async def test_each_descriptor_is_counted_for_its_rule() -> None:
    """Also those that did not deny a request which another one denied."""
    counted = Counted(rules(node("user"), node("zero", 0), node("more")))
    request = on("user", "nothing", "zero", "user", "more")
    assert await counted.ask(request) == {
        **hits("user", total_hits=2, within_limit=2),
        **hits("zero", total_hits=1, over_limit=1),
        **hits("more", total_hits=1, within_limit=1),
        **decided(over_limit=1),
    }


async def test_what_has_no_limit_is_counted_as_a_decision_alone() -> None:
    """Unlimited, unmatched, replaced: as the reference server, nothing was hit."""
    free = Node("free", rule=Rule("d.free", (), replaces=frozenset({"n"})))
    named = Node("named", rule=Rule("d.named", (Limit.per(1, MINUTE, name="n"),)))
    counted = Counted(rules(free, named))
    assert await counted.ask(on("free", "nothing", "named")) == decided(ok=1)


async def test_a_check_hits_nothing() -> None:
    """It is a decision all the same, also over a debt."""
    counted = Counted(rules(node("user", 2)))
    check = Request("d", (Descriptor((("user", "v"),), 0),))
    charge = Request("d", (Descriptor((("user", "v"),), 3),))
    assert await counted.ask(check) == decided(ok=1)
    assert await counted.ask(charge) == {
        **hits(total_hits=3, over_limit=3),
        **decided(over_limit=1),
    }
    assert await counted.ask(check) == decided(over_limit=1)


async def test_refunds_are_counted_apart() -> None:
    """They are no hits."""
    counted = Counted(rules(node("user")))
    back = Descriptor((("user", "v"),), 3, refund=True)
    assert await counted.ask(Request("d", (back, Descriptor((("user", "w"),))))) == {
        **hits(total_hits=1, within_limit=1),
        **decided(ok=1),
        sample("penstock_refunded_hits_total"): 3,
    }


async def test_of_several_limits_the_one_that_decides_counts() -> None:
    """A hit that is near one of them is near."""
    limits = (Limit.per(100, MINUTE, name="many"), Limit.per(2, MINUTE, name="few"))
    counted = Counted(rules(Node("user", rule=Rule("d.user", limits))))
    assert await counted.ask(*[on("user")] * 3) == {
        **hits(total_hits=3, within_limit=2, near_limit=1, over_limit=1),
        **decided(ok=2, over_limit=1),
    }


async def test_of_several_amounts_the_one_that_decides_counts(tmp_path: Path) -> None:
    """Of 1,000 tokens 150 are left, which is near; of 10 requests 9, which is not."""
    file = tmp_path / "rules.yaml"
    file.write_text(METERED)
    counted = Counted(RulesSource(file).load().rules)
    change, policy = Change("test", NOW), counted.store.policy
    limits = (Limit.per(10, MINUTE, name="rpm"), Limit.per(1_000, MINUTE, name="tpm"))
    await policy.write_entity(Entity("bob"), change)
    await policy.write_limits(Scope("bob"), StoredLimits(limits, 0), change)
    request = Request("d", (Descriptor((("api_key", "bob"),)),), 850)
    assert await counted.ask(request) == {
        **hits("api_key", total_hits=850, within_limit=850, near_limit=50),
        **decided(ok=1),
    }


@pytest.mark.parametrize(("left", "near"), [(UINT32_MAX + 9, 0), (UINT32_MAX, 0), (9, 1)])
async def test_a_huge_limit_is_not_near_before_it_is(left: int, near: int) -> None:
    """What remains is cut to what the wire can carry."""
    tokens = 100 * UINT32_MAX
    counted = Counted(rules(node("user", tokens)), Options(near_limit_ratio=0.5))
    await counted.ask(on("user", hits=tokens - left - 1))
    found = await counted.ask(on("user"))
    assert found.get(sample(f"{PREFIX}near_limit", domain="d", key1="user"), 0) == near


# What clients choose is no label.


async def test_an_override_is_counted_under_one_name() -> None:
    """Whatever keys and values come with it."""
    counted = Counted(rules(node("user")))
    override = Override(1, Unit.HOUR)
    for entries in ((("user", "v"),), (("made-up", "x"), ("y", "z"))):
        request = Request("d", (Descriptor(entries, override=override),))
        assert await counted.ask(request, request) == {
            **hits("override", total_hits=2, within_limit=1, near_limit=1, over_limit=1),
            **decided(ok=1, over_limit=1),
        }


async def test_unknown_domains_are_one() -> None:
    """Nobody can make a label of a domain that has no rules."""
    counted = Counted(rules(node("user")))
    requests = [on("user", domain=f"made-up-{number}") for number in range(10)]
    assert await counted.ask(*requests) == decided(ok=10, domain="unknown")


async def test_stored_limits_are_counted_by_the_keys_of_the_descriptor() -> None:
    """Not by entity, nor resource, nor a limit that a client names."""
    counted = Counted(rules(node("user")))
    change, policy = Change("test", NOW), counted.store.policy
    limits = (Limit.per(2, MINUTE, name="rpm"),)
    for name in ("bob", "eve"):
        await policy.write_entity(Entity(name), change)
        await policy.write_limits(Scope(name), StoredLimits(limits, 0), change)
    asked = [stored("bob"), stored("bob"), stored("bob"), stored("eve")]
    assert await counted.ask(*asked, stored("nobody")) == {
        **hits("entity", "resource", total_hits=4, within_limit=3, near_limit=1, over_limit=1),
        **decided(ok=4, over_limit=1),
    }
    assert await counted.ask(stored("eve", "rpm"), stored("eve", "typo")) == {
        **hits("entity", "resource", total_hits=1, within_limit=1, near_limit=1),
        **decided(ok=2),
        sample("penstock_missing_limits_total"): 1,
    }


async def test_the_number_of_series_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three thousand clients with values, keys, domains and amounts of their own."""
    monkeypatch.setattr(counting, "MAX_SHARED", 10)
    counted = Counted(rules(node("user"), node("shown", shown=True)))
    for number in range(MAX_DETAILED):
        await counted.limiter.answer(counted.limiter.prepare(_by(f"first-{number}", number)))
    before = read(counted.metrics)
    for number in range(3_000):
        await counted.limiter.answer(counted.limiter.prepare(_by(f"value-{number}", number)))
    after = read(counted.metrics)
    assert after.keys() == before.keys()
    total = sample(f"{PREFIX}total_hits", domain="d", key1="shown")
    assert after[total] - before[total] == sum(max(1, number) for number in range(3_000))


def _by(value: str, hits: int) -> Request:
    entries = [("user", value), ("shown", value), (value, value)]
    descriptors = [Descriptor((entry,)) for entry in entries]
    override = Descriptor(((value, value),), override=Override(1, Unit.DAY))
    return Request("d", (*descriptors, override, *stored(value).descriptors), hits)


# Rules.


async def test_limits_are_shown_until_they_are_gone() -> None:
    """What they let through in the long run, and at once; counters stay when rules change."""
    limits = (Limit.per(30, MINUTE, burst=50, name="slow"), Limit.per(2, 1_000, name="fast"))
    nested = Node("top", "t", children=Children([Node("leaf", rule=Rule("d.top_t.leaf", limits))]))
    counted = Counted(rules(nested, node("user")))
    await counted.ask(on("user"))
    assert _limits(counted) == {
        ("user", ""): (10 / 60, 10),
        ("top_t.leaf", "slow"): (0.5, 50),
        ("top_t.leaf", "fast"): (2, 2),
    }
    counted.limiter.use({**rules(node("user", 20), name="other"), **rules(node("more"))})
    assert _limits(counted) == {("user", ""): (20 / 60, 20), ("more", ""): (10 / 60, 10)}
    assert read(counted.metrics)[sample(f"{PREFIX}total_hits", domain="d", key1="user")] == 1


def _limits(counted: Counted) -> dict[tuple[str, str], tuple[float, float]]:
    found = read(counted.metrics)
    rate, burst = "penstock_limit_requests_per_second", "penstock_limit_burst"
    return {
        (dict(key.labels)["rule"], dict(key.labels).get("limit", "")): (
            value,
            found[key._replace(name=burst)],
        )
        for key, value in found.items()
        if key.name == rate
    }


async def test_rules_of_the_same_path_are_counted_apart() -> None:
    """A dot in a domain's name or a key makes their paths alike."""
    limits = (Limit.per(5, MINUTE),)
    used = {
        "a": Domain("a", Children([Node("b.c", rule=Rule("a.b.c", limits))])),
        "a.b": Domain("a.b", Children([Node("c", rule=Rule("a.b.c", limits))])),
    }
    counted = Counted(used)
    found = await counted.ask(on("b.c", domain="a"), on("c", domain="a.b"), on("c", domain="a.b"))
    assert found[sample(f"{PREFIX}total_hits", domain="a", key1="b.c")] == 1
    assert found[sample(f"{PREFIX}total_hits", domain="a.b", key1="c")] == 2


async def test_every_rule_is_there_before_its_first_hit() -> None:
    """So that a rate can be told from the first one."""
    found = read(Counted(rules(node("user"))).metrics)
    for name in ("total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"):
        assert found[sample(PREFIX + name, domain="d", key1="user")] == 0


class WaitingStore(AwaitedStore):
    """Takes once it is told to, as a store that is busy."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        self.asked.set()
        await self.goes_on.wait()
        return await super().take(takes, now_ms)


async def test_a_decision_is_counted_by_the_limits_that_made_it() -> None:
    """Another call of the same request may find other limits, while this one is under way."""
    store, change = WaitingStore(), Change("test", NOW)
    counted = Counted(rules(), store=store)
    policies = Policies(store.policy, -1, lambda: NOW)
    counted.limiter = Limiter(store, Options(), lambda: NOW, policies, counted.metrics)
    counted.limiter.use(rules())
    limits = StoredLimits((Limit.per(10, MINUTE, name="rpm"),), 0)
    await store.policy.write_limits(Scope("bob"), limits, change)
    before, prepared = read(counted.metrics), counted.limiter.prepare(stored("bob"))
    first = asyncio.create_task(counted.limiter.answer(prepared))
    await store.asked.wait()
    await store.policy.delete_limits(Scope("bob"), change)
    assert (await counted.limiter.answer(prepared)).decision.statuses[0].limit is None
    store.goes_on.set()
    assert (await first).decision.statuses[0].remaining == 9
    found = changed(before, read(counted.metrics))
    assert found == {**hits("entity", "resource", total_hits=1, within_limit=1), **decided(ok=2)}


# Errors.


class BrokenStore(AwaitedStore):
    """Cannot take, as one whose machine is gone or that has a fault."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        raise self._error if takes else AssertionError(now_ms)


@pytest.mark.parametrize(
    ("request_", "error", "kind"),
    [
        (encode_request(on("user", domain="")), None, "service_error"),
        (encode_request(on()), None, "service_error"),
        (b"\xff", None, "service_error"),
        (encode_request(on("user")), StoreError("gone"), "store_error"),
        (encode_request(on("user")), ZeroDivisionError("a fault"), "internal_error"),
    ],
)
@pytest.mark.parametrize("method", ["ShouldRateLimit", "json"])
async def test_errors_are_counted_by_whose_fault_they_are(
    request_: bytes, error: Exception | None, kind: str, method: str
) -> None:
    """The caller's, the store's, or ours; each is a request that took its time."""
    counted = Counted(rules(node("user")), store=BrokenStore(error) if error else None)
    service = RateLimitService(counted.limiter, counted.metrics)
    before = read(counted.metrics)
    with pytest.raises((PenstockError, ZeroDivisionError)):
        await service.should_rate_limit(request_, method=method)
    found = changed(before, read(counted.metrics))
    assert found[sample("ratelimit_service_should_rate_limit_error", err_type=kind)] == 1
    assert found[sample("ratelimit_service_total_requests", grpc_method=method)] == 1
    name = "ratelimit_service_response_time_seconds_count"
    assert found[sample(name, grpc_method=method)] == 1
    assert not [key for key in found if key.name.startswith((PREFIX, "penstock_decisions"))]


async def test_requests_are_counted_by_how_they_came_in() -> None:
    """With their times."""
    counted = Counted(rules(node("user")))
    service = RateLimitService(counted.limiter, counted.metrics)
    for method in ("ShouldRateLimit", "json", "json"):
        await service.should_rate_limit(encode_request(on("user")), method=method)
    found = read(counted.metrics)
    for method, times in (("ShouldRateLimit", 1), ("json", 2)):
        assert found[sample("ratelimit_service_total_requests", grpc_method=method)] == times
        name = "ratelimit_service_response_time_seconds"
        assert found[sample(f"{name}_bucket", grpc_method=method, le="+Inf")] == times
        assert 0 < found[sample(f"{name}_sum", grpc_method=method)] < 10
    assert found[sample("penstock_decisions_total", domain="d", code="ok")] == 3


@pytest.mark.parametrize("answer", ["allow", "deny"])
async def test_answers_without_the_store_are_counted(answer: OnUnavailable) -> None:
    """And not as decisions: nobody decided."""
    store = BrokenStore(StoreError("gone"))
    counted = Counted(rules(node("user")), Options(on_unavailable=answer), store)
    assert await counted.ask(on("user"), on("user")) == {
        sample("penstock_blind_answers_total", answer=answer): 2
    }
