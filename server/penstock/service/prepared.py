"""Keeps requests that were worked out, by their bytes: clients send the same ones over and over.

The laws of this file: what is kept never changes, it is only replaced, so a call may hold on to it
across an await; and nothing is kept without bound, because clients choose the bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.entities import Chain
from penstock.core.match import Matched
from penstock.core.plan import Plan
from penstock.core.request import Descriptor, Request
from penstock.core.take import Key
from penstock.service.counting import Counts

KEPT: Final = 16_384
"""Requests. Working one out takes as long as deciding it."""

KEPT_BYTES: Final = 1_024
KEPT_DESCRIPTORS: Final = 8
KEPT_ENTRIES: Final = 64
"""Longer requests are rare, and clients choose what is in them: at most some 100 MB are kept."""


class Planned(NamedTuple):
    """What to take for a request, and where the decision on it is counted.

    These belong together: a call keeps the value that it began with, whatever other calls of the
    same request find out meanwhile.
    """

    plan: Plan
    counts: Counts
    chains: Sequence[Chain] = ()
    """The stored limits that the plan was made of."""
    metering: int = 0
    """The version of what was known of metering."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and what to take for it. Good for any number of calls under the same rules."""

    request: Request
    matched: Matched
    planned: Planned | None
    """None while stored limits were not looked up."""
    replans: bool
    """The plan changes with stored limits, or with what is learned of metering."""
    keys: tuple[Key, ...]
    """Whose stored limits the request needs; empty if rules alone decide."""
    has_checks: bool
    """Some descriptor asks with an amount of 0."""
    reports: bool
    """The request may report usage, so it must land even if its caller has gone away."""
    source: bytes = b""
    """The bytes that it is kept by; empty if it is not kept."""


class PreparedRequests:
    def __init__(self) -> None:
        self._kept: dict[bytes, Prepared] = {}

    def get(self, data: bytes) -> Prepared | None:
        return self._kept.get(data)

    def keep(self, prepared: Prepared) -> None:
        """Keep a request that was worked out for the first time; the oldest has to make room."""
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[prepared.source] = prepared

    def replace(self, old: Prepared, new: Prepared) -> None:
        """Keep a newer plan, unless the old one went meanwhile: the rules may be others by now."""
        if self._kept.get(old.source) is old:
            self._kept[old.source] = new

    def clear(self) -> list[Prepared]:
        """Keep nothing any longer. Returns what was kept, for the caller to free in slices."""
        kept, self._kept = self._kept, {}
        return list(kept.values())


def is_kept(data: bytes, descriptors: Sequence[Descriptor]) -> bool:
    """Whether to keep a request. An empty entry is two bytes on the wire, and sixty in memory."""
    if len(data) > KEPT_BYTES or len(descriptors) > KEPT_DESCRIPTORS:
        return False
    return sum([len(descriptor.entries) for descriptor in descriptors]) <= KEPT_ENTRIES


Decode = Callable[[bytes], Request]
"""Reads a request from its bytes. InvalidRequestError if that can't be done."""
