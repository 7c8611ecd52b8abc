"""Makes the virtual environment for the two commands `python3 server` and `python3 tests`.

Needs nothing but Python's standard library.
"""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"


def install(*groups: str) -> Path:
    """Install the package, and dependency groups of it; returns the environment's Python."""
    if sys.version_info < (3, 11):  # noqa: UP036 - pip would say it with less grace
        sys.exit(f"Penstock needs Python 3.11 or later, this is {sys.version.split()[0]}")
    python = BIN / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        # Groups came with pip 25.1, which is newer than what Python brings along.
        pip(python, "install", "--upgrade", "pip>=25.1")
    wanted = [argument for group in groups for argument in ("--group", group)]
    pip(python, "install", "--editable", str(ROOT), *wanted)
    return python


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603 - what the caller wrote here
