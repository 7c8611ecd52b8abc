"""Limits and entities as commands show them: in tables for people, as values for scripts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.cli.styled import Table
from penstock.config.limit_values import limit_values
from penstock.config.rates import format_rate
from penstock.core.amounts import format_tokens
from penstock.core.calendars import find_zone
from penstock.core.entities import Entity, StoredLimits
from penstock.core.limits import Limit, Window
from penstock.core.windows import format_window


def format_limits(limits: Sequence[Limit]) -> str:
    """Limits as `penstock limits set` takes them."""
    return " ".join(f"{limit.name}={format_rate(limit)}" for limit in _in_order(limits))


def _in_order(limits: Sequence[Limit]) -> list[Limit]:
    return sorted(limits, key=lambda limit: limit.name)


def limit_table(limits: Sequence[Limit]) -> Table:
    limits = _in_order(limits)
    rows = [[limit.name, format_rate(limit).partition(",")[0], _burst(limit)] for limit in limits]
    header = ["LIMIT", "RATE", "BURST"]
    if any(limit.window is not None for limit in limits):
        header.append("WINDOW")
        for row, limit in zip(rows, limits, strict=True):
            row.append("-" if limit.window is None else format_window(limit.window))
    if any(limit.max_debt is not None for limit in limits):
        header.append("MAX DEBT")
        for row, limit in zip(rows, limits, strict=True):
            row.append("-" if limit.max_debt is None else format_tokens(limit.max_debt))
    return Table(header, rows, "  ")


def _burst(limit: Limit) -> str:
    return "-" if limit.is_unlimited else format_tokens(limit.burst)


def limits_values(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Limits as scripts see them."""
    return [limit_values(limit) for limit in _in_order(limits)]


def stored_values(stored: StoredLimits) -> dict[str, Any]:
    """The limits of a scope as scripts see them, in every command."""
    return {
        "limits": limits_values(stored.limits),
        "on_unavailable": stored.on_unavailable or None,
        "version": stored.version,
    }


def entity_values(entity: Entity) -> dict[str, Any]:
    """An entity as scripts see it, in every command."""
    return {
        "name": entity.name,
        "parent": entity.parent,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
        "version": entity.version,
    }


def format_pairs(pairs: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(pairs.items()))


def format_time(at_ms: int) -> str:
    """UTC, to the second."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%d %H:%M:%SZ}"


def format_local_time(at_ms: int, window: Window | None) -> str:
    """The time in the zone of a calendar window, else in the zone of this machine."""
    zone = None
    if window is not None and window.kind == "calendar":
        zone = find_zone(window.timezone)
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone):%Y-%m-%d %H:%M %Z}"
