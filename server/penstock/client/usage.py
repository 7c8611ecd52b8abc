"""What entities consumed, for Python programs. The same as `penstock usage`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.core.amounts import to_tokens
from penstock.core.usage import Used, Window, WindowUsage
from penstock.store.open import open_store
from penstock.store.port import Store
from penstock.store.usage_sums import find_top, read_children

LATEST_MS: Final = 2**53
"""Later than any window."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What an entity consumed of a resource in one window."""

    entity: str
    resource: str
    start: datetime
    """When the window began, in UTC."""
    takes: int
    amounts: Mapping[str, int | float]
    """Tokens, by limit."""


@dataclass(frozen=True, slots=True)
class TopUsage:
    """What an entity consumed of a resource in all windows together."""

    entity: str
    takes: int
    amounts: Mapping[str, int | float]


async def read_usage(
    url: str,
    entity: str,
    window: str,
    resource: str | None,
    since: datetime | None,
    until: datetime | None,
    *,
    children: bool,
) -> list[Usage]:
    times = _ms(since, 0), _ms(until, LATEST_MS)
    async with _opened(url) as store:
        if children:
            found = await read_children(store, entity, Window(window), *times, resource)
        else:
            found = await store.usage.read(entity, Window(window), *times, resource)
    return [_usage(one) for one in found]


async def read_top_usage(
    url: str,
    resource: str,
    window: str,
    since: datetime,
    until: datetime | None,
    count: int,
    limit: str | None,
) -> list[TopUsage]:
    end_ms = _ms(until or datetime.now(UTC), 0)
    async with _opened(url) as store:
        found = await find_top(
            store.usage, resource, Window(window), _ms(since, 0), end_ms, count, limit
        )
    return [TopUsage(one.entity, one.used.takes, _tokens(one.used)) for one in found]


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, creates=False)
    try:
        yield store
    finally:
        await store.close()


def _usage(one: WindowUsage) -> Usage:
    start = datetime.fromtimestamp(one.start_ms / 1000, UTC)
    return Usage(one.key.entity, one.key.resource, start, one.used.takes, _tokens(one.used))


def _tokens(used: Used) -> dict[str, int | float]:
    return {limit: to_tokens(amount) for limit, amount in used.amounts.items()}


def _ms(time: datetime | None, default: int) -> int:
    if time is None:
        return default
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone: write datetime(…, tzinfo=UTC)")
    return int(time.timestamp() * 1000)
