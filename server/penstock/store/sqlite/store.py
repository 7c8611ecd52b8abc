"""The store on a SQLite file: the port's methods as work for the writer."""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.bucket import Item
from penstock.core.limits import Limit
from penstock.core.take import Key, Take, Taken, take_all
from penstock.store.policy_port import PolicyStore
from penstock.store.sqlite.policy import SqlitePolicy
from penstock.store.sqlite.schema import Synchronous, open_file
from penstock.store.sqlite.writer import GroupWriter, Transaction
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Tracer


class SqliteStore:
    def __init__(
        self,
        path: Path,
        synchronous: Synchronous = "NORMAL",
        metrics: Metrics | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._writer = GroupWriter(open_file(path, synchronous), metrics, tracer)
        self.policy: PolicyStore = SqlitePolicy(self._writer)

    async def take(self, takes: Sequence[Take], now_ms: int) -> Sequence[Taken]:
        def work(transaction: Transaction) -> list[Taken]:
            taken = take_all(transaction.get, takes, now_ms)
            for number, outcome in enumerate(taken):
                if outcome.item is not None:
                    transaction.put(takes[number].key, outcome.item)
            return taken

        must_land = True in [take.must_land for take in takes]
        keys = [take.key for take in takes]
        return await self._writer.submit(
            keys, work, now_ms, must_land=must_land, limits=takes[0].limits
        )

    async def read(self, key: Key) -> Item | None:
        return await self._writer.submit([key], lambda transaction: transaction.get(key), 0)

    async def reset(self, key: Key, now_ms: int, limits: tuple[Limit, ...] = ()) -> bool:
        def work(transaction: Transaction) -> bool:
            item = transaction.get(key)
            if item is not None:
                transaction.put(key, item.reset(limits, now_ms))
            return item is not None

        return await self._writer.submit([key], work, now_ms)

    async def close(self) -> None:
        await self._writer.close()
