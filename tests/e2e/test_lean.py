"""What only some need is loaded by those alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import PENSTOCK, penstock
from tests.unit.cli.command import PATIENT

ROOT = Path(__file__).parents[2]
EXAMPLE_RULES = ROOT / "deploy/config/example.yaml"

Lean = dict[str, str]

BLOCKED = ("aioboto3", "aiobotocore", "boto3", "botocore", "opentelemetry")


@pytest.fixture
def lean(tmp_path: Path) -> Lean:
    """Variables for a process that can load no SDK, neither of AWS nor of OpenTelemetry."""
    folder = tmp_path / "lean"
    folder.mkdir()
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in BLOCKED)]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return {"PYTHONPATH": str(folder)}


def test_without_dynamodb_and_traces_no_sdk_is_loaded(tmp_path: Path, lean: Lean) -> None:
    """Neither by a server, nor by commands on its store: they take time to load, and memory."""
    flags = ("--use-prometheus", "--prometheus-addr", "127.0.0.1:0")
    with penstock(tmp_path, *flags, rules=EXAMPLE_RULES, env=lean) as server:
        asked = ("check", "--address", server.address, "--domain", "example", *PATIENT, "user=bob")
        for command in (asked, ("limits", "set", "--entity", "bob", "rpm=5/minute")):
            ran = run(tmp_path, lean, *command)
            assert ran.returncode == 0, ran.stderr
        assert server.terminate() == 0
        assert "Traceback" not in server.log()


def test_without_xds_no_grpc_library_is_loaded() -> None:
    """Neither by a server with the default transport, nor by its workers."""
    look = "import sys, penstock.server, penstock.workers.worker; print('grpc' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True)
    assert seen.stdout == b"False\n"


@pytest.mark.parametrize(
    "command",
    [("--version",), ("config", "check", str(EXAMPLE_RULES)), ("table", "--help")],
    ids=lambda command: command[0],
)
def test_commands_without_a_store_load_no_sdk(
    tmp_path: Path, lean: Lean, command: tuple[str, ...]
) -> None:
    """They are for people, who notice half a second."""
    ran = run(tmp_path, lean, *command)
    assert ran.returncode == 0, ran.stderr


def test_the_sdk_is_really_out_of_reach(tmp_path: Path, lean: Lean) -> None:
    """The tests above would pass if it could be loaded."""
    store = "dynamodb://penstock?region=eu-west-1"
    ran = run(tmp_path, lean, "table", "status", "--store", store)
    assert ran.returncode != 0
    assert "ModuleNotFoundError" in ran.stderr


def run(folder: Path, lean: Lean, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(PENSTOCK), *command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **lean},
    )
