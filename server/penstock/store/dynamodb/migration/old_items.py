"""Single items: one limit of an entity and resource each. Never awaits.

Their attributes are at the top of the item, or inside of a map called `data`. Both forms exist.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from penstock.core.bucket import Bucket, Item
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.items.images import EXPIRES, Attributes, Image
from penstock.store.dynamodb.items.keys import BUCKETS, PK, SK, Primary, primary_of

CONVERTED: Final = "converted_ms"
"""On a single item: when it was converted. On a composite item: when single items became this item.
Every write to a composite item keeps the attribute, and a put of a new one drops it."""

LEFT_OUT: Final = "left_out"
"""On a single item: its composite item was there already when the single item was converted."""

TOKENS, REFILLED, CONSUMED = "tokens_milli", "last_refill_ms", "total_consumed_milli"
SAME: Final = (TOKENS, REFILLED, CONSUMED, "data")
"""Attributes that change whenever a single item changes."""

_PARAMETERS: Final = (
    "capacity_milli", "burst_milli", "refill_amount_milli", "refill_period_ms",
)  # fmt: skip
_PARTITION: Final = "ENTITY#"


class UnreadableItemError(ValueError):
    """A single item that can't be understood. The message names the item and the fault."""


class OldItem(NamedTuple):
    primary: Primary
    key: Key
    bucket: Bucket
    refilled_ms: int
    converted_ms: int | None
    is_left_out: bool
    expires_s: int | None
    seen: Attributes

    @property
    def is_converted(self) -> bool:
        return self.converted_ms is not None

    @property
    def is_merged(self) -> bool:
        """Whether a composite item was put that has what this item had."""
        at_ms = self.converted_ms
        return at_ms is not None and not self.is_left_out and not self.is_expired(at_ms)

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_s is not None and self.expires_s * 1000 <= now_ms


def is_single(attributes: Attributes) -> bool:
    """Whether an item is of the older form. A composite item's key has no `#` after its prefix."""
    sort = attributes[SK]["S"]
    return (
        attributes[PK]["S"].startswith(_PARTITION)
        and sort.startswith(BUCKETS)
        and "#" in sort.removeprefix(BUCKETS)
    )


def old_partition(entity: str) -> str:
    """The older form escapes nothing."""
    return _PARTITION + entity


def old_prefix(resource: str) -> str:
    return f"{BUCKETS}{resource}#"


def parse_old(attributes: Attributes) -> OldItem:
    primary = primary_of(attributes)
    values = {**attributes, **attributes.get("data", {}).get("M", {})}
    try:
        name = _text(values, "limit_name")
        capacity, burst, refill, period_ms = [_number(values, n) for n in _PARAMETERS]
        limit = Limit(name, capacity, burst, refill, period_ms)
        bucket = Bucket(limit, _number(values, TOKENS), _number(values, CONSUMED, 0))
        if limit.period_ms <= 0 or min(limit.capacity, limit.burst, limit.refill) < 0:
            raise ValueError("its rate is not possible")
        entity = _text(values, "entity_id", primary.partition.removeprefix(_PARTITION))
        key, refilled_ms = Key(entity, _text(values, "resource")), _number(values, REFILLED)
        expires_s = _number(values, EXPIRES) if EXPIRES in values else None
        converted_ms = _number(attributes, CONVERTED) if CONVERTED in attributes else None
    except (KeyError, ValueError, TypeError) as exc:
        raise UnreadableItemError(f"{primary.partition} {primary.sort}: {exc}") from exc
    return OldItem(
        primary,
        key,
        bucket,
        refilled_ms,
        converted_ms,
        LEFT_OUT in attributes,
        expires_s,
        attributes,
    )


def compose(olds: Sequence[OldItem]) -> Image:
    """The composite item that these items of one key make.

    Each has a time of its own, and a composite item has one. So all are settled up to the latest
    of their times. Credit telescopes: nothing is lost by that, and nothing is made.
    """
    refilled_ms = max(old.refilled_ms for old in olds)
    buckets = [
        old.bucket._replace(tokens=old.bucket.balance(old.refilled_ms, refilled_ms))
        for old in sorted(olds, key=lambda old: old.bucket.limit.name)
    ]
    item = Item(refilled_ms, tuple(buckets))
    terms = make_terms(tuple(bucket.limit for bucket in buckets))
    expires_s = terms.expires_s(refilled_ms, item.full_at_ms())
    return Image(item, expires_s, terms.fingerprint, None)


def unexpired(olds: Iterable[OldItem], now_ms: int) -> list[OldItem]:
    """Those that count. DynamoDB deletes expired items late, so until then they count as absent."""
    return [old for old in olds if not old.is_expired(now_ms)]


def _text(values: Attributes, name: str, default: str | None = None) -> str:
    if name not in values and default is not None:
        return default
    text: Any = values[name]["S"]
    if not text:
        raise ValueError(f"{name} is empty")
    return str(text)


def _number(values: Attributes, name: str, default: int | None = None) -> int:
    if name not in values and default is not None:
        return default
    return int(values[name]["N"])
