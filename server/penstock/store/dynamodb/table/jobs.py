"""Jobs on the table, one step at a time.

A step reads the table's state from AWS, and starts the next change. So a job may be interrupted,
repeated, or run twice at the same time. A step returns what to wait for, or None when the job is
done.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.table.calls import call, name_place, read_table, read_ttl
from penstock.store.dynamodb.table.report import find_mend
from penstock.store.dynamodb.table.schema import (
    Capacity,
    Extra,
    Index,
    Part,
    create_arguments,
    index_arguments,
    stream_arguments,
    ttl_arguments,
    version_arguments,
    version_key,
)
from penstock.store.dynamodb.table.state import (
    COMING,
    GOING,
    TableState,
    find_missing,
    find_obstacle,
    find_unfinished,
    find_wrong,
    waits_for,
)


class Job:
    def __init__(self, client: Any, location: Location) -> None:
        self.location = location
        self.table = location.table
        self.place = name_place(client, location)
        self.state: TableState | None = None
        self._client = client

    async def step(self) -> str | None:
        """Read the table's state."""
        self.state = state = await read_table(self._client, self.location)
        if state is not None and state.is_readable:
            self.state = replace(state, ttl=await read_ttl(self._client, self.location))
        return None

    async def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return await call(self._client, self.location, operation, **arguments)


class Creation(Job):
    """Creates the table, or adds what is missing, until the table can be used."""

    def __init__(
        self,
        client: Any,
        location: Location,
        *,
        created_by: str,
        stream: bool,
        capacity: Capacity | None,
        warm: Capacity | None,
    ) -> None:
        super().__init__(client, location)
        self.is_new = False
        self.added: list[str] = []
        self._created_by = created_by
        self._stream = stream
        self._capacity = capacity
        self._warm = warm

    async def step(self) -> str | None:
        await super().step()
        if self.state is None:
            self.is_new = True
            arguments = create_arguments(self._capacity, stream=self._stream, warm=self._warm)
            await self._call("create_table", **arguments)
            return f"creating table {self.table}"
        self._refuse_other_tables(self.state)
        waiting = waits_for(self.table, self.state)
        if not self.state.is_readable:
            return waiting
        for part in find_missing(self.state, stream=self._stream):
            if waiting and part not in {Extra.VERSION, Extra.TTL}:
                return waiting  # AWS makes one change to a table at a time
            self._note(part)
            await self._add(part, self.state)
            return f"adding {part}"
        return waiting if find_unfinished(self.state) else None

    def _note(self, part: Part) -> None:
        # Note the part before adding it. If the answer is lost, the next step finds the part there.
        if str(part) not in self.added:
            self.added.append(str(part))

    def _refuse_other_tables(self, state: TableState) -> None:
        if obstacle := find_obstacle(state):
            raise ConfigError(f"{self.place}: {obstacle}")
        if wrong := find_wrong(state, stream=self._stream):
            raise ConfigError(f"{self.place}: {'; '.join(wrong)}; then {find_mend(self.location)}")

    async def _add(self, part: Part, state: TableState) -> None:
        match part:
            case Extra.VERSION:
                await self._claim()
            case Extra.TTL:
                await self._call("update_time_to_live", **ttl_arguments())
            case Extra.STREAM:
                await self._call("update_table", **stream_arguments())
            case Index():
                await self._call("update_table", **index_arguments(part, state.capacity))

    async def _claim(self) -> None:
        """Put the version item, which marks the table as Penstock's.

        Penstock may delete a table with this mark, so the table must be empty.
        """
        found = await self._call("scan", Limit=1, ConsistentRead=True)
        ours = version_key()
        # Another `create` may have put the version item meanwhile.
        if any({name: item[name] for name in ours} != ours for item in found["Items"]):
            raise ConfigError(
                f"{self.place}: it has no version item, and it isn't empty, so it may be "
                "somebody else's: name another table"
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        await self._call("put_item", **version_arguments(self._created_by, now))


class Search(Job):
    """Finds the table if it exists. ConfigError if the table isn't Penstock's."""

    async def step(self) -> str | None:
        await super().step()
        if self.state is None:
            return None
        if self.state.status in {COMING, GOING}:
            return waits_for(self.table, self.state)
        if not self.state.is_ours:
            raise ConfigError(
                f"{self.place}: it has no version item, so it isn't Penstock's: not deleted"
            )
        return None


class Deletion(Search):
    """Deletes the table, and waits until AWS has deleted it."""

    def __init__(self, client: Any, location: Location) -> None:
        super().__init__(client, location)
        self._is_deleted = False

    async def step(self) -> str | None:
        waiting = await super().step()
        if waiting or self.state is None:
            return waiting
        # If a table is there after that, DescribeTable lags behind, or somebody created a new one.
        if not self._is_deleted:
            await self._call("delete_table")
            self._is_deleted = True
        return f"deleting table {self.table}"
