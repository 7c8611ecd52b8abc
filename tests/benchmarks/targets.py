"""What `make bench` asks of its figures: for each scenario what was measured, what is asked for,
and whether that holds."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    scenario: str
    measured: str
    asked: str
    holds: bool


def at_least(
    scenario: str, measured: float, asked: float, unit: str = "x", digits: int = 2
) -> Target:
    figures = f"{measured:.{digits}f} {unit}", f">= {asked:.{digits}f} {unit}"
    return Target(scenario, *figures, measured >= asked)


def at_most(
    scenario: str, measured: float, asked: float, unit: str = "x", digits: int = 2
) -> Target:
    figures = f"{measured:.{digits}f} {unit}", f"<= {asked:.{digits}f} {unit}"
    return Target(scenario, *figures, measured <= asked)


def show_targets(targets: Sequence[Target]) -> None:
    print(f"\n  {'target':<62} {'measured':>12} {'asked':>12}  holds")
    for one in targets:
        holds = "yes" if one.holds else "NO"
        print(f"  {one.scenario:<62} {one.measured:>12} {one.asked:>12}  {holds}")
    sys.stdout.flush()
