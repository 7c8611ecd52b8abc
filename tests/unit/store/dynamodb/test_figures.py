"""What a decision costs, counted on the wire; docs/dynamodb-cost.md says the same, row by row."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from operator import le
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from penstock.core.bucket import credit
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.service.policies import Policies
from penstock.slices import run_at_once
from penstock.store.dynamodb.aws.location import Cascade
from penstock.store.dynamodb.buckets.hints import KEPT
from penstock.store.dynamodb.buckets.knowledge import FRESH_MS
from penstock.store.dynamodb.items.keys import primary_key
from penstock.store.dynamodb.store import DynamoStore

from tests.support.aws_proxy import Hold
from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.loads import (
    BUSY,
    CASCADE,
    EXACT,
    FLOOD,
    HOT,
    LOADS,
    TOP,
    hot,
    wcu,
)
from tests.unit.store.dynamodb.scenes import (
    HOUR,
    MINUTE,
    NOW,
    PUT,
    READ,
    SECOND,
    TRANSACT,
    UPDATE,
    Scene,
    fits,
)
from tests.unit.store.dynamodb.traffic import START, Traffic

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = FilePath(__file__).parents[4] / "docs/dynamodb-cost.md"
SOON = NOW + 100
LATER = NOW + MINUTE
"""Full again, and not expired yet."""


class Cost(NamedTuple):
    """Of one decision, for items of up to a kilobyte."""

    calls: int
    """Writes, whether they landed or were refused. A transaction is one."""
    written: int
    """Items in them."""
    read: int
    """Items asked for, whether they are there or not."""
    wcu: int
    rcu: int


class Wish(NamedTuple):
    """A take from every limit of a key."""

    entity: str = "bob"
    tokens: int = 1
    mode: Mode = Mode.TAKE
    above: str | None = None


Call = tuple[Wish, ...]


@dataclass
class Bench:
    """Processes whose calls are counted, and another one beside them."""

    scene: Scene
    limits: tuple[Limit, ...]
    items: Counter[str] = field(default_factory=Counter)
    """Items in transactions, and keys in reads."""
    stores: list[DynamoStore] = field(default_factory=list)

    def process(self, cascade: Cascade = "transaction") -> DynamoStore:
        """One that has seen nothing yet."""
        connected = self.scene.connected
        location = replace(connected.location, cascade=cascade)
        self.stores.append(
            DynamoStore(
                connected.proxied, location, timer_s=lambda: 0.0, call_s=PATIENT_S, later=never
            )
        )
        return self.stores[-1]

    async def admits(self, store: DynamoStore, call: Call, now_ms: int = NOW) -> bool:
        return all(await fits(store, *map(self._take, call), now_ms=now_ms))

    def _take(self, wish: Wish) -> Take:
        draws = tuple(Draw(i, wish.tokens * MILLI, wish.mode) for i in range(len(self.limits)))
        parent = None if wish.above is None else self.scene.key(wish.above)
        return Take(self.scene.key(wish.entity), self.limits, draws, parent)

    def count(self, request: Mapping[str, Any]) -> None:
        """What the proxy does not see: how much is in one call."""
        self.items[TRANSACT] += len(request.get("TransactItems", ()))
        for keys in request.get("RequestItems", {}).values():
            self.items[READ] += len(keys["Keys"])

    def start(self) -> None:
        """What came before does not count."""
        self.scene.proxy.calls.clear()
        self.items.clear()
        for store in self.stores:
            run_at_once(store.metrics.store_writes.show({}))

    def cost(self) -> Cost:
        calls = self.scene.proxy.calls
        alone = calls[UPDATE] + calls[PUT]
        # The store counts its writes itself: what its metrics show is what is on the wire.
        counted = [
            series.value
            for store in self.stores
            for _, series in store.metrics.store_writes.series()
        ]
        assert sum(counted) == alone + calls[TRANSACT]
        assert alone + calls[TRANSACT] + calls[READ] == calls.total()
        return Cost(
            calls=alone + calls[TRANSACT],
            written=alone + self.items[TRANSACT],
            read=self.items[READ],
            wcu=alone + 2 * self.items[TRANSACT],
            rcu=self.items[READ],
        )


@pytest_asyncio.fixture(loop_scope="module", params=[1, 2, 10], ids=lambda n: f"{n} limits")
async def bench(request: pytest.FixtureRequest, scene: Scene) -> AsyncIterator[Bench]:
    limits = tuple(Limit.per(10, MINUTE, name=f"limit-{n}") for n in range(request.param))
    bench = Bench(scene, limits)

    def count(params: Mapping[str, Any], _: object) -> None:
        bench.count(params)

    scene.proxy.watchers.append(count)
    yield bench
    scene.proxy.watchers.remove(count)
    for store in bench.stores:
        await store.close()


class Case(NamedTuple):
    """A call, made some time after another one by this process, or by one that it knows not of."""

    call: Call
    now_ms: int = SOON
    before: Call = ()
    seen: bool = True
    admitted: bool = True
    cascade: Cascade = "transaction"

    async def play(self, bench: Bench) -> None:
        store = bench.process(self.cascade)
        if self.before:
            assert await bench.admits(store if self.seen else bench.scene.other, self.before)
        bench.start()
        assert await bench.admits(store, self.call, self.now_ms) == self.admitted


BOB = (Wish(),)
ALL = (Wish(tokens=10),)
CHAIN = (Wish(above="project"), Wish("project"))
ALL_OF_CHAIN = (Wish(tokens=10, above="project"), Wish("project", tokens=10))
CHARGE = (Wish(mode=Mode.CHARGE, above="project"), Wish("project", mode=Mode.CHARGE))
PAIR = (Wish("bob"), Wish("eve"))
ALL_OF_EVE = (Wish("bob"), Wish("eve", tokens=10))


async def play_fifty_callers(bench: Bench) -> None:
    bench.limits = tuple(limit._replace(burst=100 * MILLI) for limit in bench.limits)
    store, hold = bench.process(), Hold(asyncio.Event(), operation=UPDATE)
    assert await bench.admits(store, BOB)
    bench.scene.proxy.faults.append(hold)
    first = asyncio.create_task(bench.admits(store, BOB))
    await hold.arrived.wait()
    waiting = [asyncio.create_task(bench.admits(store, BOB)) for _ in range(50)]
    await asyncio.sleep(0)
    hold.event.set()
    assert await first
    bench.start()
    assert all(await asyncio.gather(*waiting))


async def play_surprise(bench: Bench) -> None:
    store = bench.process()
    assert await bench.admits(store, BOB)
    assert await bench.admits(bench.scene.other, (Wish(tokens=9),))
    bench.start()
    assert not await bench.admits(store, BOB, SOON)


async def play_surprising_charge(bench: Bench) -> None:
    store = bench.process()
    assert await bench.admits(store, CHAIN)
    assert await bench.admits(bench.scene.other, (Wish("project", tokens=9),))
    bench.start()
    assert not await bench.admits(store, CHARGE, SOON)


async def play_reset(bench: Bench) -> None:
    store = bench.process()
    assert await bench.admits(store, BOB)
    bench.start()
    assert await store.reset(bench.scene.key("bob"), NOW)


PLAYS: dict[str, Callable[[Bench], Awaitable[None]]] = {
    "a busy key": Case(BOB, before=BOB).play,
    "an idle key that the server has seen": Case(BOB, LATER, before=BOB).play,
    "an expired key that the server has seen": Case(BOB, NOW + 2 * HOUR, before=BOB).play,
    "an expired key that the server has not seen": Case(
        BOB, NOW + 2 * HOUR, before=BOB, seen=False
    ).play,
    "a busy key that the server has not seen": Case(BOB, before=BOB, seen=False).play,
    "an idle key that the server has not seen": Case(BOB, LATER, before=BOB, seen=False).play,
    "a new key": Case(BOB).play,
    "50 requests that wait for one key, together": play_fifty_callers,
    "denied within a second of the last look": Case(
        BOB, NOW + SECOND, before=ALL, admitted=False
    ).play,
    "denied later than that": Case(BOB, NOW + SECOND + 1, before=ALL, admitted=False).play,
    "denied, on a key that the server has not seen": Case(
        BOB, NOW + SECOND, before=ALL, seen=False, admitted=False
    ).play,
    "denied, as others took the rest": play_surprise,
    "a check": Case((Wish(tokens=0),), before=BOB).play,
    "a charge": Case((Wish(tokens=12, mode=Mode.CHARGE),), before=BOB, admitted=False).play,
    "a refund": Case((Wish(mode=Mode.REFUND),), before=ALL).play,
    "a reset": play_reset,
    "a cascade of two levels, busy": Case(CHAIN, before=CHAIN).play,
    "a cascade of two levels, idle": Case(CHAIN, LATER, before=CHAIN).play,
    "a cascade of two levels, seen half a second ago or earlier": Case(
        CHAIN, NOW + FRESH_MS + 1, before=CHAIN
    ).play,
    "a cascade that the server has not seen": Case(CHAIN, LATER, before=CHAIN, seen=False).play,
    "a new cascade": Case(CHAIN).play,
    "a new child of a known parent": Case(
        (Wish("eve", above="project"), Wish("project")), before=CHAIN
    ).play,
    "a cascade denied within a second of the last look": Case(
        CHAIN, NOW + SECOND, before=ALL_OF_CHAIN, admitted=False
    ).play,
    "a cascade denied later than that": Case(
        CHAIN, NOW + SECOND + 1, before=ALL_OF_CHAIN, admitted=False
    ).play,
    "a cascade denied that the server has not seen": Case(
        CHAIN, NOW + SECOND, before=ALL_OF_CHAIN, seen=False, admitted=False
    ).play,
    "a charge on a cascade, busy": Case(CHARGE, before=CHAIN).play,
    "a charge on a cascade, as others took what it needs": play_surprising_charge,
    "`cascade=speculative`, busy": Case(CHAIN, before=CHAIN, cascade="speculative").play,
    "`cascade=speculative`, the parent denies, not seen": Case(
        CHAIN,
        before=(Wish(above="project"), Wish("project", tokens=10)),
        seen=False,
        admitted=False,
        cascade="speculative",
    ).play,
    "two keys in one request, busy": Case(PAIR, before=PAIR).play,
    "two keys, one denied within a second of the last look": Case(
        PAIR, NOW + SECOND, before=ALL_OF_EVE, admitted=False
    ).play,
    "two keys, one denied, not seen": Case(
        PAIR, before=ALL_OF_EVE, seen=False, admitted=False
    ).play,
}
DEMANDED = {
    "a busy key": Cost(calls=1, written=1, read=0, wcu=1, rcu=0),
    "an idle key that the server has seen": Cost(calls=1, written=1, read=0, wcu=1, rcu=0),
    "an idle key that the server has not seen": Cost(calls=2, written=2, read=0, wcu=2, rcu=0),
    "a new key": Cost(calls=1, written=1, read=0, wcu=1, rcu=0),
    "a cascade of two levels, busy": Cost(calls=1, written=2, read=0, wcu=4, rcu=0),
    "a cascade of two levels, idle": Cost(calls=1, written=2, read=0, wcu=4, rcu=0),
}
"""No decision of these kinds may cost more, whatever the page says."""


DECIDED = {"50 requests that wait for one key, together": 50}
"""How many decisions a play is, where it is more than one."""


def dollars(write_units: float, read_units: float, form: str) -> str:
    """What a million times these units cost, by the prices that the page assumes."""
    text = " ".join(PAGE.read_text().split())
    found = re.search(
        r"\$([\d.]+) for a million write units, and \$([\d.]+) for a million read", text
    )
    assert found is not None
    write, read = map(float, found.groups())
    return f"${write_units * write + read_units * read:{form}}"


class Page(NamedTuple):
    """The tables of the page: of each row the cells, by the first of them."""

    decisions: dict[str, list[str]]
    busy: dict[str, list[str]]
    sizes: dict[str, list[str]]
    designs: dict[str, list[str]]
    measured: dict[str, list[str]]


def read_page() -> Page:
    tables: list[dict[str, list[str]]] = []
    before = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("|") and before.startswith("|"):
            first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            tables[-1][first] = cells
        elif line.startswith("|"):
            tables.append({})
        before = line
    for table in tables:
        del table["---"]
    return Page(*tables)


@pytest.mark.parametrize("name", PLAYS)
async def test_a_decision_costs_what_the_page_says(bench: Bench, name: str) -> None:
    """Counted on the wire, whatever the number of limits."""
    await PLAYS[name](bench)
    cost = bench.cost()
    decisions = DECIDED.get(name, 1)
    price = dollars(cost.wcu / decisions, cost.rcu / decisions, ".4g")
    assert [*map(str, cost), price] == read_page().decisions[name]
    assert all(map(le, cost, DEMANDED.get(name, cost)))


async def test_the_page_has_no_figure_that_is_not_counted() -> None:
    """And every one that is."""
    assert list(read_page().decisions) == list(PLAYS)
    assert f"the last {KEPT:,} keys" in PAGE.read_text()


async def test_stored_limits_cost_what_the_page_says(bench: Bench) -> None:
    """What is the same for all keys is read once: an unknown key costs its own reads."""
    policies = Policies(bench.process().policy, MINUTE, lambda: NOW)
    resource = bench.scene.resource
    bench.start()
    assert await policies.read([Key("first", resource)]) == [()]
    assert bench.cost().rcu == 3 + 2
    bench.start()
    keys = [Key(f"user-{n}", resource) for n in range(20)]
    assert await policies.read(keys) == [()] * 20
    assert await policies.read(keys) == [()] * 20
    assert bench.cost().rcu == 20 * 3
    text = " ".join(PAGE.read_text().split())
    assert "a server reads 3 items, so 3 RCU," in text
    assert "it reads 1 item for each resource, and 1 item for the system." in text


async def test_the_page_compares_with_what_is_counted() -> None:
    """The last column of the comparison is the store's own, from the figures above it."""
    page = read_page()
    for name, cells in page.designs.items():
        *_, wcu, rcu, _ = page.decisions[name.partition(":")[0]]
        parts = [f"{rcu} RCU"] * (rcu != "0") + [f"{wcu} WCU"] * (wcu != "0")
        assert cells[-1] == (" + ".join(parts) or "nothing")


# How large an item is: a write is charged for each kilobyte that was begun.

RATES = ("rpm", "tpm", "rph", "tph", "rpd", "tpd", "rpw", "tpw", "rpy", "tpy")
ITEMS = {
    "1 limit": RATES[:1],
    "2 limits": RATES[:2],
    "10 limits": RATES,
    "10 limits with names of 20 letters": tuple(f"requests-of-type-{n:03}" for n in range(10)),
}


def item_bytes(attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """By the rules of AWS: names and texts in UTF-8, a byte for two digits of a number and one."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in attributes.items())


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "BOOL":
        return 1
    text = str(content)
    if kind == "S":
        return len(text.encode())
    assert kind == "N"
    digits = text.lstrip("-").rstrip("0")
    return 1 + -(-len(digits) // 2) + text.startswith("-")


@pytest.mark.parametrize("name", ITEMS)
async def test_an_item_is_as_large_as_the_page_says(scene: Scene, name: str) -> None:
    """And DynamoDB charges as many units for writing it."""
    key, direct = Key("user-123", "gpt-4"), scene.connected.direct.sdk
    limits = tuple(Limit.per(10_000, MINUTE, name=limit) for limit in ITEMS[name])
    draws = tuple(Draw(number, 1_234_567) for number in range(len(limits)))
    table = scene.connected.location.table
    for now_ms in (NOW, NOW + 1_234):
        await scene.store.take([Take(key, limits, draws)], now_ms)
    item = (await direct.get_item(TableName=table, Key=primary_key(key)))["Item"]
    answer = await direct.put_item(TableName=table, Item=item, ReturnConsumedCapacity="INDEXES")
    await direct.delete_item(TableName=table, Key=primary_key(key))
    units = int(answer["ConsumedCapacity"]["Table"]["CapacityUnits"])
    assert units == -(-item_bytes(item) // 1024)
    assert read_page().sizes[name] == [str(item_bytes(item)), str(units)]


# What decisions cost on busy items: counted over virtual time, with a model of the table.


@pytest.mark.parametrize("name", LOADS)
async def test_a_busy_item_costs_what_the_page_says(name: str) -> None:
    """To a tenth, as the order in which servers come to the table is a matter of chance."""
    *_, counts = await asyncio.to_thread(LOADS[name].run)
    units, price = read_page().busy[name]
    assert float(units) == pytest.approx(wcu(counts), rel=0.1)
    assert counts.calls["read"] == 0
    assert price == dollars(float(units), 0, ".2g")


async def test_the_page_has_every_load_that_is_counted() -> None:
    """And no other."""
    assert list(read_page().busy) == list(LOADS)


async def test_a_busy_item_costs_one_write_for_a_hundred_decisions() -> None:
    """8 servers with 500 requests a second each, and everything that was admitted is on record."""
    traffic, begun, busy = await asyncio.to_thread(BUSY.run)
    assert busy.decisions > 11_000
    assert busy.denied == 0
    assert busy.writes_a_decision <= 0.01
    (bucket,) = traffic.table.images[HOT].item.buckets
    assert bucket.consumed == (begun.admitted + busy.admitted) * MILLI


async def test_without_taking_ahead_every_decision_waits_for_a_write() -> None:
    """The same load, so that the figure above says something."""
    *_, counts = await asyncio.to_thread(EXACT.run)
    assert counts.at_once == 0
    assert counts.writes_a_decision > 0.3


async def test_a_child_of_a_busy_parent_is_one_write_and_no_transaction() -> None:
    """200 children of one parent, 500 requests a second."""
    traffic, begun, busy = await asyncio.to_thread(CASCADE.run)
    assert busy.decisions > 1_900
    assert busy.calls["transaction"] == 0
    assert busy.writes_a_decision <= 1.1
    items = {key: image.item for key, image in traffic.table.images.items()}
    consumed = {key: item.buckets[0].consumed for key, item in items.items()}
    assert consumed.pop(TOP) == sum(consumed.values()) == (begun.admitted + busy.admitted) * MILLI


@pytest.mark.parametrize("servers", [1, 8])
async def test_a_flood_on_an_exhausted_bucket_is_denied_without_calls(servers: int) -> None:
    """A denial that had to ask is one in a hundred at most."""
    *_, flooded = await asyncio.to_thread(replace(FLOOD, servers=servers).run)
    assert flooded.denied > 1_400
    assert flooded.calls.total() <= 0.01 * flooded.denied


@pytest.mark.parametrize(
    "limit",
    [
        Limit.per(60_000, MINUTE, burst=2_000),
        Limit.per(500, SECOND // 2, burst=2_000, window=Window()),
    ],
    ids=["steady", "window"],
)
async def test_an_exhausted_bucket_gives_its_refill_to_all_servers(limit: Limit) -> None:
    """Nobody holds what others ask for: what refills is admitted, and no more."""
    traffic = Traffic(servers=4, per_s=500)
    (call,) = hot(limit)
    begun, empty = await asyncio.to_thread(traffic.run, lambda _: call, 2, 1.4)
    assert empty.denied > 500
    # Callers who waited in the last moment are answered a little later.
    supply = limit.burst + credit(limit, START, START + 3_420)
    admitted = (begun.admitted + empty.admitted) * MILLI
    tolerance = 0.02 * limit.burst if limit.window is None else 0
    assert 0.98 * supply <= admitted <= supply + tolerance
