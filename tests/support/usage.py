"""A store for tests of usage, with what counts it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.core.usage import NOTHING, Used, Window, WindowUsage, total
from penstock.store.port import Store

ALWAYS_MS = 10**14
"""Later than any time of a test."""


@dataclass(frozen=True, slots=True)
class Counted:
    store: Store
    catch_up: Callable[[], Awaitable[None]]
    """Works off what is under way."""
    has_own_clock: bool = False
    """The store's own clock says when a write was made, and not the caller's `now_ms`."""

    async def windows(
        self, entity: str, window: Window = Window.HOUR, resource: str | None = None
    ) -> list[WindowUsage]:
        """All windows of an entity, once everything is worked off."""
        await self.catch_up()
        return await self.store.usage.read(entity, window, 0, ALWAYS_MS, resource)

    async def total(self, entity: str, window: Window = Window.HOUR) -> Used:
        """The sum of all windows of an entity."""
        return total(one.used for one in await self.windows(entity, window))

    async def totals(self, entity: str) -> Used:
        """The sum of an entity's windows, which is the same for windows of every size."""
        found = [await self.total(entity, window) for window in Window]
        assert found == [found[0]] * len(found)
        return found[0] if found else NOTHING
