"""The store that a command works on: opened for one command, and always closed again."""

import argparse
import asyncio
import getpass
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.cli.actions import add_json_flag
from penstock.cli.output import print_note
from penstock.cli.progress import ProgressLine
from penstock.config.flags import DECLARED, add_flags, read_settings
from penstock.core.entities import name_problem
from penstock.core.foreign_text import is_plain, show, unprintable
from penstock.errors import ConfigError, MissingStoreError
from penstock.store.open import open_store
from penstock.store.policy_port import Change, Page
from penstock.store.port import Store

T = TypeVar("T")

PAGE: Final = 100


def add_store_flags(
    parser: argparse.ArgumentParser,
    *,
    writes: bool = False,
    creates: bool = False,
) -> None:
    """Add `--store` and `--json`, and the flags of all commands that write."""
    add_json_flag(parser)
    if writes:
        text = "who makes the change, for the audit (default: your user name)"
        parser.add_argument("--by", metavar="NAME", help=text)
    if creates:
        text = "create the SQLite file if it does not exist"
        parser.add_argument("--create", action="store_true", help=text)
    add_flags(parser, ("store",))


def with_store(
    arguments: argparse.Namespace,
    work: Callable[[Store], Awaitable[T]],
    doing: str = "asking the store",
) -> T:
    """Do the work of a command on the store that its flags or the environment name.

    `doing` is shown if the work takes long. It is empty for work that shows its own progress. A
    missing store is an error, because a new and empty store would hide a wrong name.
    """
    settings = read_settings(arguments, os.environ)
    url = settings.store
    if url.partition(":")[0].lower() == "memory":
        raise ConfigError(
            f"store '{url}': what is in memory is gone with this command; "
            "give --store the store of your server"
        )

    may_create: bool | None = getattr(arguments, "create", None)

    async def run() -> T:
        try:
            store = await open_store(
                settings.store, creates=bool(may_create), audit_kept_ms=settings.audit_retention
            )
        except MissingStoreError as exc:
            raise ConfigError(f"{exc}; {_how_to_name_it(may_create)}") from exc
        try:
            return await work(store)
        finally:
            await store.close()

    with ProgressLine(doing, is_quiet=not doing):
        return asyncio.run(run())


def _how_to_name_it(may_create: bool | None) -> str:
    advice = "name the store of your server with --store or PENSTOCK_STORE"
    # Commands without --create only read, and a new store has nothing to read.
    return advice if may_create is None else f"{advice}, or give --create to create a new one"


def tell_when_in_force() -> None:
    """Say when a change is in force. Servers keep limits for a time that is their setting."""
    kept = next(setting for setting in DECLARED if setting.name == "policy_cache_ttl")
    print_note(f"in force within {kept.default_text}, or the {kept.flag} of your servers")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def change_of(arguments: argparse.Namespace) -> Change:
    """Who makes a change, and when."""
    by = arguments.by or _user_name()
    if not is_plain(by):
        raise ConfigError(f"--by: '{show(by)}' has characters that can't be printed")
    return Change(by, now_ms())


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no user has the id of this process
        return "unknown"


async def all_of(
    page: Callable[[str | None, int], Awaitable[Page[T]]], count: int = PAGE
) -> list[T]:
    """Every item of every page."""
    items: list[T] = []
    after: str | None = None
    while True:
        found = await page(after, count)
        items += found.items
        after = found.next
        if after is None:
            return items


def check_name(kind: str, name: str | None) -> None:
    """Raise ConfigError for a name that is not allowed. None is allowed."""
    problem = None if name is None else name_problem(kind, name)
    if problem is not None:
        raise ConfigError(problem)


def check_plain(what: str, text: str) -> None:
    """Raise ConfigError for characters that can't be printed. Stored names have them escaped."""
    if not is_plain(text):
        raise ConfigError(unprintable(what, text))
