"""`penstock usage`: what entities consumed, as a table with bars, JSON or CSV."""

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.cli.actions import set_command
from penstock.cli.counts import read_count
from penstock.cli.names import similar_names
from penstock.cli.output import print_csv, print_json, print_line, print_note, print_table
from penstock.cli.parser import Parser
from penstock.cli.store import add_store_flags, check_name, check_plain, now_ms, with_store
from penstock.cli.time_spans import TimeSpan, read_span
from penstock.cli.usage_plot import Row, plot_table, tokens
from penstock.config.similar import did_you_mean
from penstock.core.amounts import to_tokens
from penstock.core.take import Key
from penstock.core.usage import NOTHING, Used, Window, WindowUsage, total
from penstock.errors import ConfigError
from penstock.store.port import Store
from penstock.store.usage_sums import (
    EntityUsage,
    find_top,
    read_children,
    sum_by_entity,
    sum_by_start,
)

TAKES: Final = "takes"

EXAMPLES: Final = """\
Times are UTC. Write a time as 2026-11, 2026-11-18, 2026-11-18T14 or 2026-11-18T14:30, or as the
time before now, such as 24h or 30d. Usage is counted for the entities of stored limits, and not for
the buckets of rules. docs/usage.md explains all.

exit code: 0 usage found, 1 no usage found, 2 error

examples:
  penstock usage user-123
  penstock usage user-123 --resource gpt-4 --window hour --since 24h
  penstock usage project-1 --children --window month
  penstock usage --top --resource gpt-4 --limit tpm
  penstock usage user-123 --window month --since 2026-01 --csv
"""


def declare(parser: Parser) -> None:
    set_command(parser, _run, "Show what an entity consumed in each hour, day or month.", EXAMPLES)
    parser.add_argument("entity", metavar="ENTITY", nargs="?", help="usage of this entity")
    parser.add_argument("--resource", metavar="R", help="only of resource R (default: all)")
    parser.add_argument(
        "--window",
        choices=[window.value for window in Window],
        default=Window.DAY.value,
        help="size of the windows (default: %(default)s)",
    )
    parser.add_argument(
        "--since", metavar="T", help="begin with the window of time T (default: 24h, 30d or a year)"
    )
    parser.add_argument("--until", metavar="T", help="end before time T (default: now)")
    parser.add_argument(
        "--children", action="store_true", help="usage of the entity's children, and their total"
    )
    parser.add_argument(
        "--top",
        metavar="N",
        nargs="?",
        const="10",
        help="the N entities that used most of resource R (default: 10), by default in this month",
    )
    parser.add_argument(
        "--limit", metavar="L", help="show bars for limit L, and sort by it (default: takes)"
    )
    add_store_flags(parser)
    parser.add_argument("--csv", action="store_true", help="print CSV for spreadsheets")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.resource is not None:
        check_name("resource", arguments.resource)
    if arguments.json and arguments.csv:
        raise ConfigError("give --json or --csv, not both")
    if arguments.top is not None:
        return _run_top(arguments)
    if arguments.entity is None:
        raise ConfigError("name an entity, or give --top with --resource")
    # Entities of rules have no usage, but may be asked for.
    check_plain("entity", arguments.entity)
    span = read_span(Window(arguments.window), arguments.since, arguments.until, now_ms())
    windows = with_store(arguments, _reading(arguments, span), "reading the usage")
    if arguments.json:
        print_json(_values(arguments, span, windows))
    elif arguments.csv:
        _print_windows(windows)
    elif windows:
        _show(arguments, span, windows)
    else:
        meant = similar_names(arguments, arguments.entity, arguments.resource)
        _tell_nothing(arguments.entity, span, meant)
    return 0 if windows else 1


def _run_top(arguments: argparse.Namespace) -> int:
    if arguments.resource is None:
        raise ConfigError("--top: give --resource, too")
    if arguments.entity is not None or arguments.children:
        raise ConfigError("--top is for a resource: leave the entity and --children out")
    count = read_count("--top", arguments.top)
    now, window = now_ms(), Window(arguments.window)
    since = arguments.since or Window.MONTH.label(Window.MONTH.start_ms(now))
    span = read_span(window, since, arguments.until, now)
    entities = with_store(
        arguments,
        lambda store: find_top(store.usage, arguments.resource, *span, count, arguments.limit),
        "reading the usage",
    )
    if arguments.json:
        named = [{"entity": one.entity, **_used(one.used)} for one in entities]
        print_json({"resource": arguments.resource, **_span(span), "top": named})
    elif arguments.csv:
        limits = _limits(one.used for one in entities)
        print_csv(
            [_csv_header(["entity", "resource", TAKES], limits)]
            + [[one.entity, arguments.resource, *_cells(one.used, limits)] for one in entities]
        )
    elif entities:
        print_line(f"{arguments.resource}, {span.first} to {span.last}")
        _plot(arguments.limit, "ENTITY", [Row(*one) for one in entities])
    else:
        _tell_nothing(arguments.resource, span, similar_names(arguments, None, arguments.resource))
    return 0 if entities else 1


def _tell_nothing(name: str, span: TimeSpan, meant: str) -> None:
    print_note(f"{name}: no usage from {span.first} to {span.last}{meant}")


def _reading(
    arguments: argparse.Namespace, span: TimeSpan
) -> Callable[[Store], Awaitable[list[WindowUsage]]]:
    entity, resource = str(arguments.entity), arguments.resource
    if arguments.children:
        return lambda store: read_children(store, entity, *span, resource)
    return lambda store: store.usage.read(entity, *span, resource)


class _Section(NamedTuple):
    title: str
    windows: Sequence[WindowUsage]


def _show(arguments: argparse.Namespace, span: TimeSpan, windows: Sequence[WindowUsage]) -> None:
    """A table of windows for each resource; for children, a table of them, and their total."""
    if arguments.children:
        by_entity = sorted(sum_by_entity(windows), key=lambda one: _order(one, arguments.limit))
        print_line(f"children of {arguments.entity}, {span.first} to {span.last}")
        total_row = Row("total", total(one.used for one in by_entity), has_bar=False)
        _plot(arguments.limit, "ENTITY", [*[Row(*one) for one in by_entity], total_row])
        print_line("")
        sections = [_Section("all children", windows)]
    else:
        keys: dict[Key, list[WindowUsage]] = {}
        for one in windows:
            keys.setdefault(one.key, []).append(one)
        sections = [_Section(f"{key.entity}, {key.resource}", found) for key, found in keys.items()]
    for number, section in enumerate(sections):
        if number:
            print_line("")
        print_line(section.title)
        sums = sum_by_start(section.windows)
        rows = [Row(span.window.label(at), sums.get(at, NOTHING)) for at in span.between(sums)]
        rows.append(Row("total", total(sums.values()), has_bar=False))
        _plot(arguments.limit, span.window.value.upper(), rows)


def _order(one: EntityUsage, limit: str | None) -> tuple[int, str]:
    most = one.used.takes if limit is None else one.used.amounts.get(limit, 0)
    return -most, one.entity


def _plot(limit: str | None, header: str, rows: Sequence[Row]) -> None:
    limits = _limits(row.used for row in rows)
    if limit is not None and limit not in limits:
        print_note(f"--limit: nothing was consumed of '{limit}'{did_you_mean(limit, limits)}")
    print_table(plot_table(header, rows, limits, limit))


def _print_windows(windows: Sequence[WindowUsage]) -> None:
    limits = _limits(one.used for one in windows)
    print_csv(
        [_csv_header(["entity", "resource", "window", "start", TAKES], limits)]
        + [
            [*one.key, one.window.value, one.window.label(one.start_ms), *_cells(one.used, limits)]
            for one in windows
        ]
    )


def _csv_header(columns: Sequence[str], limits: Sequence[str]) -> list[str]:
    """A limit may be called as another column. No name of a limit has blanks, so this is unique."""
    return [*columns, *[f"{name} (limit)" if name in columns else name for name in limits]]


def _cells(used: Used, limits: Sequence[str]) -> list[str]:
    return [str(used.takes), *[tokens(used.amounts.get(limit, 0)) for limit in limits]]


def _limits(parts: Any) -> list[str]:
    return sorted({limit for used in parts for limit in used.amounts})


def _values(
    arguments: argparse.Namespace, span: TimeSpan, windows: Sequence[WindowUsage]
) -> dict[str, Any]:
    values: dict[str, Any] = {"entity": arguments.entity, **_span(span), "children": None}
    if arguments.children:
        values["children"] = [
            {"entity": one.entity, **_used(one.used)} for one in sum_by_entity(windows)
        ]
    values["windows"] = [
        {
            **one.key._asdict(),
            "start": one.window.label(one.start_ms),
            "start_ms": one.start_ms,
            **_used(one.used),
        }
        for one in windows
    ]
    return {**values, "total": _used(total(one.used for one in windows))}


def _span(span: TimeSpan) -> dict[str, str]:
    return {"window": span.window.value, "first": span.first, "last": span.last}


def _used(used: Used) -> dict[str, Any]:
    """Amounts in tokens, as in the other commands."""
    amounts = {limit: to_tokens(amount) for limit, amount in sorted(used.amounts.items())}
    return {TAKES: used.takes, "amounts": amounts}
