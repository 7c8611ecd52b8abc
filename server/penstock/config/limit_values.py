"""Limits as JSON, for scripts: one form in all commands and in the console."""

from collections.abc import Mapping
from typing import Any

from penstock.config.rates import format_rate
from penstock.core.amounts import to_tokens
from penstock.core.limits import Limit, Window
from penstock.core.windows import parse_window
from penstock.errors import StoreError


def limit_values(limit: Limit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "rate": format_rate(limit),
        "tokens": None if limit.is_unlimited else to_tokens(limit.refill),
        "period_ms": limit.period_ms or None,
        "burst": None if limit.is_unlimited else to_tokens(limit.burst),
        "max_debt": None if limit.max_debt is None else to_tokens(limit.max_debt),
        "window": None if limit.window is None else _window_values(limit.window),
    }


def _window_values(window: Window) -> dict[str, Any]:
    is_calendar = window.kind == "calendar"
    return {
        "kind": window.kind,
        "carry_debt": window.carry_debt,
        "timezone": window.timezone if is_calendar else None,
        "week_starts": window.week_starts if is_calendar else None,
    }


def recorded_limit(name: str, record: Mapping[str, Any]) -> Limit:
    """A limit as an audit event has it on record. StoreError for a window that this version does
    not know."""
    limit = Limit(name, **record)
    if "window" not in record:
        return limit
    try:
        return limit._replace(window=parse_window(record["window"]))
    except ValueError as exc:
        raise StoreError(
            f"the audit has a window of limit '{name}' that this version does not know ({exc}): "
            "run the version that wrote it",
            transient=False,
            kind="unknown_window",
        ) from exc
