"""What all policy stores agree on: what is refused, what goes on record, how pages go on.

Nothing here reads or writes: a store brings what it found, and is told.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from penstock.core.entities import MAX_DEPTH, MAX_NAME, SYSTEM, Entity, Scope, StoredLimits
from penstock.core.windows import format_window
from penstock.errors import PolicyError
from penstock.store.policy_port import Page

T = TypeVar("T")

AUDIT_KEPT_MS: Final = 90 * 86_400_000
"""How long an audit event is kept, unless a setting says otherwise."""


def check_version(entity: Entity, stored: Entity | None) -> None:
    """Refuse a write that was not made from what is stored."""
    version = stored.version if stored is not None else 0
    if entity.version == version:
        return
    if entity.version == 0:
        raise PolicyError(f"entity '{entity.name}' already exists, at version {version}")
    found = f"is at version {version}" if version else "does not exist (version 0)"
    raise PolicyError(
        f"entity '{entity.name}' {found}, the change was made from version {entity.version}: "
        "read it again"
    )


def check_ancestors(entity: Entity, ancestors: Sequence[str], levels_below: int = 0) -> None:
    """Refuse a parent that can't be. `ancestors` are those found stored, the parent first."""
    name, parent = entity.name, entity.parent
    if parent is None:
        return
    if name == parent or name in ancestors:
        raise PolicyError(f"entity '{name}' would be its own ancestor, by its parent '{parent}'")
    if not ancestors:
        raise PolicyError(
            f"the parent '{parent}' of entity '{name}' does not exist: create it first"
        )
    if len(ancestors) + 1 + levels_below > MAX_DEPTH:
        raise PolicyError(
            f"entity '{name}' below '{parent}' makes a chain of parents longer than "
            f"{MAX_DEPTH} levels"
        )


def check_childless(name: str, child: str | None) -> None:
    if child is not None:
        raise PolicyError(f"entity '{name}' has children, '{child}' for one: delete them first")


def check_limits(scope: Scope, stored: StoredLimits) -> None:
    if stored.on_unavailable and scope != SYSTEM:
        raise PolicyError(f"{scope}: on_unavailable can be set for the system only")


def subject_of(scope: Scope) -> str:
    """Whose record a change of a scope's limits is in."""
    if scope.entity is not None:
        return scope.entity
    return "$SYSTEM" if scope.resource is None else f"$RESOURCE:{scope.resource}"


def entity_record(entity: Entity | None) -> dict[str, Any] | None:
    """An entity, as an audit event tells it."""
    if entity is None:
        return None
    return {
        "name": entity.name,
        "parent": entity.parent,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
        "version": entity.version,
    }


def limits_record(stored: StoredLimits | None) -> dict[str, Any] | None:
    """Limits by name, in millitokens, as an audit event tells them."""
    if stored is None:
        return None
    record: dict[str, Any] = {}
    for limit in stored.limits:
        record[limit.name] = limit._asdict()
        del record[limit.name]["name"]
        if limit.max_debt is None:
            del record[limit.name]["max_debt"]
        if limit.window is None:
            del record[limit.name]["window"]
        else:
            record[limit.name]["window"] = format_window(limit.window)
    if stored.on_unavailable:
        # No limit's name begins with $.
        record["$on_unavailable"] = stored.on_unavailable
    return record


def page_of(found: Sequence[T], count: int, token: Callable[[T], str]) -> Page[T]:
    """A page of at most `count` items. `found` has one item more if there is a next page."""
    items = tuple(found[:count])
    return Page(items, token(items[-1]) if len(found) > count else None)


def end_of_prefix(prefix: str) -> str:
    """A text that sorts after all names with a prefix, and before all names that follow those."""
    for length in range(len(prefix), 0, -1):
        last = ord(prefix[length - 1])
        if last < sys.maxunicode:
            # The code points of surrogates are no characters.
            return prefix[: length - 1] + ("\ue000" if last == 0xD7FF else chr(last + 1))
    return chr(sys.maxunicode) * (MAX_NAME + 1)


def scope_token(scope: Scope) -> str:
    return json.dumps(scope_order(scope))


def scope_order(scope: Scope) -> tuple[str, str]:
    """The sort key of a scope. `None` (all) sorts before every name, because no name is empty."""
    return scope.entity or "", scope.resource or ""


def scope_after(token: str | None) -> tuple[str, str] | None:
    if token is None:
        return None
    try:
        entity, resource = json.loads(token)
    except (ValueError, TypeError) as exc:
        raise bad_token(token) from exc
    return str(entity), str(resource)


def event_before(token: str | None) -> int:
    """The events of the next page have numbers below this one."""
    try:
        return 2**63 - 1 if token is None else int(token)
    except ValueError as exc:
        raise bad_token(token) from exc


def bad_token(token: str | None) -> PolicyError:
    return PolicyError(
        f"'{token}' is not a page token of this list: use the `next` of the page before, unchanged"
    )
