"""For whom two policies differ."""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.traffic.tally import PolicyTally, Who


class Comparison(NamedTuple):
    """Descriptors, with how often they were denied. Those that were denied most come first."""

    newly_limited: Mapping[Who, int]
    """Denied by the proposed policy, and never by the policy in force."""
    no_longer_limited: Mapping[Who, int]
    """Denied by the policy in force, and never by the proposed policy."""
    still_limited: int
    """How many are denied by both."""


def compare(in_force: PolicyTally, proposed: PolicyTally) -> Comparison:
    before, after = in_force.denied(), proposed.denied()
    return Comparison(
        _only_in(after, before), _only_in(before, after), len(before.keys() & after.keys())
    )


def _only_in(these: Mapping[Who, int], those: Mapping[Who, int]) -> dict[Who, int]:
    found = [(who, count) for who, count in these.items() if who not in those]
    return dict(sorted(found, key=lambda pair: (-pair[1], pair[0])))
