"""The keys that sign calls, from wherever the AWS SDK finds them, kept at hand for fast calls.

A call never waits for a refresh while the keys it has are valid. The SDK refreshes temporary keys
minutes before they expire; here this happens beside the calls.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from botocore.credentials import RefreshableCredentials
from botocore.exceptions import NoCredentialsError

from penstock.core.foreign_text import show
from penstock.store.dynamodb.aws.errors import MAX_SAID
from penstock.store.dynamodb.aws.signing import Keys

LOG: Final = logging.getLogger(__name__)

CHECK_EVERY_S: Final = 1.0
"""To ask the SDK whether a refresh is due costs more than to sign a call."""

FAILED_CHECK_S: Final = 10.0
"""After a refresh failed. The SDK begins 15 minutes before the keys expire."""

RESOLVE_EVERY_S: Final = 10.0
"""At most so often, the SDK looks anew for keys that are missing or that AWS refused: it asks other
services for them, which have their limits."""

Resolve = Callable[[], Awaitable[Any]]
"""Gives the SDK's credentials, or None if there are none."""


class CredentialCache:
    def __init__(self, resolve: Resolve, resolve_anew: Resolve, timer_s: Callable[[], float]):
        """`resolve_anew` must not know what was found before."""
        self._resolve = resolve
        self._resolve_anew = resolve_anew
        self._timer_s = timer_s
        self._source: Any = None
        self._keys: Keys | None = None
        self._check_at_s = 0.0
        self._missing_until_s = 0.0
        self._resolve_at_s = timer_s()
        self._refreshing: asyncio.Task[None] | None = None
        self._replacing: asyncio.Task[None] | None = None

    def at_hand(self) -> Keys | None:
        """The keys, if a call need not wait for them."""
        now_s = self._timer_s()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_EVERY_S
            if _has_expired(self._source):
                self._keys = None
            self._refresh()
        return self._keys

    async def wait(self) -> Keys:
        """The keys, once the SDK has them. Raises the errors of the SDK."""
        if self._timer_s() >= self._missing_until_s:
            await asyncio.shield(self._refresh())
        if self._keys is None:
            raise NoCredentialsError
        return self._keys

    async def replace(self, refused: Keys) -> bool:
        """Whether there are other keys than those that AWS refused. Looks for them, if need be."""
        if self._has_other(refused):
            return True
        if self._replacing is None:
            if self._timer_s() < self._resolve_at_s:
                return False
            self._resolve_at_s = self._timer_s() + RESOLVE_EVERY_S
            self._replacing = asyncio.create_task(self._replace())
        await asyncio.shield(self._replacing)
        return self._has_other(refused)

    async def close(self) -> None:
        tasks = [task for task in (self._refreshing, self._replacing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _has_other(self, refused: Keys) -> bool:
        return self._keys is not None and self._keys != refused

    def _refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._fetch())
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if task.cancelled() or (exc := task.exception()) is None:
            return
        self._check_at_s = self._timer_s() + FAILED_CHECK_S
        if self._keys is not None:
            LOG.warning(
                "AWS credentials can't be refreshed now; those in use are still valid: %s",
                show(str(exc), MAX_SAID),
            )

    async def _fetch(self) -> None:
        if self._source is None:
            self._source = await self._resolve()
        if self._source is not None:
            await self._freeze(self._source)
        else:
            self._missing_until_s = self._timer_s() + RESOLVE_EVERY_S

    async def _replace(self) -> None:
        try:
            source = await self._resolve_anew()
            if source is not None:
                await self._freeze(source)
                self._source = source
        except Exception as exc:  # noqa: BLE001 - any provider's; the call fails as AWS said
            LOG.warning("no new AWS credentials: %s", show(str(exc), MAX_SAID))
        finally:
            self._replacing = None

    async def _freeze(self, source: Any) -> None:
        frozen = await source.get_frozen_credentials()
        keys = Keys(frozen.access_key, frozen.secret_key, frozen.token)
        if keys != self._keys:
            self._keys = keys


def _has_expired(source: Any) -> bool:
    return isinstance(source, RefreshableCredentials) and bool(source.refresh_needed(0))
