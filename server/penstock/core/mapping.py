"""Maps a descriptor to a stored entity, by the descriptor's keys and templates for its values.

Clients choose the values, so a filled template is escaped and cut: the name can't collide with the
name of another kind of item, and has a bounded length.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from penstock.core.entities import DEFAULT, MAX_NAME
from penstock.core.foreign_text import escape_name
from penstock.core.limits import MILLI
from penstock.core.request import Entries


class Amount(NamedTuple):
    """How much a descriptor takes of a limit, in millitokens."""

    fixed: int = 0
    per_hit: int = 0
    """What one hit of the descriptor's amount is worth."""

    def of(self, hits: int) -> int:
        return self.fixed + self.per_hit * hits


HITS: Final = Amount(per_hit=MILLI)
CHECK: Final = Amount()

Consume: TypeAlias = tuple[tuple[str, Amount], ...]
"""How much of which limit."""

_FIELD: Final = re.compile(r"\{([^{}]*)\}")


class Target(NamedTuple):
    """Whose limits a descriptor takes from."""

    entity: str
    resource: str
    consume: Consume | None = None
    """None: the descriptor's amount from every limit."""
    meter: tuple[str, ...] = ()
    """The mapping's meter: all amounts of a mapping are metered, or none."""


@dataclass(frozen=True, slots=True)
class Template:
    """Text with `{key}` for the value of an entry, and `{domain}` for the domain."""

    text: str

    def unknown(self, keys: Iterable[str]) -> list[str]:
        """Fields that no entry will fill."""
        known = {*keys, "domain"}
        return [name for name in _FIELD.findall(self.text) if name not in known]

    def fill(self, values: Mapping[str, str]) -> str:
        return safe_name(_FIELD.sub(lambda match: values[match[1]], self.text))


@dataclass(frozen=True, slots=True)
class EntityMapping:
    """What a descriptor with exactly these keys, in this order, stands for."""

    keys: tuple[str, ...]
    entity: Template
    resource: Template
    consume: Consume | None = None


@dataclass(frozen=True, slots=True)
class Mappings:
    """The mappings of a domain, and those that every domain has."""

    domain: str = ""
    by_keys: Mapping[tuple[str, ...], EntityMapping] = field(default_factory=dict)

    def target(self, entries: Entries) -> Target | None:
        """Find whose limits a descriptor takes from by the domain's own mappings."""
        mapping = self.by_keys.get(tuple([key for key, _ in entries]))
        if mapping is None:
            return None
        # If a key occurs twice, the last value counts.
        values = {**dict(entries), "domain": self.domain}
        entity, resource = mapping.entity.fill(values), mapping.resource.fill(values)
        return Target(entity, resource, mapping.consume, mapping.keys)

    def is_checked(self, limit: str) -> bool:
        """Tell whether some mapping takes 0 of a limit, so that another reports what was used."""
        return any((limit, CHECK) in (mapping.consume or ()) for mapping in self.by_keys.values())


def built_in_target(entries: Entries) -> Target | None:
    """`entity` and `resource`, or these and the one `limit` to take from."""
    keys = tuple([key for key, _ in entries])
    if keys not in {("entity", "resource"), ("entity", "resource", "limit")}:
        return None
    (_, entity), (_, resource), *limit = entries
    consume = tuple((name, HITS) for _, name in limit) or None
    # Each limit that is named is metered by itself: one may count requests, another one tokens.
    return Target(
        safe_name(entity), safe_name(resource), consume, (*keys, *[name for _, name in limit])
    )


def safe_name(name: str) -> str:
    """The name of an entity or resource that stands for a text from outside."""
    name = escape_name(name)
    if name.startswith("$") or name in {"", DEFAULT}:
        name = f"%{name}"
    if len(name) > MAX_NAME:
        name = f"{name[:64]}%%{sha256(name.encode()).hexdigest()}"
    return name
