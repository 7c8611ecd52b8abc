"""A plan: what a request takes from which items, and which descriptor each part of it is for."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.decision import Status
from penstock.core.limits import Limit
from penstock.core.metering import Meter
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Rule
from penstock.core.take import Take


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How this server treats every request, whatever the rule."""

    shadow_mode: bool = False
    quota_mode: bool = False
    counting: RuleCounting = RuleCounting.STEADY
    key_prefix: str = ""
    """Keeps the buckets of rules apart from those of another server on the same store."""

    def counts_denied(self, limit: Limit) -> bool:
        """Whether a rule's limit counts denied requests, as the reference server does.

        A limit that is steady, or carries its debt, does not: a client that stays a little over its
        rate would get ever deeper into debt, and would never pass again.
        """
        return self.counting is RuleCounting.REFERENCE and limit.forgets_debt


DEFAULT_BEHAVIOUR: Final = Behaviour()

STORED: Final = Rule("", ())
"""The rule of a part that has stored limits."""


class Leg(NamedTuple):
    """What a descriptor asks of one take: an amount of each limit, by draws that stand together."""

    take: int
    first_draw: int
    limits: tuple[Limit, ...]
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A descriptor that is limited: by a rule, or by what is stored for an entity."""

    rule: Rule
    legs: tuple[Leg, ...]
    """One for a rule, one for each level of an entity's cascade."""
    quota: bool


@dataclass(frozen=True, slots=True)
class Plan:
    takes: tuple[Take, ...]
    parts: tuple[Part | Status, ...]
    """One for each descriptor. A status stands where there is nothing to ask the store."""
    quota_passes: bool
    """Some descriptor counts as a quota that is never over."""
    missing: tuple[str, ...] = ()
    """Limits that the request names and that do not exist."""
    checks: tuple[Meter, ...] = ()
    """The meters that are asked with an amount of 0."""
