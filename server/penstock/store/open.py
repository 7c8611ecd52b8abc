"""Opens the store that a URL names."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from penstock.core.usage import USAGE_KEPT, UsageKept
from penstock.errors import ConfigError
from penstock.store.memory import MemoryStore
from penstock.store.migration_port import Migration
from penstock.store.old_buckets import OldBucket
from penstock.store.policy_laws import AUDIT_KEPT_MS
from penstock.store.port import Store
from penstock.store.retention_port import EventArchive
from penstock.store.sqlite import SqliteStore, old_buckets
from penstock.store.sqlite.backup import back_up
from penstock.store.sqlite.schema import Synchronous
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.tracing import Tracer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from penstock.store.dynamodb.aws.location import Location
    from penstock.store.dynamodb.table import TableAdmin
    from penstock.store.dynamodb.usage.aside import Aside
    from penstock.store.dynamodb.usage.batches import Batches
    from penstock.store.dynamodb.usage.worker import Aggregator

FORMS: Final = (
    "memory:, sqlite:///relative/path.db, sqlite:////absolute/path.db, dynamodb://table?region=…"
)


NO_STREAM: Final = (
    "only a store dynamodb://TABLE?region=REGION has a stream; with SQLite, servers count usage "
    "themselves"
)


async def open_store(
    url: str,
    metrics: Metrics | None = None,
    tracer: Tracer | None = None,
    *,
    remembers_denials: bool = True,
    creates: bool = True,
    audit_kept_ms: int = AUDIT_KEPT_MS,
) -> Store:
    """Open a store, or say what is wrong with the URL or with what it names.

    `remembers_denials`: deny from memory for a moment, where it costs to ask. `creates`: make a
    SQLite file that is missing; otherwise that is a MissingStoreError. `audit_kept_ms`: when an
    audit event that is written now expires, where a table's TTL removes it; 0: never.
    """
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    match parts.scheme:
        case "memory":
            if parts.netloc or parts.path or options:
                raise ConfigError(f"store '{url}': memory: takes nothing behind it")
            return MemoryStore(metrics)
        case "sqlite":
            synchronous = _synchronous(url, options)
            path = _sqlite_path(url, parts)
            return SqliteStore(path, synchronous, metrics, tracer, creates=creates)
        case "dynamodb":
            # The AWS SDK takes half a second to import, so only those who use it wait for it.
            from penstock.store.dynamodb import open_dynamodb
            from penstock.store.dynamodb.aws.location import parse_location

            location = parse_location(url, options)
            return await open_dynamodb(
                location,
                metrics,
                tracer,
                remembers_denials=remembers_denials,
                audit_kept_ms=audit_kept_ms,
            )
    raise ConfigError(f"store '{url}': unknown kind of store; there are {FORMS}")


def open_table(url: str) -> "TableAdmin":
    """The table that a URL names, to create, look at, or delete."""
    location = _table(
        url,
        "only a store dynamodb://TABLE?region=REGION has a table; the others need no preparation",
    )
    from penstock.store.dynamodb.table import TableAdmin

    return TableAdmin(location)


def open_usage_worker(
    url: str,
    metrics: Metrics | None = None,
    archive: EventArchive | None = None,
    kept: UsageKept = USAGE_KEPT,
) -> "AbstractAsyncContextManager[Aggregator]":
    """A worker that counts usage from the stream of the table that a URL names.

    `archive`: where the audit events go that the table's TTL has removed. `kept`: how long the
    table keeps usage.
    """
    location = _table(url, NO_STREAM)
    from penstock.store.dynamodb.usage.opening import open_aggregator

    return open_aggregator(location, metrics, archive, kept)


async def read_set_aside(url: str) -> "Sequence[Aside]":
    """The records of a table's stream that could not be counted."""
    location = _table(url, NO_STREAM)
    from penstock.store.dynamodb.usage.opening import read_aside

    return await read_aside(location)


def open_usage_batches(
    url: str, archive: EventArchive | None = None, kept: UsageKept = USAGE_KEPT
) -> "AbstractAsyncContextManager[Batches]":
    """Counts usage from batches of the stream that somebody else reads."""
    location = _table(url, NO_STREAM)
    from penstock.store.dynamodb.usage.opening import open_batches

    return open_batches(location, archive, kept)


def _table(url: str, otherwise: str) -> "Location":
    parts = _split(url)
    if parts.scheme != "dynamodb":
        raise ConfigError(f"store '{url}': {otherwise}")
    from penstock.store.dynamodb.aws.location import parse_location

    return parse_location(url, dict(parse_qsl(parts.query, keep_blank_values=True)))


def open_migration(url: str, now_ms: int) -> AbstractAsyncContextManager[Migration]:
    """The table that a URL names, to convert its single items to composite items."""
    parts = _split(url)
    if parts.scheme != "dynamodb":
        raise ConfigError(
            f"store '{url}': only a DynamoDB table can have single items, dynamodb://TABLE; "
            "`penstock migrate import` brings in a SQLite file"
        )
    from penstock.store.dynamodb.aws.location import parse_location
    from penstock.store.dynamodb.migration.run import open_migration

    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return open_migration(parse_location(url, options), now_ms)


def back_up_file(url: str, target: Path) -> int:
    """Copy the file that a URL names, which servers may use; returns the copy's size in bytes."""
    parts = _split(url)
    if parts.scheme != "sqlite":
        raise ConfigError(
            f"store '{url}': only a store sqlite:///PATH has a file to copy; "
            "for a DynamoDB table, AWS has backups and point-in-time recovery"
        )
    _synchronous(url, dict(parse_qsl(parts.query, keep_blank_values=True)))
    return back_up(_sqlite_path(url, parts), target)


def read_old_buckets(path: Path) -> list[OldBucket]:
    """The buckets in a SQLite file of the older form."""
    return old_buckets.read_table(path)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as exc:
        raise ConfigError(f"store '{url}': {exc}; there are {FORMS}") from exc


def _sqlite_path(url: str, parts: SplitResult) -> Path:
    """As in other tools: after `sqlite:///` comes the path, so an absolute one has four."""
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path or "\0" in path:
        raise ConfigError(f"store '{url}': write sqlite:///path.db, with three slashes")
    return Path(path)


def _synchronous(url: str, options: dict[str, str]) -> Synchronous:
    value = options.pop("synchronous", "normal").upper()
    if options:
        raise ConfigError(f"store '{url}': unknown option '{next(iter(options))}'")
    if value not in {"NORMAL", "FULL"}:
        raise ConfigError(f"store '{url}': synchronous is normal or full")
    return cast("Synchronous", value)
