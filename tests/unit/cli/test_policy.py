"""`penstock policy`, as a user types it."""

import json
from pathlib import Path

import pytest
from penstock.errors import StoreError
from penstock.store.sqlite.policy import SqlitePolicy

from tests.unit.cli.conftest import Type

POLICY = """\
system:
  limits: {rpm: 1000/minute}
  on_unavailable: deny
resources:
  gpt-4:
    limits: {rpm: 100/minute, tpm: "10000/minute,burst=15000"}
entities:
  a-user:
    parent: project-1
    cascade: true
  project-1:
    metadata: {team: search}
    limits: {rpm: 500/minute}
    resources:
      gpt-4: {limits: {tpm: 100000/minute}}
"""

ADDED = """\
6 changes: create 2 entities, set the limits of 4 new scopes:
+ entity project-1: team=search
+ entity a-user: parent project-1, cascade
+ limits of system: rpm=1000/minute, on unavailable: deny
+ limits of resource gpt-4: rpm=100/minute tpm=10000/minute,burst=15000
+ limits of entity project-1: rpm=500/minute
+ limits of entity project-1, resource gpt-4: tpm=100000/minute
"""

APPLY, DIFF = ("policy", "apply", "-f", "policy.yaml"), ("policy", "diff", "-f", "policy.yaml")


@pytest.fixture
def file(type_in: Type) -> Path:
    """A policy file, in the current directory of `type_in`."""
    assert type_in is not None
    file = Path("policy.yaml")
    file.write_text(POLICY)
    return file


def test_apply_shows_the_difference_and_asks(type_in: Type, file: Path) -> None:
    """And has nothing to do the second time."""
    assert file.exists()
    ran = type_in(*APPLY, answer="no\n")
    assert (ran.code, ran.out) == (1, f"{ADDED}nothing changed\n")
    assert ran.err == "6 changes to make.\nType yes to go on: "
    assert type_in(*DIFF).code == 1
    ran = type_in(*APPLY, answer="yes\n")
    assert (ran.code, ran.out) == (0, f"{ADDED}6 changes made\n")
    ran = type_in(*APPLY)
    assert (ran.code, ran.out) == (0, "nothing to do\n")


def test_apply_wants_a_yes_where_nobody_can_be_asked(type_in: Type, file: Path) -> None:
    """But shows what it would do."""
    assert file.exists()
    ran = type_in(*APPLY)
    assert (ran.code, ran.out) == (2, ADDED)
    assert ran.err.endswith(
        "can't ask, because the input is not a terminal: give --yes to make these changes\n"
    )
    assert type_in("entity", "list").out == ""


def test_what_is_exported_does_not_differ(type_in: Type, file: Path) -> None:
    """Also limits of an entity that is not stored."""
    type_in(*APPLY, "--yes")
    type_in("limits", "set", "--entity", "lone", "rpm=5/s")
    exported = type_in("policy", "export").out
    assert "  lone:\n    limits_only: true\n    limits:\n      rpm: 5/second\n" in exported
    ran = type_in("policy", "diff", "--prune", "-f", "-", given=exported)
    assert (ran.code, ran.out, ran.err) == (0, "", "no changes\n")
    file.write_text(exported)
    for name in ("a-user", "project-1"):
        type_in("entity", "delete", name, "--yes")
    type_in(*APPLY, "--yes", "--prune")
    assert type_in("policy", "export").out == exported


def test_prune_deletes_what_is_not_in_the_file(type_in: Type, file: Path) -> None:
    """Otherwise it stays, and is counted."""
    type_in(*APPLY, "--yes")
    file.write_text("entities: {a-user: {metadata: {x: y}}}\nsystem: {limits: {rpm: 2/s}}")
    first = "2 changes: change 1 entity, change the limits of 1 scope:\n"
    changed = """\
~ entity a-user: parent project-1, cascade → x=y
~ limits of system: rpm=1000/minute, on unavailable: deny → rpm=2/second
"""
    ran = type_in(*DIFF)
    assert (ran.code, ran.out) == (1, changed)
    ran = type_in(*APPLY, "--yes")
    unnamed = "4 more in the store but not in the file: --prune deletes them"
    assert ran.out == f"{first}{changed}2 changes made; {unnamed}\n"
    assert type_in(*DIFF).err == f"no changes; {unnamed}\n"
    ran = type_in(*APPLY, "--yes", "--prune")
    assert (
        ran.out
        == """\
4 changes: delete 1 entity, delete the limits of 3 scopes:
- limits of resource gpt-4: rpm=100/minute tpm=10000/minute,burst=15000
- limits of entity project-1: rpm=500/minute
- limits of entity project-1, resource gpt-4: tpm=100000/minute
- entity project-1: team=search
4 changes made
"""
    )
    assert type_in(*DIFF, "--prune").code == 0


def test_the_difference_for_scripts(type_in: Type, file: Path) -> None:
    """A list of changes."""
    file.write_text("entities: {a: {limits: {rpm: 1/s}}}")
    same = {"entity": "a", "resource": None, "action": "add", "before": None}
    entity: dict[str, object] = {
        "name": "a",
        "parent": None,
        "cascade": False,
        "metadata": {},
        "version": 0,
    }
    rpm = {
        "name": "rpm",
        "rate": "1/second",
        "tokens": 1,
        "period_ms": 1_000,
        "burst": 1,
        "max_debt": None,
        "window": None,
    }
    limits = {"limits": [rpm], "on_unavailable": None, "version": 0}
    assert json.loads(type_in(*DIFF, "--json").out) == [
        {"kind": "entity", **same, "after": entity},
        {"kind": "limits", **same, "after": limits},
    ]


def test_all_errors_are_told_with_their_line(type_in: Type, file: Path) -> None:
    """And nothing is changed; the exit code is not that of a difference."""
    file.write_text("entities:\n  a: {parent: b}\n  c: {limits: {rpm: 5}}\n")
    for command in (DIFF, (*APPLY, "--yes")):
        ran = type_in(*command)
        assert (ran.code, ran.out) == (2, "")
        start, first, second = ran.err.splitlines()
        assert start == "penstock: error: 2 errors in the policy file, so nothing was changed:"
        assert first.startswith("policy.yaml:2: entity 'a': the parent 'b' is not in this ")
        assert second.startswith("policy.yaml:3: limit 'rpm': '5' is not a rate: write 100/minute")


def test_a_parent_that_is_pruned_is_no_parent(type_in: Type, file: Path) -> None:
    """It may only be one that stays."""
    type_in("entity", "create", "b")
    file.write_text("entities: {a: {parent: b}}")
    assert type_in(*DIFF).code == 1
    assert type_in(*DIFF, "--prune").code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"\xff", "not UTF-8"),
        (b"a: [", "1 error in the policy file"),
    ],
)
def test_a_file_that_can_not_be_read_is_told(
    type_in: Type, file: Path, content: bytes | None, message: str
) -> None:
    """With exit code 2."""
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    ran = type_in(*DIFF)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_a_failure_half_way_says_how_far_it_came(
    type_in: Type, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next time does the rest."""
    assert file.exists()

    async def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqlitePolicy, "write_limits", fail)
        ran = type_in(*APPLY, "--yes")
    assert ran.code == 2
    told, *left, advice, error = ran.err.splitlines()
    assert told == "2 of 6 changes were made (then a change failed). Not made:"
    assert left == ADDED.splitlines()[3:]
    assert (
        advice == "Apply policy.yaml again to make the rest. `penstock policy diff` shows the rest."
    )
    assert error == "penstock: error: the disk is full"
    assert type_in(*APPLY, "--yes").out.endswith("\n4 changes made\n")


def test_thousands_of_changes_begin_with_a_summary(type_in: Type, file: Path) -> None:
    """Then a hundred of them, and where all are shown."""
    file.write_text("entities:\n" + "".join(f"  e{n}: {{}}\n" for n in range(3_000)))
    ran = type_in(*APPLY, answer="no\n")
    lines = ran.out.splitlines()
    assert lines[0] == "3000 changes: create 3000 entities:"
    assert (
        lines[1:101] == [f"+ entity {name}" for name in sorted(f"e{n}" for n in range(3_000))][:100]
    )
    assert lines[101:] == [
        "… and 2900 more: `penstock policy diff -f policy.yaml` shows all",
        "nothing changed",
    ]
    assert len(type_in(*DIFF).out.splitlines()) == 3_000


def test_progress_is_told(type_in: Type, file: Path) -> None:
    """Now and then in a log, in one line on a terminal."""
    file.write_text("entities:\n" + "".join(f"  e{n}: {{}}\n" for n in range(1_500)))
    assert type_in(*APPLY, "--yes").err.splitlines()[:-1] == ["1000 of 1500 changes made …"]
