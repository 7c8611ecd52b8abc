"""Loads on busy items, in virtual time. The page of costs has a row for each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.aws.location import ACCURACY

from tests.unit.store.dynamodb.traffic import Counts, Traffic

MINUTE = 60_000
HOT, TOP = Key("hot", "r"), Key("project", "r")
ONE = (Draw(0, MILLI),)
HUNDRED_THOUSAND = Limit.per(100_000, MINUTE)
CHILDREN = 200


def hot(limit: Limit) -> tuple[tuple[Take, ...]]:
    """The calls on one item: there is only one."""
    return ((Take(HOT, (limit,), ONE),),)


def children() -> tuple[tuple[Take, ...], ...]:
    """The calls of 200 children of one parent."""
    plenty, top = Limit.per(1_000, MINUTE), Take(TOP, (HUNDRED_THOUSAND,), ONE)
    return tuple((Take(Key(f"user{n}", "r"), (plenty,), ONE, TOP), top) for n in range(CHILDREN))


@dataclass(frozen=True)
class Load:
    """Requests of one kind, and for how long. Only what comes after the first seconds counts."""

    calls: Sequence[Sequence[Take]]
    servers: int = 8
    per_s: float = 500
    """Requests a second to each server."""
    accuracy: float = ACCURACY
    first_s: float = 1
    counted_s: float = 3

    @cache  # noqa: B019 - the few loads of this file live as long as the process
    def run(self) -> tuple[Traffic, Counts, Counts]:
        """The servers with their table, and what they did in the first seconds and thereafter."""
        traffic = Traffic(self.servers, self.per_s, self.accuracy)
        first, counted = traffic.run(self._choose, self.first_s, self.counted_s)
        return traffic, first, counted

    def _choose(self, random: Random) -> Sequence[Take]:
        return random.choice(self.calls)


def wcu(counts: Counts) -> float:
    """The write units of a decision, for items of up to a kilobyte.

    Transactions here are of two items, and each item in a transaction costs two units.
    """
    return (counts.writes + 4 * counts.calls["transaction"]) / counts.decisions


BUSY = Load(hot(HUNDRED_THOUSAND))
EXACT = Load(hot(HUNDRED_THOUSAND), accuracy=0, first_s=0.5, counted_s=1)
EXHAUSTED = Load(hot(HUNDRED_THOUSAND._replace(burst=5_000 * MILLI)), first_s=2.5, counted_s=0.5)
BY_THE_SECOND = Load(hot(Limit.per(5_000, 1_000)), first_s=0.5, counted_s=0.5)
WIDE = Load(hot(Limit.per(5_000, 1_000)), accuracy=0.1, first_s=0.5, counted_s=1)
CASCADE = Load(children(), servers=1, first_s=2, counted_s=4)
SHARED_CASCADE = Load(children(), servers=8, per_s=62.5, first_s=2, counted_s=4)
FLOOD = Load(hot(Limit.per(100, MINUTE)))
FASTER_FLOOD = Load(hot(Limit.per(1_000, MINUTE)), counted_s=1)

LOADS = {
    "100,000 a minute, 8 servers": BUSY,
    "100,000 a minute, 8 servers, `accuracy=0`": EXACT,
    "100,000 a minute, 8 servers, used up": EXHAUSTED,
    "5,000 a second, 8 servers": BY_THE_SECOND,
    "5,000 a second, 8 servers, `accuracy=0.1`": WIDE,
    "200 children of a busy parent, 1 server": CASCADE,
    "200 children of a busy parent, 8 servers": SHARED_CASCADE,
    "a flood on 100 a minute, used up, 8 servers": FLOOD,
    "a flood on 1,000 a minute, used up, 8 servers": FASTER_FLOOD,
}
