"""The buckets of an item as the text in its row: JSON, with the limits that they follow."""

import json
from collections.abc import Mapping
from functools import lru_cache

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import Limit


def dump(item: Item) -> str:
    """JSON, put together from parts: most of it is the policy, which many items share."""
    buckets = []
    for limit, tokens, consumed, forgiven in item.buckets:
        name, policy = _policy(limit)
        more = f",{forgiven}" if forgiven else ""
        buckets.append(f"{name}:[{tokens},{consumed},{policy}{more}]")
    return "{" + ",".join(buckets) + "}"


@lru_cache(maxsize=10_000)
def _policy(limit: Limit) -> tuple[str, str]:
    return json.dumps(limit.name), ",".join(map(str, limit[1:5]))


def load(buckets: Mapping[str, list[int]]) -> tuple[Bucket, ...]:
    return tuple(
        [
            Bucket(_limit(name, cp, bx, ra, rp), tokens, consumed, *forgiven)
            for name, (tokens, consumed, cp, bx, ra, rp, *forgiven) in buckets.items()
        ]
    )


# Many items have the same limits: making each limit once saves a third of the time of a read.
_limit = lru_cache(maxsize=10_000)(Limit)
