"""`penstock entity`, as a user types it."""

import json

import pytest

from tests.unit.cli.conftest import Type


@pytest.fixture
def family(type_in: Type) -> Type:
    """A project, and a user below it."""
    assert type_in("entity", "create", "project-1").out == "entity project-1: created\n"
    type_in(
        "entity", "create", "user-123", "--parent", "project-1", "--cascade",
        "--metadata", "team=search", "--metadata", "desk=4",
    )  # fmt: skip
    return type_in


def test_an_entity_is_shown(family: Type) -> None:
    """As a table, and for scripts."""
    ran = family("entity", "show", "user-123")
    assert (ran.code, ran.out) == (
        0,
        """\
user-123
  parent    project-1
  cascade   yes
  metadata  desk=4 team=search
  version   1
""",
    )
    assert json.loads(family("entity", "show", "user-123", "--json").out) == {
        "name": "user-123",
        "parent": "project-1",
        "cascade": True,
        "metadata": {"team": "search", "desk": "4"},
        "version": 1,
    }


def test_entities_are_listed(family: Type) -> None:
    """All of them, or the children of one."""
    assert (
        family("entity", "list").out
        == """\
NAME       PARENT     CASCADE  METADATA
project-1  -          no
user-123   project-1  yes      desk=4 team=search
"""
    )
    found = json.loads(family("entity", "list", "--json").out)
    assert [entity["name"] for entity in found] == ["project-1", "user-123"]
    assert family("entity", "children", "project-1").out == "user-123\n"
    assert json.loads(family("entity", "children", "project-1", "--json").out) == ["user-123"]
    ran = family("entity", "children", "user-123")
    assert (ran.code, ran.out, ran.err) == (0, "", "entity user-123: no children\n")


def test_nothing_is_there_at_first(type_in: Type) -> None:
    """An empty list is no error."""
    ran = type_in("entity", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no entities\n")


@pytest.mark.parametrize(
    "command", [["show"], ["children"], ["update", "--cascade"], ["delete", "--yes"]]
)
def test_what_is_not_there_is_told(type_in: Type, command: list[str]) -> None:
    """With exit code 1."""
    ran = type_in("entity", command[0], "nobody", *command[1:])
    assert (ran.code, ran.out, ran.err) == (1, "", "entity nobody: not found\n")


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        (["--no-parent"], {"parent": None, "cascade": False}),
        (["--no-cascade"], {"cascade": False}),
        (["--parent", "project-2"], {"parent": "project-2"}),
        (["--metadata", "team=ads"], {"metadata": {"team": "ads", "desk": "4"}}),
        (["--metadata", "team="], {"metadata": {"desk": "4"}}),
        (["--no-cascade", "--version", "1"], {"cascade": False}),
    ],
)
def test_update_changes_what_is_named(
    family: Type, flags: list[str], changed: dict[str, object]
) -> None:
    """And nothing else."""
    family("entity", "create", "project-2")
    before = json.loads(family("entity", "show", "user-123", "--json").out)
    ran = family("entity", "update", "user-123", *flags)
    assert (ran.code, ran.out) == (0, "entity user-123: now at version 2\n")
    after = json.loads(family("entity", "show", "user-123", "--json").out)
    assert after == {**before, **changed, "version": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "user-123"], "entity 'user-123' already exists"),
        (["create", "x", "--parent", "nobody"], "the parent 'nobody' of entity 'x' does not exist"),
        (["create", "x", "--cascade"], "--cascade needs a --parent"),
        (["create", "$x"], "entity '$x' begins with $"),
        (["create", "x", "--metadata", "team"], "--metadata: 'team' is not KEY=VALUE"),
        (["create", "x", "--metadata", "a=\n"], "--metadata: 'a=\\n' is not KEY=VALUE"),
        (["update", "user-123"], "nothing to change: give --parent"),
        (["update", "user-123", "--cascade", "--version", "9"], "entity 'user-123' is at version"),
        (["update", "user-123", "--cascade", "--version", "x"], "--version: 'x' is not a whole"),
        (["update", "project-1", "--parent", "user-123"], "entity 'project-1' would be its own"),
        (["delete", "project-1", "--yes"], "entity 'project-1' has children"),
        (
            ["delete", "user-123"],
            "can't ask, because the input is not a terminal: give --yes to delete the entity",
        ),
    ],
)
def test_what_can_not_be_done_is_told(family: Type, arguments: list[str], message: str) -> None:
    """With exit code 2, and all stays as it was."""
    before = family("entity", "list").out
    ran = family("entity", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"penstock: error: {message}")
    assert family("entity", "list").out == before


def test_delete_asks_for_the_name(family: Type) -> None:
    """Limits go with the entity."""
    family("limits", "set", "--entity", "user-123", "rpm=1/s")
    ran = family("entity", "delete", "user-123", answer="yes\n")
    assert (ran.code, ran.out) == (1, "entity user-123: kept\n")
    assert ran.err == (
        "This deletes entity user-123 with its limits and buckets, for ever.\n"
        "Type the entity's name, user-123, to go on: "
    )
    ran = family("entity", "delete", "user-123", answer="user-123\n")
    assert (ran.code, ran.out) == (0, "entity user-123: deleted\n")
    assert family("limits", "list").out == ""


def test_an_update_to_cascade_needs_a_parent(type_in: Type) -> None:
    """As creating does."""
    type_in("entity", "create", "alone")
    ran = type_in("entity", "update", "alone", "--cascade")
    assert (ran.code, ran.err) == (
        2,
        "penstock: error: --cascade needs a --parent to cascade to\n",
    )


@pytest.mark.parametrize("action", ["show", "children", "update", "delete"])
def test_a_name_that_is_nearly_right_is_suggested(type_in: Type, action: str) -> None:
    """Also in another case."""
    type_in("entity", "create", "Project-1")
    more = {"update": ["--cascade"], "delete": ["--yes"]}.get(action, [])
    ran = type_in("entity", action, "projct-1", *more)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "entity projct-1: not found; did you mean Project-1?\n"
