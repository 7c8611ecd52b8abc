"""The worker that counts usage: killed in the middle, two at once, on real streams; and splits."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Mode, Take
from penstock.core.usage import HOUR_MS, USAGE_KEPT, UsageKept, Used, Window, total
from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.errors import Failure
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.streams import StreamCalls, open_streams
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.dynamodb.usage.aside import list_aside
from penstock.store.dynamodb.usage.booking import Books
from penstock.store.dynamodb.usage.opening import FindStream
from penstock.store.dynamodb.usage.records import PoisonError, read_record
from penstock.store.dynamodb.usage.store import DynamoUsage
from penstock.store.dynamodb.usage.worker import CLAIM_S, Aggregator
from penstock.telemetry.metrics import Metrics

from tests.support.tables import access_to, new_table, open_exact_on
from tests.support.usage import ALWAYS_MS
from tests.unit.store.dynamodb.fake_streams import (
    AT_S,
    FakeShard,
    FakeStreams,
    image,
    record,
)

RPM = Limit.per(1_000, 60_000, name="rpm")
NOW = AT_S * 1000


class DeadError(Exception):
    """The worker is killed."""


@dataclass
class Mortal:
    """A table as a worker has it that is killed at its `dies_at`-th write, before or after it."""

    access: TableAccess
    dies_at: int = -1
    lands: bool = False
    writes: int = 0

    @property
    def table(self) -> str:
        return self.access.table

    @property
    def metrics(self) -> Metrics:
        return self.access.metrics

    async def call_once(self, operation: Any, request: Any, span: Any) -> Any:
        self.writes += 1
        if self.writes > self.dies_at >= 0:
            raise DeadError
        if self.writes == self.dies_at:
            if self.lands:
                answer = await self.access.call_once(operation, request, span)
                assert not isinstance(answer, Failure)
            raise DeadError
        return await self.access.call_once(operation, request, span)

    async def call(self, operation: Any, **parameters: Any) -> Any:
        return await self.access.call(operation, **parameters)


@dataclass
class Scene:
    location: Location
    store: DynamoStore
    sdk: Any
    streams: StreamCalls
    timer_s: float = 0.0
    names: list[str] = field(default_factory=list)

    def access(self) -> TableAccess:
        return access_to(self.location.table, self.sdk)

    def worker(
        self, access: Any = None, streams: StreamCalls | None = None, arn: str = ""
    ) -> Aggregator:
        async def find() -> str:
            return arn

        self.names.append(f"worker-{len(self.names)}")
        return Aggregator(
            access or self.access(),
            streams or self.streams,
            find if arn else FindStream(self.sdk, self.location),
            me=self.names[-1],
            timer_s=lambda: self.timer_s,
            clock_s=lambda: AT_S,
        )

    async def total(self, entity: str) -> Used:
        usage = DynamoUsage(self.access())
        sums = [
            total(one.used for one in await usage.read(entity, window, 0, ALWAYS_MS))
            for window in Window
        ]
        assert sums == [sums[0]] * len(sums)
        return sums[0]

    async def take(self, entity: str, amount: int = 1, mode: Mode = Mode.TAKE) -> None:
        draw = Draw(0, amount * MILLI, mode)
        await self.store.take([Take(Key(entity, "gpt-4"), (RPM,), (draw,))], NOW)


@asynccontextmanager
async def open_scene(endpoint: str) -> AsyncIterator[Scene]:
    async with (
        new_table(endpoint, stream=True) as location,
        open_exact_on(location) as store,
        location.client(60) as sdk,
        open_streams(location) as streams,
    ):
        yield Scene(location, store, sdk, streams)


@pytest.fixture
async def scene(dynamodb_url: str) -> AsyncIterator[Scene]:
    async with open_scene(dynamodb_url) as opened:
        yield opened


@pytest.mark.parametrize("lands", [False, True], ids=["before", "after"])
async def test_a_worker_killed_at_any_write_leaves_exact_sums(scene: Scene, lands: bool) -> None:
    """The next worker goes on from the checkpoint, and counts nothing twice."""
    expected = 0
    for dies_at in range(1, 14):
        for n in range(3):
            await scene.take(f"user-{n}", n + 1)
        expected += 1
        worker = scene.worker(Mortal(scene.access(), dies_at, lands))
        try:
            for _ in range(3):
                await worker.turn()
        except DeadError:
            pass
        scene.timer_s += 2 * CLAIM_S
    survivor = scene.worker()
    await survivor.catch_up()
    scene.timer_s += 2 * CLAIM_S  # the dead worker's claim ends
    await survivor.catch_up()
    for n in range(3):
        assert await scene.total(f"user-{n}") == Used(expected, {"rpm": expected * (n + 1) * MILLI})


async def test_two_workers_on_the_same_shard_count_each_record_once(scene: Scene) -> None:
    """One takes the other for dead, and is wrong: both read on for a while."""
    one, other = scene.worker(), scene.worker()
    for n in range(20):
        await scene.take(f"user-{n % 2}")
    await one.turn()
    for n in range(20):
        await scene.take(f"user-{n % 2}", 2)
    await other.balance()
    scene.timer_s += CLAIM_S
    await other.balance()  # takes the shard of the first, which has not told that it is alive
    one._balanced_s = other._balanced_s = scene.timer_s  # noqa: SLF001 - both go on as they are
    await asyncio.gather(one.turn(), other.turn())
    for n in range(20):
        await scene.take(f"user-{n % 2}", 3)
    await asyncio.gather(one.catch_up(), other.catch_up())
    for n in range(2):
        assert await scene.total(f"user-{n}") == Used(30, {"rpm": 60 * MILLI})


async def test_a_worker_that_leaves_is_followed_at_once(scene: Scene) -> None:
    """Nobody waits for the end of its claim."""
    one, other = scene.worker(), scene.worker()
    await scene.take("bob")
    await one.catch_up()
    await other.catch_up()
    await one.leave()
    await scene.take("bob", 2)
    scene.timer_s += 10
    await other.catch_up()
    assert await scene.total("bob") == Used(2, {"rpm": 3 * MILLI})


async def test_one_count_waits_for_workers_that_may_be_dead(scene: Scene) -> None:
    """Until it knows: a worker that is alive counts its shards itself."""
    one, other = scene.worker(), scene.worker()
    await scene.take("bob")
    await one.turn()
    waits = []
    for is_alive in (False, True, False):
        if is_alive:
            await one.balance()
        await other.catch_up()
        waits.append(other.waits_for_others)
        scene.timer_s += CLAIM_S if is_alive else 10
    assert waits == [True, False, False]
    await scene.take("bob")
    await other.run_once()
    assert await scene.total("bob") == Used(2, {"rpm": 2 * MILLI})


async def test_a_second_count_of_the_whole_stream_adds_nothing(scene: Scene) -> None:
    """As after the loss of all checkpoints: the windows know what they count."""
    for amount in (1, 2, 4):
        await scene.take("bob", amount)
    await scene.take("bob", 3, Mode.REFUND)
    for _ in range(2):
        await scene.worker().catch_up()
        found = await scene.sdk.query(
            TableName=scene.location.table,
            KeyConditionExpression="PK = :pk",
            ExpressionAttributeValues={":pk": {"S": "STREAMS#"}},
        )
        label = found["Items"][0]["SK"]["S"]
        claims = await scene.sdk.query(
            TableName=scene.location.table,
            KeyConditionExpression="PK = :pk",
            ExpressionAttributeValues={":pk": {"S": f"STREAM#{label}"}},
        )
        for item in claims["Items"]:
            key = {name: item[name] for name in ("PK", "SK")}
            await scene.sdk.delete_item(TableName=scene.location.table, Key=key)
    assert await scene.total("bob") == Used(3, {"rpm": 4 * MILLI})


async def test_a_batch_is_one_write_for_each_window(scene: Scene) -> None:
    """However many records there are: an hour, a day and a month for each entity."""
    for n in range(30):
        await scene.take(f"user-{n % 2}")
    mortal = Mortal(scene.access())
    await scene.worker(mortal).turn()
    # Beside them: the note of the stream, the sign of life, the claim, and the checkpoint.
    assert mortal.writes == 2 * 3 + 4


async def test_a_poison_record_is_set_aside_and_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest is counted, and the record can be looked at."""
    await scene.take("bob")
    poison = {"PK": {"S": "ENTITY#eve"}, "SK": {"S": "#BUCKET#gpt-4"}, "rf": {"N": "1"}}
    await scene.sdk.put_item(TableName=scene.location.table, Item=poison)
    huge = {**image(Key("kim", "gpt-4"), 10**35, 1)}
    await scene.sdk.put_item(TableName=scene.location.table, Item=huge)
    huge["b_rpm_tc"] = {"N": str(-(10**37) * 9)}
    await scene.sdk.put_item(TableName=scene.location.table, Item=huge)
    await scene.take("bob", 2)
    access = scene.access()
    with caplog.at_level(logging.ERROR):
        await scene.worker(access).catch_up()
    assert await scene.total("bob") == Used(2, {"rpm": 3 * MILLI})
    (aside, *_) = await list_aside(access)
    assert "policy_ms" in aside.why
    assert "ENTITY#eve" in aside.record
    assert access.metrics.usage_records.of("set_aside").value == 1
    assert "is set aside" in caplog.text


async def test_what_a_window_cannot_hold_is_set_aside(scene: Scene) -> None:
    """DynamoDB has numbers of 38 digits. The windows of others are counted."""
    access, streams = scene.access(), FakeStreams()
    streams.shards["1/a"] = FakeShard(None)
    streams.write("1/a", "bob", 1)
    streams.write("1/a", "kim", 10**38 + 1)
    await scene.worker(access, streams, "t/stream/1").catch_up()
    assert await scene.total("bob") == Used(1, {"rpm": MILLI})
    assert {one.sequence for one in await list_aside(access)} == {
        streams.shards["1/a"].records[1]["dynamodb"]["SequenceNumber"]
    }


async def test_shards_that_split_are_read_in_order(scene: Scene) -> None:
    """A child only after its parent is counted to its end, however many pages of shards."""
    streams = FakeStreams()
    streams.shards["1/a"] = FakeShard("1/gone")
    worker = scene.worker(streams=streams, arn="t/stream/1")
    streams.write("1/a", "bob", 1)
    streams.write("1/a", "kim", 1)
    await worker.catch_up()
    streams.shards |= {name: FakeShard("1/a") for name in ("1/b", "1/c")}
    streams.shards |= {name: FakeShard("1/c") for name in ("1/d", "1/e")}
    streams.write("1/b", "bob", 2)
    streams.write("1/c", "kim", 8)
    streams.write("1/d", "kim", 4)
    streams.shards["1/a"].is_closed = streams.shards["1/c"].is_closed = True
    scene.timer_s += 10
    await worker.catch_up()
    assert await scene.total("bob") == Used(2, {"rpm": 3 * MILLI})
    assert (await scene.total("kim")).amounts == {"rpm": 13 * MILLI}
    first = {name: streams.read.index(name) for name in streams.shards}
    last = {name: len(streams.read) - streams.read[::-1].index(name) for name in streams.shards}
    for name, shard in streams.shards.items():
        if shard.parent in last:
            assert last[shard.parent] <= first[name]


async def test_workers_share_the_shards(scene: Scene) -> None:
    """Each reads its part; what one gives up, the other goes on with."""
    streams = FakeStreams()
    streams.shards = {f"1/{n}": FakeShard(None) for n in range(4)}
    one, other = (scene.worker(streams=streams, arn="t/stream/1") for _ in range(2))
    for turn in range(5):
        for n in range(4):
            streams.write(f"1/{n}", f"user-{n}", 1)
        await one.turn()
        await other.turn()
        scene.timer_s += 10
        if turn == 3:
            mine = [len(worker._readers) for worker in (one, other)]  # noqa: SLF001
            assert mine == [2, 2]
    await asyncio.gather(one.catch_up(), other.catch_up())
    for n in range(4):
        assert (await scene.total(f"user-{n}")).amounts == {"rpm": 5 * MILLI}


async def test_an_iterator_that_expired_is_made_anew(scene: Scene) -> None:
    """It lasts for a quarter of an hour; the shard goes on from the last record."""
    streams = FakeStreams({"1/a": FakeShard(None)})
    worker = scene.worker(streams=streams, arn="t/stream/1")
    streams.write("1/a", "bob", 1)
    await worker.turn()
    streams.expired.add("1/a 1")
    streams.write("1/a", "bob", 2)
    await worker.catch_up()
    assert (await scene.total("bob")).amounts == {"rpm": 3 * MILLI}


async def test_records_that_are_gone_are_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody read them for a day. What is there is counted."""
    streams = FakeStreams({"1/a": FakeShard(None)})
    for amount in (1, 2, 4):
        streams.write("1/a", "bob", amount)
    await scene.worker(streams=streams, arn="t/stream/1").turn()
    for amount in (8, 16):
        streams.write("1/a", "bob", amount)
    streams.shards["1/a"].trimmed = 4
    scene.timer_s += 2 * CLAIM_S
    access = scene.access()
    late = scene.worker(access, streams, "t/stream/1")
    await late.catch_up()
    scene.timer_s += 2 * CLAIM_S
    await late.catch_up()
    assert (await scene.total("bob")).amounts == {"rpm": (7 + 16) * MILLI}
    assert access.metrics.usage_gaps.value == 1
    assert "not read for more than a day" in caplog.text


async def test_a_stream_that_was_replaced_is_counted_to_its_end(scene: Scene) -> None:
    """Somebody turned it off and on again. The rest of the old one comes first."""
    streams = FakeStreams({"1/a": FakeShard(None), "2/a": FakeShard(None)})
    streams.write("1/a", "bob", 1)
    old = scene.worker(streams=streams, arn="t/stream/1")
    await old.turn()
    await old.leave()
    streams.write("1/a", "bob", 2)
    streams.write("2/a", "bob", 4)
    streams.shards["1/a"].is_closed = True
    new = scene.worker(streams=streams, arn="t/stream/2")
    await new.catch_up()
    scene.timer_s += 10
    await new.catch_up()
    assert (await scene.total("bob")).amounts == {"rpm": 7 * MILLI}
    del streams.shards["1/a"]  # a day later it is gone
    streams.write("2/a", "bob", 8)
    scene.timer_s += 10
    await new.catch_up()
    assert (await scene.total("bob")).amounts == {"rpm": 15 * MILLI}


async def test_a_table_without_a_stream_says_how_to_turn_it_on(dynamodb_url: str) -> None:
    """The command that mends it is in the message."""
    async with new_table(dynamodb_url) as location, location.client(60) as sdk:
        find = FindStream(sdk, location)
        with pytest.raises(ConfigError, match="penstock table create"):
            await find()
        missing = FindStream(sdk, Location("missing", "eu-west-1", dynamodb_url))
        with pytest.raises(ConfigError, match="there is no table missing"):
            await missing()


# Single records.

KEY = Key("bob", "gpt-4")


@pytest.mark.parametrize(
    ("before", "after", "used"),
    [
        (None, image(KEY, 3, 1), Used(1, {"rpm": 3 * MILLI})),
        (image(KEY, 3, 1), image(KEY, 5, 2), Used(1, {"rpm": 2 * MILLI})),
        (image(KEY, 5, 2), image(KEY, 4, 2), Used(0, {"rpm": -MILLI})),
        (image(KEY, 5, 2), image(KEY, 5, 2, rf=9), None),
        (image(KEY, 5, 2), None, None),
        (image(KEY, 5, 2, 5, 1), image(KEY, 3, 1, 1_000), Used(1, {"rpm": 3 * MILLI})),
        (image(KEY, 5, 2, 5, 2), image(KEY, 6, 3, 1_999), Used(1, {"rpm": MILLI})),
        (image(KEY, 5, 2, 5, 1), image(KEY, 6, 3, 5), Used(1, {"rpm": MILLI})),
    ],
    ids=[
        "insert", "modify", "adjust", "settle", "remove", "expired and new", "not expired",
        "consume",
    ],
)  # fmt: skip
def test_a_record_tells_what_was_consumed(before: Any, after: Any, used: Used | None) -> None:
    """An item that took the place of an expired one begins at 0; a deletion takes nothing back."""
    one = read_record(record(before, after, AT_S + 0.5))
    assert (one and one.used) == used
    if one is not None:
        assert (one.key, one.at_ms) == (KEY, NOW + 500)


def test_records_of_other_items_tell_nothing() -> None:
    """Of rules, of limits, of usage itself."""
    rule = Key("user=eve", "$domain:d")
    assert read_record(record(None, image(rule, 3, 1))) is None
    for sort in ("#META", "#USAGE#gpt-4#hour#2026-11-18T14", "#CONFIG#gpt-4"):
        other = {**image(KEY, 3, 1), "SK": {"S": sort}}
        assert read_record(record(None, other)) is None


@pytest.mark.parametrize("broken", [{}, {"dynamodb": None}, {"dynamodb": {"Keys": {}}}])
def test_a_record_that_is_none_is_poison(broken: dict[str, Any]) -> None:
    """Whatever is missing in it."""
    with pytest.raises(PoisonError):
        read_record(broken)


async def test_the_window_is_that_of_the_write(scene: Scene) -> None:
    """To the second, and not that of `rf`."""
    records = [
        record(image(KEY, n, n), image(KEY, n + 1, n + 1, rf=7), at_s)
        for n, at_s in enumerate((AT_S, AT_S + 3_599, AT_S + 3_600))
    ]
    await Books(scene.access()).count(records, NOW)
    usage = DynamoUsage(scene.access())
    found = await usage.read("bob", Window.HOUR, 0, ALWAYS_MS)
    hour = Window.HOUR.start_ms(NOW)
    assert [(one.start_ms - hour) // HOUR_MS for one in found] == [0, 1]
    assert sum(one.used.takes for one in found) == 3


async def test_the_ttl_of_a_window_is_that_of_the_setting(scene: Scene) -> None:
    """By its size. It changes with the next write, and 0 leaves none."""
    for n, kept in enumerate((USAGE_KEPT, UsageKept(0, 48 * HOUR_MS, 0), UsageKept(HOUR_MS, 0, 0))):
        one = record(image(KEY, n, n), image(KEY, n + 1, n + 1))
        await Books(scene.access(), kept=kept).count([one], NOW)
        items = (await scene.sdk.scan(TableName=scene.location.table))["Items"]
        found = {item["window"]["S"]: item for item in items if "window" in item}
        for window in Window:
            item, kept_ms = found[window.value], kept.of_ms(window)
            assert item["takes"] == {"N": str(n + 1)}
            expires = {"N": str((window.start_ms(NOW) + kept_ms) // 1000)} if kept_ms else None
            assert item.get("ttl") == expires
