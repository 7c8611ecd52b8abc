"""`penstock entity`: who consumes, and who is whose parent."""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from penstock.cli.actions import add_action, add_actions
from penstock.cli.asking import agrees, check_somebody_is_there
from penstock.cli.entity_list import add_list_flags, list_entities
from penstock.cli.names import similar_entity
from penstock.cli.output import print_json, print_line, print_lines, print_note, print_table
from penstock.cli.parser import Parser
from penstock.cli.store import (
    add_store_flags,
    all_of,
    change_of,
    check_name,
    tell_when_in_force,
    with_store,
)
from penstock.cli.styled import Styled, Table, named
from penstock.cli.tables import entity_values, format_pairs
from penstock.core.entities import Entity
from penstock.core.foreign_text import is_plain
from penstock.errors import ConfigError, PolicyError
from penstock.store.policy_port import Change
from penstock.store.port import Store

_VERSION: Final = re.compile("[0-9]{1,18}")

EXIT_CODES: Final = "exit code: 0 done, 1 entity not found, 2 error\n\n"

EXAMPLES: Final = {
    "create": """\
examples:
  penstock entity create project-1
  penstock entity create user-123 --parent project-1 --cascade --metadata team=search
""",
    "show": f"{EXIT_CODES}example:\n  penstock entity show user-123\n",
    "list": """\
exit code: 0 listed, 1 the parent was not found, 2 error

examples:
  penstock entity list
  penstock entity list --prefix user- --limit 20
  penstock entity list --parent project-1 --json
""",
    "children": f"{EXIT_CODES}example:\n  penstock entity children project-1\n",
    "update": f"""\
{EXIT_CODES}examples:
  penstock entity update user-123 --parent project-2
  penstock entity update user-123 --no-parent --no-cascade
  penstock entity update user-123 --metadata team=ads --metadata desk=    # removes desk
  penstock entity update user-123 --cascade --version 3    # only if it is still at version 3
""",
    "delete": """\
exit code: 0 deleted, 1 not found or you did not agree, 2 error

examples:
  penstock entity delete user-123
  penstock entity delete user-123 --yes
""",
}


def declare(parser: Parser) -> None:
    actions = add_actions(parser, "Entities.")
    parsers = {}
    for name, run, text in (
        ("create", _create, "create an entity"),
        ("show", _show, "show an entity"),
        ("list", list_entities, "list entities"),
        ("children", _children, "list the children of an entity"),
        ("update", _update, "change an entity"),
        ("delete", _delete, "delete an entity with its limits and buckets"),
    ):
        parser = parsers[name] = add_action(actions, name, run, text, EXAMPLES[name])
        if name != "list":
            parser.add_argument("name", metavar="NAME", help="name of the entity")
        if name == "delete":
            parser.add_argument("--yes", action="store_true", help="do not ask first")
        is_write = name in {"create", "update", "delete"}
        add_store_flags(parser, writes=is_write, creates=name == "create")
    add_list_flags(parsers["list"])
    _add_facts(parsers["create"], parsers["update"])


def _add_facts(create: argparse.ArgumentParser, update: argparse.ArgumentParser) -> None:
    above = update.add_mutually_exclusive_group()
    above.add_argument("--no-parent", action="store_true", help="remove the parent")
    for parser, target in ((create, create), (update, above)):
        target.add_argument("--parent", metavar="NAME", help="parent of the entity")
        parser.add_argument(
            "--cascade",
            action=argparse.BooleanOptionalAction,
            help="requests of the entity also take from the parent",
        )
        parser.add_argument(
            "--metadata",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="any text for your own use",
        )
    text = "change the entity only if it is at version N"
    update.add_argument("--version", metavar="N", help=text)


def _create(arguments: argparse.Namespace) -> int:
    _check_names(arguments)
    if arguments.cascade and arguments.parent is None:
        raise ConfigError("--cascade needs a --parent to cascade to")
    metadata = _metadata({}, arguments.metadata)
    entity = Entity(arguments.name, arguments.parent, bool(arguments.cascade), metadata)
    change = change_of(arguments)
    created = with_store(arguments, lambda store: _write(store, entity, change))
    if arguments.json:
        print_json(entity_values(created))
    else:
        print_line(named(f"entity {created.name}", ": created"))
    return 0


async def _write(store: Store, entity: Entity, change: Change) -> Entity:
    try:
        return await store.policy.write_entity(entity, change)
    except PolicyError as exc:
        if entity.parent is None or await store.policy.read_entity(entity.parent) is not None:
            raise
        raise PolicyError(f"{exc}{await similar_entity(store, entity.parent)}") from exc


def _update(arguments: argparse.Namespace) -> int:
    _check_names(arguments)
    given = arguments.parent, arguments.cascade
    if given == (None, None) and not arguments.no_parent and not arguments.metadata:
        raise ConfigError("nothing to change: give --parent, --cascade, --metadata or --no-…")
    version = _version(arguments.version)

    async def work(store: Store) -> Entity | None:
        before = await store.policy.read_entity(arguments.name)
        if before is None:
            return None
        parent = None if arguments.no_parent else arguments.parent or before.parent
        if arguments.cascade and parent is None:
            raise ConfigError("--cascade needs a --parent to cascade to")
        cascade = before.cascade if arguments.cascade is None else arguments.cascade
        after = replace(
            before,
            parent=parent,
            cascade=cascade and parent is not None,
            metadata=_metadata(before.metadata, arguments.metadata),
            version=before.version if version is None else version,
        )
        return await _write(store, after, change_of(arguments))

    entity = with_store(arguments, work)
    if entity is None:
        return _not_there(arguments)
    if arguments.json:
        print_json(entity_values(entity))
    else:
        print_line(named(f"entity {entity.name}", f": now at version {entity.version}"))
    tell_when_in_force()
    return 0


def _show(arguments: argparse.Namespace) -> int:
    entity = _find(arguments)
    if entity is None:
        return _not_there(arguments)
    if arguments.json:
        print_json(entity_values(entity))
        return 0
    print_line(Styled(entity.name, "name"))
    cascades = "yes" if entity.cascade else "no"
    rows = [("parent", entity.parent or "none"), ("cascade", cascades)]
    rows += [("metadata", format_pairs(entity.metadata) or "none")]
    print_table(Table((), [*rows, ("version", str(entity.version))], "  "))
    return 0


def _children(arguments: argparse.Namespace) -> int:
    if _find(arguments) is None:
        return _not_there(arguments)
    name = arguments.name

    async def work(store: Store) -> list[str]:
        return await all_of(lambda after, count: store.policy.list_children(name, after, count))

    children = with_store(arguments, work)
    if arguments.json:
        print_json(children)
    elif not children:
        print_note(f"entity {name}: no children")
    else:
        print_lines(children)
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    name = arguments.name
    check_name("entity", name)
    check_somebody_is_there(arguments.yes, "delete the entity")
    if _find(arguments) is None:
        return _not_there(arguments)
    warning = f"This deletes entity {name} with its limits and buckets, for ever."
    if not arguments.yes and not agrees(warning, name, "the entity's name"):
        return _tell_deletion(arguments, deleted=False)
    change = change_of(arguments)
    with_store(arguments, lambda store: store.policy.delete_entity(name, change))
    return _tell_deletion(arguments, deleted=True)


def _tell_deletion(arguments: argparse.Namespace, *, deleted: bool) -> int:
    if arguments.json:
        print_json({"name": arguments.name, "deleted": deleted})
    else:
        print_line(named(f"entity {arguments.name}", f": {'deleted' if deleted else 'kept'}"))
    return 0 if deleted else 1


def _find(arguments: argparse.Namespace) -> Entity | None:
    check_name("entity", arguments.name)
    return with_store(arguments, lambda store: store.policy.read_entity(arguments.name))


def _not_there(arguments: argparse.Namespace) -> int:
    meant = with_store(arguments, lambda store: similar_entity(store, arguments.name))
    print_note(f"entity {arguments.name}: not found{meant}")
    return 1


def _check_names(arguments: argparse.Namespace) -> None:
    check_name("entity", arguments.name)
    check_name("parent", arguments.parent)


def _metadata(before: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    metadata = dict(before)
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or not is_plain(text):
            raise ConfigError(f"--metadata: '{text}' is not KEY=VALUE in printable characters")
        metadata[key] = value
    return {key: value for key, value in metadata.items() if value}


def _version(text: str | None) -> int | None:
    if text is None:
        return None
    if not _VERSION.fullmatch(text) or int(text) == 0:
        raise ConfigError(f"--version: '{text}' is not a whole number above 0")
    return int(text)
