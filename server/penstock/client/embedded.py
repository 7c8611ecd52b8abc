"""Leases on a store in this process, without a server."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from penstock.config.rates import parse_limits
from penstock.errors import ConfigError, MissingStoreError
from penstock.service.leases import Leases
from penstock.service.policies import Policies
from penstock.store.open import open_store
from penstock.store.port import Store

POLICY_KEPT_MS: Final = 60_000
"""How long limits that were read stay in force: the default of servers."""


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def open_leases(url: str, *, has_limits: bool) -> AsyncIterator[Leases]:
    """Open the store that a URL names. ConfigError if that can't be done.

    `has_limits`: the program brings limits. Without any, a new SQLite file would limit nothing, and
    hide a wrong path. So such a file is not made.
    """
    try:
        store = await open_store(url, creates=has_limits)
    except MissingStoreError as exc:
        how = "create it with `penstock limits set --create`, or give `limits` to penstock.open"
        raise ConfigError(f"{exc}; {how}") from exc
    try:
        yield leases_on(store, clock_ms)
    finally:
        await store.close()


def leases_on(store: Store, clock_ms: Callable[[], int]) -> Leases:
    policies = Policies(store.policy, POLICY_KEPT_MS, clock_ms)
    return Leases(store, policies, clock_ms, parse_limits)
