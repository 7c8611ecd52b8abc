"""A request: descriptors in a domain. A descriptor is a list of keys and values."""

from dataclasses import dataclass
from typing import Final

from penstock.core.limits import Unit

DEFAULT_MAX_BYTES: Final = 262_144
"""The most bytes of a request. Envoy accepts 60 KiB of headers, and a header may be in several
entries."""

MAX_DESCRIPTORS: Final = 256
MAX_ENTRIES: Final = 2_048
"""The most entries of all descriptors together. Envoy sends a few descriptors with a few entries.
2,048 entries take 15 ms to decode, match, decide and encode, and all other callers wait."""

Entries = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Override:
    """A rate in the request. It replaces the configured rate."""

    requests_per_unit: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Descriptor:
    entries: Entries
    hits: int | None = None
    """The descriptor's own amount. It goes before the request's amount."""
    refund: bool = False
    override: Override | None = None


@dataclass(frozen=True, slots=True)
class Request:
    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int = 0
    """The amount for descriptors without their own amount; 0 means 1."""

    @property
    def reports(self) -> bool:
        """Whether this may report usage. A report must land even if its caller has gone away."""
        return any(descriptor.hits or descriptor.refund for descriptor in self.descriptors)

    def amount(self, number: int) -> int:
        """The amount that a descriptor takes, or gives back."""
        hits = self.descriptors[number].hits
        return max(1, self.hits) if hits is None else hits
