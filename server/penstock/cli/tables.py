"""Limits and entities as commands show them: in tables for people, as values for scripts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from penstock.cli.styled import Table
from penstock.config.rates import format_rate
from penstock.core.entities import Entity, StoredLimits
from penstock.core.limits import MILLI, Limit


def format_limits(limits: Sequence[Limit]) -> str:
    """Limits as `penstock limits set` takes them."""
    return " ".join(f"{limit.name}={format_rate(limit)}" for limit in _in_order(limits))


def _in_order(limits: Sequence[Limit]) -> list[Limit]:
    return sorted(limits, key=lambda limit: limit.name)


def limit_table(limits: Sequence[Limit]) -> Table:
    limits = _in_order(limits)
    rows = [
        [limit.name, format_rate(limit).partition(",")[0], f"{limit.burst // MILLI}"]
        for limit in limits
    ]
    header = ["LIMIT", "RATE", "BURST"]
    if any(limit.max_debt is not None for limit in limits):
        header.append("MAX DEBT")
        for row, limit in zip(rows, limits, strict=True):
            row.append("-" if limit.max_debt is None else f"{limit.max_debt // MILLI}")
    return Table(header, rows, "  ")


def limit_values(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Limits as scripts see them."""
    return [
        {
            "name": limit.name,
            "rate": format_rate(limit),
            "tokens": limit.refill // MILLI,
            "period_ms": limit.period_ms,
            "burst": limit.burst // MILLI,
            "max_debt": None if limit.max_debt is None else limit.max_debt // MILLI,
        }
        for limit in _in_order(limits)
    ]


def stored_values(stored: StoredLimits) -> dict[str, Any]:
    """The limits of a scope as scripts see them, in every command."""
    return {
        "limits": limit_values(stored.limits),
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
