"""A cache of prepared requests, by their bytes. Clients send the same requests again and again.

The laws of this file: a cached value never changes, it is only replaced. So a call may use its
value across an await. And the cache is bounded, because clients choose the bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.entities import Chain
from penstock.core.match import Matched
from penstock.core.plan import Plan
from penstock.core.request import Descriptor, Request
from penstock.core.take import Key
from penstock.insight.spots import Spots
from penstock.service.counting import Counts

KEPT: Final = 16_384
"""The most requests in the cache. To prepare a request takes as long as to decide it."""

KEPT_BYTES: Final = 1_024
KEPT_DESCRIPTORS: Final = 8
KEPT_ENTRIES: Final = 64
"""Longer requests are not cached. They are rare, and clients choose their content. So the cache has
at most about 100 MB."""


class Planned(NamedTuple):
    """What to take for a request, and the counters of its decision.

    These belong together: a call keeps the value that it began with, whatever other calls of the
    same request find out meanwhile.
    """

    plan: Plan
    counts: Counts
    chains: Sequence[Chain] = ()
    """The stored limits that the plan was made from."""
    metering: int = 0
    """The version of the knowledge about metering."""
    spots: Spots = ()
    """Where the console counts the request."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and its plan. It serves any number of calls under the same rules."""

    request: Request
    matched: Matched
    planned: Planned | None
    """None until the stored limits have been read."""
    replans: bool
    """Whether the plan depends on stored limits, or on the knowledge about metering."""
    keys: tuple[Key, ...]
    """The keys whose stored limits the request needs. Empty if only rules apply."""
    has_checks: bool
    """Whether a descriptor asks with an amount of 0."""
    reports: bool
    """Whether the request may report usage. A report must land even if its caller is gone."""
    source: bytes = b""
    """The request's bytes, its key in the cache. Empty if the request is not cached."""


class PreparedRequests:
    def __init__(self) -> None:
        self._kept: dict[bytes, Prepared] = {}

    def get(self, data: bytes) -> Prepared | None:
        return self._kept.get(data)

    def keep(self, prepared: Prepared) -> None:
        """Add a request to the cache. If the cache is full, the oldest request is removed."""
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[prepared.source] = prepared

    def replace(self, old: Prepared, new: Prepared) -> None:
        """Store a newer plan. Do nothing if the old one was removed: the rules may have changed."""
        if self._kept.get(old.source) is old:
            self._kept[old.source] = new

    def clear(self) -> list[Prepared]:
        """Empty the cache. Return its old content, which the caller frees in slices."""
        kept, self._kept = self._kept, {}
        return list(kept.values())


def is_kept(data: bytes, descriptors: Sequence[Descriptor]) -> bool:
    """Whether to cache a request. An empty entry has two bytes on the wire, and sixty in memory."""
    if len(data) > KEPT_BYTES or len(descriptors) > KEPT_DESCRIPTORS:
        return False
    return sum([len(descriptor.entries) for descriptor in descriptors]) <= KEPT_ENTRIES


Decode = Callable[[bytes], Request]
"""Reads a request from its bytes. InvalidRequestError if this fails."""
