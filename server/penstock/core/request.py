"""What is asked: descriptors in a domain, each a list of keys and values."""

from dataclasses import dataclass

from penstock.core.limits import Unit

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

    def amount(self, number: int) -> int:
        """What a descriptor asks for, or gives back."""
        hits = self.descriptors[number].hits
        return max(1, self.hits) if hits is None else hits
