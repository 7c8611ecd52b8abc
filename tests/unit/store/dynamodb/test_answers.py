"""What callers are told, with two servers on one table: it is what is stored, not what was."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import Item, settle
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Denies, Draw, Drawn, Key, Mode, Take, Taken
from penstock.core.taking import take_all
from penstock.store.dynamodb.aws.location import Cascade
from penstock.store.dynamodb.buckets.hints import DENIAL_REMEMBERED_MS
from penstock.store.dynamodb.buckets.knowledge import FRESH_MS
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Hold
from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.scenes import (
    DAY,
    MINUTE,
    NOW,
    READ,
    SECOND,
    TRANSACT,
    Connected,
    Scene,
    take,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

HUNDRED = Limit.per(100, DAY)
LEVELS = {2: ("user", "project"), 3: ("user", "team", "project")}
SOON, LATER = NOW + FRESH_MS, NOW + 20 * SECOND
MOMENTS = pytest.mark.parametrize("now_ms", [SOON, LATER], ids=["soon", "later"])
CHAINS = pytest.mark.parametrize("entities", LEVELS.values(), ids=map(str, LEVELS))


def chain(scene: Scene, entities: Sequence[str], tokens: int, mode: Mode = Mode.TAKE) -> list[Take]:
    """Takes of so many tokens from an entity, and from those above it."""
    levels = scene.chain(*entities, mode=mode, limit=HUNDRED)
    return [replace(level, draws=(Draw(0, tokens * MILLI, mode),)) for level in levels]


async def drawn(store: DynamoStore, takes: Sequence[Take], now_ms: int) -> list[Drawn]:
    return [taken.drawn[0] for taken in await store.take(takes, now_ms)]


async def left(scene: Scene, entity: str, now_ms: int) -> int:
    """What is stored, in whole tokens."""
    item = await scene.other.read(scene.key(entity))
    return settle(item, (HUNDRED,), now_ms)[1][0] // MILLI


@MOMENTS
@CHAINS
async def test_a_charge_tells_of_the_debt_that_it_makes(
    scene: Scene, entities: Sequence[str], now_ms: int
) -> None:
    """Another server has charged meanwhile, so that this charge does not fit any more."""
    assert all(fits for fits, _ in await drawn(scene.store, chain(scene, entities, 20), NOW))
    assert all(
        fits for fits, _ in await drawn(scene.other, chain(scene, entities, 80, Mode.CHARGE), NOW)
    )
    answer = await drawn(scene.store, chain(scene, entities, 22, Mode.CHARGE), now_ms)
    assert [(fits, balance // MILLI) for fits, balance in answer] == [
        (False, await left(scene, entity, now_ms)) for entity in entities
    ]
    assert await left(scene, entities[-1], NOW) == -22


@MOMENTS
@CHAINS
async def test_a_charge_fits_again_once_another_server_has_refunded(
    scene: Scene, entities: Sequence[str], now_ms: int
) -> None:
    """The other side of the boundary."""
    await scene.store.take(chain(scene, entities, 90), NOW)
    await scene.other.take(chain(scene, entities, 80, Mode.REFUND), NOW)
    answer = await drawn(scene.store, chain(scene, entities, 22, Mode.CHARGE), now_ms)
    assert [fits for fits, _ in answer] == [True] * len(entities)
    assert await left(scene, entities[-1], NOW) == 68


@CHAINS
@pytest.mark.parametrize("mode", [Mode.TAKE, Mode.CHARGE, Mode.REFUND, Mode.COUNT])
async def test_what_is_left_is_no_older_than_a_second(
    scene: Scene, entities: Sequence[str], mode: Mode
) -> None:
    """Another server took most of it; a second later this server knows, whatever it writes."""
    await scene.store.take(chain(scene, entities, 5), NOW)
    await scene.other.take(chain(scene, entities, 60), NOW)
    for now_ms in (NOW + SECOND, NOW + MINUTE):
        answer = await drawn(scene.store, chain(scene, entities, 3, mode), now_ms)
        assert [balance // MILLI for _, balance in answer] == [
            await left(scene, entity, now_ms) for entity in entities
        ]


async def test_own_writes_make_no_image_newer(scene: Scene) -> None:
    """A busy cascade is looked at again, however often this server writes to it between."""
    entities, connected = LEVELS[2], scene.connected
    exact = replace(connected.location, accuracy=0)
    store = DynamoStore(
        connected.proxied, exact, timer_s=scene.clock, call_s=PATIENT_S, later=never
    )
    await store.take(chain(scene, entities, 1), NOW)
    await scene.other.take(chain(scene, entities, 50), NOW)
    scene.proxy.calls.clear()
    answers = [
        await drawn(store, chain(scene, entities, 1), NOW + step)
        for step in range(100, SECOND + 1, 100)
    ]
    assert [balance // MILLI for _, balance in answers[-1]] == [39, 39]
    assert scene.proxy.calls == {TRANSACT: 10, READ: 1}


async def test_a_race_for_the_rest_is_told_by_the_condition(scene: Scene) -> None:
    """The other server is faster by so little that no look could have shown it."""
    entities, hold = LEVELS[2], Hold(asyncio.Event(), operation=TRANSACT)
    await scene.store.take(chain(scene, entities, 20), NOW)
    scene.proxy.faults.append(hold)
    charge = chain(scene, entities, 22, Mode.CHARGE)
    waiting = asyncio.create_task(drawn(scene.store, charge, NOW + 1))
    await hold.arrived.wait()
    await scene.other.take(chain(scene, entities, 70, Mode.CHARGE), NOW + 1)
    hold.event.set()
    assert [fits for fits, _ in await waiting] == [False, False]
    assert await left(scene, "project", NOW) == -12


async def test_a_check_beside_a_charge_sees_the_debt_of_its_item(scene: Scene) -> None:
    """Nothing is written to the item of the check, so no condition could tell."""
    child, parent = chain(scene, LEVELS[2], 5, Mode.CHARGE)
    check = take(parent.key, 0, limit=HUNDRED)
    never = Draw(0, 0, denies=Denies.NEVER)
    await scene.store.take([child, parent], NOW)
    await scene.other.take([take(parent.key, 120, mode=Mode.CHARGE, limit=HUNDRED)], NOW)
    taken = await scene.store.take([child, replace(check, draws=(never,))], NOW + 1)
    assert [one.drawn[0].fits for one in taken] == [True, False]


async def test_a_caller_behind_a_transaction_is_not_denied_by_a_guess(scene: Scene) -> None:
    """Two callers wait for one item. Only one fits by the hint; a refund made room for both."""
    entities, hold = LEVELS[2], Hold(asyncio.Event(), operation=TRANSACT)
    await scene.store.take(chain(scene, entities, 94), NOW)
    scene.proxy.faults.append(hold)
    calls = [asyncio.create_task(drawn(scene.store, chain(scene, entities, 2), LATER))]
    await hold.arrived.wait()
    await scene.other.take(chain(scene, entities, 90, Mode.REFUND), LATER)
    calls += [
        asyncio.create_task(drawn(scene.store, chain(scene, entities, 3), LATER + 2 * SECOND))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    hold.event.set()
    answers = await asyncio.gather(*calls)
    assert all(fits for answer in answers for fits, _ in answer)
    assert await scene.on_record(*entities) == [12, 12]


async def test_a_denied_cascade_tells_of_every_level_as_it_is(scene: Scene) -> None:
    """The parent denies from memory. What the child has is looked at, not remembered."""
    entities = LEVELS[2]
    await scene.store.take(chain(scene, entities, 10), NOW)
    await scene.other.take(chain(scene, entities, 85), LATER)
    await scene.store.take(chain(scene, entities[1:], 0), LATER)
    answer = await drawn(scene.store, chain(scene, entities, 20), LATER + 1)
    assert [fits for fits, _ in answer] == [False, False]


# Any calls of two servers in any order, against what is stored in that moment.

NAMES = ("a", "b", "c")
NUMBERS = count()


class Step(NamedTuple):
    server: int
    after_ms: int
    entities: tuple[str, ...]
    is_family: bool
    draws: tuple[tuple[int, int, Mode, Denies], ...]
    """The level, the tokens, the mode, and when it denies."""


@dataclass
class Play:
    """Two servers, and when each of them last wrote to an item."""

    servers: Sequence[DynamoStore]
    reader: DynamoStore
    limits: Mapping[str, Limit]
    resource: str
    now_ms: int = NOW
    written_ms: dict[tuple[int, Key], int] = field(default_factory=dict)

    def takes(self, step: Step) -> list[Take]:
        keys = [Key(name, self.resource) for name in step.entities]
        above: list[Key | None] = [*keys[1:], None] if step.is_family else [None] * len(keys)
        return [
            Take(
                key,
                (self.limits[key.entity],),
                tuple(
                    Draw(0, tokens * MILLI, mode, denies, number)
                    for number, (at, tokens, mode, denies) in enumerate(step.draws)
                    if at % len(keys) == level
                )
                or (Draw(0, MILLI, descriptor=len(step.draws)),),
                parent,
            )
            for level, (key, parent) in enumerate(zip(keys, above, strict=True))
        ]

    async def do(self, step: Step) -> None:
        self.now_ms += step.after_ms
        takes = self.takes(step)
        items = {one.key: await self.reader.read(one.key) for one in takes}
        true = take_all(items.get, takes, self.now_ms)
        told = await self.servers[step.server].take(takes, self.now_ms)
        for one, item, is_told, is_true in zip(takes, items.values(), told, true, strict=True):
            self.compare(step.server, one.key, item, is_told, is_true)
        after = {one.key: await self.reader.read(one.key) for one in takes}
        for key in items:
            if items[key] != after[key]:
                self.written_ms[step.server, key] = self.now_ms

    def compare(self, server: int, key: Key, item: Item | None, told: Taken, true: Taken) -> None:
        """Verdicts are always true. What is left may lack what the other server did just now."""
        assert [one.fits for one in told.drawn] == [one.fits for one in true.drawn], item
        other_ms = self.written_ms.get((1 - server, key), 0)
        if self.now_ms - other_ms >= DENIAL_REMEMBERED_MS:
            assert told.drawn == true.drawn, item


steps = st.builds(
    Step,
    st.integers(0, 1),
    st.sampled_from([0, 1, 40, 400, 999, 1_000, 4_000]),
    st.sampled_from([NAMES[:1], NAMES[:2], NAMES[1:], NAMES, NAMES]),
    st.booleans(),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([0, 1, 2, 5, 9]),
            st.sampled_from(Mode),
            st.sampled_from(Denies),
        ),
        min_size=1,
        max_size=4,
    ).map(tuple),
)
bounds = st.builds(
    Limit.per, st.integers(1, 12), st.sampled_from([7_001, MINUTE, DAY]), burst=st.integers(1, 12)
)


@pytest.mark.parametrize("cascade", ["transaction", "speculative"])
@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would take many minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.fixed_dictionaries(dict.fromkeys(NAMES, bounds)), st.lists(steps, max_size=12))
async def test_answers_are_what_is_stored(
    connected: Connected, cascade: Cascade, limits: Mapping[str, Limit], script: Sequence[Step]
) -> None:
    """Families of up to three levels and items without parents, on two servers by turns."""
    location = replace(connected.location, cascade=cascade)
    servers = [
        DynamoStore(
            connected.direct,
            location,
            timer_s=lambda: 0.0,
            call_s=PATIENT_S,
            remembers_denials=False,
            later=never,
        )
        for _ in range(3)
    ]
    play = Play(servers[:2], servers[2], limits, f"play{next(NUMBERS)}")
    for step in script:
        await play.do(step)
    for server in servers:
        await server.close()
