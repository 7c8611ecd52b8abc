"""Commands on a store that is not there."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Type

READS = [
    ["limits", "show"],
    ["limits", "list", "--json"],
    ["limits", "delete", "--yes"],
    ["entity", "show", "bob"],
    ["entity", "list"],
    ["entity", "children", "bob"],
    ["entity", "update", "bob", "--cascade"],
    ["entity", "delete", "bob", "--yes"],
    ["bucket", "show", "bob", "gpt-4"],
    ["bucket", "list", "--resource", "gpt-4"],
    ["policy", "diff", "-f", "-"],
    ["policy", "export"],
    ["audit", "--system"],
]
WRITES = [
    ["limits", "set", "rpm=5/s"],
    ["entity", "create", "bob"],
    ["policy", "apply", "--yes", "-f", "-"],
]
POLICY = "entities: {bob: {}}"


@pytest.mark.parametrize("command", READS + WRITES, ids=" ".join)
def test_a_store_that_is_not_there_is_said_and_not_created(
    type_nowhere: Type, command: list[str]
) -> None:
    """An empty answer of a new store would hide that the name is wrong."""
    ran = type_nowhere(*command, given=POLICY)
    assert (ran.code, ran.out) == (2, "")
    file = Path("penstock.db").absolute()
    assert ran.err.startswith(f"penstock: error: store {file}: there is no such file; name the ")
    assert ("--create" in ran.err) == (command in WRITES)
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("command", WRITES, ids=" ".join)
def test_create_makes_a_new_store(type_nowhere: Type, command: list[str]) -> None:
    """Once: the next command finds the file, with the flag or without."""
    assert type_nowhere(*command, "--create", given=POLICY).code == 0
    assert Path("penstock.db").exists()
    assert type_nowhere("limits", "set", "rpm=6/s").code == 0
    assert type_nowhere("limits", "set", "rpm=7/s", "--create").code == 0
    assert type_nowhere("audit", "--system").out.count("limits.write") >= 2


@pytest.mark.parametrize("command", [READS[0], WRITES[0]], ids=" ".join)
def test_an_empty_file_is_no_store_and_stays_empty(type_nowhere: Type, command: list[str]) -> None:
    """As `touch` makes one."""
    file = Path("penstock.db")
    file.touch()
    ran = type_nowhere(*command)
    assert ran.code == 2
    assert f"store {file.absolute()}: the file is empty; name the store" in ran.err
    assert [(path.name, path.stat().st_size) for path in Path().iterdir()] == [("penstock.db", 0)]
