"""Items of the older form, one for each limit, as their programs wrote them."""

from typing import Any

from penstock.core.bucket import Bucket
from penstock.core.take import Key


def single_item(
    key: Key, bucket: Bucket, refilled_ms: int, *, nested: bool = False, expires_s: int = 0
) -> dict[str, Any]:
    """`nested`: all but the counter is in a map, as the first versions had it."""
    limit = bucket.limit
    values: dict[str, Any] = {
        "resource": {"S": key.resource},
        "limit_name": {"S": limit.name},
        "tokens_milli": {"N": str(bucket.tokens)},
        "last_refill_ms": {"N": str(refilled_ms)},
        "capacity_milli": {"N": str(limit.capacity)},
        "burst_milli": {"N": str(limit.burst)},
        "refill_amount_milli": {"N": str(limit.refill)},
        "refill_period_ms": {"N": str(limit.period_ms)},
    }
    item = {
        "PK": {"S": f"ENTITY#{key.entity}"},
        "SK": {"S": f"#BUCKET#{key.resource}#{limit.name}"},
        "entity_id": {"S": key.entity},
        "total_consumed_milli": {"N": str(bucket.consumed)},
        "GSI2PK": {"S": f"RESOURCE#{key.resource}"},
        "GSI2SK": {"S": f"BUCKET#{key.entity}#{limit.name}"},
        **({"ttl": {"N": str(expires_s)}} if expires_s else {}),
    }
    return item | ({"data": {"M": values}} if nested else values)
