"""The CPU time of a decision on a known key, each key another: with our client, and with aioboto3.

All that a store does for a decision is measured: the choice of the write, its expression, the call,
and the verdict from the answer.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import uvloop
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.items.images import Image, write_record
from penstock.store.dynamodb.store import DynamoStore

from tests.benchmarks.instant_endpoint import answering
from tests.support.tables import CLIENTS, PATIENT_S

CALLERS = 16
ROUNDS = 3
DECISIONS = {"lean": 2_000, "aioboto3": 500}
TARGET = 1 / 6

NOW = 1_794_792_780_000
LIMITS = {
    "1 limit": (Limit.per(100, 60_000),),
    "2 limits": (Limit.per(100, 60_000, name="rpm"), Limit.per(10_000, 60_000, name="tpm")),
}
LATER_MS = {"busy": 100, "idle": 30_000}
"""A busy key is consumed from. An idle key is settled first."""


def show_distinct_keys() -> None:
    """Print the CPU time of a decision on each client, and their ratio in the same round."""
    print(f"\nCPU of a decision on known, distinct keys of DynamoDB, {CALLERS} at once")
    for name, limits in LIMITS.items():
        with answering(_answer(limits)) as url:
            rounds = [uvloop.run(_round(url, limits)) for _ in range(ROUNDS)]
        for state in LATER_MS:
            figures = [
                statistics.median(one[client, state] for one in rounds) for client in CLIENTS
            ]
            told = ", ".join(f"{c} {us:,.0f} us" for c, us in zip(CLIENTS, figures, strict=True))
            ratio = statistics.median(one["lean", state] / one["aioboto3", state] for one in rounds)
            print(f"  {f'{name}, {state}':<20} {told:<40} ratio {ratio:.3f} (at most {TARGET:.3f})")


def _answer(limits: tuple[Limit, ...]) -> dict[str, Any]:
    """As DynamoDB answers each update: with the item, which is the same for all keys."""
    item = Item(NOW, tuple(Bucket(limit, limit.burst - MILLI, MILLI) for limit in limits), NOW)
    terms = make_terms(limits)
    image = Image(item, terms.expires_s(NOW), terms.fingerprint, None)
    return {
        "Attributes": write_record(_key(0), image),
        "ConsumedCapacity": {"TableName": "bench", "CapacityUnits": 1.0},
    }


def _key(number: int) -> Key:
    return Key(f"client_ip=10.1.{number // 256}.{number % 256}", "$domain:bench")


async def _round(url: str, limits: tuple[Limit, ...]) -> dict[tuple[str, str], float]:
    here = Location("bench", "eu-west-1", url)
    draws = tuple(Draw(number, MILLI) for number in range(len(limits)))
    cpu_us: dict[tuple[str, str], float] = {}
    for name in CLIENTS:
        takes = [Take(_key(number), limits, draws) for number in range(DECISIONS[name])]
        location = replace(here, client_name=name)
        async with open_clients(location, PATIENT_S) as clients:
            store = DynamoStore(clients, location, call_s=PATIENT_S)
            await _decide(store, takes, NOW)
            for state, later_ms in LATER_MS.items():
                start_s = time.process_time()
                await _decide(store, takes, NOW + later_ms)
                cpu_us[name, state] = (time.process_time() - start_s) / len(takes) * 1e6
            await store.close()
    return cpu_us


async def _decide(store: DynamoStore, takes: Sequence[Take], now_ms: int) -> None:
    left = iter(takes)

    async def caller() -> None:
        for take in left:
            begun = store.begin([take], now_ms)
            (taken,) = await begun if isinstance(begun, asyncio.Future) else begun
            assert taken.drawn[0].fits

    await asyncio.gather(*(caller() for _ in range(CALLERS)))


if __name__ == "__main__":
    show_distinct_keys()
