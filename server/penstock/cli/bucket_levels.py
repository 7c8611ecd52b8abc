"""What is in buckets now, as `penstock bucket` tells it."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.cli.tables import format_local_time, format_time
from penstock.config.durations import format_duration
from penstock.config.limit_values import limit_values
from penstock.config.rates import format_rate
from penstock.core.amounts import to_tokens
from penstock.core.bucket import Item, settle, wait_ms
from penstock.core.limits import MILLI, Limit
from penstock.core.windows import next_boundary_ms

LATEST_MS: Final = 253_370_764_800_000
"""The beginning of the year 9999, in which calendars end."""


class Level(NamedTuple):
    """What is in a bucket now."""

    limit: Limit
    balance: int
    consumed: int
    full_in_ms: int | None
    """None: never. An unlimited limit has no bucket, so it is always full."""
    resets_ms: int | None = None
    """When the limit's window ends; None if the limit has no window."""
    passes_ms: int | None = None
    """When a token is there again; None: never, or not in the years that calendars know."""


def find_levels(limits: tuple[Limit, ...], item: Item | None, at_ms: int) -> Sequence[Level]:
    """The buckets as a take would find them now, under the limits in force."""
    in_buckets = bucket_limits(limits)
    refilled_ms, balances, consumed = settle(item, in_buckets, at_ms)
    levels = [
        Level(
            limit,
            balance,
            used,
            wait_ms(limit, balance, limit.burst, at_ms, refilled_ms),
            None if limit.window is None else next_boundary_ms(limit, max(at_ms, refilled_ms)),
            _passes_ms(limit, balance, at_ms, refilled_ms),
        )
        for limit, balance, used in zip(in_buckets, balances, consumed, strict=True)
    ]
    levels += [Level(limit, 0, 0, 0) for limit in limits if limit.is_unlimited]
    return sorted(levels, key=lambda level: level.limit.name)


def _passes_ms(limit: Limit, balance: int, at_ms: int, refilled_ms: int) -> int | None:
    wait = wait_ms(limit, balance, MILLI, at_ms, refilled_ms)
    return None if wait is None or at_ms + wait >= LATEST_MS else at_ms + wait


def bucket_limits(limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """The limits that have buckets."""
    return tuple([limit for limit in limits if not limit.is_unlimited])


def tell_next(level: Level) -> str:
    """When the bucket is full, or its window ends. With a debt that later windows repay, too: when
    the bucket passes again."""
    limit = level.limit
    if limit.is_unlimited:
        return "not counted"
    if limit.burst == 0:
        return "refuses all"
    if level.resets_ms is not None and level.balance < 0 and level.passes_ms != level.resets_ms:
        if level.passes_ms is None:
            return "in debt for thousands of years"
        return f"passes again {format_local_time(level.passes_ms, limit.window)}"
    if level.resets_ms is not None:
        return f"resets {format_local_time(level.resets_ms, limit.window)}"
    if level.full_in_ms is None:
        return "never full"
    if level.full_in_ms == 0:
        return "full"
    return f"full in {format_duration(-(-level.full_in_ms // 1000) * 1000)}"


def tell_left(level: Level) -> str:
    name = f"{level.limit.name} " if level.limit.name else ""
    if level.limit.is_unlimited:
        return f"{name}{format_rate(level.limit)}"
    return f"{name}{level.balance // MILLI} of {level.limit.burst // MILLI}"


def level_values(level: Level) -> dict[str, Any]:
    return {
        **limit_values(level.limit),
        "balance": None if level.limit.is_unlimited else level.balance // MILLI,
        "consumed": to_tokens(level.consumed),
        "full_in_ms": level.full_in_ms,
        "resets_at": None if level.resets_ms is None else format_time(level.resets_ms),
    }
