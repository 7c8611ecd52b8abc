"""Metering: on metered rules and mappings, an amount may report what was already used.

A client that meters, such as Envoy, checks with an amount of 0 when a request comes, and reports
the real amount when the stream ends. Other clients send the cost of a request when the request
comes. Both send the amount in the descriptor. Only the check shows the difference: a client that
reports has checked before.
"""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.request import Entries
from penstock.core.take import Mode

Meter: TypeAlias = tuple[str, ...]
"""The name of something that is metered: a rule, a mapping of entities, or a kind of override."""

OwnAmounts: TypeAlias = Callable[[Meter], Mode]
"""Tells what a descriptor's own amount is on a meter: a report (CHARGE), a cost (TAKE), or not
known yet (TAKE_OR_CHARGE)."""


def cost(_: Meter) -> Mode:
    """Treat every amount as a cost."""
    return Mode.TAKE


def rule_meter(domain: str, path: str) -> Meter:
    return "rule", domain, path


def mapping_meter(domain: str, keys: tuple[str, ...]) -> Meter:
    return "entities", domain, *keys


def override_meter(domain: str, entries: Entries) -> Meter:
    """Overrides with the same keys come from one place in Envoy's configuration: one meter."""
    return "override", domain, *[key for key, _ in entries]
