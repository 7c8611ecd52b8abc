"""Entities, stored limits and cascades on every store, against a model that fits on a screen."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item, settle, settle_forgiven
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import MILLI, UINT32_MAX, Limit, Window
from penstock.core.mapping import CHECK, EntityMapping, Mappings, Template
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain
from penstock.core.take import Key
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.service.prepared import Prepared
from penstock.store.dynamodb.buckets import terms as terms_of_items
from penstock.store.memory import MemoryStore
from penstock.store.open import open_store
from penstock.store.policy_port import Change
from penstock.store.port import Store

from tests.support.tables import new_table, open_on

NOW = 1_794_792_817_591
NAMES = ("rpm", "tpm", "x.y-z")
ENTITIES = range(6)
"""The last one is never stored, though it may have limits."""
RESOURCES = range(2)
NUMBERS = count()
SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
# A script of this size shrinks for minutes, longer than a test may take.
NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]

Kind = Literal["take", "check", "charge", "refund"]

CHECKS = EntityMapping(
    ("x",), Template("{x}"), Template("r"), tuple((name, CHECK) for name in NAMES)
)
METERED = Domain("d", Children(()), Mappings("d", {CHECKS.keys: CHECKS}))
"""A mapping takes nothing of any limit, so what is charged is a report from the first time on."""


class Place(NamedTuple):
    """Create an entity, or move it below another."""

    entity: int
    parent: int | None
    cascade: bool


class Remove(NamedTuple):
    """Delete an entity, with its limits and buckets."""

    entity: int


class SetLimits(NamedTuple):
    """Set the limits of a scope; none at all deletes them."""

    entity: int | None
    resource: int | None
    limits: tuple[Limit, ...]


class Ask(NamedTuple):
    """A request of one descriptor."""

    entity: int
    resource: int
    limit: str | None
    kind: Kind
    tokens: int


PolicyAction = Place | Remove | SetLimits
Action = PolicyAction | Ask


@dataclass(frozen=True, slots=True)
class Script:
    kept_ms: int
    """How long what was read of the policy is kept."""
    actions: Sequence[tuple[int, Action]]
    """How much later, and what."""


class Verdict(NamedTuple):
    over: bool
    limit: Limit | None
    """Under the name of its level."""
    remaining: int | None
    """Without a limit: None, or the largest number of the wire if the limits are unlimited."""


class Model:
    """What the design says, as plainly as it can be said."""

    def __init__(self) -> None:
        self.entities: dict[str, tuple[str | None, bool]] = {}
        self.limits: dict[Scope, tuple[Limit, ...]] = {}
        self.items: dict[Key, Item] = {}

    def in_force(self, entity: str, resource: str) -> tuple[Limit, ...]:
        for scope in ((entity, resource), (entity, None), (None, resource), (None, None)):
            if self.limits.get(Scope(*scope)):
                return self.limits[Scope(*scope)]
        return ()

    def levels(self, entity: str, resource: str) -> Iterator[tuple[Key, tuple[Limit, ...]]]:
        climbing: str | None = entity
        while climbing is not None:
            yield Key(climbing, resource), self.in_force(climbing, resource)
            parent, cascade = self.entities.get(climbing, (None, False))
            climbing = parent if cascade else None

    def ask(
        self, entity: str, resource: str, name: str | None, kind: Kind, tokens: int, now_ms: int
    ) -> Verdict:
        amount = 0 if kind == "check" else tokens * MILLI
        after: dict[Key, Item] = {}
        synced: dict[Key, Item] = {}  # where a refusal finds limits that have changed
        seen: list[tuple[Limit, int, int, bool]] = []  # the limit, before, after, did it fit
        free = False
        for key, all_limits in self.levels(entity, resource):
            free = free or any(
                limit.is_unlimited for limit in all_limits if name in (None, limit.name)
            )
            set_limits = [limit for limit in all_limits if not limit.is_unlimited]
            limits = tuple(limit.without_max_debt for limit in set_limits)
            rf, balances, consumed = settle(self.items.get(key), limits, now_ms)
            forgiven = settle_forgiven(self.items.get(key), limits, now_ms)
            left, refuses = balances.copy(), False
            for i, limit in enumerate(set_limits):
                if name in (None, limit.name):
                    fits = kind == "refund" or balances[i] >= amount
                    left[i] = _left(kind, balances[i], amount, limit)
                    shown = limit.without_max_debt._replace(
                        name=f"{key.entity}/{key.resource}/{limit.name}"
                    )
                    seen.append((shown, balances[i], left[i], fits))
                    refuses = refuses or not fits
            old = self.items.get(key)
            if refuses and old is not None and {b.limit for b in old.buckets} != set(limits):
                synced[key] = Item(rf, tuple(map(Bucket, limits, balances, consumed, forgiven)))
            if left != balances:
                used = [had + b - n for had, b, n in zip(consumed, balances, left, strict=True)]
                after[key] = Item(rf, tuple(map(Bucket, limits, left, used, forgiven)))
        if not seen:
            return Verdict(False, None, UINT32_MAX if free else None)
        # A charge is counted from what it leaves in the bucket.
        waits = [
            (limit, _wait_ms(limit, after_it if kind == "charge" else before, amount, now_ms))
            for limit, before, after_it, fits in seen
            if not fits
        ]
        self.items |= synced
        if kind in ("charge", "refund") or not waits:
            self.items |= after
        if waits:
            return Verdict(True, max(waits, key=lambda wait: wait[1])[0], 0)
        limit, _, left_of_it, _ = min(seen, key=lambda one: one[2] / (one[0].burst or 1))
        return Verdict(False, limit, max(0, left_of_it // MILLI))


def _left(kind: Kind, balance: int, amount: int, limit: Limit) -> int:
    if kind == "refund":
        return min(balance + amount, limit.burst)
    if kind == "charge" and limit.burst == 0 and not limit.forgets_debt:
        return max(balance - amount, min(balance, -MILLI))
    if kind == "charge" and limit.max_debt is not None:
        return max(balance - amount, min(balance, -limit.max_debt))
    return balance - amount


def _wait_ms(limit: Limit, balance: int, amount: int, now_ms: int) -> int:
    """Found by halving, not by the formula; for what never fits a period, or until the boundary."""
    if amount > limit.burst or (limit.burst and not limit.refill):
        return limit.period_ms - (now_ms % limit.period_ms if limit.window else 0)
    bucket = Bucket(limit, balance, 0)
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high) // 2
        if bucket.balance(now_ms, now_ms + middle) >= amount:
            high = middle
        else:
            low = middle + 1
    return low


class Player:
    """Plays a script to the model, and to a limiter on a store."""

    def __init__(self, store: Store, kept_ms: int) -> None:
        self._store, self._kept_ms = store, kept_ms
        self._now_ms, self._number = NOW, next(NUMBERS)
        self._model = Model()
        self._limiter = Limiter(store, Options(), self._clock, self._policies())
        self._limiter.use({"d": METERED})
        self._prepared: dict[Request, Prepared] = {}

    def _policies(self) -> Policies:
        return Policies(self._store.policy, self._kept_ms, self._clock)

    def _clock(self) -> int:
        return self._now_ms

    async def play(self, script: Script) -> None:
        # Names are the script's own, so that all can use one table. But there is only one system.
        await self._store.policy.delete_limits(SYSTEM, self._change())
        for step_ms, action in script.actions:
            self._now_ms += step_ms
            if isinstance(action, Ask):
                await self._ask(action)
            else:
                await self._set(action)
                self._now_ms += self._kept_ms + 1
        await self._compare_what_is_left()

    async def _ask(self, ask: Ask) -> None:
        entity, resource = self._entity(ask.entity), self._resource(ask.resource)
        entries = [("entity", entity), ("resource", resource)]
        entries += [("limit", ask.limit)] if ask.limit is not None else []
        hits = {"take": None, "check": 0, "charge": ask.tokens, "refund": ask.tokens}[ask.kind]
        descriptor = Descriptor(tuple(entries), hits, refund=ask.kind == "refund")
        request = Request("d", (descriptor,), ask.tokens)
        # A server keeps what it worked out for a request, too.
        if request not in self._prepared:
            self._prepared[request] = self._limiter.prepare(request)
        decision = (await self._limiter.answer(self._prepared[request])).decision
        (status,) = decision.statuses
        expected = self._model.ask(entity, resource, *ask[2:], self._now_ms)
        remaining = (status.remaining or None) if status.limit is None else status.remaining
        assert Verdict(decision.over, status.limit, remaining) == expected
        assert decision.over == status.over

    async def _set(self, action: PolicyAction) -> None:
        if isinstance(action, Place):
            await self._place(action)
        elif isinstance(action, Remove):
            await self._remove(self._entity(action.entity))
        else:
            await self._set_limits(action)

    async def _place(self, action: Place) -> None:
        entity, stored = self._entity(action.entity), self._model.entities
        parent = None if action.parent is None else self._entity(action.parent)
        parent = parent if parent in stored else None
        found = await self._store.policy.read_entity(entity) or Entity(entity)
        cascade = action.cascade and parent is not None
        wanted = replace(found, parent=parent, cascade=cascade)
        await self._store.policy.write_entity(wanted, self._change())
        stored[entity] = parent, cascade

    async def _remove(self, entity: str) -> None:
        model = self._model
        if any(parent == entity for parent, _ in model.entities.values()):
            return
        deleted = await self._store.policy.delete_entity(entity, self._change())
        assert deleted == (entity in model.entities)
        if deleted:
            del model.entities[entity]
            model.limits = {s: limits for s, limits in model.limits.items() if s.entity != entity}
            model.items = {key: item for key, item in model.items.items() if key.entity != entity}

    async def _set_limits(self, action: SetLimits) -> None:
        entity = None if action.entity is None else self._entity(action.entity)
        resource = None if action.resource is None else self._resource(action.resource)
        scope, policy = Scope(entity, resource), self._store.policy
        if action.limits:
            await policy.write_limits(scope, StoredLimits(action.limits, 0), self._change())
            self._model.limits[scope] = action.limits
        else:
            deleted = await policy.delete_limits(scope, self._change())
            assert deleted == (self._model.limits.pop(scope, None) is not None)

    async def _compare_what_is_left(self) -> None:
        for entity in map(self._entity, ENTITIES):
            for resource in map(self._resource, RESOURCES):
                key, in_force = Key(entity, resource), self._model.in_force(entity, resource)
                limits = tuple(one.without_max_debt for one in in_force if not one.is_unlimited)
                expected = settle(self._model.items.get(key), limits, self._now_ms)
                assert settle(await self._store.read(key), limits, self._now_ms) == expected

    def _change(self) -> Change:
        return Change("somebody", self._now_ms)

    def _entity(self, number: int) -> str:
        return f"e{number}-{self._number}"

    def _resource(self, number: int) -> str:
        return f"r{number}-{self._number}"


limit_sets = st.lists(
    st.builds(Limit.unlimited, st.sampled_from(NAMES))
    | st.builds(
        lambda limit, max_debt: limit._replace(max_debt=max_debt),
        st.builds(
            Limit.per,
            st.integers(0, 12),
            st.sampled_from([1_000, 7_001, 60_000]),
            name=st.sampled_from(NAMES),
            burst=st.none() | st.integers(0, 15),
            window=st.sampled_from([None, None, Window(), Window(carry_debt=False)]),
        ),
        st.sampled_from([None, 2 * MILLI, 40 * MILLI]),
    ),
    max_size=3,
    unique_by=lambda limit: limit.name,
).map(tuple)


def places(entity: int) -> st.SearchStrategy[Place]:
    """Only below one that comes before it, so that there is no cycle; most often the one before."""
    before = st.sampled_from([entity - 1, entity - 1, *range(entity)]) if entity else st.none()
    return st.builds(Place, st.just(entity), before, st.sampled_from([True, True, True, False]))


asks = st.builds(
    Ask,
    st.sampled_from(ENTITIES),
    st.sampled_from([0, 0, 1]),
    st.none() | st.none() | st.sampled_from(NAMES),
    st.sampled_from(["take", "take", "take", "take", "check", "charge", "refund"]),
    st.integers(1, 9),
)
set_limits = st.builds(
    SetLimits,
    st.none() | st.sampled_from(ENTITIES),
    st.none() | st.sampled_from([0, 0, 1]),
    limit_sets,
)
changes = st.one_of(
    set_limits,
    set_limits,
    st.integers(0, 4).flatmap(places),
    st.builds(Remove, st.integers(0, 5)),
)


@st.composite
def scripts(draw: st.DrawFn, size: int) -> Script:
    """A tree, limits at some scopes, then requests, with changes of the policy between them.

    It takes less than a minute: nothing is forgotten yet.
    """
    actions: list[tuple[int, Action]] = [(0, draw(places(entity))) for entity in range(5)]
    actions += [(0, action) for action in draw(st.lists(set_limits, min_size=2, max_size=6))]
    steps = st.sampled_from([0, 0, 1, 250]) | st.integers(0, 1_500)
    mixed = st.one_of(asks, asks, asks, changes)
    actions += draw(st.lists(st.tuples(steps, mixed), min_size=size // 2, max_size=size))
    return Script(draw(st.sampled_from([0, 500])), actions)


@asynccontextmanager
async def new_sqlite() -> AsyncIterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:///{folder}/model.db")
        yield store
        await store.close()


@pytest.fixture
async def dynamodb(dynamodb_url: str) -> AsyncIterator[Store]:
    async with new_table(dynamodb_url) as location, open_on(location) as store:
        yield store


@pytest.fixture
async def dynamodb_by_sdk(dynamodb_url: str) -> AsyncIterator[Store]:
    async with (
        new_table(dynamodb_url, client="aioboto3") as location,
        open_on(location) as store,
    ):
        yield store


@pytest.fixture
def _no_tolerance(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settles every item at each new millisecond: what is decided is exact then."""
    monkeypatch.setattr(terms_of_items, "TOLERANCE", 10**12)
    terms_of_items.make_terms.cache_clear()
    yield
    terms_of_items.make_terms.cache_clear()


@settings(max_examples=150, deadline=None, phases=NO_SHRINKING, suppress_health_check=SUPPRESSED)
@given(scripts(30))
async def test_memory_decides_as_the_model_does(script: Script) -> None:
    """Random trees, limits, changes of both and requests: each answer names what the model does."""
    await Player(MemoryStore(), script.kept_ms).play(script)


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING, suppress_health_check=SUPPRESSED)
@given(scripts(30))
async def test_sqlite_decides_as_the_model_does(script: Script) -> None:
    """The same, on a file."""
    async with new_sqlite() as store:
        await Player(store, script.kept_ms).play(script)


@pytest.mark.usefixtures("_no_tolerance")
@settings(max_examples=25, deadline=None, phases=NO_SHRINKING, suppress_health_check=SUPPRESSED)
@given(scripts(24))
async def test_dynamodb_decides_as_the_model_does(dynamodb: Store, script: Script) -> None:
    """The same, on a table, if no time may go unsettled."""
    await Player(dynamodb, script.kept_ms).play(script)


@pytest.mark.usefixtures("_no_tolerance")
@settings(max_examples=5, deadline=None, phases=NO_SHRINKING, suppress_health_check=SUPPRESSED)
@given(scripts(24))
async def test_the_sdk_decides_as_the_model_does(dynamodb_by_sdk: Store, script: Script) -> None:
    """The same on the other client. Fewer examples, because it makes the same decisions."""
    await Player(dynamodb_by_sdk, script.kept_ms).play(script)
