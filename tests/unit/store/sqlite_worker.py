"""A process that takes from one bucket of a file, and prints how many were admitted so far.

It says when it is ready. For each of its first turns it waits for a line, so that a test decides
which process has its turn; then it goes on by itself.
"""

import asyncio
import sys
from pathlib import Path

from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.sqlite import SqliteStore

NOW = 1_794_792_817_591
CALLERS = 8


async def main(file: Path, burst: int, turns: int) -> None:
    store = SqliteStore(file)
    print("ready", flush=True)
    limit = Limit.per(burst, 86_400_000)
    take = Take(Key("user=bob", "$domain:d"), (limit,), (Draw(0, MILLI),))
    admitted = 0
    refused = False
    while not refused and admitted < 100_000:
        if turns > 0:
            await asyncio.to_thread(sys.stdin.readline)
            turns -= 1
        answers = await asyncio.gather(*[store.take([take], NOW) for _ in range(CALLERS)])
        fits = [taken[0].drawn[0].fits for taken in answers]
        admitted += sum(fits)
        refused = not all(fits)
        print(admitted, flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
