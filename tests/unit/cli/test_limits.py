"""`penstock limits`, as a user types it."""

import json

import pytest
from penstock.cli import main

from tests.unit.cli.conftest import Type

IN_FORCE = "in force within 1m, or the --policy-cache-ttl of your servers\n"


def test_limits_of_all_four_levels(type_in: Type) -> None:
    """Each is set by what is named, and all are listed."""
    ran = type_in("limits", "set", "rpm=1000/minute", "--on-unavailable", "deny")
    assert (ran.code, ran.out, ran.err) == (
        0, "system: rpm=1000/minute (on unavailable: deny)\n", IN_FORCE,
    )  # fmt: skip
    gpt = ("--resource", "gpt-4")
    ran = type_in("limits", "set", *gpt, "tpm=10000/minute,burst=15000", "rpm=100/min")
    assert ran.out == "resource gpt-4: rpm=100/minute tpm=10000/minute,burst=15000\n"
    type_in("limits", "set", "--entity", "project-1", "rpm=5/s")
    type_in("limits", "set", "--entity", "project-1", *gpt, "tpm=100000/minute")
    ran = type_in("limits", "list")
    assert ran.code == 0
    assert (
        ran.out
        == """\
ENTITY     RESOURCE  LIMITS
(all)      (all)     rpm=1000/minute (on unavailable: deny)
(all)      gpt-4     rpm=100/minute tpm=10000/minute,burst=15000
project-1  (all)     rpm=5/second
project-1  gpt-4     tpm=100000/minute
"""
    )
    ran = type_in("limits", "list", *gpt, "--json")
    assert [row["entity"] for row in json.loads(ran.out)] == ["project-1"]


def test_show_tells_a_scope(type_in: Type) -> None:
    """With its version, which counts changes."""
    type_in("limits", "set", "rpm=1/s", "--on-unavailable", "allow")
    type_in("limits", "set", "rpm=100/minute", "tpm=10000/minute,burst=15000")
    ran = type_in("limits", "show")
    assert (ran.code, ran.out) == (
        0,
        """\
system: version 2
  LIMIT  RATE          BURST
  rpm    100/minute    100
  tpm    10000/minute  15000
  on unavailable: allow
""",
    )
    assert json.loads(type_in("limits", "show", "--json").out) == {
        "entity": None,
        "resource": None,
        "limits": [
            {
                "name": "rpm",
                "rate": "100/minute",
                "tokens": 100,
                "period_ms": 60_000,
                "burst": 100,
                "max_debt": None,
                "window": None,
            },
            {
                "name": "tpm",
                "rate": "10000/minute,burst=15000",
                "tokens": 10_000,
                "period_ms": 60_000,
                "burst": 15_000,
                "max_debt": None,
                "window": None,
            },
        ],
        "on_unavailable": "allow",
        "version": 2,
        "in_force": None,
        "parents": [],
    }


def test_show_tells_what_is_in_force_and_from_where(type_in: Type) -> None:
    """From the level that decides."""
    both = ("limits", "show", "--entity", "bob", "--resource", "gpt-4")
    ran = type_in(*both)
    assert (ran.code, ran.out) == (
        1,
        "entity bob, resource gpt-4: no limits of its own\nin force: no limits\n",
    )
    type_in("limits", "set", "--resource", "gpt-4", "rpm=7/hour")
    ran = type_in(*both)
    assert ran.code == 0
    assert (
        ran.out
        == """\
entity bob, resource gpt-4: no limits of its own
in force: the limits of resource gpt-4
  LIMIT  RATE    BURST
  rpm    7/hour  7
"""
    )
    found = json.loads(type_in(*both, "--json").out)
    assert found["limits"] == []
    assert found["in_force"]["from"] == {"entity": None, "resource": "gpt-4"}
    assert found["in_force"]["limits"][0]["rate"] == "7/hour"
    type_in("limits", "set", "--entity", "bob", "--resource", "gpt-4", "rpm=8/hour")
    assert type_in(*both).out.endswith("rpm    8/hour  8\nin force: the limits above\n")


def test_show_tells_what_the_parents_have_in_force(type_in: Type) -> None:
    """A child takes from them as well, as far as it cascades."""
    type_in("entity", "create", "org")
    type_in("entity", "create", "project", "--parent", "org")
    type_in("entity", "create", "bob", "--parent", "project", "--cascade")
    type_in("limits", "set", "--resource", "gpt-4", "rpm=7/hour")
    type_in("limits", "set", "--entity", "project", "rpm=20/hour")
    both = ("limits", "show", "--entity", "bob", "--resource", "gpt-4")
    assert (
        type_in(*both).out
        == """\
entity bob, resource gpt-4: no limits of its own
in force: the limits of resource gpt-4
  LIMIT  RATE    BURST
  rpm    7/hour  7
parent project: also counted, by the limits of entity project
  LIMIT  RATE     BURST
  rpm    20/hour  20
parent org: not counted, because an entity below does not cascade
"""
    )
    project, org = json.loads(type_in(*both, "--json").out)["parents"]
    assert project["in_force"]["from"] == {"entity": "project", "resource": None}
    assert project["in_force"]["limits"][0]["tokens"] == 20
    assert (project["is_counted"], org["is_counted"]) == (True, False)


def test_limits_of_an_entity_that_does_not_exist_are_said(type_in: Type) -> None:
    """They are allowed, and often a typo."""
    type_in("entity", "create", "user-123")
    assert type_in("limits", "set", "--entity", "user-123", "rpm=1/s").err == IN_FORCE
    note = "entity usr-123 does not exist, but limits apply to the name; did you mean user-123?\n"
    ran = type_in("limits", "set", "--entity", "usr-123", "rpm=1/s")
    assert (ran.code, ran.err) == (0, note + IN_FORCE)
    for scope in (("--entity", "usr-123"), ("--entity", "usr-123", "--resource", "r")):
        assert type_in("limits", "show", *scope).err == note
    far = type_in("limits", "show", "--entity", "other").err
    assert far == "entity other does not exist, but limits apply to the name\n"


def test_it_is_said_when_a_change_is_in_force(type_in: Type) -> None:
    """Servers keep what they read for a while."""
    type_in("entity", "create", "bob")
    assert type_in("limits", "set", "--entity", "bob", "rpm=1/s").err == IN_FORCE
    assert type_in("entity", "update", "bob", "--metadata", "a=b").err == IN_FORCE
    assert type_in("limits", "delete", "--entity", "bob", "--yes").err == IN_FORCE


def test_what_is_set_replaces_what_was(type_in: Type) -> None:
    """Limits as a whole; what to answer while the store fails is apart."""
    type_in("limits", "set", "rpm=1/s", "tpm=2/s")
    assert type_in("limits", "set", "--on-unavailable", "DENY").out == (
        "system: rpm=1/second tpm=2/second (on unavailable: deny)\n"
    )
    assert type_in("limits", "set", "rpm=3/s").out == (
        "system: rpm=3/second (on unavailable: deny)\n"
    )


def test_nothing_has_limits_at_first(type_in: Type) -> None:
    """Lists are empty, a scope is not there."""
    ran = type_in("limits", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no limits are stored\n")
    assert type_in("limits", "list", "--json").out == "[]\n"
    assert type_in("limits", "list", "--resource", "r").err == "no entity has its own limits\n"
    ran = type_in("limits", "show", "--entity", "bob")
    assert (ran.code, ran.out) == (1, "entity bob: no limits\n")


def test_more_than_a_page_is_listed(type_in: Type) -> None:
    """All of them."""
    limits = "".join(f"  r{n:03}: {{limits: {{rpm: 1/s}}}}\n" for n in range(230))
    type_in("policy", "apply", "--yes", "-f", "-", given=f"resources:\n{limits}")
    assert len(json.loads(type_in("limits", "list", "--json").out)) == 230


def test_delete_asks(type_in: Type) -> None:
    """And takes only a yes for a yes."""
    type_in("limits", "set", "--entity", "bob", "rpm=1/s")
    delete = ("limits", "delete", "--entity", "bob")
    ran = type_in(*delete)
    assert (ran.code, ran.err) == (
        2,
        "penstock: error: can't ask, because the input is not a terminal: "
        "give --yes to delete the limits\n",
    )
    ran = type_in(*delete, answer="\n")
    assert (ran.code, ran.out) == (1, "entity bob: limits kept\n")
    assert ran.err == ("This deletes the limits of entity bob: rpm=1/second\nType yes to go on: ")
    ran = type_in(*delete, answer="yes\n")
    assert (ran.code, ran.out) == (0, "entity bob: limits deleted\n")
    ran = type_in(*delete, "--yes")
    assert (ran.code, ran.out) == (1, "entity bob: no limits\n")


TOO_MANY = [f"l{number}=1/s" for number in range(11)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no limits: write NAME=RATE, with a rate such as 100/minute"),
        (["rpm"], "'rpm': write NAME=RATE, with a rate such as 100/minute"),
        (["rpm=1/s", "rpm=2/s"], "'rpm=2/s': limit 'rpm' is given twice"),
        (["rpm=1/fortnight"], "'rpm=1/fortnight': '1/fortnight' is not a rate: "),
        (["r m=1/s"], "'r m=1/s': 'r m' is not a name for a limit: write 1 to 64 letters"),
        (TOO_MANY, "11 limits: a scope can have at most 10"),
        (["--entity", "$x", "a=1/s"], "entity '$x' begins with $"),
        (["--entity", "", "a=1/s"], "the entity has no name"),
        (["--resource", "_default_", "a=1/s"], "resource '_default_' stands for all resources"),
        (["--on-unavailable", "no", "a=1/s"], "--on-unavailable: 'no' is not one of error, allow"),
        (["--entity", "a", "--on-unavailable", "deny"], "--on-unavailable is for the system"),
        (["--by", "a\nb", "a=1/s"], "--by: 'a\\nb' has characters that can't be printed"),
    ],
)
def test_what_can_not_be_set_is_told(type_in: Type, arguments: list[str], message: str) -> None:
    """With exit code 2, and nothing is stored."""
    ran = type_in("limits", "set", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"penstock: error: {message}")
    assert type_in("limits", "list").out == ""


@pytest.mark.parametrize(
    "command",
    [
        ["limits", "list"],
        ["limits", "set", "rpm=1/s"],
        ["entity", "list"],
        ["bucket", "show", "a", "b"],
        ["policy", "export"],
        ["audit", "--system"],
    ],
)
def test_memory_is_no_store_for_a_command(type_in: Type, command: list[str]) -> None:
    """It would be gone with it."""
    ran = type_in(*command, "--store", "memory:")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("penstock: error: store 'memory:': what is in memory is gone with")


HELP = [
    *(("limits", action) for action in ("set", "show", "delete", "list")),
    *(("entity", action) for action in ("create", "show", "list", "children", "update", "delete")),
    *(("bucket", action) for action in ("show", "list", "reset")),
    *(("policy", action) for action in ("apply", "diff", "export")),
    ("audit",),
]


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_has_examples(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Of every command."""
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    assert f"\n  penstock {' '.join(command)}" in capsys.readouterr().out


def test_how_deep_a_debt_may_be_is_set_and_shown(type_in: Type) -> None:
    """In a column of its own, if a limit has it; and commands take back what they show."""
    ran = type_in("limits", "set", "rpm=1/s", "tpm=10000/minute,max_debt=500,burst=20000")
    assert "rpm=1/second tpm=10000/minute,burst=20000,max_debt=500\n" in ran.out
    lines = type_in("limits", "show").out.splitlines()
    shown = [line.split() for line in lines]
    assert ["LIMIT", "RATE", "BURST", "MAX", "DEBT"] in shown
    assert ["rpm", "1/second", "1", "-"] in shown
    assert ["tpm", "10000/minute", "20000", "500"] in shown
    (_, tpm) = json.loads(type_in("limits", "show", "--json").out)["limits"]
    assert tpm["max_debt"] == 500
    assert tpm["rate"] == "10000/minute,burst=20000,max_debt=500"
    assert tpm["rate"] in type_in("audit", "--system").out
    exported = type_in("policy", "export").out
    assert tpm["rate"] in exported
