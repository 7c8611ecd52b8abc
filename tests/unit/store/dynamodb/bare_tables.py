"""Tables of DynamoDB Local as people make them without Penstock."""

from contextlib import suppress
from typing import Any

from penstock.store.dynamodb.aws.location import Location

from tests.support.tables import PATIENT_S, sdk_of

KEY = ("PK", "SK")


def locate(endpoint: str, table: str) -> Location:
    return Location(table, "eu-west-1", endpoint)


def aws(location: Location, operation: str, **arguments: Any) -> dict[str, Any]:
    """Call AWS as any other tool does."""
    answer: dict[str, Any] = getattr(sdk_of(location.endpoint), operation)(
        TableName=location.table, **arguments
    )
    return answer


async def call(location: Location, operation: str, **arguments: Any) -> dict[str, Any]:
    """The same, through a proxy in this event loop."""
    async with location.client(PATIENT_S) as client:
        answer: dict[str, Any] = await getattr(client, operation)(
            TableName=location.table, **arguments
        )
    return answer


def drop(location: Location) -> None:
    """Delete the table if it is there.

    DynamoDB Local has ten threads for its jobs, and each table with TTL keeps one: with eight such
    tables, no index is ever built.
    """
    client = sdk_of(location.endpoint)
    with suppress(client.exceptions.ResourceNotFoundException):
        client.delete_table(TableName=location.table)


def bare_table(
    key: tuple[str, str] = KEY, *indexes: dict[str, Any], kind: str = "S", **more: Any
) -> dict[str, Any]:
    """The arguments of CreateTable for a table with that key and no more than these indexes."""
    names = {each["AttributeName"] for index in indexes for each in index["KeySchema"]}
    arguments = {
        "KeySchema": key_schema(key),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": kind} for name in sorted({*key, *names})
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }
    if indexes:
        arguments["GlobalSecondaryIndexes"] = list(indexes)
    return arguments | more


def index(name: str, projection: str, key: tuple[str, str] | None = None) -> dict[str, Any]:
    return {
        "IndexName": name,
        "KeySchema": key_schema(key or (f"{name}PK", f"{name}SK")),
        "Projection": {"ProjectionType": projection},
    }


def key_schema(key: tuple[str, str]) -> list[dict[str, str]]:
    kinds = zip(key, ("HASH", "RANGE"), strict=True)
    return [{"AttributeName": name, "KeyType": kind} for name, kind in kinds]


def ttl_on(attribute: str) -> dict[str, Any]:
    """The arguments of UpdateTimeToLive."""
    return {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": attribute}}


def item(partition: str, sort: str, **values: str) -> dict[str, Any]:
    texts = {"PK": partition, "SK": sort, **values}
    return {name: {"S": text} for name, text in texts.items()}
