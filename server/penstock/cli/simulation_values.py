"""The report of a simulation for scripts."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.simulation_csv import outcome_text
from penstock.traffic.comparison import Comparison
from penstock.traffic.reading import Notes
from penstock.traffic.replay import TraceClock
from penstock.traffic.side import Side
from penstock.traffic.tally import Outcome, Who
from penstock.traffic.timeline import MAX_SLICES


def report_values(
    sides: Sequence[Side],
    compared: Comparison | None,
    clock: TraceClock,
    notes: Notes,
    top: int | None,
) -> dict[str, Any]:
    """The keys are always the same. Without a policy in force, its values are null."""
    return {
        "requests": sides[-1].tally.requests,
        "first_ms": clock.first_ms,
        "last_ms": clock.now_ms,
        "out_of_order": clock.late,
        "bad_lines": notes.bad_lines,
        "cut_files": notes.cut_files,
        "in_force": None if compared is None else _side_values(sides[0], top),
        "proposed": _side_values(sides[-1], top),
        "newly_limited": _who_list(compared.newly_limited, top) if compared else None,
        "no_longer_limited": _who_list(compared.no_longer_limited, top) if compared else None,
        "newly_limited_count": len(compared.newly_limited) if compared else None,
        "no_longer_limited_count": len(compared.no_longer_limited) if compared else None,
        "still_limited_count": compared.still_limited if compared else None,
    }


def _side_values(side: Side, top: int | None) -> dict[str, Any]:
    tally = side.tally
    length_ms, slices = tally.timeline.slices(MAX_SLICES)
    return {
        **{outcome_text(outcome): tally.outcomes[outcome] for outcome in Outcome},
        "unlimited": tally.unlimited,
        "missing_limits": side.missing_limits,
        "rules": [
            {"rule": ".".join(path), "hits": counts[0], "over_limit": counts[1]}
            for path, counts in sorted(side.hits.items())
            if counts[0]
        ],
        "limited_count": len(tally.limited),
        "limited": _limited_list(side, top),
        "slice_ms": length_ms,
        "over_time": [
            {
                "start_ms": one.start_ms,
                **{outcome_text(outcome): one.counts[outcome] for outcome in Outcome},
            }
            for one in slices
        ],
    }


def _limited_list(side: Side, top: int | None) -> list[dict[str, Any]]:
    """Those that are limited most come first."""
    limited = side.tally.limited.items()
    found = sorted(limited, key=lambda pair: (-pair[1].count, pair[0]))
    return [
        {
            **_who_values(who),
            "limit": limit,
            "outcome": outcome_text(outcome),
            "count": one.count,
            "first_ms": one.first_ms,
            "last_ms": one.last_ms,
            "longest_wait_ms": one.longest_wait_s * 1000,
        }
        for (who, limit, outcome), one in found[:top]
    ]


def _who_list(who: Mapping[Who, int], top: int | None) -> list[dict[str, Any]]:
    return [{**_who_values(one), "denied": count} for one, count in list(who.items())[:top]]


def _who_values(who: Who) -> dict[str, Any]:
    return {"domain": who.domain, "entries": [list(entry) for entry in who.entries]}
