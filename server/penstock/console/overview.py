"""How the server is: health, rules, the store, and rates over time."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from penstock import __version__
from penstock.config.settings import Settings
from penstock.console.inside import Inside, Query
from penstock.core.foreign_text import show
from penstock.insight.rates import STEP_MS, Rates, Timing, Totals
from penstock.telemetry.metrics import SECONDS, Metrics

OVER: Final = "over_limit"
MOST_LINES: Final = 10
"""Of an error in rules."""

BOUNDS_US: Final = tuple([round(bound * 1_000_000) for bound in SECONDS])


class Engine(Protocol):
    """What the front of a server knows of the part that answers calls."""

    @property
    def metrics(self) -> Metrics: ...
    @property
    def rates(self) -> Rates: ...
    @property
    def running_workers(self) -> int: ...
    @property
    def load_error(self) -> str:
        """Why the last load of rules failed in this process; empty if it did not."""
        ...

    def is_healthy(self) -> bool: ...
    async def why_not_ready(self) -> str: ...
    async def read_view(self, name: str, query: Query, *, of_all: bool) -> list[Any]:
        """What one of the processes that answer calls knows, or all of them."""
        ...


class OverviewView:
    """The part of the overview that only processes which answer calls know."""

    parameters: tuple[str, ...] = ()
    of_all = True

    def check(self, _: Query) -> None:
        pass

    async def read(self, inside: Inside, _: Query) -> Any:
        metrics = inside.metrics
        return {
            "source": next((labels[0] for labels, _ in metrics.rules_info.series()), ""),
            "about": inside.about_rules(),
            "count": inside.count_rules(),
            "domains": len(inside.rules()),
            "loads": int(metrics.config_load_success.value),
            "failed_loads": int(metrics.config_load_error.value),
            "error": _shown(inside.load_error()),
        }

    def join(self, parts: list[Any], _: Query) -> dict[str, Any]:
        # Every worker loads the same rules. One that was started later has loaded them less often.
        counts = {name: max(part[name] for part in parts) for name in ("loads", "failed_loads")}
        error = next((part["error"] for part in parts if part["error"]), "")
        return {"rules": {**parts[0], **counts, "error": error}}


async def complete(
    answer: dict[str, Any], engine: Engine, settings: Settings, now_ms: int
) -> dict[str, Any]:
    """Add what only the front knows."""
    reason = await engine.why_not_ready()
    total = engine.rates.total
    rules = answer["rules"]
    # With workers and xDS, the front loads the rules.
    own_failures = int(engine.metrics.config_load_error.value)
    error = rules["error"] or _shown(engine.load_error)
    return {
        "version": __version__,
        "started_ms": int(engine.metrics.start_time.value * 1000),
        "values": settings.console_values,
        "workers": {"wanted": settings.workers, "running": engine.running_workers},
        "health": {"healthy": engine.is_healthy(), "ready": not reason, "reason": reason},
        "rules": {
            **rules,
            "failed_loads": max(rules["failed_loads"], own_failures),
            "last_load_failed": bool(error),
            "error": error,
        },
        "store": {"kind": settings.store.partition(":")[0], "errors": total.store_errors},
        "totals": {
            "requests": total.requests,
            "denials": total.denials,
            "errors": total.errors,
        },
        "rates": {
            "step_ms": STEP_MS,
            "points": [_point(*point) for point in engine.rates.points(now_ms)],
        },
    }


def _shown(error: str) -> str:
    """The first lines of an error. Rules files may have a thousand errors, which they quote."""
    lines = error.split("\n")
    more = len(lines) - MOST_LINES
    shown = [show(line) for line in lines[:MOST_LINES]]
    return "\n".join([*shown, f"… ({more} more)"] if more > 0 else shown)


def read_totals(metrics: Metrics) -> Totals:
    """What a process has counted since it started."""
    decisions = [(code, int(value.value)) for (_, code), value in metrics.decisions.series()]
    return Totals(
        sum(count for _, count in decisions),
        sum(count for code, count in decisions if code == OVER),
        sum(int(value.value) for _, value in metrics.request_errors.series()),
        sum(int(value.value) for _, value in metrics.store_errors.series()),
        _timing([(one.counts, one.sum) for _, one in metrics.response_seconds.series()]),
        _timing([(one.counts, one.sum) for _, one in metrics.store_call_seconds.series()]),
    )


def _timing(distributions: Sequence[tuple[Sequence[int], float]]) -> Timing:
    total = Timing()
    for counts, sum_s in distributions:
        total = total.plus(Timing(tuple(counts), round(sum_s * 1_000_000)))
    return total


def _point(at_ms: int, counted: Totals) -> dict[str, Any]:
    return {
        "at_ms": at_ms,
        "requests": counted.requests,
        "denials": counted.denials,
        "errors": counted.errors,
        "answer_mean_us": counted.answers.mean_us,
        "answer_p99_us": counted.answers.p99_us(BOUNDS_US),
        "store_calls": counted.store.calls,
        "store_mean_us": counted.store.mean_us,
        "store_p99_us": counted.store.p99_us(BOUNDS_US),
        "store_errors": counted.store_errors,
    }
