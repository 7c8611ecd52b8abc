"""Describes items in the spans of stores."""

from collections.abc import Sequence
from typing import Final

from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.core.windows import format_window
from penstock.telemetry.tracing import Span

MOST: Final = 16
"""The most names in a list. A group of callers may have thousands."""


def describe_items(span: Span, keys: Sequence[Key], limits: Sequence[Limit]) -> None:
    """Note the first item with its limits, for searches, and the names of all items in a list."""
    span.note("penstock.items", len(keys))
    if keys:
        span.note("penstock.entity", keys[0].entity)
        span.note("penstock.resource", keys[0].resource)
    if len(keys) > 1:
        span.note("penstock.entities", [key.entity for key in keys[:MOST]])
        span.note("penstock.resources", [key.resource for key in keys[:MOST]])
    if limits:
        span.note("penstock.limits", [limit_text(limit) for limit in limits[:MOST]])


def limit_text(limit: Limit) -> str:
    """A limit as text, such as `rpm=100/60000ms`. Most limits of rules have no name."""
    text = f"{limit.requests_per_unit}/{limit.period_ms}ms"
    if limit.window is not None:
        text += f" {format_window(limit.window)}"
    return f"{limit.name}={text}" if limit.name else text
