"""`python3 server` from a fresh clone on: it installs once, and mends what it finds.

With a package that has the shape of ours and needs nothing from elsewhere: pip and the environment
are real, and no index can be reached.
"""

import os
import shutil
import signal
import subprocess
import sys
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


@dataclass(frozen=True)
class FirstStart:
    """A clone, what its first start said, and a copy of what it looked like then."""

    clone: Clone
    said: str
    copy: Path


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> FirstStart:
    """One for all tests: to make an environment with pip takes four seconds of a processor."""
    folder = tmp_path_factory.mktemp("installed")
    clone, copy = Clone(folder / "clone"), folder / "copy"
    (clone.folder / "server").mkdir(parents=True)
    for name in ("__main__.py", "install.py"):
        shutil.copy(ROOT / "server" / name, clone.folder / "server")
    (clone.folder / "pyproject.toml").write_text(PROJECT)
    (clone.folder / "backend.py").write_text(BACKEND)
    said = clone.serve()
    shutil.copytree(clone.folder, copy, symlinks=True)
    return FirstStart(clone, said, copy)


@pytest.fixture
def installed(first_start: FirstStart) -> Clone:
    """A clone after its first start, always in the same place: an environment can't be moved."""
    folder = first_start.clone.folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(first_start.copy, folder, symlinks=True)
    return first_start.clone


def test_a_first_start_says_what_it_does_and_a_second_installs_nothing(
    first_start: FirstStart, installed: Clone
) -> None:
    """The second needs no network: its pip would fail. Arguments go to `penstock serve`."""
    said, environment = first_start.said, installed.environment
    assert f"penstock: making a virtual environment in {environment} …\n" in said
    assert f"penstock: {INSTALLS} into {environment}, which may take some minutes …" in said
    assert "; the next start installs nothing\n" in said
    installed.break_pip()
    assert installed.serve("--port", "0") == ""


def test_a_change_of_what_is_needed_is_installed(installed: Clone) -> None:
    """A change of anything else in pyproject.toml is not."""
    project = installed.folder / "pyproject.toml"
    project.write_text(PROJECT.replace("line-length = 100", "line-length = 90"))
    assert installed.serve() == ""
    project.write_text(f'{PROJECT}\n[dependency-groups]\ntest = ["x"]\n')
    said = installed.serve()
    assert INSTALLS in said
    assert "making a virtual environment" not in said


def test_without_a_network_it_says_so_and_keeps_what_is_there(installed: Clone) -> None:
    """What is missing is told by pip, without a traceback, and the next start tries again."""
    project = installed.folder / "pyproject.toml"
    project.write_text(PROJECT.replace('version = "1"', 'version = "1"\ndependencies = ["none"]'))
    (installed.folder / "backend.py").write_text(
        BACKEND.replace("Version: 1\\n", "Version: 1\\nRequires-Dist: there-is-none\\n")
    )
    for _ in range(2):
        process = installed.start()
        out, err = process.communicate()
        assert (process.returncode, out) == (1, "")
        assert "there-is-none" in err
        assert err.endswith("pip says why above. Start again later\n")
        assert "Traceback" not in err
        assert "making a virtual environment" not in err


def without_pip(clone: Clone) -> None:
    (clone.environment / "bin/pip").unlink()


def without_python(clone: Clone) -> None:
    python = clone.environment / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")


def of_another_python(clone: Clone) -> None:
    """Its Python says that it is another, as one does that a system upgrade put in its place."""
    python = clone.environment / "bin/python"
    python.unlink()
    python.write_text("#!/bin/sh\necho cpython-310 linux-x86_64\n")
    python.chmod(0o755)


def a_file(clone: Clone) -> None:
    shutil.rmtree(clone.environment)
    clone.environment.write_text("")


def a_dead_link(clone: Clone) -> None:
    shutil.rmtree(clone.environment)
    clone.environment.symlink_to("/nowhere/at/all")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (without_pip, "it has no pip"),
        (without_python, "its Python does not run"),
        (of_another_python, "it is for another Python (cpython-310 linux-x86_64, and this one is "),
        (a_file, "its Python does not run"),
        (a_dead_link, "its Python does not run"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_environment_that_is_no_use_is_made_anew(
    installed: Clone, damage: Callable[[Clone], None], reason: str
) -> None:
    """And the reason is said."""
    damage(installed)
    assert_made_anew(installed, reason)


def assert_made_anew(clone: Clone, reason: str) -> None:
    """A start says so, and empties the environment. The rest takes long, and is not waited for."""
    old = clone.environment / "old"
    if clone.environment.is_dir():
        old.touch()
    process = clone.start()
    try:
        assert process.stderr is not None
        said = process.stderr.readline(), process.stderr.readline()
        new = [clone.environment / name for name in ("bin/python", "penstock-unfinished")]
        wait_for(lambda: all(map(Path.exists, new)) and not old.exists(), "a new environment")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert said[0].startswith(f"penstock: {clone.environment} is made anew: {reason}")
    assert said[1] == f"penstock: making a virtual environment in {clone.environment} …\n"


def test_a_folder_that_was_moved_is_installed_anew(installed: Clone) -> None:
    """The scripts of its environment name the old place. The next start installs nothing."""
    moved = Clone(installed.folder.with_name("moved"))
    shutil.rmtree(moved.folder, ignore_errors=True)
    installed.folder.rename(moved.folder)
    assert "is made anew: it was moved from another folder" in moved.serve()
    script = (moved.environment / "bin/penstock").read_text()
    assert str(moved.environment) in script
    moved.break_pip()
    assert moved.serve() == ""


def test_an_environment_of_the_user_is_kept(installed: Clone) -> None:
    """One that works gets what is needed, and keeps what it has."""
    for ours in ("penstock-installed.json", "bin/penstock"):
        (installed.environment / ours).unlink()
    theirs = installed.environment / "theirs"
    theirs.touch()
    assert INSTALLS in installed.serve()
    assert theirs.exists()


@pytest.fixture
def held(installed: Clone) -> Iterator["subprocess.Popen[str]"]:
    """A start that is in the middle of its install."""
    project = installed.folder / "pyproject.toml"
    project.write_text(f'{PROJECT}\n[dependency-groups]\ntest = ["x"]\n')
    (installed.folder / "hold").touch()
    process = installed.start()
    try:
        wait_for((installed.folder / "holding").exists, "pip to be at work")
        yield process
    finally:
        (installed.folder / "hold").unlink(missing_ok=True)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_install_is_done_again(
    installed: Clone, held: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    """From the beginning: nobody knows how far pip came. Ctrl-C leaves no traceback of ours."""
    os.killpg(held.pid, number)
    (installed.folder / "hold").unlink()
    _, err = held.communicate()
    if number is signal.SIGINT:
        assert held.returncode == 130
        assert err.endswith("penstock: interrupted; the next start does anew what is unfinished\n")
    assert_made_anew(installed, "an install was interrupted")


def test_a_second_start_waits_for_the_first(
    installed: Clone, held: "subprocess.Popen[str]"
) -> None:
    """Two at once would be in each other's way."""
    second = installed.start()
    assert second.stderr is not None
    assert second.stderr.readline() == "penstock: waiting for another start that installs …\n"
    (installed.folder / "hold").unlink()
    for process, said in ((held, INSTALLS), (second, "")):
        out, err = process.communicate()
        assert (process.returncode, out[:6]) == (0, "served")
        assert said in err
        assert ("installing" in err) == bool(said)
