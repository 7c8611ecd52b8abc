"""Describes the table for the operator. No I/O here."""

from dataclasses import dataclass

from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.table.schema import (
    INDEXES,
    STREAM_VIEW,
    Capacity,
    Extra,
    Index,
)
from penstock.store.dynamodb.table.state import (
    COMING,
    GOING,
    TableState,
    find_missing,
    find_obstacle,
    find_unfinished,
    find_wrong,
)


@dataclass(frozen=True, slots=True)
class TableReport:
    place: str
    rows: tuple[tuple[str, str], ...]
    """Names and values; empty if there is no such table."""
    fault: str | None
    """Why the table can't be used, and what to do. None: the table is ready."""


def report_table(place: str, location: Location, state: TableState | None) -> TableReport:
    rows = () if state is None else _rows(location, state)
    return TableReport(place, rows, find_fault(location, state))


def find_mend(location: Location) -> str:
    return f"run: penstock table create --store '{location}'"


def describe_capacity(capacity: Capacity | None) -> str:
    if capacity is None:
        return "on demand"
    return f"provisioned, {capacity.read} read and {capacity.write} write units"


def describe_warm(warm: Capacity | None) -> str:
    if warm is None:
        return "unknown"
    return f"{warm.read} read and {warm.write} write units a second"


def find_fault(
    location: Location, state: TableState | None, *, needs_ttl: bool = True
) -> str | None:
    """Why the table can't be used, and the command that repairs it."""
    mend = find_mend(location)
    if state is None:
        return f"there is no such table; {mend}"
    if state.status in {COMING, GOING}:
        return f"it is being {'created' if state.status == COMING else 'deleted'}; {mend}"
    if obstacle := find_obstacle(state):
        return obstacle
    if wrong := find_wrong(state):
        return f"{'; '.join(wrong)}; then {mend}"
    missing = [part for part in find_missing(state) if needs_ttl or part is not Extra.TTL]
    faults = [f"{part} is missing" for part in missing]
    faults += [f"{index} is still being built" for index in find_unfinished(state)]
    return f"{', '.join(faults)}; {mend}" if faults else None


def _rows(location: Location, state: TableState) -> tuple[tuple[str, str], ...]:
    ttl = f"on, by '{state.ttl}'" if state.ttl else "off"
    return (
        ("status", state.status.lower()),
        ("billing", describe_capacity(state.capacity)),
        *([("warm", describe_warm(state.warm))] if state.warm else []),
        # AWS counts items about every six hours.
        ("last count", f"{_items(state.items)}, {_size(state.size_bytes)}"),
        *((str(index), _index(index, state)) for index in INDEXES),
        ("TTL", ttl),
        ("stream", _stream(location, state.stream)),
        ("schema", _schema(state)),
    )


def _stream(location: Location, stream: str | None) -> str:
    if stream is None:
        return f"off, so usage is not counted; {find_mend(location)}"
    if stream != STREAM_VIEW:
        return f"{stream}, so usage is not counted: it needs {STREAM_VIEW}"
    return stream


def _index(index: Index, state: TableState) -> str:
    found = state.indexes.get(index.name)
    return "missing" if found is None else found.status.lower()


def _schema(state: TableState) -> str:
    if state.version is None:
        return "unknown"
    version = state.version
    made = f"made by Penstock {version.get('created_by', '?')}, {version.get('created_at', '?')}"
    migrating = ", being migrated" if state.is_migrating else ""
    return f"{version.get('schema', '?')} ({made}){migrating}"


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count:,} items"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
