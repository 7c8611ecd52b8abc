"""The unit for systemd, held to the settings, and looked at by systemd itself."""

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from penstock.cli import build_parser
from penstock.config.durations import parse_duration_ms
from penstock.config.flags import DECLARED, read_settings
from penstock.config.settings import Settings

from tests.e2e.image import DEPLOY
from tests.support.processes import PENSTOCK

UNIT = DEPLOY / "systemd" / "penstock.service"
PAGE = UNIT.with_name("README.md").read_text()


def lines() -> Iterator[tuple[str, str, str]]:
    """Section, name and value. A name may come more than once, which no INI parser allows."""
    section = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield section, name, value


def values(name: str) -> list[str]:
    return [value for section, key, value in lines() if (section, key) == ("Service", name)]


@pytest.fixture
def settings() -> Settings:
    """What a server under the unit goes by, without a file of the operator's."""
    environment = dict(value.split("=", 1) for value in values("Environment"))
    assert set(environment) <= {setting.env for setting in DECLARED}
    return read_settings(argparse.Namespace(), environment)


@pytest.fixture
def analyze() -> str:
    command = shutil.which("systemd-analyze")
    if command is None:
        pytest.skip("systemd-analyze is not installed")
    return command


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit, with the command where it is here."""
    (command,) = values("ExecStart")
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(command.split()[0], str(PENSTOCK)))
    return path


def test_command_is_the_one_that_is_installed() -> None:
    """Into the folder of the page, and it can be typed."""
    (command,) = values("ExecStart")
    program, *arguments = command.split()
    assert f"python3 -m venv {PurePosixPath(program).parents[1]}\n" in PAGE
    build_parser().parse_args(arguments)


def test_rules_and_file_are_where_the_page_says(settings: Settings) -> None:
    """The file is in the only directory that can be written."""
    (state,) = values("StateDirectory")
    folder = f"/var/lib/{state}"
    assert settings.store == f"sqlite:///{folder}/penstock.db"
    assert values("WorkingDirectory") == [folder]
    assert settings.store in PAGE
    assert f"install -d {settings.config}\n" in PAGE


def test_the_server_is_nobody_and_writes_nowhere_else() -> None:
    """Neither root, nor a user that others may be."""
    assert values("DynamicUser") == ["yes"]
    assert values("ProtectSystem") == ["strict"]
    assert values("NoNewPrivileges") == ["yes"]
    assert values("CapabilityBoundingSet") == [""]


def test_variables_of_the_page_are_settings() -> None:
    """Those that it gives values for."""
    named = set(re.findall(r"\b([A-Z][A-Z_]+)=", PAGE))
    assert named
    assert named <= {setting.env for setting in DECLARED}


def test_stopping_leaves_time_to_drain(settings: Settings) -> None:
    """systemd kills later than the drain may take, by enough for what is then under way."""
    (stop,) = values("TimeoutStopSec")
    assert parse_duration_ms(stop) >= settings.drain_timeout + 10_000


def test_a_server_that_ends_by_itself_is_started_again() -> None:
    """However often: systemd gives up on five starts in ten seconds."""
    (pause,) = values("RestartSec")
    assert values("Restart") == ["on-failure"]
    assert parse_duration_ms(pause) * 5 > 10_000


def test_systemd_finds_no_fault(analyze: str, installed: Path) -> None:
    """Every name and value is one that it knows."""
    command = [analyze, "verify", str(installed)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    # A fault in a unit of this machine is none of ours; and a name that it does not know, no error.
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
    assert done.returncode == 0


def test_systemd_finds_it_well_shut_off(analyze: str, installed: Path) -> None:
    """At most 2 of 10 on its scale of exposure, on which a plain service has 9.6."""
    command = [analyze, "security", "--offline=true", "--threshold=20", "--no-pager"]
    done = subprocess.run([*command, str(installed)], capture_output=True, check=False, text=True)
    if "unrecognized option" in done.stderr:
        pytest.skip("systemd-analyze is too old to look at a file")
    assert "Overall exposure level" in done.stdout, done.stderr
    assert done.returncode == 0, done.stdout
