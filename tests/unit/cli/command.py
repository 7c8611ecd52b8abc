"""Runs the command `penstock` as a user types it."""

import io
import os
import subprocess
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from penstock.cli import main
from penstock.config.flags import DECLARED

from tests.support.processes import PATIENCE_S, PENSTOCK, Penstock
from tests.support.rules import replace_rules

PATIENT = ("--timeout", f"{PATIENCE_S:.0f}s")
"""For `penstock check`: a busy machine is no failure."""

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
  - key: huge
    rate_limit: {unit: year, requests_per_unit: 4294967295, window: calendar}
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


def check(server: Penstock, *arguments: str, domain: str = "d") -> Ran:
    """Run `penstock check` in this process, because a process takes longer to start than to ask."""
    words = ["check", "--address", server.address, "--domain", domain, *PATIENT, *arguments]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except SystemExit as exc:  # of argparse
            code = int(str(exc.code))
    return Ran(code, out.getvalue(), err.getvalue())


def write_rules(folder: Path, text: str = RULES) -> Path:
    file = folder / "rules.yaml"
    replace_rules(file, text)
    return file
