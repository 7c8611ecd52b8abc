"""A process that takes from two buckets in one transaction, again and again, until it is killed."""

import asyncio
import sys
from pathlib import Path

from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.sqlite import SqliteStore

NOW = 1_794_792_817_591
LIMITS = (Limit.per(1_000_000_000, 86_400_000),)
PAIR = [Take(Key(f"pair={n}", "r"), LIMITS, (Draw(0, MILLI),)) for n in range(2)]
ITEMS = 20_000
AT_ONCE = 500
MOST_TURNS = 1_000_000


async def main(file: Path) -> None:
    store = SqliteStore(file)
    for first in range(0, ITEMS, AT_ONCE):
        keys = [Key(f"user={n}", "r") for n in range(first, first + AT_ONCE)]
        await store.take([Take(key, LIMITS, (Draw(0, MILLI),)) for key in keys], NOW)
    for turn in range(MOST_TURNS):
        await store.take(PAIR, NOW)
        print(turn + 1, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
