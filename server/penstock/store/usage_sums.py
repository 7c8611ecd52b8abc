"""Sums over the usage port: the children of a parent, and the top entities of a resource."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.core.usage import NOTHING, Used, Window, WindowUsage
from penstock.store.port import Store
from penstock.store.usage_port import UsageStore

PAGE: Final = 200
AT_ONCE: Final = 16
"""Children whose usage is read at the same time."""


class EntityUsage(NamedTuple):
    entity: str
    used: Used


async def read_children(
    store: Store,
    parent: str,
    window: Window,
    since_ms: int,
    until_ms: int,
    resource: str | None = None,
) -> list[WindowUsage]:
    """The windows of all direct children of a parent, child by child."""
    free = asyncio.Semaphore(AT_ONCE)

    async def read(child: str) -> list[WindowUsage]:
        async with free:
            return await store.usage.read(child, window, since_ms, until_ms, resource)

    found: list[WindowUsage] = []
    after: str | None = None
    while True:
        page = await store.policy.list_children(parent, after, PAGE)
        for windows in await asyncio.gather(*map(read, page.items)):
            found += windows
        after = page.next
        if after is None:
            return found


async def find_top(
    usage: UsageStore,
    resource: str,
    window: Window,
    since_ms: int,
    until_ms: int,
    count: int,
    limit: str | None = None,
) -> list[EntityUsage]:
    """The entities that used most of a resource, by the amount of a limit; None: by takes."""
    sums: dict[str, Used] = {}
    start_ms = window.start_ms(since_ms)
    if start_ms < since_ms:
        start_ms = window.next_ms(start_ms)
    while start_ms < until_ms:
        after: str | None = None
        while True:
            page = await usage.list_resource(resource, window, start_ms, after, PAGE)
            for one in page.items:
                sums[one.key.entity] = sums.get(one.key.entity, NOTHING).plus(one.used)
            after = page.next
            if after is None:
                break
        start_ms = window.next_ms(start_ms)
    entities = [EntityUsage(entity, used) for entity, used in sums.items()]
    entities.sort(key=lambda one: (-_amount(one.used, limit), one.entity))
    return entities[:count]


def sum_by_entity(windows: Iterable[WindowUsage]) -> list[EntityUsage]:
    sums: dict[str, Used] = {}
    for one in windows:
        sums[one.key.entity] = sums.get(one.key.entity, NOTHING).plus(one.used)
    return [EntityUsage(entity, used) for entity, used in sums.items()]


def sum_by_start(windows: Iterable[WindowUsage]) -> dict[int, Used]:
    sums: dict[int, Used] = {}
    for one in windows:
        sums[one.start_ms] = sums.get(one.start_ms, NOTHING).plus(one.used)
    return sums


def _amount(used: Used, limit: str | None) -> int:
    return used.takes if limit is None else used.amounts.get(limit, 0)
