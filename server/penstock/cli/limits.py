"""`penstock limits`: the limits stored for the system, a resource, an entity, or both."""

import argparse
import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.cli.actions import add_action, add_actions
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.chains import Step, climb
from penstock.cli.names import notes_if_not_there, similar_names, similar_resource
from penstock.cli.output import print_json, print_line, print_lines, print_note, print_table
from penstock.cli.parser import Parser
from penstock.cli.scopes import describe, scope_values, shown_lines, shown_values
from penstock.cli.store import (
    add_store_flags,
    all_of,
    change_of,
    check_name,
    tell_when_in_force,
    with_store,
)
from penstock.cli.styled import Table, named
from penstock.config.kinds import UNAVAILABLE
from penstock.config.rates import MAX_LIMITS, RATE_FORM, parse_limit
from penstock.core.entities import SYSTEM, Scope, StoredLimits
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import ConfigError
from penstock.store.policy_port import PolicyStore
from penstock.store.port import Store

AT_ONCE: Final = 16
"""Reads at the same time. One by one, a list on DynamoDB would take minutes."""

SCOPES: Final = """\
The flags choose the scope of the limits:
  --entity and --resource   this entity, for this resource
  --entity                  this entity, for all resources
  --resource                all entities, for this resource
  neither                   the system: all entities and all resources
The server uses the limits of the first of these scopes that has limits.
"""

SET_EXAMPLES: Final = f"""\
{SCOPES}
The new limits replace all limits of the scope. With --on-unavailable alone, the limits stay.

examples:
  penstock limits set rpm=1000/minute
  penstock limits set --resource gpt-4 rpm=100/minute tpm=10000/minute,burst=15000
  penstock limits set --entity project-1 --resource gpt-4 tpm=100000/minute
  penstock limits set --entity team-1 tokens=1000000/month,window=calendar,timezone=Europe/Berlin
  penstock limits set --entity key-123 rpm=0/minute        # refuses all
  penstock limits set --entity batch-7 rpm=unlimited       # counts nothing
  penstock limits set --on-unavailable deny rpm=1000/minute
"""

SHOW_EXAMPLES: Final = f"""\
{SCOPES}
exit code: 0 limits found, 1 no limits found, 2 error

examples:
  penstock limits show
  penstock limits show --resource gpt-4 --json
  penstock limits show --entity user-123 --resource gpt-4    # also shows which limits are in force
"""

DELETE_EXAMPLES: Final = f"""\
{SCOPES}
exit code: 0 deleted, 1 not found or you did not agree, 2 error

examples:
  penstock limits delete --entity project-1 --resource gpt-4
  penstock limits delete --entity project-1 --yes
"""

LIST_EXAMPLES: Final = """\
examples:
  penstock limits list
  penstock limits list --resource gpt-4     # entities with their own limits for gpt-4
"""


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "Stored limits.")
    for name, run, epilog, text in (
        ("set", _set, SET_EXAMPLES, "set the limits of a scope"),
        ("show", _show, SHOW_EXAMPLES, "show the limits of a scope"),
        ("delete", _delete, DELETE_EXAMPLES, "delete the limits of a scope"),
        ("list", _list, LIST_EXAMPLES, "list all stored limits"),
    ):
        parser = add_action(actions, name, run, text, epilog)
        if name != "list":
            parser.add_argument(
                "--entity", metavar="E", help="limits of entity E (default: all entities)"
            )
        parser.add_argument(
            "--resource", metavar="R", help="limits for resource R (default: all resources)"
        )
        if name == "set":
            parser.add_argument(
                "limits", metavar="NAME=RATE", nargs="*", help=f"a rate is {RATE_FORM}"
            )
            parser.add_argument(
                "--on-unavailable",
                metavar=UNAVAILABLE.shown,
                # Not the server's setting of the same name, which this command does not read.
                dest="stored_on_unavailable",
                help="what servers answer while the store fails; for the system only",
            )
        if name == "delete":
            parser.add_argument("--yes", action="store_true", help="do not ask first")
        is_write = name in {"set", "delete"}
        add_store_flags(parser, writes=is_write, creates=name == "set")


def _scope(arguments: argparse.Namespace) -> Scope:
    check_name("entity", arguments.entity)
    check_name("resource", arguments.resource)
    return Scope(arguments.entity, arguments.resource)


def _set(arguments: argparse.Namespace) -> int:
    scope = _scope(arguments)
    limits, unavailable = _parse_limits(arguments.limits), ""
    if arguments.stored_on_unavailable is not None:
        if scope != SYSTEM:
            raise ConfigError(
                "--on-unavailable is for the system: leave out --entity and --resource"
            )
        try:
            unavailable = UNAVAILABLE.parse(arguments.stored_on_unavailable)
        except ValueError as exc:
            raise ConfigError(f"--on-unavailable: {exc}") from exc
    elif not limits:
        raise ConfigError(f"no limits: write NAME=RATE, with a rate such as {RATE_FORM}")

    notes: list[str] = []

    async def work(store: Store) -> StoredLimits:
        if scope.entity is not None:
            notes.extend(await notes_if_not_there(store, scope.entity))
        before = await store.policy.read_limits(scope) or StoredLimits((), 0)
        wanted = StoredLimits(limits or before.limits, 0, unavailable or before.on_unavailable)
        return await store.policy.write_limits(scope, wanted, change_of(arguments))

    stored = with_store(arguments, work)
    _print_notes(notes)
    if arguments.json:
        print_json(scope_values(scope, stored))
    else:
        print_line(named(str(scope), f": {describe(stored)}"))
    tell_when_in_force()
    return 0


def _parse_limits(texts: Sequence[str]) -> tuple[Limit, ...]:
    limits: dict[str, Limit] = {}
    for text in texts:
        name, equals, rate = text.partition("=")
        if not equals:
            raise ConfigError(f"'{text}': write NAME=RATE, with a rate such as {RATE_FORM}")
        if name in limits:
            raise ConfigError(f"'{text}': limit '{name}' is given twice")
        try:
            limits[name] = parse_limit(name, rate)
        except ValueError as exc:
            raise ConfigError(f"'{text}': {exc}") from exc
    if len(limits) > MAX_LIMITS:
        raise ConfigError(f"{len(limits)} limits: a scope can have at most {MAX_LIMITS}")
    return tuple(limits.values())


def _print_notes(notes: Sequence[str]) -> None:
    """Once the store is closed, and the line of progress is gone."""
    for note in notes:
        print_note(note)


def _show(arguments: argparse.Namespace) -> int:
    scope = _scope(arguments)

    notes: list[str] = []

    async def work(store: Store) -> tuple[StoredLimits | None, Sequence[Step]]:
        if scope.entity is None:
            return await store.policy.read_limits(scope), ()
        notes.extend(await notes_if_not_there(store, scope.entity))
        if scope.resource is None:
            return await store.policy.read_limits(scope), ()
        steps = await climb(store, Key(scope.entity, scope.resource))
        return steps[0].lookup.limits.get(scope), steps

    stored, steps = with_store(arguments, work)
    _print_notes(notes)
    if arguments.json:
        print_json(shown_values(scope, stored, steps))
    else:
        print_lines(shown_lines(scope, stored, steps))
    if stored is None and scope.resource is not None:
        _tell_similar(arguments, scope.resource)
    counted = any(step.resolved.limits for step in steps if step.is_counted)
    return 0 if stored is not None or counted else 1


def _tell_similar(arguments: argparse.Namespace, resource: str) -> None:
    """Say so if a resource without limits has nearly the name of one with limits."""

    async def work(store: Store) -> str:
        if await store.policy.read_limits(Scope(None, resource)) is not None:
            return ""
        return await similar_resource(store, resource)

    if meant := with_store(arguments, work):
        print_note(f"resource {resource} has no limits{meant}")


def _delete(arguments: argparse.Namespace) -> int:
    scope = _scope(arguments)
    check_somebody_is_there(arguments.yes, "delete the limits")
    stored = with_store(arguments, lambda store: store.policy.read_limits(scope))
    if stored is None:
        meant = similar_names(arguments, scope.entity, scope.resource)
        return _tell_deletion(arguments, scope, f"no limits{meant}", deleted=False)
    warning = f"This deletes the limits of {scope}: {describe(stored)}"
    if not arguments.yes and not agrees(warning):
        return _tell_deletion(arguments, scope, "limits kept", deleted=False)
    change = change_of(arguments)
    with_store(arguments, lambda store: store.policy.delete_limits(scope, change))
    code = _tell_deletion(arguments, scope, "limits deleted", deleted=True)
    tell_when_in_force()
    return code


def _tell_deletion(arguments: argparse.Namespace, scope: Scope, what: str, *, deleted: bool) -> int:
    if arguments.json:
        print_json({**scope._asdict(), "deleted": deleted})
    else:
        print_line(named(str(scope), f": {what}"))
    return 0 if deleted else 1


def _list(arguments: argparse.Namespace) -> int:
    resource = arguments.resource
    check_name("resource", resource)

    async def work(store: Store) -> dict[Scope, StoredLimits]:
        policy = store.policy
        if resource is None:
            return await read_all_limits(policy, await all_of(policy.list_scopes))
        names = await all_of(
            lambda after, count: policy.list_entities_with_limits(resource, after, count)
        )
        return await read_all_limits(policy, [Scope(name, resource) for name in names])

    found = with_store(arguments, work, "reading the limits")
    if arguments.json:
        print_json([scope_values(scope, stored) for scope, stored in found.items()])
        return 0
    if not found:
        print_note("no limits are stored" if resource is None else "no entity has its own limits")
        if resource is not None:
            _tell_similar(arguments, resource)
        return 0
    rows = [
        (scope.entity or "(all)", scope.resource or "(all)", describe(stored))
        for scope, stored in found.items()
    ]
    print_table(Table(("ENTITY", "RESOURCE", "LIMITS"), rows))
    return 0


async def read_all_limits(
    policy: PolicyStore, scopes: Sequence[Scope]
) -> dict[Scope, StoredLimits]:
    """The limits of scopes, without scopes whose limits were deleted meanwhile."""
    found: dict[Scope, StoredLimits] = {}
    for begin in range(0, len(scopes), AT_ONCE):
        some = scopes[begin : begin + AT_ONCE]
        stored = await asyncio.gather(*(policy.read_limits(scope) for scope in some))
        found.update((s, one) for s, one in zip(some, stored, strict=True) if one is not None)
    return found
