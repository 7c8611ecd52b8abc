"""Finds what each descriptor stands for: an override, a stored entity, a rule, or nothing.

The first of these that applies wins, in this order: the request's own rate, a mapping of the
domain, a rule, the keys `entity` and `resource` that every domain knows. Rules go before these
built-in keys, so that rules with keys of these names keep their meaning.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.core.keys import override_key, rule_key
from penstock.core.limits import Limit
from penstock.core.mapping import Target, built_in_target
from penstock.core.metering import Meter, override_meter, rule_meter
from penstock.core.plan import DEFAULT_BEHAVIOUR, Behaviour
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Domain, Rule
from penstock.core.take import Key


class Ruled(NamedTuple):
    """A descriptor that a rule limits, or the rate that the request brings."""

    rule: Rule
    key: Key | None
    """The key of the item; None if the rule says unlimited."""
    meter: Meter


Found: TypeAlias = Ruled | Target | None


@dataclass(frozen=True, slots=True)
class Matched:
    """What a request is about, as the rules have it. It holds as long as the rules do."""

    domain: Domain | None
    """None if no rules name the request's domain. Then nothing else was looked for."""
    found: tuple[Found, ...]
    """One for each descriptor."""

    @property
    def stored_keys(self) -> tuple[Key, ...]:
        """The entities and resources whose stored limits are needed, each once."""
        keys = [Key(one.entity, one.resource) for one in self.found if isinstance(one, Target)]
        return tuple(dict.fromkeys(keys))


def match(
    domain: Domain | None, request: Request, behaviour: Behaviour = DEFAULT_BEHAVIOUR
) -> Matched:
    if domain is None:
        return Matched(None, (None,) * len(request.descriptors))
    return Matched(domain, tuple([_find(domain, one, behaviour) for one in request.descriptors]))


def _find(domain: Domain, descriptor: Descriptor, behaviour: Behaviour) -> Found:
    entries, override, key_prefix = descriptor.entries, descriptor.override, behaviour.key_prefix
    if override is not None:
        tokens, period_ms = override.requests_per_unit, override.unit.value
        rule = Rule("", (Limit.per(tokens, period_ms, window=behaviour.counting.window),))
        key = override_key(domain.name, entries, key_prefix)
        return Ruled(rule, key, override_meter(domain.name, entries))
    target = domain.mappings.target(entries)
    if target is not None:
        return target
    matched = domain.match(entries)
    if matched is None:
        return built_in_target(entries)
    rule, counted = matched
    bucket_key = rule_key(domain.name, counted, key_prefix) if rule.limits else None
    return Ruled(rule, bucket_key, rule_meter(domain.name, rule.path))
