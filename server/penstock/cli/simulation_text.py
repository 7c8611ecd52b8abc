"""The report of a simulation for people: totals, rules, whom limits deny, and a plot over time."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.cli.simulation_csv import descriptor_text
from penstock.cli.styled import Line, Part, Styled, Table
from penstock.cli.tables import format_time
from penstock.config.durations import format_duration
from penstock.traffic.comparison import Comparison
from penstock.traffic.replay import TraceClock
from penstock.traffic.side import Side
from penstock.traffic.tally import Limited, Outcome, Who
from penstock.traffic.timeline import TimeSlice

MOST_ROWS: Final = 24
"""Rows of the plot."""

LEAST_BAR: Final = 10
"""Columns of a bar, also where the terminal is too narrow for it."""

MARKS: Final = {Outcome.DENIED: "", Outcome.OVERDRAWN: " (report)", Outcome.SHADOWED: " (shadow)"}
"""What follows a limit that did not deny the request."""


def report_lines(
    sides: Sequence[Side], compared: Comparison | None, clock: TraceClock, top: int | None
) -> Iterator[Line | Table]:
    begin, end = format_time(clock.first_ms), format_time(clock.now_ms)
    yield f"{sides[-1].tally.requests:,} requests, {begin} to {end}"
    yield ""
    yield _total_table(sides)
    yield ""
    yield from _rule_lines(sides, top)
    yield from _limited_lines(sides, top)
    if compared is not None:
        yield from _who_lines("newly limited", compared.newly_limited, top)
        yield from _who_lines("no longer limited", compared.no_longer_limited, top)
        yield f"limited as before: {_descriptors(compared.still_limited)}"
        yield ""
    yield from _plot_lines(sides)


def _total_table(sides: Sequence[Side]) -> Table:
    tallies = [side.tally for side in sides]
    rows = [
        ("OK", [tally.outcomes[Outcome.OK] for tally in tallies]),
        ("denied", [tally.outcomes[Outcome.DENIED] for tally in tallies]),
        ("reports over a limit", [tally.outcomes[Outcome.OVERDRAWN] for tally in tallies]),
        ("over a limit in shadow mode", [tally.outcomes[Outcome.SHADOWED] for tally in tallies]),
        ("OK because no limit applies", [tally.unlimited for tally in tallies]),
        ("amounts for limits that do not exist", [side.missing_limits for side in sides]),
    ]
    shown = [(name, counts) for name, counts in rows if name in {"OK", "denied"} or any(counts)]
    return _table(("REQUESTS", *_names(sides)), shown)


def _rule_lines(sides: Sequence[Side], top: int | None) -> Iterator[Line | Table]:
    """What the servers would count: `total_hits` and `over_limit` of each rule."""
    paths = {path for side in sides for path, counts in side.hits.items() if counts[0]}
    rows = []
    for path in paths:
        counts = [side.hits.get(path, (0, 0)) for side in sides]
        numbers = [count for total, over, *_ in counts for count in (total, over)]
        rows.append((".".join(path), numbers))
    rows.sort(key=lambda row: (-row[1][-1], -row[1][-2], row[0]))
    header = [f"{what}{name}" for name in _names(sides, " ") for what in ("HITS", "OVER")]
    if rows:
        yield _table(("RULE", *header), rows[:top])
        yield from _more(len(rows), top)
        yield ""


def _limited_lines(sides: Sequence[Side], top: int | None) -> Iterator[Line | Table]:
    keys = {key for side in sides for key in side.tally.limited}
    none = Limited(0)
    found = [(key, [side.tally.limited.get(key, none) for side in sides]) for key in keys]
    # Those that the proposed policy denies most come first.
    found.sort(key=lambda pair: ([-one.count for one in reversed(pair[1])], pair[0]))
    rows = []
    for (who, limit, outcome), limited in found[:top]:
        # The times are those of the proposed policy, unless it does not limit this descriptor.
        last = next(one for one in reversed(limited) if one.count)
        times = [format_time(last.first_ms), format_time(last.last_ms)]
        wait = format_duration(last.longest_wait_s * 1000)
        name = f"{limit}{MARKS[outcome]}"
        rows.append((_who(who), name, *[f"{one.count:,}" for one in limited], *times, wait))
    names = _names(sides) if len(sides) > 1 else ["TIMES"]
    if rows:
        yield Table(("LIMITED", "BY", *names, "FIRST", "LAST", "LONGEST WAIT"), rows)
        yield from _more(len(found), top)
        yield ""


def _who_lines(what: str, who: Mapping[Who, int], top: int | None) -> Iterator[Line | Table]:
    yield f"{what}: {_descriptors(len(who))}"
    for one, count in list(who.items())[:top]:
        yield f"  {_who(one)}: denied {count:,} {'time' if count == 1 else 'times'}"
    yield from _more(len(who), top)


def _plot_lines(sides: Sequence[Side]) -> Iterator[Line | Table]:
    length_ms, first = sides[0].tally.timeline.slices(MOST_ROWS)
    slices = [first, *[side.tally.timeline.slices(MOST_ROWS)[1] for side in sides[1:]]]
    most = max(sum(one.counts) for one in first)
    labels = [_label(one.start_ms, length_ms) for one in first]
    denied = [[f"{one.counts[Outcome.DENIED]:,}" for one in each] for each in slices]
    widest = max(len(text) for texts in denied for text in texts)
    columns = shutil.get_terminal_size().columns
    bar = (columns - len(labels[0])) // len(sides) - widest - 4
    bar = max(LEAST_BAR, bar)
    every = format_duration(length_ms)
    yield f"requests over time, {every} a row: █ OK, ░ denied, and how many were denied"
    if len(sides) > 1:
        names = [f"{side.name:<{bar + widest + 2}}" for side in sides]
        yield f"{' ' * len(labels[0])}  {'  '.join(names)}".rstrip()
    for row, label in enumerate(labels):
        line: list[Part] = [label]
        for each, texts in zip(slices, denied, strict=True):
            line += ["  ", *_bar(each[row], most, bar), f"  {texts[row]:>{widest}}"]
        yield line


def _bar(one: TimeSlice, most: int, width: int) -> list[Part]:
    """A bar for all requests. Its end stands for those that were denied, however few."""
    total, denied = sum(one.counts), one.counts[Outcome.DENIED]
    full = -(-total * width // most)
    over = min(full, -(-denied * width // most))
    rest = " " * (width - full)
    return [Styled("█" * (full - over), "good"), Styled("░" * over, "bad"), rest]


def _label(start_ms: int, length_ms: int) -> str:
    text = format_time(start_ms).removesuffix("Z")
    if length_ms < 1_000:
        return f"{text}.{start_ms % 1000 // 100}"
    if length_ms < 60_000:
        return text
    return text[:10] if length_ms >= 86_400_000 else text[:16]


def _names(sides: Sequence[Side], before: str = "") -> list[str]:
    """What tells the columns of two policies apart. One policy needs no name."""
    if len(sides) == 1:
        return [""]
    return [f"{before}{side.name.upper()}" for side in sides]


def _table(header: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> Table:
    """A name, and numbers that are aligned to the right."""
    columns = list(zip(*[numbers for _, numbers in rows], strict=True))
    widths = [
        max(len(title), *[len(f"{number:,}") for number in column])
        for title, column in zip(header[1:], columns, strict=True)
    ]
    titles = [f"{title:>{width}}" for title, width in zip(header[1:], widths, strict=True)]
    cells = [
        [name, *[f"{number:>{width},}" for number, width in zip(numbers, widths, strict=True)]]
        for name, numbers in rows
    ]
    return Table((header[0], *titles), cells)


def _who(who: Who) -> str:
    return f"{who.domain}: {descriptor_text(who)}"


def _descriptors(count: int) -> str:
    return "1 descriptor" if count == 1 else f"{count:,} descriptors"


def _more(count: int, top: int | None) -> list[str]:
    return [f"… and {count - top:,} more: --top 0 shows all"] if top and count > top else []
