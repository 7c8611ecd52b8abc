"""`penstock migrate import`: brings in the buckets of a SQLite file of an older form."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock.cli.actions import add_action
from penstock.cli.output import print_json, print_line
from penstock.cli.progress import ProgressLine
from penstock.cli.store import add_store_flags, change_of, check_name, with_store
from penstock.config.rates import format_rate
from penstock.core.entities import Entity, Scope, StoredLimits, name_problem
from penstock.core.limits import Limit
from penstock.errors import ConfigError
from penstock.store.old_buckets import OLD_BURST, OldBucket, old_limit
from penstock.store.open import read_old_buckets
from penstock.store.policy_port import Change
from penstock.store.port import Store

TOGETHER: Final = 16
"""Buckets that are brought in at the same time, so that a table's latency does not add up."""

EXAMPLES: Final = f"""\
FILE is a SQLite file with the table rate_limit_buckets (bucket_id, tokens, last_refill), in which
each bucket holds up to {OLD_BURST} tokens and refills in an hour. Each bucket_id becomes an entity.
The resource gets the limit of {OLD_BURST} an hour. What was used stays used. The command changes
nothing in FILE. If it is interrupted, run it again: it goes on where it stopped.

examples:
  penstock migrate import old.db --resource api --dry-run
  penstock migrate import old.db --resource api --limit-name requests
"""


def add_action_to(actions: "argparse._SubParsersAction[Any]") -> None:
    text = "bring in the buckets of a SQLite table rate_limit_buckets"
    parser = add_action(actions, "import", _import, text, EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="SQLite file that has the table")
    parser.add_argument(
        "--resource", metavar="R", required=True, help="resource that the buckets are for"
    )
    parser.add_argument(
        "--limit-name",
        metavar="NAME",
        default="hourly",
        help="name of the limit (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    add_store_flags(parser, writes=True, creates=True)


def _import(arguments: argparse.Namespace) -> int:
    resource, limit = arguments.resource, old_limit(arguments.limit_name)
    check_name("resource", resource)
    check_name("limit", limit.name)
    buckets = read_old_buckets(Path(arguments.file))
    # All of them before the first change: a bad name must not stop it halfway.
    for bucket in buckets:
        if problem := name_problem("entity", bucket.id):
            raise ConfigError(f"{arguments.file}: {problem}")
    used = sum(OLD_BURST - bucket.tokens for bucket in buckets)
    told = f"{len(buckets):,} buckets with {used:,} tokens used"
    rate = f"{limit.name}={format_rate(limit)} for resource {resource}"
    if arguments.dry_run:
        if arguments.json:
            return _print_counts(len(buckets), used, 0)
        print_line(f"{arguments.file}: {told} would be brought in, under {rate}")
        return 0
    change = change_of(arguments)

    async def work(store: Store) -> int:
        await _set_limit(store, resource, limit, change)
        return await _bring_in(store, buckets, resource, limit, change)

    new = with_store(arguments, work, doing="")
    if arguments.json:
        return _print_counts(len(buckets), used, new)
    print_line(f"{arguments.file}: {told}, under {rate}: {new:,} brought in")
    if new < len(buckets):
        print_line(f"{len(buckets) - new:,} were there already, and are unchanged")
    return 0


def _print_counts(buckets: int, used: int, brought_in: int) -> int:
    print_json({"buckets": buckets, "used": used, "brought_in": brought_in})
    return 0


async def _set_limit(store: Store, resource: str, limit: Limit, change: Change) -> None:
    scope = Scope(None, resource)
    stored = await store.policy.read_limits(scope)
    if stored is None:
        await store.policy.write_limits(scope, StoredLimits((limit,), 0), change)
    elif stored.limits != (limit,):
        raise ConfigError(
            f"resource {resource} has other limits already: name another resource, or delete "
            f"these limits with `penstock limits delete --resource {resource}`"
        )


async def _bring_in(
    store: Store, buckets: Sequence[OldBucket], resource: str, limit: Limit, change: Change
) -> int:
    new = 0
    with ProgressLine() as progress:
        for begin in range(0, len(buckets), TOGETHER):
            some = buckets[begin : begin + TOGETHER]
            brought = [_bring_one(store, bucket, resource, limit, change) for bucket in some]
            new += sum(await asyncio.gather(*brought))
            progress.show(f"{begin + len(some):,} of {len(buckets):,} buckets")
    return new


async def _bring_one(
    store: Store, bucket: OldBucket, resource: str, limit: Limit, change: Change
) -> bool:
    """Create the bucket, then the entity: an entity tells that its bucket is there."""
    if await store.policy.read_entity(bucket.id) is not None:
        return False
    take = bucket.take(resource, limit)
    if await store.read(take.key) is None:
        await store.take([take], bucket.refilled_ms)
    await store.policy.write_entity(Entity(bucket.id), change)
    return True
