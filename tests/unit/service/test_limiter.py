"""The limiter: what it checks, what it adds, and what it does when the store fails."""

import asyncio
from collections.abc import Sequence

import pytest
from penstock.core.bucket import Item
from penstock.core.decide import MAX_RESET_S
from penstock.core.decision import Decision, Status
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.keys import rule_key
from penstock.core.limits import Limit, Unit
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule, Rules
from penstock.core.take import Key, Take, Taken
from penstock.errors import RequestError, StoreError
from penstock.service.answer import Answer, OnUnavailable, Options
from penstock.service.headers import HeaderNames, limit_headers
from penstock.service.limiter import Limiter
from penstock.service.peeking import ReadOnlyBuckets
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change
from penstock.store.port import BucketStore
from penstock.telemetry.metrics import Metrics

from tests.support.processes import PATIENCE_S
from tests.support.stores import AwaitedStore

NOW = 1_794_792_780_000
FIVE = Limit.per(5, 60_000)


def rules(tokens: int = 5) -> Rules:
    limit = Limit.per(tokens, 60_000)
    nodes = [
        Node("user", rule=Rule("d.user", (limit,), metadata={"tier": "a", "m": {"x": 1}})),
        Node("zero", rule=Rule("d.zero", (Limit.per(0, 60_000),), metadata={"zero": True})),
        Node("more", rule=Rule("d.more", (limit,), metadata={"tier": "b", "m": {"x": 2, "y": 3}})),
        Node("free", rule=Rule("d.free", (), metadata={"free": True})),
    ]
    return {"d": Domain("d", Children(nodes))}


def limiter(options: Options | None = None, store: BucketStore | None = None) -> Limiter:
    made = Limiter(store or MemoryStore(), options or Options(), lambda: NOW)
    made.use(rules())
    return made


def on(*keys: str, domain: str = "d") -> Request:
    return Request(domain, tuple(Descriptor(((key, "v"),)) for key in keys))


async def ask(asked: Limiter, *keys: str) -> Answer:
    return await asked.answer(asked.prepare(on(*keys)))


class BrokenStore(AwaitedStore):
    """Cannot answer, as a store whose machine is gone."""

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        raise StoreError(f"no store for {len(takes)} takes at {now_ms}")

    async def read(self, key: Key) -> Item | None:
        raise StoreError(f"no store for {key}")


@pytest.mark.parametrize(
    ("request_", "kind", "text"),
    [
        (on("user", domain=""), RequestError, "rate limit domain must not be empty"),
        (on(), RequestError, "rate limit descriptor list must not be empty"),
    ],
)
def test_what_cannot_be_decided_is_refused(
    request_: Request, kind: type[Exception], text: str
) -> None:
    """With the reference server's words where it has some."""
    with pytest.raises(kind, match=text):
        limiter().prepare(request_)


def test_without_rules_nothing_is_decided() -> None:
    """As the reference server says it."""
    unready = Limiter(MemoryStore(), Options(), lambda: NOW)
    assert not unready.ready
    with pytest.raises(RequestError, match="no rate limit configuration loaded"):
        unready.prepare(on("user"))
    unready.use(rules())
    assert unready.ready


async def test_new_rules_apply_to_the_next_request_and_to_live_buckets() -> None:
    """From five to two, of which one is used already: one is left."""
    asked = limiter()
    await ask(asked, "user")
    asked.use(rules(2))
    answers = [await ask(asked, "user") for _ in range(2)]
    assert [answer.decision.over for answer in answers] == [False, True]


@pytest.mark.parametrize(
    ("on_unavailable", "expected"),
    [
        ("allow", Decision(False, (Status(), Status()))),
        ("deny", Decision(True, (Status(over=True), Status(over=True)))),
    ],
)
async def test_a_store_that_fails_is_answered_as_configured(
    on_unavailable: OnUnavailable, expected: Decision
) -> None:
    """Allow or deny, with a status for each descriptor."""
    asked = limiter(Options(on_unavailable=on_unavailable), BrokenStore())
    assert (await ask(asked, "user", "more")).decision == expected


async def test_a_store_that_fails_is_an_error_by_default() -> None:
    """So that Envoy's failure_mode_deny decides."""
    with pytest.raises(StoreError, match="no store for 1 takes"):
        await ask(limiter(store=BrokenStore()), "user")


class SlowStore(AwaitedStore):
    """Never answers, as one behind a network that swallows packets."""

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        await asyncio.Event().wait()
        return await super().take(takes, now_ms)


async def test_a_store_that_is_too_slow_is_answered_as_configured() -> None:
    """Before the caller's time is over, so that the answer still reaches it."""
    asked = limiter(Options(on_unavailable="deny"), SlowStore())
    prepared = asked.prepare(on("user"))
    async with asyncio.timeout(PATIENCE_S):
        assert (await asked.answer(prepared, timeout_s=0.01)).decision.over
        with pytest.raises(StoreError, match="before the caller's deadline"):
            await limiter(store=SlowStore()).answer(prepared, timeout_s=0.01)


async def test_a_deadline_far_away_changes_nothing() -> None:
    """A store that answers is not waited for."""
    asked = limiter()
    prepared = asked.prepare(on("user"))
    assert await asked.answer(prepared, timeout_s=100) == await limiter().answer(prepared)


async def test_a_request_without_limits_needs_no_store() -> None:
    """Unlimited and unmatched descriptors are answered while it is gone."""
    assert not (await ask(limiter(store=BrokenStore()), "free", "nothing")).decision.over


NAMES = HeaderNames("L", "R", "T")
OTHER = Limit.per(9, 1_000)


@pytest.mark.parametrize(
    ("decision", "headers"),
    [
        (Decision(False, (Status(),)), ()),
        (
            Decision(False, (Status(), Status(False, FIVE, 3, 24), Status(False, OTHER, 8, 1))),
            (("L", "5"), ("R", "3"), ("T", "24")),
        ),
        (
            Decision(True, (Status(False, FIVE, 0, 60), Status(True, OTHER, 0, 1))),
            (("L", "9"), ("R", "0"), ("T", "1"), ("retry-after", "1")),
        ),
        (
            Decision(True, (Status(True, OTHER, 0, 1), Status(True, FIVE, 0, 12))),
            (("L", "5"), ("R", "0"), ("T", "12"), ("retry-after", "12")),
        ),
        (
            Decision(True, (Status(True, FIVE, 0, 12), Status(True, OTHER, 0, 1), Status())),
            (("L", "9"), ("R", "0"), ("T", "1"), ("retry-after", "12")),
        ),
        (
            Decision(False, (Status(False, OTHER, 3, 1), Status(False, FIVE, 3, 24))),
            (("L", "9"), ("R", "3"), ("T", "1")),
        ),
        (
            Decision(True, (Status(True), Status(False, FIVE, 3, 24))),
            (("L", "5"), ("R", "3"), ("T", "24"), ("retry-after", "24")),
        ),
        (
            Decision(False, (Status(True, FIVE, 0, 12),)),
            (("L", "5"), ("R", "0"), ("T", "12")),
        ),
        (
            Decision(False, (Status(False, Limit.per(10**10, 1_000), 2**32 - 1, 1),)),
            (("L", "4294967295"), ("R", "4294967295"), ("T", "1")),
        ),
    ],
)
def test_headers_tell_of_the_refused_or_else_the_scarcest(
    decision: Decision, headers: tuple[tuple[str, str], ...]
) -> None:
    """The last refused or the first scarcest, as in the reference server.

    Retry-after comes only with a denial, and is the longest wait.
    """
    assert limit_headers(decision, NAMES) == headers


async def test_headers_and_metadata_are_added_where_asked_for() -> None:
    """And not otherwise."""
    plain = await ask(limiter(), "user")
    assert (plain.headers, plain.metadata) == ((), None)
    rich = await ask(limiter(Options(headers=NAMES, dynamic_metadata=True)), "user")
    assert rich.headers == (("L", "5"), ("R", "4"), ("T", "12"))
    assert rich.metadata is not None


async def test_answers_leave_the_metadata_of_the_rules_as_it_is() -> None:
    """Maps within maps are merged anew for each answer."""
    one = Rule("d.one", (FIVE,), metadata={"a": {"b": {"x": 1}, "c": 1}})
    two = Rule("d.two", (FIVE,), metadata={"a": {"b": {"y": 2}, "c": {"z": 3}}})
    asked = limiter(Options(dynamic_metadata=True))
    asked.use({"d": Domain("d", Children([Node("one", rule=one), Node("two", rule=two)]))})
    both = await ask(asked, "one", "two")
    assert both.metadata is not None
    assert both.metadata["metadata"] == {"a": {"b": {"x": 1, "y": 2}, "c": 1}}
    alone = await ask(asked, "one")
    assert alone.metadata is not None
    assert alone.metadata["metadata"] == {"a": {"b": {"x": 1}, "c": 1}}


async def test_dynamic_metadata_describes_the_request_and_what_passed() -> None:
    """The first rule to name a key wins, maps are merged, a refused rule says nothing."""
    asked = limiter(Options(dynamic_metadata=True))
    descriptors = (
        Descriptor((("user", "bob"), ("x", "y"))),
        Descriptor((("user", "bob"),), hits=2, override=None),
        Descriptor((("more", ""),)),
        Descriptor((("zero", ""),)),
        Descriptor((("free", ""),)),
        Descriptor((("o", "v"),), override=Override(3, Unit.HOUR)),
    )
    prepared = asked.prepare(Request("d", descriptors, hits=4))
    answer = await asked.answer(prepared)
    assert answer.metadata == {
        "domain": "d",
        "hitsAddend": 4,
        "descriptors": [
            {"entries": ["user=bob", "x=y"]},
            {"entries": ["user=bob"], "hitsAddend": 2},
            {"entries": ["more="]},
            {"entries": ["zero="]},
            {"entries": ["free="]},
            {"entries": ["o=v"], "limit": "requests_per_unit:3 unit:HOUR"},
        ],
        "metadata": {"tier": "a", "m": {"x": 1, "y": 3}},
    }


# Stored limits.

BOB = (("entity", "bob"), ("resource", "gpt-4"))
BY = Change("test", NOW)


async def stored(
    options: Options | None = None,
    store: MemoryStore | None = None,
    metrics: Metrics | None = None,
) -> tuple[Limiter, MemoryStore]:
    """A limiter with limits for Bob, who cascades to a project."""
    store = store or MemoryStore()
    await store.policy.write_entity(Entity("project"), BY)
    await store.policy.write_entity(Entity("bob", "project", cascade=True), BY)
    for entity, tokens in (("bob", 3), ("project", 5)):
        limits = (Limit.per(tokens, 60_000, name="rpm"),)
        await store.policy.write_limits(Scope(entity), StoredLimits(limits, 0), BY)
    policies = Policies(store.policy, 60_000, lambda: NOW)
    made = Limiter(store, options or Options(), lambda: NOW, policies, metrics)
    made.use(rules())
    return made, store


async def take_for(asked: Limiter, *entries: tuple[tuple[str, str], ...]) -> Decision:
    request = Request("d", tuple(Descriptor(one) for one in entries))
    return (await asked.answer(asked.prepare(request))).decision


async def test_stored_limits_of_every_level_are_enforced() -> None:
    """The child has three, and with its sibling's the parent's five are gone."""
    asked, store = await stored()
    prepared = asked.prepare(Request("d", (Descriptor(BOB),)))
    over = [(await asked.answer(prepared)).decision.over for _ in range(4)]
    assert over == [False, False, False, True]
    await store.policy.write_entity(Entity("eve", "project", cascade=True), BY)
    eve = (("entity", "eve"), ("resource", "gpt-4"))
    assert [(await take_for(asked, eve)).over for _ in range(3)] == [False, False, True]
    (status,) = (await take_for(asked, eve)).statuses
    assert status.limit is not None
    assert status.limit.name == "project/gpt-4/rpm"


async def test_rules_and_stored_limits_share_a_request() -> None:
    """All of it, or none."""
    asked, store = await stored()
    asked.use(rules(tokens=2))
    decisions = [await take_for(asked, BOB, (("user", "v"),)) for _ in range(3)]
    assert [decision.over for decision in decisions] == [False, False, True]
    assert [status.over for status in decisions[2].statuses] == [False, True]
    item = await store.read(Key("bob", "gpt-4"))
    assert item is not None
    assert item.buckets[0].consumed == 2_000


async def test_an_entity_without_limits_anywhere_passes() -> None:
    """With no limit in its status."""
    asked, _ = await stored()
    nobody = (("entity", "nobody"), ("resource", "gpt-4"))
    assert await take_for(asked, nobody) == Decision(False, (Status(),))


async def test_a_missing_limit_is_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is never silently dropped, nor a reason to refuse."""
    metrics = Metrics()
    asked, _ = await stored(metrics=metrics)
    prepared = asked.prepare(Request("d", (Descriptor((*BOB, ("limit", "typo"))),)))
    for _ in range(3):
        assert not (await asked.answer(prepared)).decision.over
    assert metrics.missing_limits.value == 3
    assert [r.getMessage() for r in caplog.records] == [
        "limit gpt-4/typo does not exist, so amounts for it are not counted"
    ]


@pytest.mark.parametrize(
    ("flag", "kept", "over"), [("error", "deny", True), ("allow", "deny", False)]
)
async def test_the_stored_answer_for_outages_holds_unless_a_flag_says_otherwise(
    flag: OnUnavailable, kept: str, over: bool
) -> None:
    """Also for failures of the buckets' writes."""
    broken = BrokenStore()
    asked, _ = await stored(Options(on_unavailable=flag), broken)
    await broken.policy.write_limits(SYSTEM, StoredLimits((), 0, kept), BY)
    assert (await take_for(asked, BOB)).over is over
    assert (await take_for(asked, (("user", "v"),))).over is over


@pytest.mark.parametrize(
    ("key", "dropped", "left"),
    [("default", 85, -5), ("shallow", 88, -2), ("deep", 10, -80)],
)
async def test_a_rule_keeps_as_much_debt_as_it_says(key: str, dropped: int, left: int) -> None:
    """One burst if it says nothing. A metric counts the rest, and a peek counts nothing."""
    metrics = Metrics()
    store = MemoryStore(metrics)
    limit, debt = Limit.per(5, 60_000), {"": OnExceed.DEBT}
    debts: dict[str, dict[str, int]] = {"default": {}, "shallow": {"": 2_000}, "deep": {"": 80_000}}
    nodes = [
        Node(name, rule=Rule(f"d.{name}", (limit,), on_exceed=debt, max_debt=max_debt))
        for name, max_debt in debts.items()
    ]
    request = Request("d", (Descriptor(((key, "v"),), hits=95),))
    for buckets in (ReadOnlyBuckets(store), store):
        asked = Limiter(buckets, Options(), lambda: NOW)
        asked.use({"d": Domain("d", Children(nodes))})
        assert metrics.debt_dropped.value == 0
        assert (await asked.answer(asked.prepare(request))).decision.over
    assert metrics.debt_dropped.value == dropped
    item = await store.read(rule_key("d", ((key, "v"),)))
    assert item is not None
    assert item.buckets[0].tokens == left * 1_000


async def test_a_stored_limit_keeps_all_of_a_debt_unless_it_is_bounded() -> None:
    """Each level by its own. The time to wait is as long as the wire can tell, at most."""
    metrics = Metrics()
    asked, store = await stored(store=MemoryStore(metrics))
    bounded = Limit.per(5, 60_000, name="rpm")._replace(max_debt=2_000)
    await store.policy.write_limits(Scope("project"), StoredLimits((bounded,), 0), BY)
    most = 2**64 - 1
    check, report = (Request("d", (Descriptor(BOB, hits=hits),)) for hits in (0, most))
    assert not (await asked.answer(asked.prepare(check))).decision.over
    assert (await asked.answer(asked.prepare(report))).decision.over
    for entity, left in (("bob", 3 - most), ("project", -2)):
        item = await store.read(Key(entity, "gpt-4"))
        assert item is not None
        assert item.buckets[0].tokens == left * 1_000
        assert item.buckets[0].limit.max_debt is None
    assert metrics.debt_dropped.value == float(most - 7)
    (status,) = (await asked.answer(asked.prepare(check))).decision.statuses
    assert (status.over, status.reset_s) == (True, MAX_RESET_S)
