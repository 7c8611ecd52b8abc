"""Output where the terminal has another encoding than UTF-8."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import PENSTOCK
from tests.unit.cli.command import run

NAME = "Zoë-東京-👩‍🚒"


def raw(folder: Path, *arguments: str, given: bytes = b"", encoding: str = "latin-1") -> bytes:
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [str(PENSTOCK), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=env, input=given, capture_output=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run("entity", "create", "--create", NAME, cwd=tmp_path)
    run("limits", "set", "--entity", NAME, "rpm=5/minute", cwd=tmp_path)
    return tmp_path


def test_names_are_escaped_and_signs_are_spelled(folder: Path) -> None:
    """What the encoding has stays as it is."""
    assert raw(folder, "entity", "children", NAME) == b""
    shown = raw(folder, "bucket", "show", NAME, "r").decode("latin-1").splitlines()
    escaped = r"Zoë-\u6771\u4eac-\U0001f469\u200d\U0001f692"
    assert shown[0] == f"{escaped} on r: not used lately"
    assert "  rpm  ############  5 of 5" in shown[1]
    run("limits", "set", "--entity", NAME, "rpm=6/minute", cwd=folder)
    assert b"~ rpm: 5/minute -> 6/minute" in raw(folder, "audit", NAME)
    assert raw(folder, "entity", "list", encoding="ascii").decode("ascii")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_columns_stand_below_each_other(folder: Path, encoding: str) -> None:
    """What is escaped is measured as it is shown."""
    run("entity", "create", "short", cwd=folder)
    header, *rows = raw(folder, "entity", "list", encoding=encoding).decode(encoding).splitlines()
    column = header.index("CASCADE")
    assert [row[column - 2 :] for row in rows] == ["  no", "  no"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-16", "utf-8"])
def test_json_stays_json(folder: Path, encoding: str) -> None:
    """With the escapes that JSON has, not those of the terminal."""
    shown = raw(folder, "entity", "list", "--json", encoding=encoding).decode(encoding)
    assert [one["name"] for one in json.loads(shown)] == [NAME]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_exported_policy_can_be_applied(folder: Path, encoding: str) -> None:
    """Also through a pipe: a policy is UTF-8, whatever the terminal has."""
    exported = raw(folder, "policy", "export", encoding=encoding)
    exported.decode("ascii")
    diff = ("policy", "diff", "--prune", "-f", "-")
    assert raw(folder, *diff, given=exported, encoding=encoding) == b""
    plain = run("policy", "export", cwd=folder, env={"PYTHONIOENCODING": "utf-8"}).out
    assert NAME in plain
    assert raw(folder, *diff, given=plain.encode(), encoding=encoding) == b""
