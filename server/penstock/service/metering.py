"""Learns which rules and mappings are metered: those that a client has asked with an amount of 0.

This knowledge is not stored. After a start, the server learns it again from the first checks. Until
then, no report must be lost. So in the first minute after a rule is loaded, an amount that does not
fit counts as a report. The price: a cost that is refused in this minute is charged, too, and its
client waits until this debt is repaid.
"""

from collections.abc import Iterator
from typing import Final, cast

from penstock.core.bucket import NEVER
from penstock.core.metering import Meter, mapping_meter, rule_meter
from penstock.core.rules import Rule, Rules
from penstock.core.take import Mode
from penstock.slices import Slices

LEARNS_MS: Final = 60_000
"""A client that meters checks before each request, so a minute shows at least one check."""

MAX_LEARNED: Final = 10_000
"""The most meters that no file names. The keys of overrides come from requests."""

METERS_A_SLICE: Final = 200
"""It takes 1 to 2 µs to look up a meter."""


class Metering:
    def __init__(self) -> None:
        self._metered: set[Meter] = set()
        self._loaded_ms: dict[Meter, int] = {}
        """The time at which each rule, mapping and domain was first loaded."""
        self._learned_ms: int = NEVER
        """The next time at which one of them has been loaded for a minute."""
        self._version = 0

    def use(self, rules: Rules, now_ms: int) -> Slices[None]:
        """Use these rules once all slices are done. Rules that stay keep their state."""
        loaded_ms: dict[Meter, int] = {}
        for number, meter in enumerate(_meters(rules), start=1):
            loaded_ms[meter] = self._loaded_ms.get(meter, now_ms)
            if number % METERS_A_SLICE == 0:
                yield
        self._loaded_ms = loaded_ms
        self._metered = {
            meter
            for meter in self._metered
            if meter in loaded_ms or (meter[0] != "rule" and _domain_meter(meter[1]) in loaded_ms)
        }
        self._look_ahead(now_ms)

    def version_at(self, now_ms: int) -> int:
        """The version of this knowledge. A plan of another version is out of date."""
        if now_ms >= self._learned_ms:
            self._look_ahead(now_ms)
        return self._version

    def own_amount(self, meter: Meter, now_ms: int) -> Mode:
        """The mode in which to take a descriptor's own amount."""
        if meter in self._metered:
            return Mode.CHARGE
        loaded_ms = self._loaded_ms.get(meter)
        if loaded_ms is None:  # a built-in mapping, or an override
            loaded_ms = self._loaded_ms.get(_domain_meter(meter[1]), now_ms)
        return Mode.TAKE_OR_CHARGE if now_ms < loaded_ms + LEARNS_MS else Mode.TAKE

    def learn(self, meters: tuple[Meter, ...]) -> None:
        """Remember that a client asked these meters with an amount of 0."""
        new = [meter for meter in meters if meter not in self._metered]
        if new and len(self._metered) < len(self._loaded_ms) + MAX_LEARNED:
            self._metered.update(new)
            self._version += 1

    def _look_ahead(self, now_ms: int) -> None:
        ends_ms = {loaded_ms + LEARNS_MS for loaded_ms in self._loaded_ms.values()}
        self._learned_ms = min([end_ms for end_ms in ends_ms if end_ms > now_ms], default=NEVER)
        self._version += 1


def _domain_meter(name: str) -> Meter:
    return "domain", name


def _meters(rules: Rules) -> Iterator[Meter]:
    for domain in rules.values():
        yield _domain_meter(domain.name)
        for keys in domain.mappings.by_keys:
            yield mapping_meter(domain.name, keys)
        for nodes in domain.rule_nodes():
            yield rule_meter(domain.name, cast("Rule", nodes[-1].rule).path)
