"""`penstock gc`: removes old records now, instead of in small steps while a server runs."""

import argparse
import os
from typing import Final, NamedTuple

from penstock.archive import opened_archive
from penstock.cli.actions import set_command
from penstock.cli.output import print_json, print_line
from penstock.cli.parser import Parser
from penstock.cli.progress import ProgressLine
from penstock.cli.store import add_store_flags, now_ms, with_store
from penstock.config.durations import format_duration
from penstock.config.flags import add_flags, read_settings
from penstock.config.settings import Settings
from penstock.config.usage_kept import format_usage_kept
from penstock.errors import ConfigError
from penstock.service.retention import STEP, Retention
from penstock.store.port import Store
from penstock.store.retention_port import RetentionStore
from penstock.telemetry.metrics import Metrics

EXAMPLES: Final = """\
A server does the same in small steps while it runs. Idle buckets are full again, and their usage
stays, so nothing is lost. If --audit-archive names an archive, the command writes audit events
there before it removes them.

examples:
  penstock gc --dry-run
  penstock gc --usage-retention hour=30d,day=366d
  penstock gc --audit-retention 30d --audit-archive /var/lib/penstock/audit
  penstock gc --audit-archive 's3://my-bucket/penstock?region=eu-west-1'
"""


class Collected(NamedTuple):
    """What was removed, or would be."""

    audit_events: int
    usage_windows: int
    idle_buckets: int


def declare(parser: Parser) -> None:
    set_command(
        parser,
        _run,
        "Remove idle buckets, and audit events and usage that are older than the retention.",
        EXAMPLES,
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only show how much would be removed"
    )
    add_store_flags(parser)
    add_flags(parser, ("audit_retention", "audit_archive", "usage_retention"))


def _run(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments, os.environ)

    async def work(store: Store) -> Collected:
        if store.retention is None:
            raise ConfigError(
                f"store '{settings.store}': DynamoDB removes what has expired by itself, by the "
                "table's TTL; `penstock table status` tells whether the TTL is on"
            )
        async with opened_archive(settings.audit_archive) as archive:
            kept = settings.audit_retention, settings.usage_retention
            retention = Retention(store.retention, archive, *kept, Metrics())
            look = _count if arguments.dry_run else _collect
            return await look(store.retention, retention)

    collected = with_store(arguments, work, doing="")
    if arguments.json:
        print_json({**collected._asdict(), "dry_run": arguments.dry_run})
        return 0
    _tell(collected, settings, would="would be " if arguments.dry_run else "")
    return 0


async def _count(store: RetentionStore, retention: Retention) -> Collected:
    now = now_ms()
    with ProgressLine("counting"):
        return Collected(
            await retention.count_audit(now),
            await retention.count_usage(now),
            await store.count_idle_buckets(now),
        )


async def _collect(store: RetentionStore, retention: Retention) -> Collected:
    now, events, windows, buckets = now_ms(), 0, 0, 0
    with ProgressLine() as progress:
        while (removed := await retention.remove_audit(now)) is not None:
            events += removed
            progress.show(f"{events:,} audit events removed")
        while (removed := await retention.remove_usage(now)) is not None:
            windows += removed
            progress.show(f"{windows:,} windows of usage removed")
        after: str | None = None
        while True:
            step = await store.remove_idle_buckets(now, after, STEP)
            buckets, after = buckets + step.items, step.next
            progress.show(f"{buckets:,} idle buckets removed")
            if after is None:
                return Collected(events, windows, buckets)


def _tell(collected: Collected, settings: Settings, would: str) -> None:
    if settings.audit_retention:
        archived = f"archived in {settings.audit_archive} and " if settings.audit_archive else ""
        age = _format_age(settings.audit_retention)
        print_line(
            f"audit events older than {age}: {collected.audit_events:,} {would}{archived}removed"
        )
    else:
        print_line("audit events: kept for ever (--audit-retention 0)")
    kept = format_usage_kept(settings.usage_retention)
    print_line(f"windows of usage older than {kept}: {collected.usage_windows:,} {would}removed")
    print_line(f"idle buckets: {collected.idle_buckets:,} {would}removed")


def _format_age(age_ms: int) -> str:
    days, rest_ms = divmod(age_ms, 86_400_000)
    return format_duration(age_ms) if rest_ms else f"{days} days"
