"""`penstock bucket`: what is left in buckets, and filling them."""

import argparse
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.cli.actions import add_action, add_actions
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.bucket_levels import (
    Level,
    bucket_limits,
    find_levels,
    level_values,
    tell_left,
    tell_next,
)
from penstock.cli.chains import climb
from penstock.cli.names import similar_names
from penstock.cli.output import print_json, print_line, print_lines, print_note, print_table
from penstock.cli.parser import Parser
from penstock.cli.store import (
    add_store_flags,
    all_of,
    change_of,
    check_name,
    check_plain,
    now_ms,
    with_store,
)
from penstock.cli.styled import Part, Style, Styled, Table, named
from penstock.config.rates import format_rate
from penstock.core.entities import Scope, resolve
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Key
from penstock.store.policy_port import AuditEvent, Change, Page
from penstock.store.port import Store

BAR: Final = 12

NEAR_EMPTY: Final = 4
"""A bucket with less than this part of its burst is nearly empty."""

LARGE_PAGE: Final = 1_000
"""A domain may have millions of buckets, and DynamoDB looks through its whole table for them."""

NAMES: Final = """\
You can also name the buckets of a rules file. For the domain d, the resource is '$domain:d'. The
entity is the list of a descriptor's entries, such as user=bob,path=/search.
"""

EXAMPLES: Final = {
    "show": f"""\
{NAMES}
exit code: 0 shown, 1 there are no limits, also at no parent that is counted, 2 error

examples:
  penstock bucket show user-123 gpt-4
  penstock bucket show user=bob '$domain:example' --json
""",
    "list": f"""\
{NAMES}
Servers delete a bucket that has been full and idle for a while.

example:
  penstock bucket list --resource gpt-4
""",
    "reset": f"""\
{NAMES}
exit code: 0 filled, 1 no bucket found or you did not agree, 2 error

examples:
  penstock bucket reset user-123 gpt-4
  penstock bucket reset user-123 gpt-4 --yes --by alice
""",
}


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "Buckets.")
    for name, run, text in (
        ("show", _show, "show what is left of an entity's limits for a resource"),
        ("list", _list, "list the entities that have buckets for a resource"),
        ("reset", _reset, "fill the buckets of an entity for a resource"),
    ):
        parser = add_action(actions, name, run, text, EXAMPLES[name])
        if name == "list":
            parser.add_argument("--resource", metavar="R", required=True, help="what is consumed")
        else:
            parser.add_argument("entity", metavar="ENTITY", help="who consumes")
            parser.add_argument("resource", metavar="RESOURCE", help="what is consumed")
        if name == "reset":
            parser.add_argument("--yes", action="store_true", help="do not ask first")
        add_store_flags(parser, writes=name == "reset")


def _key(arguments: argparse.Namespace) -> Key:
    _check_resource(arguments.resource)
    if arguments.resource.startswith("$"):
        check_plain("entity", arguments.entity)
    else:
        check_name("entity", arguments.entity)
    return Key(arguments.entity, arguments.resource)


def _check_resource(resource: str) -> None:
    if resource.startswith("$"):
        check_plain("resource", resource)
    else:
        check_name("resource", resource)


class Shown(NamedTuple):
    """The buckets of one entity for a resource."""

    key: Key
    levels: Sequence[Level]
    is_stored: bool
    is_counted: bool = True
    """Takes of the entity that was asked for are also taken here."""


def _show(arguments: argparse.Namespace) -> int:
    key = _key(arguments)

    async def work(store: Store) -> list[Shown]:
        at_ms = now_ms()
        if key.resource.startswith("$"):
            return [await _look(store, key, (), at_ms)]
        return [
            (await _look(store, step.key, step.resolved.limits, at_ms))._replace(
                is_counted=step.is_counted
            )
            for step in await climb(store, key)
        ]

    shown, *parents = with_store(arguments, work)
    if arguments.json:
        above = [{**_shown_values(one), "is_counted": one.is_counted} for one in parents]
        print_json({**_shown_values(shown), "parents": above})
    elif any(one.levels for one in (shown, *parents)):
        _print_levels(shown, "")
        for parent in parents:
            counted = "parent" if parent.is_counted else "parent, not counted: no cascade"
            _print_levels(parent, f" ({counted})")
    else:
        print_note(f"{key.entity} on {key.resource}: no limits{_similar(arguments, key)}")
    if shown.levels and not shown.is_stored and (meant := _similar(arguments, key)):
        print_note(f"{key.entity} on {key.resource} was not used lately{meant}")
    return 0 if any(one.levels for one in (shown, *parents) if one.is_counted) else 1


def _similar(arguments: argparse.Namespace, key: Key) -> str:
    """The names of rules' buckets are in no list that is short enough to look through."""
    return "" if key.resource.startswith("$") else similar_names(arguments, *key)


async def _look(store: Store, key: Key, limits: tuple[Limit, ...], at_ms: int) -> Shown:
    item = await store.read(key)
    if not limits and item is not None:
        limits = tuple(bucket.limit for bucket in item.buckets)
    return Shown(key, find_levels(limits, item, at_ms), item is not None)


def _print_levels(shown: Shown, what: str) -> None:
    entity, resource = shown.key
    if not shown.levels:
        print_line(f"{entity} on {resource}{what}: no limits")
        return
    idle = "" if shown.is_stored else ": not used lately"
    print_line(named(f"{entity} on {resource}", f"{what}{idle}"))
    print_table(Table((), [_row(level) for level in shown.levels], "  "))


def _shown_values(shown: Shown) -> dict[str, Any]:
    values = [level_values(level) for level in shown.levels]
    return {**shown.key._asdict(), "stored": shown.is_stored, "buckets": values}


async def _limits(store: Store, key: Key) -> tuple[Limit, ...]:
    """The stored limits in force. The limits of rules are in files, not in the store."""
    if key.resource.startswith("$"):
        return ()
    return resolve(await store.policy.lookup(*key), *key).limits


def _row(level: Level) -> tuple[Part, ...]:
    limit = level.limit
    if limit.is_unlimited:
        return limit.name, "", "", format_rate(limit), tell_next(level)
    full = max(0, level.balance) * BAR // max(1, limit.burst)
    bar = "█" * full + "░" * (BAR - full)
    left = f"{level.balance // MILLI} of {limit.burst // MILLI}"
    if level.balance < 0:
        left = f"{-(level.balance // MILLI)} in debt, of {limit.burst // MILLI}"
    return (
        limit.name or "-",
        Styled(bar, _fullness(level)),
        left,
        format_rate(limit).partition(",")[0],
        tell_next(level),
    )


def _fullness(level: Level) -> Style:
    if level.balance < MILLI:
        return "bad"
    return "near" if level.balance * NEAR_EMPTY < level.limit.burst else "good"


def _list(arguments: argparse.Namespace) -> int:
    resource = arguments.resource
    _check_resource(resource)

    async def work(store: Store) -> list[Key]:
        async def page(after: str | None, count: int) -> Page[Key]:
            return await store.policy.list_buckets(resource, after, count)

        return await all_of(page, LARGE_PAGE)

    keys = sorted(with_store(arguments, work, "reading the buckets"))
    if arguments.json:
        print_json([key._asdict() for key in keys])
    elif not keys:
        meant = "" if resource.startswith("$") else similar_names(arguments, None, resource)
        print_note(f"resource {resource}: no buckets{meant}")
    else:
        print_lines([key.entity for key in keys])
    return 0


def _reset(arguments: argparse.Namespace) -> int:
    key = _key(arguments)
    change = change_of(arguments)
    check_somebody_is_there(arguments.yes, "fill the buckets")

    async def look(store: Store) -> Shown:
        return await _look(store, key, await _limits(store, key), change.now_ms)

    shown = with_store(arguments, look)
    name = f"{key.entity} on {key.resource}"
    if not shown.is_stored:
        meant = _similar(arguments, key)
        return _tell_reset(arguments, key, f"no bucket found{meant}", filled=False)
    left = ", ".join(tell_left(level) for level in shown.levels)
    if not arguments.yes and not agrees(f"This fills {name}: {left}."):
        return _tell_reset(arguments, key, "not changed", filled=False)

    async def work(store: Store) -> bool:
        # Write the record first: a reset without a record is worse than a record without a reset.
        await store.policy.record(_event(shown, change))
        stored = bucket_limits(await _limits(store, key))
        limits = tuple(limit.without_max_debt for limit in stored)
        return await store.reset(key, change.now_ms, limits)

    done = with_store(arguments, work)
    return _tell_reset(arguments, key, "full again" if done else "no bucket found", filled=done)


def _tell_reset(arguments: argparse.Namespace, key: Key, what: str, *, filled: bool) -> int:
    if arguments.json:
        print_json({**key._asdict(), "filled": filled})
    else:
        print_line(named(f"{key.entity} on {key.resource}", f": {what}"))
    return 0 if filled else 1


def _event(shown: Shown, change: Change) -> AuditEvent:
    levels = [level for level in shown.levels if not level.limit.is_unlimited]
    before = {level.limit.name: level.balance for level in levels}
    after = {level.limit.name: level.limit.burst for level in levels}
    key, at_ms = shown.key, change.now_ms
    return AuditEvent(key.entity, "bucket.reset", at_ms, change.by, Scope(*key), before, after)
