"""What commands show: tables for people, JSON for scripts.

The law of this file: a terminal never acts on a stored name, whoever chose the name. Everything
that commands print goes through this file.
"""

import csv
import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from penstock.cli.encodings import writes_unicode
from penstock.config.rates import format_rate
from penstock.core.amounts import format_tokens, to_tokens
from penstock.core.calendars import find_zone
from penstock.core.entities import Entity, StoredLimits
from penstock.core.foreign_text import escape_json, show
from penstock.core.limits import Limit, Window
from penstock.core.windows import format_window

MAX_CELL: Final = 1_000
"""Characters of a cell. Every name fits. Metadata may be longer: JSON shows all of it."""

MAX_PRINTED: Final = 10_000
"""Characters of a line."""

_TAKES_NO_COLUMN: Final = {"Mn", "Me", "Cf"}
"""Kinds of characters: accents, joiners, marks of direction."""


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = ""
) -> list[str]:
    """Aligned columns, two blanks apart."""
    # Escape the cells before they are measured.
    shown = [[show(cell, MAX_CELL) for cell in row] for row in rows]
    table = [header, *shown] if header else shown
    widths = [max(map(text_width, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [
            cell + " " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def text_width(text: str) -> int:
    """How many columns a text takes: a Chinese character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    none = sum(unicodedata.category(char) in _TAKES_NO_COLUMN for char in text)
    return len(text) + wide - none


def print_line(line: str) -> None:
    print(show(line, MAX_PRINTED))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def print_json(value: Any) -> None:
    # The escapes for other encodings are not valid JSON, so JSON has to be ASCII there.
    text = json.dumps(value, indent=2, ensure_ascii=not writes_unicode())
    print(escape_json(text))


def print_csv(rows: Iterable[Sequence[str]]) -> None:
    """Print comma-separated values, with quotes where they are needed (RFC 4180)."""
    # Not the line ends of RFC 4180: other tools of a shell expect those of the shell.
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows([[show(cell, MAX_CELL) for cell in row] for row in rows])


def print_note(text: str) -> None:
    """Print to stderr what is not part of the answer: `… | wc -l` counts answers only."""
    print(show(text, MAX_PRINTED), file=sys.stderr)


def format_limits(limits: Sequence[Limit]) -> str:
    """Limits as `penstock limits set` takes them."""
    return " ".join(f"{limit.name}={format_rate(limit)}" for limit in _in_order(limits))


def _in_order(limits: Sequence[Limit]) -> list[Limit]:
    return sorted(limits, key=lambda limit: limit.name)


def limit_lines(limits: Sequence[Limit]) -> list[str]:
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
    return table_lines(header, rows, "  ")


def _burst(limit: Limit) -> str:
    return "-" if limit.is_unlimited else format_tokens(limit.burst)


def limit_values(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Limits as scripts see them."""
    return [
        {
            "name": limit.name,
            "rate": format_rate(limit),
            "tokens": None if limit.is_unlimited else to_tokens(limit.refill),
            "period_ms": limit.period_ms or None,
            "burst": None if limit.is_unlimited else to_tokens(limit.burst),
            "max_debt": None if limit.max_debt is None else to_tokens(limit.max_debt),
            "window": None if limit.window is None else _window_values(limit.window),
        }
        for limit in _in_order(limits)
    ]


def _window_values(window: Window) -> dict[str, Any]:
    values: dict[str, Any] = {"kind": window.kind, "carry_debt": window.carry_debt}
    if window.kind == "calendar":
        values |= {"timezone": window.timezone, "week_starts": window.week_starts}
    return values


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


def format_local_time(at_ms: int, window: Window | None) -> str:
    """The time in the zone of a calendar window, else in the zone of this machine."""
    zone = None
    if window is not None and window.kind == "calendar":
        zone = find_zone(window.timezone)
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(zone):%Y-%m-%d %H:%M %Z}"
