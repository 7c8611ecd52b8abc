"""The second port: what is stored about entities, their limits, and who changed them.

Nothing here is shaped by a kind of store. Names are checked before they come here.
"""

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.core.entities import Entity, Lookup, Scope, StoredLimits
from penstock.core.take import Key

T = TypeVar("T")


class Change(NamedTuple):
    """Who changes something, and when: for the record."""

    by: str
    now_ms: int


class Page(NamedTuple, Generic[T]):
    items: tuple[T, ...]
    next: str | None = None
    """Where the next page begins; None after the last."""


class AuditEvent(NamedTuple):
    """A change that was made. `before` is None for what is new, `after` for what is gone.

    Both are plain JSON (`policy_laws.py`): the fields of an entity; or limits as
    `{name: {capacity, burst, refill, period_ms}}`, in millitokens, with `max_debt` and `window`
    where a limit has them, and `$on_unavailable` beside the limits where that is set; or balances
    as `{name: millitokens}`, where buckets were reset. An entity deleted with its limits is one
    event, of the entity.
    """

    subject: str
    """An entity's name, `$RESOURCE:{name}`, or `$SYSTEM`."""
    action: str
    """`entity.write`, `entity.delete`, `limits.write`, `limits.delete`, `bucket.reset`."""
    at_ms: int
    by: str
    scope: Scope | None
    """The scope of the limits that changed, or of the buckets that were reset."""
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class PolicyStore(Protocol):
    """Every method raises StoreError if the store can't answer, and PolicyError if it says no.

    Each change and its audit event are written together or not at all. Events stay until their
    time is over (`retention_port.py`), also those of subjects that are gone.

    Lists come in pages of at most `count`, one or more; `after` is the `next` of the page before.
    Something that exists all the time is listed exactly once, whatever is added or deleted.
    """

    async def lookup(self, entity: str, resource: str) -> Lookup:
        """Read an entity, and the limits of its four scopes, in one go."""
        ...

    async def lookup_own(self, entity: str, resource: str) -> Lookup:
        """Read an entity, and the limits of the two scopes that are its own, in one go."""
        ...

    async def read_entity(self, name: str) -> Entity | None: ...

    async def write_entity(self, entity: Entity, change: Change) -> Entity:
        """Create an entity, or change it; returns it with its new version.

        PolicyError if `entity.version` is not the stored one (0: there is none), if the parent is
        missing, if it would be its own ancestor, or if a chain of parents, that of an entity below
        it included, would be longer than MAX_DEPTH.
        """
        ...

    async def delete_entity(self, name: str, change: Change) -> bool:
        """Delete an entity with its limits and buckets; PolicyError while it has children.

        False, and nothing is deleted, if there is no such entity.
        """
        ...

    async def list_entities(self, after: str | None, count: int, prefix: str = "") -> Page[Entity]:
        """All entities whose names begin with a prefix, by name."""
        ...

    async def list_children(
        self, parent: str, after: str | None, count: int, prefix: str = ""
    ) -> Page[str]: ...

    async def read_limits(self, scope: Scope) -> StoredLimits | None: ...

    async def write_limits(
        self, scope: Scope, stored: StoredLimits, change: Change
    ) -> StoredLimits:
        """Set the limits of a scope, whatever they were; returns them with their new version.

        The entity of the scope need not be stored. PolicyError for `on_unavailable` anywhere but
        at the system's level.
        """
        ...

    async def delete_limits(self, scope: Scope, change: Change) -> bool: ...

    async def list_scopes(self, after: str | None, count: int) -> Page[Scope]:
        """All scopes that have limits."""
        ...

    async def list_entities_with_limits(
        self, resource: str | None, after: str | None, count: int
    ) -> Page[str]:
        """Entities that have limits of their own for a resource; None: for all resources."""
        ...

    async def list_buckets(self, resource: str, after: str | None, count: int) -> Page[Key]:
        """Items of a resource, whether the entity is stored or not.

        By entity, except those of rules: a page has these in any order, and may have none.
        """
        ...

    async def record(self, event: AuditEvent) -> None:
        """Put on record what is done elsewhere: a reset of buckets."""
        ...

    async def list_audit(self, subject: str, after: str | None, count: int) -> Page[AuditEvent]:
        """The changes of a subject, the latest first."""
        ...
