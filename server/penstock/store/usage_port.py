"""The third port: what entities consumed, in hours, days and months of UTC.

Nothing here is shaped by a kind of store. Takes fill the windows: there is nothing to write here.

The law of usage: the windows of one size add up to all that was ever consumed (`Bucket.consumed`).
Memory and SQLite show a take as soon as it is answered. DynamoDB shows a take once a worker
(`penstock aggregate`) has read it from the table's stream.
"""

from typing import Protocol

from penstock.core.usage import Window, WindowUsage
from penstock.store.policy_port import Page


class UsageStore(Protocol):
    """Every method raises StoreError if the store can't answer.

    A window in which nothing was consumed is left out. A window is kept until its time is over
    (`retention_port.py`), also if its entity is deleted.
    """

    async def read(
        self,
        entity: str,
        window: Window,
        since_ms: int,
        until_ms: int,
        resource: str | None = None,
    ) -> list[WindowUsage]:
        """The windows of an entity that begin at `since_ms` or later, and before `until_ms`.

        They come by resource, then by time. None for the resource: all resources.
        """
        ...

    async def list_resource(
        self, resource: str, window: Window, start_ms: int, after: str | None, count: int
    ) -> Page[WindowUsage]:
        """One window of every entity that used a resource, by entity.

        Pages as in the policy port: `after` is the `next` of the page before.
        """
        ...
