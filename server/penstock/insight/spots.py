"""Spots: under which rule, entity and resource a descriptor is counted. Worked out for each plan.

The law of this file: a spot keeps its own part of a plan, and not the whole plan, which may have
hundreds of parts. Clients choose entities, but the length of their names is bounded where they are
made (`core/keys.py`, `core/mapping.py`). So names are kept whole, and lead to buckets and denials.
"""

from typing import Final, NamedTuple

from penstock.core.amounts import to_tokens
from penstock.core.decision import Status
from penstock.core.limits import Limit
from penstock.core.mapping import Target
from penstock.core.match import Matched
from penstock.core.plan import STORED, Part, Plan
from penstock.core.request import Request
from penstock.core.take import Key

OVERRIDE: Final = "override"


class Refusal(NamedTuple):
    """The limit that refused a descriptor."""

    entity: str
    """Whose limit it is."""
    limit: Limit
    amount: int | float


class Spot:
    """Where a descriptor is counted. Compared by identity, which is quick."""

    __slots__ = ("_keys", "_part", "key", "number", "rule")

    def __init__(self, number: int, rule: str, key: Key, plan: Plan, part: Part) -> None:
        self.number = number
        """Of the descriptor."""
        self.rule = rule
        self.key = key
        self._part = part
        self._keys = tuple([plan.takes[leg.take].key for leg in part.legs])

    def find_refusal(self, limit: Limit) -> Refusal:
        """Whose limit it is, and how much was asked of it. `limit` is that of the status."""
        for (entity, resource), leg in zip(self._keys, self._part.legs, strict=True):
            if limit in leg.limits:
                amount = to_tokens(leg.amounts[leg.limits.index(limit)])
                if self._part.rule is STORED:
                    # Answers name stored limits by their entity and resource, too.
                    limit = limit._replace(name=limit.name.removeprefix(f"{entity}/{resource}/"))
                return Refusal(entity, limit, amount)
        raise LookupError(f"no limit {limit.name} in this part of the plan")


Spots = tuple[Spot, ...]


def spots_of(matched: Matched, request: Request, plan: Plan) -> Spots:
    """One for each descriptor that is limited. Refunds ask for nothing."""
    domain = matched.domain
    if domain is None:
        return ()
    spots = []
    for number, (part, found) in enumerate(zip(plan.parts, matched.found, strict=True)):
        descriptor = request.descriptors[number]
        if isinstance(part, Status) or descriptor.refund:
            continue
        if isinstance(found, Target):
            keys = ", ".join([key for key, _ in descriptor.entries])
            rule = mapping_label(domain.name, keys)
            key = Key(found.entity, found.resource)
        else:
            rule = part.rule.path or f"{domain.name} {OVERRIDE}"
            key = plan.takes[part.legs[0].take].key
        spots.append(Spot(number, rule, key, plan, part))
    return tuple(spots)


def mapping_label(domain: str, keys: str) -> str:
    """The name of the rule that a mapping stands for."""
    return f"{domain} [{keys}]"
