"""`penstock audit`: who changed what, and when."""

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from penstock.archive import opened_archive
from penstock.archive.archive import AuditArchive
from penstock.cli.actions import set_command
from penstock.cli.counts import read_count
from penstock.cli.names import similar_names
from penstock.cli.output import print_json, print_line, print_lines, print_note
from penstock.cli.parser import Parser
from penstock.cli.store import PAGE, add_store_flags, check_name, check_plain, with_store
from penstock.cli.styled import Styled, change_line
from penstock.cli.tables import format_pairs, format_time, limits_values
from penstock.config.flags import add_flags, read_settings
from penstock.config.limit_values import recorded_limit
from penstock.config.rates import format_rate
from penstock.core.limits import MILLI
from penstock.errors import ConfigError
from penstock.store.policy_port import AuditEvent
from penstock.store.port import Store

SYSTEM_SUBJECT: Final = "$SYSTEM"
RESOURCE_SUBJECT: Final = "$RESOURCE:"
RESET: Final = "bucket.reset"

EXAMPLES: Final = """\
exit code: 0 changes found, 1 no changes found, 2 error

examples:
  penstock audit project-1
  penstock audit --resource gpt-4 --last 5
  penstock audit --system
  penstock audit --archive --audit-archive /var/lib/penstock/audit project-1
"""


def declare(parser: Parser) -> None:
    set_command(
        parser,
        _run,
        "Show the changes of an entity, a resource or the system. Latest first.",
        EXAMPLES,
    )
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("subject", metavar="ENTITY", nargs="?", help="changes of this entity")
    subject.add_argument("--resource", metavar="R", help="changes of the limits of resource R")
    subject.add_argument(
        "--system", action="store_true", help="changes of the limits of the system"
    )
    parser.add_argument(
        "--last", metavar="N", default="50", help="show at most N changes (default: %(default)s)"
    )
    parser.add_argument(
        "--archive",
        action="store_true",
        help="also show changes that are only in the archive, which --audit-archive names",
    )
    add_store_flags(parser)
    add_flags(parser, ("audit_archive",))


def _run(arguments: argparse.Namespace) -> int:
    subject = _subject(arguments)
    last = read_count("--last", arguments.last)
    archive = _archive(arguments)
    events = with_store(
        arguments, lambda store: _latest(store, subject, last, archive), "reading the audit"
    )
    if arguments.json:
        print_json([event_values(event) for event in events])
    elif not events:
        entity = None if subject.startswith("$") else subject
        meant = similar_names(arguments, entity, arguments.resource)
        print_note(f"{subject}: no changes found{meant}")
    for event in () if arguments.json else events:
        about = "" if event.scope is None else f"  {event.scope}"
        at = Styled(format_time(event.at_ms), "less")
        print_line([at, f"  {event.by}  ", Styled(event.action, "name"), about])
        print_lines([change_line(f"    {line}") for line in _differences(event)])
    return 0 if events else 1


def _subject(arguments: argparse.Namespace) -> str:
    if arguments.system:
        return SYSTEM_SUBJECT
    if arguments.resource is not None:
        check_name("resource", arguments.resource)
        return f"{RESOURCE_SUBJECT}{arguments.resource}"
    subject = str(arguments.subject)
    if subject.startswith(RESOURCE_SUBJECT):
        check_name("resource", subject.removeprefix(RESOURCE_SUBJECT))
    elif subject.startswith("$") and subject != SYSTEM_SUBJECT:
        check_name("entity", subject)
    else:
        # Entities of rules' buckets can be longer than the names of stored entities.
        check_plain("entity", subject)
    return subject


def _archive(arguments: argparse.Namespace) -> str:
    """The archive to read; empty: none."""
    if not arguments.archive:
        return ""
    archive = read_settings(arguments, os.environ).audit_archive
    if not archive:
        raise ConfigError("--archive: name the archive with --audit-archive")
    return archive


async def _latest(store: Store, subject: str, last: int, archive: str) -> list[AuditEvent]:
    events: list[AuditEvent] = []
    after: str | None = None
    while len(events) < last:
        page = await store.policy.list_audit(subject, after, min(PAGE, last - len(events)))
        events += page.items
        after = page.next
        if after is None:
            break
    async with opened_archive(archive) as opened:
        if opened is not None:
            events += await _archived(opened, subject, last - len(events), events)
    return events


async def _archived(
    archive: AuditArchive, subject: str, most: int, stored: Sequence[AuditEvent]
) -> list[AuditEvent]:
    """The latest changes that are only in the archive. All of them are older than `stored`."""
    events: list[AuditEvent] = []
    async with aclosing(archive.read(subject)) as archived:
        async for event in archived:
            if len(events) >= most:
                break
            # An event that was archived a moment ago may still be in the store.
            if event not in stored:
                events.append(event)
    return events


def event_values(event: AuditEvent) -> dict[str, Any]:
    scope = None if event.scope is None else event.scope._asdict()
    sides = {"before": _side(event, event.before), "after": _side(event, event.after)}
    return {**event._asdict(), **sides, "scope": scope, "at": format_time(event.at_ms)}


def _side(event: AuditEvent, record: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Limits and balances in whole tokens, in the form of the other commands."""
    if record is None or event.scope is None:
        return record
    if event.action == RESET:
        balances = [{"name": name, "balance": n // MILLI} for name, n in sorted(record.items())]
        return {"buckets": balances}
    limits = [recorded_limit(name, one) for name, one in record.items() if not name.startswith("$")]
    unavailable = record.get("$on_unavailable")
    return {"limits": limits_values(limits), "on_unavailable": unavailable}


def _differences(event: AuditEvent) -> list[str]:
    write = _entity_facts if event.scope is None else _limit_rates
    if event.action == RESET:
        write = _balances
    before, after = write(event.before or {}), write(event.after or {})
    lines = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, ""), after.get(name, "")
        if old and new and old != new:
            lines.append(f"~ {name}: {old} → {new}")
        elif old != new:
            lines.append(f"+ {name}: {new}" if new else f"- {name}: {old}")
    return lines


def _entity_facts(record: Mapping[str, Any]) -> dict[str, str]:
    return {
        "parent": record.get("parent") or "",
        "cascade": "yes" if record.get("cascade") else "",
        "metadata": format_pairs(record.get("metadata") or {}),
    }


def _balances(record: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{balance // MILLI} left" for name, balance in record.items()}


def _limit_rates(record: Mapping[str, Any]) -> dict[str, str]:
    """Limits by name. A name with a `$` before it is not a limit, but another setting."""
    return {
        name.removeprefix("$"): (
            str(value) if name.startswith("$") else format_rate(recorded_limit(name, value))
        )
        for name, value in record.items()
    }
