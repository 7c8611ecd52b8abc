"""Single calls about the table. Parses the answers of AWS, and translates its errors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.errors import DynamoError, Failure
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.sdk import explain
from penstock.store.dynamodb.table.schema import version_key
from penstock.store.dynamodb.table.state import TableState, parse_table


class CallError(DynamoError):
    """A call failed. Has the operation's name, and the error code of AWS if there is one."""

    def __init__(self, failure: Failure, operation: str) -> None:
        super().__init__(failure)
        self.operation = operation
        self.code: str = failure.response.get("Error", {}).get("Code", "")

    def for_operator(self, place: str) -> DynamoError | ConfigError:
        """A ConfigError if a retry can't help: then rights, credentials or names are wrong."""
        return self if self.transient else ConfigError(f"{place}: {self}")


async def call(client: Any, location: Location, operation: str, **arguments: Any) -> dict[str, Any]:
    """Call one operation on the table, once. CallError if it fails."""
    try:
        answer: dict[str, Any] = await getattr(client, operation)(
            TableName=location.table, **arguments
        )
    except Exception as exc:
        raise CallError(explain(exc), operation) from exc
    return answer


def name_place(client: Any, location: Location) -> str:
    """The table's name and region, for the beginning of a message."""
    at = f" at {location.endpoint}" if location.endpoint else ""
    return f"table {location.table} in {client.meta.region_name}{at}"


async def read_table(client: Any, location: Location) -> TableState | None:
    """The table and its version, without TTL. None if there is no such table."""
    try:
        described = await call(client, location, "describe_table")
        state = parse_table(described["Table"])
        if not state.is_readable or not state.has_our_key:
            return state
        found = await call(client, location, "get_item", Key=version_key(), ConsistentRead=True)
    except CallError as exc:
        # DescribeTable lags behind: it may show a table that GetItem no longer finds.
        if exc.code == "ResourceNotFoundException":
            return None
        raise
    item = found.get("Item")
    return state if item is None else replace(state, version=_plain(item))


async def read_ttl(client: Any, location: Location) -> str | None:
    """The attribute that has the TTL; None if TTL is off, or is being turned off."""
    answer = await call(client, location, "describe_time_to_live")
    described = answer["TimeToLiveDescription"]
    # The status is ENABLING for up to an hour. Nothing has to wait for that.
    is_on = described["TimeToLiveStatus"] in {"ENABLED", "ENABLING"}
    return described.get("AttributeName") if is_on else None


def _plain(item: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: str(value) for name, typed in item.items() for value in typed.values()}
