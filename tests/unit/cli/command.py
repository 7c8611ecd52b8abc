"""Runs the command `penstock` as a user types it."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.config.flags import DECLARED

from tests.support.processes import PATIENCE_S, PENSTOCK

RULES = """\
domain: d
descriptors:
  - key: few
    rate_limit: {unit: hour, requests_per_unit: 2, name: two}
  - key: many
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: metered
    rate_limit: {unit: hour, requests_per_unit: 100, on_exceed: debt}
  - key: odd
    rate_limit: {period: 90s, requests_per_unit: 10}
  - key: free
    rate_limit: {unlimited: true}
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


def run(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run to the end, without the settings that this process may have in its environment."""
    inherited = {setting.env for setting in DECLARED}
    clean = {name: value for name, value in os.environ.items() if name not in inherited}
    done = subprocess.run(
        [str(PENSTOCK), *arguments],
        cwd=cwd,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def write_rules(folder: Path, text: str = RULES) -> Path:
    file = folder / "rules.yaml"
    file.write_text(text)
    return file
