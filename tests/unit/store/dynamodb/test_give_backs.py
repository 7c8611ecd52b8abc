"""A server that holds tokens of a thousand items, in virtual time: all of them go back at once."""

import asyncio

from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.buckets.concurrency import WRITES_AT_A_TIME
from penstock.store.dynamodb.buckets.coordinator import Coordinator
from penstock.store.dynamodb.buckets.held import AGAIN
from penstock.store.dynamodb.buckets.terms import make_terms

from tests.support.virtual_time import run_virtually
from tests.unit.store.dynamodb.traffic import CALL_S, START, Counts, Traffic

ITEMS = 1_000
LIMIT = Limit.per(1_000, 60_000)
T_S = make_terms((LIMIT,)).tolerance_ms / 1000


async def take(server: Coordinator, entity: str) -> float:
    """Take one token; returns the seconds that it took."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    one = Take(Key(entity, "r"), (LIMIT,), (Draw(0, MILLI),))
    now_ms = START + int(start_s * 1000)
    if server.answer_at_once([one], now_ms) is None:
        taken = await server.decide([one], now_ms)
        assert taken[one.key].drawn[0].fits
    return loop.time() - start_s


def test_tokens_of_many_items_go_back_at_once_while_others_are_served() -> None:
    """Others wait no longer than ever, and everything that is held goes back, once."""
    traffic = Traffic(1, 0.0)
    (server,) = traffic.servers

    async def run() -> None:
        items = [f"user{n}" for n in range(ITEMS)]
        for _ in range(AGAIN + 1):
            await asyncio.gather(*[take(server, item) for item in items])
        held = server.holding.held
        assert held.tokens == ITEMS * AGAIN * MILLI
        traffic.counts = Counts()
        waited_s = []
        for n in range(100):  # for twice as long as anything is held
            waited_s.append(await take(server, f"other{n}"))
            await asyncio.sleep(T_S / 50)
        assert max(waited_s) < 2 * CALL_S
        assert held.tokens == 0
        assert server.holding.metrics.held_lost.value == 0
        assert traffic.counts.calls["write"] >= ITEMS + 100
        assert traffic.counts.most_under_way <= WRITES_AT_A_TIME + 1
        for item in items:
            (bucket,) = traffic.table.images[Key(item, "r")].item.buckets
            assert bucket.consumed == (AGAIN + 1) * MILLI

    run_virtually(run())
