"""What a start of the command imports, which is most of the time that a short command takes."""

import subprocess
import sys

import pytest

LOADED = """
import sys
from penstock.cli import build_parser, main
try:
    {run}
except SystemExit:
    pass
print(" ".join(name for name in {names} if name in sys.modules), file=sys.stderr)
"""
SLOW = ("asyncio", "grpc", "aiohttp", "yaml", "sqlite3", "rich", "penstock.store")


def loaded(run: str, *names: str) -> list[str]:
    """Which of these modules a process has loaded after it ran this."""
    code = LOADED.format(run=run, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr.split()


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_a_question_about_the_command_loads_no_command(flag: str) -> None:
    """Nor what a command needs: `penstock --version` answers at once."""
    assert loaded(f"main(['{flag}'])", *SLOW) == []


def test_a_command_loads_no_other_command() -> None:
    """Nor the library for terminals, if there is no terminal."""
    commands = [f"penstock.cli.{name}" for name in ("serve", "gc", "simulate", "limits", "audit")]
    assert loaded("main(['gc', '--help'])", *commands, "rich") == ["penstock.cli.gc"]


def test_a_server_does_not_load_the_library_for_terminals() -> None:
    """Its memory is for buckets."""
    run = "import penstock.server; main(['serve', '--help'])"
    assert loaded(run, "rich", "penstock.server") == ["penstock.server"]
