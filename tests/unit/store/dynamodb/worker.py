"""A process with a store of its own, whose callers take from one table until they are denied.

It reads a job as a line of JSON, does it, answers with a line of JSON, and reads the next.
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Draw, Key, Take
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.location import ACCURACY, CALL_S, ClientName, Location
from penstock.store.dynamodb.buckets import holding
from penstock.store.dynamodb.store import DynamoStore

TOP = Key("project", "gpt-4")
"""The one item that all processes take from."""

MOST_MS = 200_000
"""Whatever happens, callers go home then. Only a machine that is very busy needs so long."""


@dataclass(frozen=True, slots=True)
class Job:
    table: str
    limit: list[Any]
    begins_ms: int
    """All processes begin together."""
    seed: int
    lasts_ms: int = 0
    """So long at least: callers stay until each was denied once after that."""
    children: int = 0
    """Entities below the one item, each with plenty of its own."""
    refusing: int = 0
    """So many of these entities have little of their own, so they refuse nearly every take."""
    gives_up: float = 0.0
    """The share of takes whose caller is gone after a moment."""
    callers: int = 50
    rests_s: float = 0.0
    """The longest time that a caller rests after it was admitted."""
    accuracy: float = ACCURACY
    call_s: float = CALL_S
    client_name: ClientName = "lean"


@dataclass(slots=True)
class Report:
    admitted: int = 0
    denied: int = 0
    cancelled: int = 0
    errors: list[str] = field(default_factory=list)
    """Takes that may be on record or not, as those of cancelled callers."""
    first_ms: int = 2**63
    """When the first take was asked for."""
    created_ms: int = 2**63
    """When the first one was admitted."""
    last_ms: int = 0
    """When the last one was admitted."""
    held: int = 0
    """Takes that were answered from what the process held."""
    lost: int = 0
    """Tokens held that may be on record or not, because a write got no answer."""
    longest_ms: int = 0
    """How long the slowest take took."""

    @property
    def unanswered(self) -> int:
        """The most tokens that may be on record at one level and not at the other: a child's write
        got no answer, or what was held of an item is lost."""
        return len(self.errors) + self.lost

    @property
    def unknown(self) -> int:
        """The most tokens that are on record and were not admitted."""
        return self.cancelled + self.unanswered


PLENTY = Limit.per(1_000_000, 86_400_000)
LITTLE = Limit.per(1, 365 * 86_400_000, burst=10)


def child(number: int) -> Key:
    return Key(f"user{number}", TOP.resource)


def now() -> int:
    return time.time_ns() // 1_000_000


class Callers:
    def __init__(self, store: DynamoStore, job: Job) -> None:
        self._store = store
        self._job = job
        self._random = random.Random(job.seed)
        self.report = Report()

    async def run(self) -> None:
        await asyncio.sleep(max(self._job.begins_ms - now(), 0) / 1000)
        await asyncio.gather(*[self._call(number) for number in range(self._job.callers)])

    async def _call(self, number: int) -> None:
        takes = self._takes(number)
        begun_ms = self._job.begins_ms
        while now() < begun_ms + MOST_MS:
            admitted = await self._take(takes)
            if admitted is False and now() >= begun_ms + self._job.lasts_ms:
                break
            rests_s = self._job.rests_s if admitted else 0.04
            if rests_s:
                await asyncio.sleep(self._random.uniform(0, rests_s))

    def _takes(self, number: int) -> list[Take]:
        draws = (Draw(0, MILLI),)
        limit = Limit(*self._job.limit)
        if limit.window is not None:
            limit = limit._replace(window=Window(*limit.window))
        top = Take(TOP, (limit,), draws)
        if not self._job.children:
            return [top]
        number %= self._job.children
        own = LITTLE if number < self._job.refusing else PLENTY
        return [Take(child(number), (own,), draws, TOP), top]

    async def _take(self, takes: list[Take]) -> bool | None:
        """Whether it was admitted; None if nobody knows."""
        asked_ms, report = now(), self.report
        report.first_ms = min(report.first_ms, asked_ms)
        try:
            async with asyncio.timeout(self._patience_s()):
                taken = await self._store.take(takes, asked_ms)
        except TimeoutError:
            report.cancelled += 1
            return None
        except StoreError as exc:
            report.errors.append(str(exc))
            return None
        report.longest_ms = max(report.longest_ms, now() - asked_ms)
        if not all(one.drawn[0].fits for one in taken):
            report.denied += 1
            return False
        report.admitted += 1
        report.created_ms = min(report.created_ms, now())
        report.last_ms = max(report.last_ms, now())
        return True

    def _patience_s(self) -> float | None:
        gives_up = self._random.random() < self._job.gives_up
        return self._random.uniform(0, 0.03) if gives_up else None


async def main(endpoint: str) -> None:
    # The store bounds the time of a call, as the job says. What is held goes back, however busy
    # the machine is.
    longest_s = MOST_MS / 1000
    setattr(holding, "CLOSES_WITHIN_S", longest_s)  # noqa: B010 - it is declared as final
    async with open_clients(Location("any", "eu-west-1", endpoint), longest_s) as clients:
        say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            job = Job(**json.loads(line))
            chosen = clients if job.client_name == "lean" else Clients.all_sdk(clients.sdk)
            location = Location(job.table, accuracy=job.accuracy)
            store = DynamoStore(chosen, location, call_s=job.call_s)
            callers = Callers(store, job)
            await callers.run()
            await store.close()
            store.metrics.families()
            callers.report.held = int(store.metrics.held_decisions.value)
            callers.report.lost = int(store.metrics.held_lost.value)
            say(json.dumps(asdict(callers.report)))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
