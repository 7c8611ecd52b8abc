"""What is asked: descriptors in a domain, each a list of keys and values."""

from dataclasses import dataclass
from typing import Final

from penstock.core.limits import Unit

DEFAULT_MAX_BYTES: Final = 262_144
"""Of a request. Envoy takes headers of up to 60 KiB, and a header may stand in a few entries."""

MAX_DESCRIPTORS: Final = 256
MAX_ENTRIES: Final = 2_048
"""Of all descriptors together. Envoy sends a handful of each. So many take 15 ms to decode, match,
decide and encode, and every other caller waits that long."""

Entries = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Override:
    """A rate that the request brings along, in place of the configured one."""

    requests_per_unit: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Descriptor:
    entries: Entries
    hits: int | None = None
    """The descriptor's own amount, which goes before the request's."""
    refund: bool = False
    override: Override | None = None


@dataclass(frozen=True, slots=True)
class Request:
    domain: str
    descriptors: tuple[Descriptor, ...]
    hits: int = 0
    """The amount for descriptors that bring none; 0 means 1."""

    @property
    def reports(self) -> bool:
        """Whether it may tell of what already happened, which is due even if nobody waits."""
        return any(descriptor.hits or descriptor.refund for descriptor in self.descriptors)

    def amount(self, number: int) -> int:
        """What a descriptor asks for, or gives back."""
        hits = self.descriptors[number].hits
        return max(1, self.hits) if hits is None else hits
