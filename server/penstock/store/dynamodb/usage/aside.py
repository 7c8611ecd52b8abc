"""Records that can't be counted: set aside in the table, for an operator to look at."""

import json
import logging
from typing import Any, Final, NamedTuple

from penstock.core.foreign_text import show
from penstock.store.dynamodb.aws.errors import DynamoError, Failure
from penstock.store.dynamodb.items.access import TableAccess
from penstock.store.dynamodb.items.images import EXPIRES, Attributes, number
from penstock.store.dynamodb.items.keys import Primary
from penstock.store.dynamodb.policy.listings import Listing, read_all
from penstock.store.dynamodb.usage.records import Record
from penstock.telemetry.tracing import NO_SPAN

LOG: Final = logging.getLogger(__name__)

PARTITION: Final = "ASIDE#"
KEPT_S: Final = 90 * 86_400
MAX_TEXT: Final = 100_000
"""Characters of a record that are kept. An item of DynamoDB has at most 400 KB."""


class Aside(NamedTuple):
    sequence: str
    why: str
    at_ms: int
    """When it was set aside."""
    record: str
    """As JSON, cut off if it is very long."""


async def set_aside(
    access: TableAccess, sequence: str, record: Record, why: str, now_ms: int
) -> None:
    """Keep a record that can't be counted. Doing this twice changes nothing."""
    text = json.dumps(record, default=str, ensure_ascii=False)
    item = Primary(PARTITION, sequence).attributes | {
        "why": {"S": show(why, 1_000)},
        "at_ms": number(now_ms),
        "record": {"S": text[:MAX_TEXT]},
        EXPIRES: number(now_ms // 1000 + KEPT_S),
    }
    answer = await access.call_once("put_item", {"Item": item}, NO_SPAN)
    if isinstance(answer, Failure):
        raise DynamoError(answer)
    access.metrics.usage_records.of("set_aside").add()
    LOG.error(
        "usage: record %s of the stream is set aside, and what it consumed is not counted: %s; "
        "penstock aggregate --set-aside shows it",
        sequence,
        show(why, 1_000),
    )


async def list_aside(access: TableAccess) -> list[Aside]:
    return [_parse(item) for item in await read_all(access, Listing(PARTITION))]


def _parse(item: Attributes) -> Aside:
    texts: dict[str, Any] = {name: item[name]["S"] for name in ("SK", "why", "record")}
    return Aside(texts["SK"], texts["why"], int(item["at_ms"]["N"]), texts["record"])
