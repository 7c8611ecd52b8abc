"""Views of what is stored. Any process that answers calls is asked: all have the same store."""

from typing import Any, Final

from penstock.console.conceal import Conceal, except_for
from penstock.console.inside import Inside, Query
from penstock.console.queries import read_choice, read_given, read_number, read_rows
from penstock.console.values import bucket_values, entity_values, event_values
from penstock.core.amounts import to_tokens
from penstock.core.entities import MAX_DEPTH, Entity, resolve
from penstock.core.take import Key
from penstock.core.usage import DAY_MS, HOUR_MS, Window
from penstock.errors import InvalidRequestError
from penstock.slices import run
from penstock.store.policy_port import Page

ENTITY_ROWS: Final = 50
EVENT_ROWS: Final = 50
CHILDREN: Final = 50
TREES: Final = 20

LATELY_MS: Final = 31 * DAY_MS
SINCE_MS: Final = {
    Window.HOUR: 48 * HOUR_MS,
    Window.DAY: 31 * DAY_MS,
    Window.MONTH: 365 * DAY_MS,
}
MOST_WINDOWS: Final = 2_500
"""More than a quarter of a year of hours, which is as long as hours are kept."""

SYSTEM_SUBJECT: Final = "$SYSTEM"


class OneAnswers:
    """What all views of this file share: one process gives the whole answer."""

    of_all = False

    def join(self, parts: list[Any], _: Query) -> dict[str, Any]:
        (answer,) = parts
        return dict(answer)


class EntitiesView(OneAnswers):
    parameters = ("prefix", "parent", "limit", "after")

    def check(self, query: Query) -> None:
        read_rows(query, ENTITY_ROWS)

    async def read(self, inside: Inside, query: Query) -> Any:
        page = await _entities(inside, query)
        entities = [entity_values(entity, inside.conceal) for entity in page.items]
        return {"next": page.next, "entities": entities}


class EntityView(OneAnswers):
    parameters = ("id", "resource")

    def check(self, query: Query) -> None:
        read_given(query, "id")

    async def read(self, inside: Inside, query: Query) -> Any:
        name, policy = query["id"], inside.store.policy
        conceal = except_for(name, inside.conceal)
        entity = await policy.read_entity(name)
        children = await policy.list_children(name, None, CHILDREN)
        resources = [query["resource"]] if "resource" in query else await _resources(inside, name)
        return {
            "id": name,
            "entity": None if entity is None else entity_values(entity, conceal),
            "children": [conceal(child, "") for child in children.items],
            "has_more_children": children.next is not None,
            "trees": [
                {
                    "resource": resource,
                    "levels": await _levels(inside, Key(name, resource), conceal),
                }
                for resource in resources[:TREES]
            ],
        }


class UsageView(OneAnswers):
    parameters = ("id", "window", "resource", "since_ms", "until_ms")

    def check(self, query: Query) -> None:
        read_given(query, "id")
        _window(query)
        for name in ("since_ms", "until_ms"):
            read_number(query, name, 0)

    async def read(self, inside: Inside, query: Query) -> Any:
        name, window = query["id"], _window(query)
        now_ms = inside.clock_ms()
        until_ms = read_number(query, "until_ms", now_ms)
        since_ms = window.start_ms(
            read_number(query, "since_ms", max(0, until_ms - SINCE_MS[window]))
        )
        starts_ms = _starts(window, since_ms, until_ms)
        used = await inside.store.usage.read(
            name, window, since_ms, until_ms, query.get("resource")
        )
        return {
            "id": name,
            "window": window.value,
            "since_ms": since_ms,
            "until_ms": until_ms,
            "starts_ms": starts_ms,
            "usage": [
                {
                    "resource": one.key.resource,
                    "start_ms": one.start_ms,
                    "label": window.label(one.start_ms),
                    "takes": one.used.takes,
                    "amounts": {
                        limit: to_tokens(amount) for limit, amount in one.used.amounts.items()
                    },
                }
                for one in used
            ],
        }


class AuditView(OneAnswers):
    parameters = ("subject", "limit", "after")

    def check(self, query: Query) -> None:
        read_rows(query, EVENT_ROWS)

    async def read(self, inside: Inside, query: Query) -> Any:
        subject = query.get("subject") or SYSTEM_SUBJECT
        after, rows = query.get("after") or None, read_rows(query, EVENT_ROWS)
        page = await inside.store.policy.list_audit(subject, after, rows)
        conceal = except_for(subject, inside.conceal)
        events = [event_values(event, conceal) for event in page.items]
        return {"subject": subject, "next": page.next, "events": events}


async def _entities(inside: Inside, query: Query) -> Page[Entity]:
    policy, rows = inside.store.policy, read_rows(query, ENTITY_ROWS)
    after, prefix = query.get("after") or None, query.get("prefix", "")
    if "parent" not in query:
        return await policy.list_entities(after, rows, prefix)
    page = await policy.list_children(query["parent"], after, rows, prefix)
    read = [await policy.read_entity(name) for name in page.items]
    return Page(tuple([entity for entity in read if entity is not None]), page.next)


async def _resources(inside: Inside, name: str) -> list[str]:
    """What an entity used lately: the heaviest first, then by its usage, then by rules."""
    now_ms = inside.clock_ms()
    tops = await run(inside.insight.read("entity", "hour", now_ms))
    heaviest = tops.requests.heaviest(len(tops.requests))
    found = [key.resource for key, _, _ in heaviest if key.entity == name]
    since_ms = Window.DAY.start_ms(now_ms - LATELY_MS)
    used = await inside.store.usage.read(name, Window.DAY, since_ms, now_ms)
    found += [one.key.resource for one in reversed(used)]
    # Usage does not count the buckets of rules, and another worker may have decided for them.
    for resource in inside.rule_resources()[:TREES] if "=" in name else ():
        if await inside.store.read(Key(name, resource)) is not None:
            found.append(resource)
    return list(dict.fromkeys(found))


async def _levels(inside: Inside, key: Key, conceal: Conceal) -> list[dict[str, Any]]:
    """The entity first, then its parents. Includes parents that it does not cascade to."""
    store, now_ms = inside.store, inside.clock_ms()
    if key.resource.startswith("$"):
        item = await store.read(key)
        limits = () if item is None else tuple([bucket.limit for bucket in item.buckets])
        return [
            _level(conceal(*key), True, item is not None, None, bucket_values(item, limits, now_ms))
        ]
    levels: list[dict[str, Any]] = []
    seen: set[str] = set()
    name: str | None = key.entity
    is_counted = True
    while name is not None and name not in seen and len(seen) < MAX_DEPTH:
        seen.add(name)
        here = Key(name, key.resource)
        lookup = await store.policy.lookup(*here)
        limits, scope = resolve(lookup, *here)
        item = await store.read(here)
        buckets = bucket_values(item, limits, now_ms)
        shown = (
            None
            if scope is None
            else str(
                scope._replace(entity=None if scope.entity is None else conceal(scope.entity, ""))
            )
        )
        levels.append(_level(conceal(name, ""), is_counted, item is not None, shown, buckets))
        entity = lookup.entity
        name = None if entity is None else entity.parent
        is_counted = is_counted and entity is not None and entity.cascade
    return levels


def _level(
    entity: str, is_counted: bool, is_used: bool, scope: str | None, buckets: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "entity": entity,
        "is_counted": is_counted,
        "is_used": is_used,
        "scope": scope,
        "buckets": buckets,
    }


def _window(query: Query) -> Window:
    return Window(read_choice(query, "window", [window.value for window in Window], "hour"))


def _starts(window: Window, since_ms: int, until_ms: int) -> list[int]:
    """When each window begins, from a time that begins one."""
    starts: list[int] = []
    while since_ms < until_ms:
        starts.append(since_ms)
        since_ms = window.next_ms(since_ms)
        if len(starts) > MOST_WINDOWS:
            raise InvalidRequestError(
                f"since_ms: more than {MOST_WINDOWS} windows; ask for a larger window"
            )
    return starts
