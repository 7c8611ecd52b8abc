"""`penstock entity list`: prints entities page by page, so that any number of them fits."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from penstock.cli.counts import read_count
from penstock.cli.names import similar_entity
from penstock.cli.output import TablePrinter, print_json_list, print_note
from penstock.cli.progress import ProgressLine
from penstock.cli.store import check_name, check_plain, with_store
from penstock.cli.tables import entity_values, format_pairs
from penstock.cli.terminal import is_terminal
from penstock.core.entities import Entity
from penstock.store.port import Store

PAGE: Final = 200
AT_ONCE: Final = 16
"""Entities that are read at the same time."""

HEADER: Final = ("NAME", "PARENT", "CASCADE", "METADATA")

Pages = AsyncIterator[Sequence[Entity]]


def add_list_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix", metavar="TEXT", default="", help="only entities whose names begin with TEXT"
    )
    parser.add_argument("--parent", metavar="NAME", help="only the children of this entity")
    parser.add_argument("--limit", metavar="N", help="list at most N entities (default: all)")


def list_entities(arguments: argparse.Namespace) -> int:
    check_plain("--prefix:", arguments.prefix)
    check_name("parent", arguments.parent)
    limit = None if arguments.limit is None else read_count("--limit", arguments.limit)
    parent = arguments.parent

    async def work(store: Store) -> int:
        if parent is not None and await store.policy.read_entity(parent) is None:
            meant = await similar_entity(store, parent)
            print_note(f"entity {parent}: not found{meant}")
            return 1
        pages = _pages(store, parent, arguments.prefix, limit)
        with ProgressLine(is_quiet=is_terminal(sys.stdout)) as progress:
            counted = _counted(pages, progress)
            if arguments.json:
                await print_json_list(_values(counted))
            elif not await _print_rows(counted):
                progress.clear()
                print_note(_tell_nothing(arguments))
        return 0

    return with_store(arguments, work, doing="")


async def _pages(store: Store, parent: str | None, prefix: str, limit: int | None) -> Pages:
    after: str | None = None
    left = limit
    while left is None or left > 0:
        count = PAGE if left is None else min(PAGE, left)
        if parent is None:
            page = await store.policy.list_entities(after, count, prefix)
            found, after = list(page.items), page.next
        else:
            names = await store.policy.list_children(parent, after, count, prefix)
            found, after = await _read(store, names.items), names.next
        left = None if left is None else left - len(found)
        if found:
            yield found
        if after is None:
            return


async def _read(store: Store, names: Sequence[str]) -> list[Entity]:
    """The entities of these names, without those that were deleted meanwhile."""
    found: list[Entity] = []
    for begin in range(0, len(names), AT_ONCE):
        some = [store.policy.read_entity(name) for name in names[begin : begin + AT_ONCE]]
        found += [entity for entity in await asyncio.gather(*some) if entity is not None]
    return found


async def _counted(pages: Pages, progress: ProgressLine) -> Pages:
    count = 0
    progress.show("reading the entities")
    async for page in pages:
        yield page
        count += len(page)
        progress.show(f"{count:,} entities listed")


async def _values(pages: Pages) -> AsyncIterator[dict[str, Any]]:
    async for page in pages:
        for entity in page:
            yield entity_values(entity)


async def _print_rows(pages: Pages) -> bool:
    """False if there is no entity."""
    table, is_empty = TablePrinter(HEADER), True
    async for page in pages:
        table.print(
            [
                (e.name, e.parent or "-", "yes" if e.cascade else "no", format_pairs(e.metadata))
                for e in page
            ]
        )
        is_empty = False
    return not is_empty


def _tell_nothing(arguments: argparse.Namespace) -> str:
    begun = f" with names that begin with {arguments.prefix}" if arguments.prefix else ""
    return f"no entities{begun}" if arguments.parent is None else f"no children{begun}"
