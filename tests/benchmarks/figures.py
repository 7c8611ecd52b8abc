"""What is measured of servers under load, and the tables of it.

Machines are noisy, and get faster and slower by themselves. So what is compared is measured in
turns, in many short rounds. Each round has its ratio, and the median of these ratios counts. Only
p99.9 is that of all rounds together: in one round, it would be the latency of a few calls.
"""

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.benchmarks.h2load import Load, drive, share_us
from tests.benchmarks.servers import Server

ROUNDS = 5


class Figures(NamedTuple):
    """What was measured of one server under one load, in one round or in all of them."""

    per_s: float
    cpu_us: float
    """The server's processor time for one call; NaN if the server's process is unknown."""
    client_cpu_us: float
    """That of h2load."""
    p50_us: float
    p99_us: float
    p999_us: float


HEADS = ("calls/s", "CPU us", "h2load us", "p50 us", "p99 us", "p99.9 us")


@dataclass(frozen=True, slots=True)
class Round:
    figures: Figures
    latencies_us: tuple[int, ...]
    """Of all calls."""


@dataclass(frozen=True, slots=True)
class Column:
    """A server under a load, and how it is called in the tables."""

    name: str
    server: Server
    load: Load


def measure(columns: Sequence[Column], rounds: int = ROUNDS) -> dict[str, list[Round]]:
    """Measure some servers in turns."""
    seen: dict[str, list[Round]] = {column.name: [] for column in columns}
    for _ in range(rounds):
        for column in columns:
            seen[column.name].append(measure_once(column.server, column.load))
    return seen


def measure_once(server: Server, load: Load) -> Round:
    """Exit unless all calls were answered with a decision."""
    server.check()
    errors, cpu_s = server.errors(), server.cpu_s()
    answers = drive(server.address, load)
    cpu_us = (server.cpu_s() - cpu_s) / load.calls * 1e6
    undecided = max(server.errors() - errors, server.undecided(answers, load.calls))
    if undecided:
        sys.exit(f"{server.address}: {undecided:,.0f} of {load.calls:,} calls got no decision")
    client_us = answers.client_cpu_s / load.calls * 1e6
    shares = [share_us(answers.latencies_us, share) for share in (0.5, 0.99, 0.999)]
    return Round(Figures(answers.per_s, cpu_us, client_us, *shares), answers.latencies_us)


def medians(rounds: Sequence[Round]) -> Figures:
    figures = [one.figures for one in rounds]
    found = Figures(*[statistics.median(values) for values in zip(*figures, strict=True)])
    return found._replace(p999_us=_pooled_p999_us(rounds))


def ratios(ours: Sequence[Round], others: Sequence[Round]) -> Figures:
    """The median of the ratios of the rounds."""
    pairs = [zip(a.figures, b.figures, strict=True) for a, b in zip(ours, others, strict=True)]
    # A clock that counts in 10 ms may say 0 of others.
    found = [[a / b if b else math.nan for a, b in pair] for pair in pairs]
    median = Figures(*[statistics.median(values) for values in zip(*found, strict=True)])
    return median._replace(p999_us=_pooled_p999_us(ours) / _pooled_p999_us(others))


def _pooled_p999_us(rounds: Sequence[Round]) -> float:
    return share_us(sorted(us for one in rounds for us in one.latencies_us), 0.999)


def show_table(
    title: str, rounds: dict[str, list[Round]], pairs: Sequence[tuple[str, str]] = ()
) -> None:
    """A table, and below it the ratios of some pairs of its lines."""
    lines = {name: medians(found) for name, found in rounds.items()}
    known = [not any(map(math.isnan, values)) for values in zip(*lines.values(), strict=True)]
    heads = [head for head, is_known in zip(HEADS, known, strict=True) if is_known]
    print(f"\n{title}")
    print(f"  {'':<42}" + "".join(f" {head:>10}" for head in heads))
    for name, figures in lines.items():
        values = [value for value, is_known in zip(figures, known, strict=True) if is_known]
        print(f"  {name:<42}" + "".join(f" {value:>10,.0f}" for value in values))
    for ours, others in pairs:
        found = ratios(rounds[ours], rounds[others])
        print(f"  {f'{ours} / {others}':<42}" + "".join(f" {value:>9.2f}x" for value in found))
    sys.stdout.flush()
