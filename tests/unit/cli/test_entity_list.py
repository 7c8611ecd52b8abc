"""`penstock entity list`, also of stores that are too big to hold in memory."""

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests.support.processes import PATIENCE_S
from tests.unit.cli.conftest import Type

MANY = 10_000

MEASURED = """
import resource, sys
from penstock.cli import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def family(type_in: Type) -> Type:
    """Two parents with children."""
    for name in ("org-1", "org-2"):
        type_in("entity", "create", name)
        for child in ("user-a", "user-b", "guest"):
            type_in("entity", "create", f"{name}-{child}", "--parent", name)
    return type_in


def names(type_in: Type, *arguments: str) -> list[str]:
    ran = type_in("entity", "list", *arguments)
    assert (ran.code, ran.err) == (0, "")
    found = [line.split()[0] for line in ran.out.splitlines()[1:]]
    as_json = json.loads(type_in("entity", "list", "--json", *arguments).out)
    assert [one["name"] for one in as_json] == found
    return found


def test_a_list_is_chosen_by_prefix_parent_and_limit(family: Type) -> None:
    """Each alone, and all together."""
    assert len(names(family)) == 8
    first = ["org-1", "org-1-guest", "org-1-user-a", "org-1-user-b"]
    assert names(family, "--prefix", "org-1") == first
    assert names(family, "--parent", "org-1") == first[1:]
    assert names(family, "--limit", "3") == first[:3]
    chosen = ("--parent", "org-2", "--prefix", "org-2-user", "--limit", "1")
    assert names(family, *chosen) == ["org-2-user-a"]


def test_what_cannot_be_listed_is_said(family: Type) -> None:
    """Nothing to list is no error; a parent that is not there is."""
    ran = family("entity", "list", "--prefix", "zzz")
    assert (ran.code, ran.out, ran.err) == (0, "", "no entities with names that begin with zzz\n")
    ran = family("entity", "list", "--parent", "org-1-guest")
    assert (ran.code, ran.out, ran.err) == (0, "", "no children\n")
    ran = family("entity", "list", "--parent", "org-3")
    assert (ran.code, ran.err) == (1, "entity org-3: not found; did you mean org-2?\n")
    assert family("entity", "list", "--prefix", "zzz", "--json").out == "[]\n"
    for limit in ("0", "-1", "x", "1.5"):
        ran = family("entity", "list", f"--limit={limit}")
        assert (ran.code, "--limit: " in ran.err) == (2, True)


def insert(count: int, metadata: str = "{}") -> None:
    """Entities in the store of this directory, faster than by commands."""
    rows = ((f"user-{number}", metadata) for number in range(10**5, 10**5 + count))
    with closing(sqlite3.connect("penstock.db")) as db, db:
        db.executemany("INSERT INTO entity VALUES (?, NULL, 0, ?, 1)", rows)


def test_columns_stay_below_each_other_from_page_to_page(type_in: Type) -> None:
    """The header is printed once."""
    insert(450)
    lines = type_in("entity", "list").out.splitlines()
    assert len(lines) == 451
    assert {line.index(" - ") + 1 for line in lines[1:]} == {lines[0].index("PARENT")}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_long_list_takes_no_more_memory_than_a_short_one(
    type_in: Type, form: tuple[str, ...]
) -> None:
    """Each entity has 3 KB of metadata, so all of them together are 30 MB, and more as text."""
    assert type_in("entity", "list").code == 0
    insert(MANY, json.dumps({"about": "x" * 3_000}))

    def run(*arguments: str) -> tuple[int, int]:
        command = [sys.executable, "-c", MEASURED, "entity", "list", *form, *arguments]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=True)
        names = len(re.findall(rb'^(?:    "name": ")?user-', done.stdout, re.MULTILINE))
        return names, int(done.stderr)

    few, short_kb = run("--limit", "200")
    many, long_kb = run()
    assert (few, many) == (200, MANY)
    assert long_kb - short_kb < 20_000
