"""`python3 server` from a fresh clone on: it installs once, and mends what it finds.

With a package that has the shape of ours and needs nothing from elsewhere: pip and the environment
are real, and no index can be reached.
"""

import os
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.markdown import ROOT
from tests.support.processes import wait_for

PROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "penstock-ratelimit"
version = "1"

[tool.linter]
line-length = 100
"""

# Makes an editable wheel by hand. While there is a file `hold`, it waits.
BACKEND = """\
import os, time, zipfile

INFO = "penstock_ratelimit-1.dist-info"
FILES = {
    "penstock.py": "def main():\\n    import sys\\n    print('served', *sys.argv[1:])\\n",
    f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: penstock-ratelimit\\nVersion: 1\\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    f"{INFO}/entry_points.txt": "[console_scripts]\\npenstock = penstock:main\\n",
    f"{INFO}/RECORD": "",
}


def build_editable(folder, *_):
    if os.path.exists("hold"):
        open("holding", "w").close()
        while os.path.exists("hold"):
            time.sleep(0.02)
    name = "penstock_ratelimit-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
    return name
"""

NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}

INSTALLS = "installing Penstock and what it needs"


@dataclass(frozen=True)
class Clone:
    """A folder with what `python3 server` needs."""

    folder: Path

    @property
    def environment(self) -> Path:
        return self.folder / ".venv"

    def start(self, *arguments: str, python: str = sys.executable) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [python, "server", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **NO_INDEX},
            start_new_session=True,
        )

    def serve(self, *arguments: str) -> str:
        """Run `python3 server`, which has to get as far as serving; returns what it says."""
        process = self.start(*arguments)
        out, err = process.communicate()
        expected = arguments or ("--config", str(self.folder / "deploy/config/example.yaml"))
        assert (process.returncode, out) == (0, f"served serve {' '.join(expected)}\n"), err
        return err

    def break_pip(self) -> None:
        """From now on pip fails, as it does without a network."""
        (main,) = self.environment.glob("lib/python*/site-packages/pip/__main__.py")
        main.write_text("raise SystemExit('no network')\n")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A fresh one."""
    folder = tmp_path / "clone"
    (folder / "server").mkdir(parents=True)
    for name in ("__main__.py", "install.py"):
        shutil.copy(ROOT / "server" / name, folder / "server")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    return Clone(folder)


def test_a_first_start_says_what_it_does_and_a_second_installs_nothing(clone: Clone) -> None:
    """The second needs no network: its pip would fail. Arguments go to `penstock serve`."""
    said = clone.serve()
    assert f"penstock: making a virtual environment in {clone.environment} …\n" in said
    assert f"penstock: {INSTALLS} into {clone.environment}, which may take some minutes …" in said
    assert "; the next start installs nothing\n" in said
    clone.break_pip()
    assert clone.serve("--port", "0") == ""


def test_a_change_of_what_is_needed_is_installed(clone: Clone) -> None:
    """A change of anything else in pyproject.toml is not."""
    clone.serve()
    project = clone.folder / "pyproject.toml"
    project.write_text(PROJECT.replace("line-length = 100", "line-length = 90"))
    assert clone.serve() == ""
    project.write_text(f'{PROJECT}\n[dependency-groups]\ntest = ["x"]\n')
    said = clone.serve()
    assert INSTALLS in said
    assert "making a virtual environment" not in said


def test_without_a_network_it_says_so_and_keeps_what_is_there(clone: Clone) -> None:
    """What is missing is told by pip, without a traceback, and the next start tries again."""
    clone.serve()
    project = clone.folder / "pyproject.toml"
    project.write_text(PROJECT.replace('version = "1"', 'version = "1"\ndependencies = ["none"]'))
    (clone.folder / "backend.py").write_text(
        BACKEND.replace("Version: 1\\n", "Version: 1\\nRequires-Dist: there-is-none\\n")
    )
    for _ in range(2):
        process = clone.start()
        out, err = process.communicate()
        assert (process.returncode, out) == (1, "")
        assert "there-is-none" in err
        assert err.endswith("pip says why above. Start again later\n")
        assert "Traceback" not in err
        assert "making a virtual environment" not in err


def half_made(clone: Clone) -> None:
    venv.create(clone.environment, with_pip=False)


def without_python(clone: Clone) -> None:
    clone.serve()
    python = clone.environment / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")


def of_another_python(clone: Clone) -> None:
    """Its Python says that it is another, as one does that a system upgrade put in its place."""
    clone.serve()
    python = clone.environment / "bin/python"
    python.unlink()
    python.write_text("#!/bin/sh\necho cpython-310 linux-x86_64\n")
    python.chmod(0o755)


def a_file(clone: Clone) -> None:
    clone.environment.write_text("")


def a_dead_link(clone: Clone) -> None:
    clone.environment.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (half_made, "it has no pip"),
        (without_python, "its Python does not run"),
        (of_another_python, "it is for another Python (cpython-310 linux-x86_64, and this one is "),
        (a_file, "its Python does not run"),
        (a_dead_link, "its Python does not run"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_environment_that_is_no_use_is_made_anew(
    clone: Clone, damage: Callable[[Clone], None], reason: str
) -> None:
    """And the reason is said."""
    damage(clone)
    assert f"penstock: {clone.environment} is made anew: {reason}" in clone.serve()
    clone.break_pip()
    assert clone.serve() == ""


def test_a_folder_that_was_moved_is_installed_anew(clone: Clone) -> None:
    """The scripts of its environment name the old place."""
    clone.serve()
    clone.folder.rename(clone.folder.with_name("moved"))
    moved = Clone(clone.folder.with_name("moved"))
    assert "is made anew: it was moved from another folder" in moved.serve()
    script = (moved.environment / "bin/penstock").read_text()
    assert str(moved.environment) in script


def test_an_environment_of_the_user_is_kept(clone: Clone) -> None:
    """One that works gets what is needed, and keeps what it has."""
    venv.create(clone.environment, with_pip=True)
    theirs = clone.environment / "theirs"
    theirs.touch()
    assert INSTALLS in clone.serve()
    assert theirs.exists()


@pytest.fixture
def held(clone: Clone) -> Iterator["subprocess.Popen[str]"]:
    """A start that is in the middle of its install."""
    (clone.folder / "hold").touch()
    process = clone.start()
    try:
        wait_for((clone.folder / "holding").exists, "pip to be at work")
        yield process
    finally:
        (clone.folder / "hold").unlink(missing_ok=True)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_install_is_done_again(
    clone: Clone, held: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    """From the beginning: nobody knows how far pip came. Ctrl-C leaves no traceback of ours."""
    os.killpg(held.pid, number)
    (clone.folder / "hold").unlink()
    _, err = held.communicate()
    if number is signal.SIGINT:
        assert held.returncode == 130
        assert err.endswith("penstock: interrupted; the next start does anew what is unfinished\n")
    assert "is made anew: an install was interrupted" in clone.serve()


def test_a_second_start_waits_for_the_first(clone: Clone, held: "subprocess.Popen[str]") -> None:
    """Two at once would be in each other's way."""
    second = clone.start()
    assert second.stderr is not None
    assert second.stderr.readline() == "penstock: waiting for another start that installs …\n"
    (clone.folder / "hold").unlink()
    for process, said in ((held, INSTALLS), (second, "")):
        out, err = process.communicate()
        assert (process.returncode, out[:6]) == (0, "served")
        assert said in err
        assert ("installing" in err) == bool(said)
