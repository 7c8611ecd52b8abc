"""The keys of the table. Names are escaped, so that no two keys collide, and bounded in size."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from penstock.core.entities import DEFAULT, Scope
from penstock.core.take import Key

PK: Final = "PK"
SK: Final = "SK"
VERSION_KEY: Final = ("SYSTEM#", "#VERSION")

MAX_BYTES: Final = 900
"""A sort key has at most 1,024 bytes in DynamoDB. An entity is part of one, after `BUCKET#`."""

UNHASHED: Final = 64
"""Characters of a name that stay readable in a key that is hashed."""

BUCKETS: Final = "#BUCKET#"
CONFIGS: Final = "#CONFIG#"
AUDITS: Final = "#AUDIT#"
USAGES: Final = "#USAGE#"
CHILDREN: Final = "CHILD#"
"""The prefixes of sort keys."""

ENTITIES: Final = "ENTITIES"
SCOPES: Final = "SCOPES"
"""Partitions of indexes. They list all entities, and all scopes that have limits."""

_ESCAPES: Final = str.maketrans({"%": "%25", "#": "%23"})


class Primary(NamedTuple):
    """The key of an item of any kind."""

    partition: str
    sort: str

    @property
    def attributes(self) -> dict[str, dict[str, str]]:
        return {PK: {"S": self.partition}, SK: {"S": self.sort}}


def primary_of(attributes: Mapping[str, Any]) -> Primary:
    return Primary(attributes[PK]["S"], attributes[SK]["S"])


def partition(entity: str) -> str:
    """The partition of all items of an entity."""
    return f"ENTITY#{_part(entity)}"


def bucket_sort(resource: str) -> str:
    return f"{BUCKETS}{_part(resource)}"


def resource_partition(resource: str) -> str:
    """The partition of a resource, in the table and in the index of resources."""
    return f"RESOURCE#{_part(resource)}"


def is_listed_by_resource(resource: str) -> bool:
    """Whether the index of resources has the buckets of this resource.

    The index leaves out the buckets of rules, whose resources begin with `$`. Clients make up the
    entities of these buckets, such as addresses. In the index, all new buckets of a domain would
    go to one partition. DynamoDB throttles a partition above 1,000 writes a second, and a throttled
    index throttles the table.
    """
    return not resource.startswith("$")


def bucket_of(entity: str) -> str:
    """The sort key of a bucket in the index of resources."""
    return f"BUCKET#{_part(entity)}"


def bucket_key(key: Key) -> Primary:
    return Primary(partition(key.entity), bucket_sort(key.resource))


def primary_key(key: Key) -> dict[str, dict[str, str]]:
    return bucket_key(key).attributes


def meta_key(entity: str) -> Primary:
    return Primary(partition(entity), "#META")


def config_key(scope: Scope) -> Primary:
    if scope.entity is not None:
        return Primary(partition(scope.entity), CONFIGS + _part(scope.resource or DEFAULT))
    if scope.resource is not None:
        return Primary(resource_partition(scope.resource), "#CONFIG")
    return Primary("SYSTEM#", "#CONFIG")


def usage_prefix(resource: str, window: str = "") -> str:
    """The prefix of the sort keys of a resource's usage, or of its windows of one size."""
    return f"{USAGES}{_part(resource)}#" + (f"{window}#" if window else "")


def usage_key(key: Key, window: str, start: str) -> Primary:
    """`window` is hour, day or month, and `start` the window's name."""
    return Primary(partition(key.entity), usage_prefix(key.resource, window) + start)


def usage_of(window: str, start: str, entity: str | None = None) -> str:
    """The sort key of a window in the index of resources; without an entity, the prefix."""
    return f"USAGE#{window}#{start}#{'' if entity is None else _part(entity)}"


def audit_key(subject: str, event: str) -> Primary:
    return Primary(audit_partition(subject), AUDITS + event)


def audit_partition(subject: str) -> str:
    return f"AUDIT#{_part(subject)}"


def parent_partition(parent: str) -> str:
    """The partition of a parent in the index of children."""
    return f"PARENT#{_part(parent)}"


def child_of(entity: str) -> str:
    """The sort key of a child in the index of children."""
    return CHILDREN + _part(entity)


def entity_config_partition(resource: str | None) -> str:
    """The partition in the index of entities that have their own limits."""
    return f"ENTITY_CONFIG#{_part(resource or DEFAULT)}"


def listed(entity: str) -> str:
    """The sort key in an index partition of entities. Sorts by name, except for `#` and `%`."""
    return _part(entity)


def listed_prefix(prefix: str) -> str:
    """What the keys of all names with a prefix begin with. Keys of other names may, too."""
    return prefix.translate(_ESCAPES)[:UNHASHED]


def listed_scope(scope: Scope) -> str:
    """The sort key in the index of scopes: by entity, then by resource. An empty name is first."""
    # A tab sorts before every character of a name. So `a` with all its resources is before `a b`.
    names = [name.translate(_ESCAPES) for name in (scope.entity or "", scope.resource or "")]
    return _bounded("\t".join(names))


def _part(text: str) -> str:
    if "%" in text or "#" in text:
        text = text.translate(_ESCAPES)
    return _bounded(text)


def _bounded(escaped: str) -> str:
    if len(escaped) <= MAX_BYTES // 4:  # a character has at most four bytes
        return escaped
    data = escaped.encode()
    if len(data) <= MAX_BYTES:
        return escaped
    # No escaped name has two `%` in a row, so a hashed key never collides with a name.
    return f"{escaped[:UNHASHED]}%%{sha256(data).hexdigest()}"
