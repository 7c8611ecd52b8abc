"""What `penstock top` shows of a snapshot: lines and a table. No I/O here."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.cli.styled import Line, Part, Style, Styled, Table
from penstock.cli.top_client import Snapshot
from penstock.config.durations import format_duration

LEVELS: Final = "▁▂▃▄▅▆▇█"
MOST_POINTS: Final = 60
"""Columns of a plot over time, and so the last five minutes."""

SORTS: Final = ("count", "denied", "name")
"""By the count that the server sorts by, by the share that was denied, or by name."""

STYLES: Final[dict[str, Style]] = {"requests": "good", "denials": "bad", "errors": "near"}

HEADERS: Final = {
    "entity": ("ENTITY", "RESOURCE"),
    "rule": ("RULE",),
    "resource": ("RESOURCE",),
}

Row = dict[str, Any]


def head_lines(snapshot: Snapshot, address: str) -> list[Line]:
    """How the server is, and its rates over time."""
    overview = snapshot.overview
    health, workers, rules = overview["health"], overview["workers"], overview["rules"]
    is_well = health["healthy"] and health["ready"]
    state = Styled("ready", "good") if is_well else Styled(_fault(health), "bad")
    up = _duration(overview["at_ms"] - overview["started_ms"])
    about = (
        f"  penstock {overview['version']}, up {up}, "
        f"{workers['running']} of {workers['wanted']} workers, {rules['count']:,} rules, "
        f"store {overview['store']['kind']}"
    )
    lines: list[Line] = [[Styled(address, "name"), "  ", state, about]]
    if rules["last_load_failed"]:
        error = rules["error"].partition("\n")[0]
        lines.append(Styled(f"the last load of rules failed, old rules stay: {error}", "near"))
    return [*lines, *_rate_lines(overview["rates"])]


def _fault(health: dict[str, Any]) -> str:
    return f"not ready: {health['reason']}" if health["reason"] else "not ready"


def _rate_lines(rates: dict[str, Any]) -> list[Line]:
    points, step_ms = rates["points"][-MOST_POINTS:], rates["step_ms"]
    if not points:
        return ["no rates yet: the first step is not over"]
    last = points[-1]
    lines: list[Line] = []
    for name, style in STYLES.items():
        if name == "errors" and not any(point["errors"] for point in points):
            continue
        rate = f"{_rate(last[name], step_ms):>10}/s  "
        lines.append([f"{name:<9}{rate}", Styled(_plot([p[name] for p in points]), style)])
    answers, store = _times(last, "answer"), _times(last, "store")
    return [*lines, Styled(f"mean time of answers {answers}; of the store {store}", "less")]


def _times(point: Row, what: str) -> str:
    mean, p99 = point[f"{what}_mean_us"], point[f"{what}_p99_us"]
    return f"{_microseconds(mean)}, p99 {_microseconds(p99)}"


def _plot(counts: Sequence[int]) -> str:
    """What is not nothing can be seen."""
    most = max(counts)
    return "".join(
        LEVELS[-(-count * (len(LEVELS) - 1) // most)] if count and most else " " for count in counts
    )


def table_of(snapshot: Snapshot, sort: str = SORTS[0], rows: int | None = None) -> Table:
    """The heaviest keys, with what denied them last."""
    view = snapshot.view
    names = HEADERS[view.of]
    header = (*names, "REQUESTS", "DENIALS", "DENIED", "LAST DENIAL")
    found = sorted(snapshot.top["rows"], key=lambda row: _order(row, view.of, sort))
    now_ms = snapshot.top["at_ms"]
    return Table(header, [_cells(row, names, now_ms) for row in found[:rows]])


def _order(row: Row, of: str, sort: str) -> tuple[float, str]:
    """The server has sorted the rows by count already, and sorting is stable."""
    if sort == "denied":
        return -_share(row), ""
    return (0, str(row[of])) if sort == "name" else (0, "")


def _share(row: Row) -> float:
    return row["denials"] / row["requests"] if row["requests"] else 0.0


def _cells(row: Row, names: Sequence[str], now_ms: int) -> list[Part]:
    cells: list[Part] = [str(row[name.lower()] or "") for name in names]
    share = _share(row)
    style: Style = "bad" if share >= 0.5 else "near" if share else "good"
    cells += [f"{row['requests']:,}", f"{row['denials']:,}", Styled(f"{share:.0%}", style)]
    return [*cells, _denial(row["last_denial"], now_ms)]


def _denial(denial: Row | None, now_ms: int) -> str:
    if denial is None:
        return ""
    limit = denial["limit"]
    name = f" ({limit['name']})" if limit["name"] else ""
    whose = f" of {denial['limited']}" if denial["limited"] != denial["entity"] else ""
    ago = _duration(now_ms - denial["at_ms"])
    return f"{limit['rate']}{name}{whose}, {ago} ago, wait {_duration(denial['wait_ms'])}"


def title_of(snapshot: Snapshot, sort: str = SORTS[0]) -> Line:
    view, span = snapshot.view, _duration(snapshot.top["span_ms"])
    plural = {"entity": "entities", "rule": "rules", "resource": "resources"}[view.of]
    order = {"count": view.by, "denied": "share of denials", "name": "name"}[sort]
    text = f"{plural} with the most {view.by} in the last {view.over} ({span}), by {order}"
    return Styled(text if snapshot.top["rows"] else f"{text}: none", "header")


def _rate(count: int, step_ms: int) -> str:
    rate = count * 1000 / step_ms
    return f"{rate:,.0f}" if rate >= 100 or not count else f"{rate:,.1f}"


def _microseconds(time_us: int | None) -> str:
    if time_us is None:
        return "-"
    return f"{time_us / 1000:,.1f} ms" if time_us >= 1000 else f"{time_us} µs"


def _duration(time_ms: int) -> str:
    """To the second, and without the seconds of long times."""
    step_ms = 60_000 if time_ms >= 7_200_000 else 1_000
    rounded_ms = max(0, time_ms) // step_ms * step_ms
    return format_duration(rounded_ms) if rounded_ms else "0s"
