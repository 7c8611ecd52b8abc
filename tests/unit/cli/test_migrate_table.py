"""`penstock migrate` on a DynamoDB table, as a user types it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from penstock.cli import main
from penstock.core.bucket import Bucket
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Key
from penstock.store.dynamodb.aws.location import Location

from tests.unit.cli.command import Ran
from tests.unit.cli.conftest import Terminal
from tests.unit.store.dynamodb.bare_tables import aws, drop, item, locate
from tests.unit.store.dynamodb.single_items import single_item

Penstock = Callable[..., Ran]

OLD_MS = 1_700_000_000_000
RPM = Limit.per(60, 60_000, name="rpm")
DAILY = Limit.per(10_000_000_000, 86_400_000_000, name="daily")
"""So large and slow that the time of a test run is nothing against it."""


@pytest.fixture
def location(dynamodb_url: str) -> Iterator[Location]:
    """A table that does not exist yet."""
    location = locate(dynamodb_url, f"cli-{uuid4().hex}")
    yield location
    drop(location)


@pytest.fixture
def penstock(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, location: Location
) -> Penstock:
    """Runs `penstock`, with the store in the environment."""
    monkeypatch.setenv("PENSTOCK_STORE", str(location))

    def run(*arguments: str, answer: str | None = None) -> Ran:
        capsys.readouterr()
        with Path(os.devnull).open() as nothing, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", nothing if answer is None else Terminal(answer))
            code = main(list(arguments))
        return Ran(code, *capsys.readouterr())

    return run


def put_single(location: Location, user: str, limit: Limit) -> None:
    bucket = Bucket(limit, limit.burst, 5 * MILLI)
    aws(location, "put_item", Item=single_item(Key(user, "gpt-4"), bucket, OLD_MS))


def test_a_table_goes_through_all_steps(penstock: Penstock, location: Location) -> None:
    """From a version item of another program to a table without single items."""
    penstock("table", "create")
    version = item("SYSTEM#", "#VERSION")
    aws(location, "put_item", Item={**version, "schema_version": {"S": "0.6"}})
    for user in ("ann", "bob"):
        put_single(location, user, RPM)
        put_single(location, user, DAILY)
    status = penstock("table", "status")
    assert status.code == 1
    assert "not Penstock's: if it has single items, migrate it first" in status.out
    assert "the migration has not begun" in penstock("migrate", "run").err
    begun = penstock("migrate", "begin")
    assert begun.code == 0
    assert "start your servers now" in begun.out
    status = penstock("table", "status")
    assert status.code == 0
    assert "being migrated" in status.out
    dry = penstock("migrate", "run", "--dry-run")
    assert dry.out == "4 single items would be converted, of 4 single items for 2 keys\n"
    left = penstock("migrate", "verify")
    assert left.code == 1
    assert left.out.startswith("4 single items of 2 keys: 4 not converted\n")
    refused = penstock("migrate", "clean", "--yes")
    assert (refused.code, refused.out) == (1, "nothing deleted: 4 single items not converted\n")
    ran = penstock("migrate", "run")
    assert ran.code == 0
    assert ran.out.splitlines()[:2] == [
        "4 single items of 2 keys: 4 single items converted",
        "  consumed: 20.000 before, 20.000 now: the same",
    ]
    assert ran.out.endswith(" now: the same\n")
    verified = penstock("migrate", "verify")
    assert verified.code == 0
    assert verified.out.startswith("4 single items of 2 keys: 0 not converted\n")
    assert verified.out.count("the same") == 2
    kept = penstock("migrate", "clean", answer="no\n")
    assert (kept.code, kept.out) == (1, "nothing deleted\n")
    done = penstock("migrate", "clean", answer="yes\n")
    assert done.code == 0
    assert done.out.startswith("4 single items deleted: the migration is done\n")
    assert "being migrated" not in penstock("table", "status").out
    assert penstock("bucket", "show", "ann", "gpt-4").code == 0


def test_problems_are_named(penstock: Penstock, location: Location) -> None:
    """Each with its item, and the exit code tells."""
    penstock("table", "create")
    penstock("migrate", "begin")
    put_single(location, "ann", RPM)
    aws(location, "put_item", Item=item("ENTITY#bob", "#BUCKET#gpt-4#rpm"))
    ran = penstock("migrate", "run")
    assert ran.code == 1
    assert "problem: ENTITY#bob #BUCKET#gpt-4#rpm: 'limit_name'\n" in ran.out
    assert penstock("migrate", "verify").code == 1
    assert penstock("migrate", "clean", "--yes").code == 1


def test_only_a_table_has_single_items(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a file there is another command."""
    monkeypatch.setenv("PENSTOCK_STORE", "sqlite:///penstock.db")
    ran = penstock("migrate", "begin")
    assert ran.code == 2
    assert "`penstock migrate import` brings in a SQLite file" in ran.err
