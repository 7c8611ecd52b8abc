"""What is metered: rules and mappings whose amounts may be reports of what was already used.

Envoy checks with an amount of 0 when a request comes, and reports the real amount when the stream
ends. Other clients send the amount of a request as its cost, when it comes. Both send the amount in
the descriptor. So only the check tells them apart: whoever reports has checked before.
"""

from collections.abc import Callable
from typing import TypeAlias

from penstock.core.request import Entries
from penstock.core.take import Mode

Meter: TypeAlias = tuple[str, ...]
"""Names what is metered as a whole: a rule, a mapping of entities, or a kind of override."""

OwnAmounts: TypeAlias = Callable[[Meter], Mode]
"""How an amount that the descriptor itself brings is taken from a meter: CHARGE where it is a
report, TAKE where it is a cost, TAKE_OR_CHARGE while that is not known."""


def cost(_: Meter) -> Mode:
    """Take every amount for a cost."""
    return Mode.TAKE


def rule_meter(domain: str, path: str) -> Meter:
    return "rule", domain, path


def mapping_meter(domain: str, keys: tuple[str, ...]) -> Meter:
    return "entities", domain, *keys


def override_meter(domain: str, entries: Entries) -> Meter:
    """Overrides with the same keys come from one place of Envoy's configuration."""
    return "override", domain, *[key for key, _ in entries]
