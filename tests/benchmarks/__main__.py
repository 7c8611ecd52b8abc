"""`make bench`: what a decision costs, as ratios in one run, because machines are noisy and differ.

`make bench ARGS=wire` measures one part alone. `make bench ARGS="--target HOST:PORT"` measures any
RLS server that already runs with `tests/benchmarks/rules.yaml`. The exit code is 1 if a target of
the parts that ran does not hold.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence

from tests.benchmarks.dynamodb_client import show_client_cpu
from tests.benchmarks.dynamodb_decisions import show_decisions
from tests.benchmarks.dynamodb_distinct import show_distinct_keys
from tests.benchmarks.figures import ROUNDS
from tests.benchmarks.in_process import show_in_process
from tests.benchmarks.insight import show_insight
from tests.benchmarks.pauses import show_pauses
from tests.benchmarks.simulation import REQUESTS, show_simulation
from tests.benchmarks.sqlite import show_sqlite
from tests.benchmarks.targets import Target, show_targets
from tests.benchmarks.tracing import show_tracing
from tests.benchmarks.wire import show_disturbed, show_many, show_target, show_wire

WITH_H2LOAD = frozenset({"wire", "many", "disturbed", "pauses"})
"""The parts that load a server over the network."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "part", nargs="*", help=f"of {', '.join(_parts(ROUNDS, REQUESTS))}; without, all"
    )
    parser.add_argument("--target", metavar="HOST:PORT", help="measure this server alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the median counts")
    parser.add_argument(
        "--requests", type=int, default=REQUESTS, help="of the traces to simulate (%(default)s)"
    )
    arguments = parser.parse_args()
    parts = _parts(arguments.rounds, arguments.requests)
    if unknown := [name for name in arguments.part if name not in parts]:
        parser.error(f"'{unknown[0]}' is not one of {', '.join(parts)}")
    chosen = [name for name in parts if name in (arguments.part or parts)]
    needs_h2load = arguments.target or any(name in WITH_H2LOAD for name in chosen)
    if needs_h2load and shutil.which("h2load") is None:
        sys.exit("h2load is not there: apt-get install nghttp2-client")
    if arguments.target:
        show_target(arguments.target, arguments.rounds)
        return
    targets = [target for name in chosen for target in parts[name]() or ()]
    if targets:
        show_targets(targets)
    sys.exit(not all(target.holds for target in targets))


def _parts(rounds: int, requests: int) -> dict[str, Callable[[], Sequence[Target] | None]]:
    return {
        "wire": lambda: show_wire(rounds),
        "many": lambda: show_many(rounds),
        "disturbed": lambda: show_disturbed(rounds),
        "pauses": show_pauses,
        "in-process": show_in_process,
        "sqlite": show_sqlite,
        "dynamodb-client": show_client_cpu,
        "dynamodb-distinct": show_distinct_keys,
        "dynamodb-decisions": show_decisions,
        "tracing": show_tracing,
        "insight": show_insight,
        "simulation": lambda: show_simulation(requests),
    }


if __name__ == "__main__":
    main()
