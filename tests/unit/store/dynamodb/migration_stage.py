"""A table of the older form that is being migrated, and stores that use it meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from penstock.core.bucket import Bucket
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.migration.run import TableMigration
from penstock.store.dynamodb.store import DynamoStore
from penstock.store.migration_port import Report

from tests.support.tables import PATIENT_S, access_to, never, new_table
from tests.unit.store.dynamodb.single_items import single_item

NOW = 1_794_792_780_000
RPM = Limit.per(60, 60_000, name="rpm")
TPM = Limit.per(1_000, 3_600_000, name="tpm", burst=5_000)
BOB = Key("bob", "gpt-4")


@dataclass(frozen=True)
class Stage:
    """A table that is being migrated, and stores that started meanwhile."""

    location: Location
    clients: Clients

    def store(self, *, is_migrating: bool | None = True, now_ms: int = NOW) -> DynamoStore:
        return DynamoStore(
            self.clients,
            self.location,
            timer_s=lambda: 0.0,
            call_s=PATIENT_S,
            clock_s=lambda: now_ms / 1000,
            is_migrating=is_migrating,
            later=never,
        )

    @property
    def migration(self) -> TableMigration:
        return self.migration_at(NOW)

    def migration_at(self, now_ms: int) -> TableMigration:
        return TableMigration(access_to(self.location.table, self.clients.sdk), now_ms)

    async def look(self, now_ms: int = NOW) -> Report:
        return await self.migration_at(now_ms).look(quiet)

    async def put(self, *items: dict[str, Any]) -> None:
        for item in items:
            await self.clients.sdk.put_item(TableName=self.location.table, Item=item)

    async def items(self) -> list[dict[str, Any]]:
        answer = await self.clients.sdk.scan(TableName=self.location.table, ConsistentRead=True)
        return list(answer["Items"])

    async def composite(self) -> dict[str, Any]:
        """The composite item of the only key."""
        (item,) = [item for item in await self.items() if item["SK"] == {"S": "#BUCKET#gpt-4"}]
        return item

    async def delete(self, item: dict[str, Any]) -> None:
        key = {name: item[name] for name in ("PK", "SK")}
        await self.clients.sdk.delete_item(TableName=self.location.table, Key=key)


@asynccontextmanager
async def set_migration_stage(dynamodb_url: str) -> AsyncIterator[Stage]:
    async with (
        new_table(dynamodb_url) as location,
        open_clients(location, PATIENT_S) as clients,
    ):
        stage = Stage(location, clients)
        await stage.migration.begin()
        yield stage


def quiet(_: str) -> None:
    """Nobody watches the progress."""


def take(key: Key = BOB, rpm: int = 1, tpm: int = 0) -> Take:
    draws = tuple(Draw(i, amount * MILLI) for i, amount in enumerate((rpm, tpm)) if amount)
    return Take(key, (RPM, TPM), draws, policy_ms=1)


def singles(key: Key = BOB, rpm: int = 10, tpm: int = 700) -> list[dict[str, Any]]:
    """What is left of each limit, at times of their own."""
    return [
        single_item(key, Bucket(RPM, rpm * MILLI, 5 * MILLI), NOW - 2_000),
        single_item(key, Bucket(TPM, tpm * MILLI, 9 * MILLI), NOW - 7_200, nested=True),
    ]


async def balances(store: DynamoStore, key: Key = BOB) -> dict[str, tuple[int, int]]:
    item = await store.read(key)
    assert item is not None
    return {
        b.limit.name: (b.balance(item.refilled_ms, NOW) // MILLI, b.consumed // MILLI)
        for b in item.buckets
    }
