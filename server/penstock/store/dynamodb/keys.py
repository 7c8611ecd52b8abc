"""Keys of the one table: escaped, so that no name can pose as another key, and of bounded size."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from penstock.core.entities import DEFAULT, Scope
from penstock.core.take import Key

PK: Final = "PK"
SK: Final = "SK"
VERSION_KEY: Final = ("SYSTEM#", "#VERSION")

MAX_BYTES: Final = 900
"""DynamoDB takes 1,024 bytes in a sort key, and an entity stands in one behind `BUCKET#`."""

BUCKETS: Final = "#BUCKET#"
CONFIGS: Final = "#CONFIG#"
AUDITS: Final = "#AUDIT#"
CHILDREN: Final = "CHILD#"
"""What sort keys of a kind begin with."""

ENTITIES: Final = "ENTITIES"
SCOPES: Final = "SCOPES"
"""Partitions of indexes that list all entities, and all that has limits."""

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
    """Where everything about an entity lives."""
    return f"ENTITY#{_part(entity)}"


def bucket_sort(resource: str) -> str:
    return f"{BUCKETS}{_part(resource)}"


def resource_partition(resource: str) -> str:
    """In the index of resources."""
    return f"RESOURCE#{_part(resource)}"


def bucket_of(entity: str) -> str:
    """In the index of resources, behind the resource."""
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


def audit_key(subject: str, event: str) -> Primary:
    return Primary(audit_partition(subject), AUDITS + event)


def audit_partition(subject: str) -> str:
    return f"AUDIT#{_part(subject)}"


def parent_partition(parent: str) -> str:
    """In the index of children."""
    return f"PARENT#{_part(parent)}"


def child_of(entity: str) -> str:
    """In the index of children, behind the parent."""
    return CHILDREN + _part(entity)


def entity_config_partition(resource: str | None) -> str:
    """In the index of entities that have limits of their own."""
    return f"ENTITY_CONFIG#{_part(resource or DEFAULT)}"


def listed(entity: str) -> str:
    """In an index whose partition holds nothing but entities: by name, but for `#` and `%`."""
    return _part(entity)


def listed_scope(scope: Scope) -> str:
    """In the index of all that has limits: by entity, then by resource, all before one."""
    # A tab is below all that a name may have, so that `a` with all its resources is before `a b`.
    names = [name.translate(_ESCAPES) for name in (scope.entity or "", scope.resource or "")]
    return _bounded("\t".join(names))


def _part(text: str) -> str:
    return _bounded(text.translate(_ESCAPES))


def _bounded(escaped: str) -> str:
    data = escaped.encode()
    if len(data) <= MAX_BYTES:
        return escaped
    # No escaped text has two `%` in a row, so a hash never meets a name.
    return f"{escaped[:64]}%%{sha256(data).hexdigest()}"
