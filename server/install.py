"""Makes the virtual environment for the two commands `python3 server` and `python3 tests`.

Needs nothing but Python's standard library. What was installed is written down in a stamp, so that
a start that finds its stamp installs nothing, and needs no network.
"""

from __future__ import annotations  # so an old Python can say it is too old

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"

STAMP = VENV / "penstock-installed.json"
UNFINISHED = VENV / "penstock-unfinished"
"""There while pip is at work. A start that finds it makes the environment anew."""

INSTALLED_TABLES = ("build-system", "project", "dependency-groups")
"""Of pyproject.toml. The others, such as a linter's options, change nothing that is installed."""

KIND = "import sys, sysconfig; print(sys.implementation.cache_tag, sysconfig.get_platform())"


def install(*groups: str) -> Path:
    """Install the package, and dependency groups of it; returns the environment's Python."""
    if sys.version_info < (3, 11):  # noqa: UP036 - pip would say it with less grace
        sys.exit(f"Penstock needs Python 3.11 or later, this is {sys.version.split()[0]}")
    if not _is_installed(groups):
        with _alone():
            # Another start may have installed it while this one waited.
            if not _is_installed(groups):
                _install(groups)
    return PYTHON


def _install(groups: tuple[str, ...]) -> None:
    begun_s = time.monotonic()
    reason = _why_unusable()
    if reason:
        if reason != "there is none":
            say(f"{VENV} is made anew: {reason}")
        _make_environment()
    groups = tuple(sorted({*groups, *_stamped_groups()}))
    STAMP.unlink(missing_ok=True)
    UNFINISHED.touch()
    say(f"installing Penstock and what it needs into {VENV}, which may take some minutes …")
    if groups:
        # Groups came with pip 25.1, which is newer than what some Pythons bring along.
        pip("install", "pip>=25.1")
    wanted = [argument for group in groups for argument in ("--group", group)]
    pip("install", "--editable", str(ROOT), *wanted)
    STAMP.write_text(json.dumps(_stamp(groups)))
    UNFINISHED.unlink()
    say(f"installed in {time.monotonic() - begun_s:.0f} s; the next start installs nothing")


def pip(*arguments: str) -> None:
    """Run the environment's pip. Ends the process, and says so, if pip fails."""
    command = [str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    with _interruptible():
        code = subprocess.run(command, check=False, cwd=ROOT).returncode  # noqa: S603 - ours
    if code > 0:
        # pip found a fault and undid what it had begun: the environment is as it was.
        UNFINISHED.unlink(missing_ok=True)
    if code != 0:
        sys.exit("pip could not install what Penstock needs; pip says why above. Start again later")


def say(text: str) -> None:
    print(f"penstock: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for the person who waits


def _is_installed(groups: tuple[str, ...]) -> bool:
    stamped = _stamped_groups()
    return (
        set(groups) <= set(stamped)
        and _read_stamp() == _stamp(stamped)
        and (BIN / "penstock").exists()
        and not _why_unusable()
    )


def _stamp(groups: tuple[str, ...]) -> dict[str, object]:
    """What an environment depends on. JSON, so that it can be read back and compared."""
    import tomllib  # not in the Pythons that `install` refuses

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {
        "groups": list(groups),
        "python": _own_kind(),
        "pyproject": {name: project[name] for name in INSTALLED_TABLES if name in project},
    }


def _read_stamp() -> object:
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return None


def _stamped_groups() -> tuple[str, ...]:
    stamp = _read_stamp()
    return tuple(stamp["groups"]) if isinstance(stamp, dict) and "groups" in stamp else ()


def _own_kind() -> str:
    return f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"


def _why_unusable() -> str:
    """What is wrong with the environment; empty if pip can install into it."""
    if not os.path.lexists(VENV):
        return "there is none"
    if UNFINISHED.exists():
        return "an install was interrupted"
    try:
        found = subprocess.run(  # noqa: S603 - the environment's own Python
            [str(PYTHON), "-I", "-c", KIND], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "its Python does not run"
    if found != _own_kind():
        return f"it is for another Python ({found}, and this one is {_own_kind()})"
    try:
        # Scripts name their Python by its whole path.
        head = (BIN / "pip").read_text().splitlines()[:2]
    except (OSError, UnicodeDecodeError):
        return "it has no pip"
    return "" if any(str(BIN) in line for line in head) else "it was moved from another folder"


def _make_environment() -> None:
    say(f"making a virtual environment in {VENV} …")
    try:
        if VENV.is_symlink() or VENV.is_file():
            VENV.unlink()
        with _interruptible():
            # First, so that an environment that was cleared by half is seen as such.
            PYTHON.unlink(missing_ok=True)
            venv.create(VENV, clear=True, symlinks=True)
            UNFINISHED.touch()
            ensure = [str(PYTHON), "-m", "ensurepip", "--default-pip"]
            subprocess.run(ensure, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    except OSError as exc:
        sys.exit(f"cannot make a virtual environment in {VENV}: {exc}")
    except subprocess.CalledProcessError as exc:
        sys.exit(
            f"cannot put pip into {VENV}: {exc.stderr.strip()}\n"
            "Some systems have that apart: on Debian and Ubuntu, apt install python3-venv"
        )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other start installs. The lock is on the folder: `.venv` itself may go."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another start that installs …")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; the next start does anew what is unfinished")
        sys.exit(130)
