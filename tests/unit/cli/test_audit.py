"""`penstock audit`, as a user types it."""

import getpass
import json
import re

import pytest

from tests.unit.cli.conftest import Type

RPM = {
    "name": "rpm",
    "rate": "1/second",
    "tokens": 1,
    "period_ms": 1_000,
    "burst": 1,
    "max_debt": None,
    "window": None,
}
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


def shown(text: str) -> str:
    """Without the times."""
    return re.sub(rf"^{TIME}", "TIME", text, flags=re.MULTILINE)


def test_changes_are_told_the_latest_first(type_in: Type) -> None:
    """Who, when, and what was and is."""
    type_in("entity", "create", "project-1", "--by", "ann")
    type_in("limits", "set", "--entity", "project-1", "rpm=100/minute", "tpm=5/s", "--by", "bob")
    type_in("limits", "set", "--entity", "project-1", "rpm=200/minute", "new=1/s", "--by", "kim")
    type_in("entity", "update", "project-1", "--metadata", "team=search", "--by", "ann")
    type_in("entity", "delete", "project-1", "--yes", "--by", "eve")
    ran = type_in("audit", "project-1")
    assert ran.code == 0
    assert shown(ran.out).endswith("""\
TIME  ann  entity.write
    + metadata: team=search
TIME  kim  limits.write  entity project-1
    + new: 1/second
    ~ rpm: 100/minute → 200/minute
    - tpm: 5/second
TIME  bob  limits.write  entity project-1
    + rpm: 100/minute
    + tpm: 5/second
TIME  ann  entity.write
""")
    assert "TIME  eve  entity.delete\n    - metadata: team=search\n" in shown(ran.out)


def test_the_system_and_resources_have_their_own_record(type_in: Type) -> None:
    """By a flag, or by the name that the record has."""
    type_in("limits", "set", "rpm=1/s", "--on-unavailable", "deny", "--by", "ann")
    type_in("limits", "set", "--resource", "gpt-4", "rpm=2/s", "--by", "bob")
    system = "TIME  ann  limits.write  system\n    + on_unavailable: deny\n    + rpm: 1/second\n"
    resource = "TIME  bob  limits.write  resource gpt-4\n    + rpm: 2/second\n"
    assert shown(type_in("audit", "--system").out) == system
    assert shown(type_in("audit", "$SYSTEM").out) == system
    assert shown(type_in("audit", "--resource", "gpt-4").out) == resource
    assert shown(type_in("audit", "$RESOURCE:gpt-4").out) == resource


def test_the_record_for_scripts(type_in: Type) -> None:
    """With all that was and is."""
    type_in("limits", "set", "rpm=1/s", "--by", "ann")
    (event,) = json.loads(type_in("audit", "--system", "--json").out)
    assert re.fullmatch(TIME, event.pop("at"))
    assert event.pop("at_ms") > 0
    assert event == {
        "subject": "$SYSTEM",
        "action": "limits.write",
        "by": "ann",
        "scope": {"entity": None, "resource": None},
        "before": None,
        "after": {"limits": [RPM], "on_unavailable": None},
    }
    type_in("limits", "set", "rpm=1/s", "--on-unavailable", "deny")
    event = json.loads(type_in("audit", "--system", "--json").out)[0]
    assert event["before"] == {"limits": [RPM], "on_unavailable": None}
    assert event["after"] == {"limits": [RPM], "on_unavailable": "deny"}
    shown = json.loads(type_in("limits", "show", "--json").out)
    assert shown["limits"] == [RPM], "the same in every command"


def test_as_many_as_asked_for(type_in: Type) -> None:
    """The latest."""
    for number in range(1, 6):
        type_in("limits", "set", f"rpm={number}/s")
    found = json.loads(type_in("audit", "--system", "--last", "2", "--json").out)
    assert [event["after"]["limits"][0]["tokens"] for event in found] == [5, 4]


def test_without_a_name_it_is_the_user(type_in: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody known, as in a container."""
    type_in("limits", "set", "rpm=1/s")
    assert f"  {getpass.getuser()}  " in type_in("audit", "--system").out

    def nobody() -> str:
        raise OSError("no user name")

    monkeypatch.setattr(getpass, "getuser", nobody)
    type_in("limits", "set", "rpm=2/s")
    assert "  unknown  " in type_in("audit", "--system").out.splitlines()[0]


def test_what_has_no_record(type_in: Type) -> None:
    """Exit code 1, and 2 for what can have none."""
    ran = type_in("audit", "nobody")
    assert (ran.code, ran.out, ran.err) == (1, "", "nobody: no changes found\n")
    assert type_in("audit", "nobody", "--json").out == "[]\n"
    assert type_in("audit", "$OTHER").code == 2
    assert type_in("audit", "--system", "--last", "0").code == 2
