"""The buckets of an item as the text in its row: JSON, with the limits that they follow.

A bucket is a list: its tokens, what was consumed, and the four numbers of its limit. `forgiven`
follows if it is not 0. A limit that refills at boundaries has `forgiven` in any case, and then its
window, as text.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import Limit
from penstock.core.windows import format_window
from penstock.store.stored_windows import load_limit


def dump(item: Item) -> str:
    """JSON, put together from parts: most of it is the policy, which many items share."""
    buckets = []
    for limit, tokens, consumed, forgiven in item.buckets:
        name, policy, window = _policy(limit)
        more = f",{forgiven}{window}" if forgiven or window else ""
        buckets.append(f"{name}:[{tokens},{consumed},{policy}{more}]")
    return "{" + ",".join(buckets) + "}"


@lru_cache(maxsize=10_000)
def _policy(limit: Limit) -> tuple[str, str, str]:
    window = "" if limit.window is None else f",{json.dumps(format_window(limit.window))}"
    return json.dumps(limit.name), ",".join(map(str, limit[1:5])), window


def load(buckets: Mapping[str, list[Any]]) -> tuple[Bucket, ...]:
    """StoreError if a limit has a window that this version does not know."""
    return tuple([_load(name, *values) for name, values in buckets.items()])


def _load(
    name: str,
    tokens: int,
    consumed: int,
    capacity: int,
    burst: int,
    refill: int,
    period_ms: int,
    forgiven: int = 0,
    window: str | None = None,
) -> Bucket:
    limit = load_limit(name, capacity, burst, refill, period_ms, window)
    return Bucket(limit, tokens, consumed, forgiven)
