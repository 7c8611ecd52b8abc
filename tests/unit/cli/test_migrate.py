"""`penstock migrate`, as a user types it."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Type

SCHEMA = """
CREATE TABLE rate_limit_buckets (
    bucket_id TEXT PRIMARY KEY,
    tokens INTEGER NOT NULL,
    last_refill TEXT NOT NULL,
    CHECK(tokens >= 0 AND tokens <= 500),
    CHECK(length(last_refill) >= 19)
) STRICT
"""
COMMAND = ("migrate", "import", "old.db", "--resource", "api")


def now_text(ago_s: float = 0) -> str:
    return f"{datetime.now(UTC) - timedelta(seconds=ago_s):%Y-%m-%d %H:%M:%S}"


def make_old(*rows: tuple[object, ...], schema: str = SCHEMA) -> None:
    db = sqlite3.connect("old.db")
    db.execute(schema)
    db.executemany("INSERT INTO rate_limit_buckets VALUES (?, ?, ?)", rows)
    db.commit()
    db.close()


def balance(type_in: Type, entity: str) -> tuple[int, int]:
    (bucket,) = json.loads(type_in("bucket", "show", entity, "api", "--json").out)["buckets"]
    return bucket["balance"], bucket["consumed"]


def test_what_was_used_stays_used(type_in: Type) -> None:
    """Each bucket becomes an entity, with the 500 an hour it had, and refills since."""
    make_old(
        ("ip:10.0.0.1", 0, now_text()),
        ("sha", 499, now_text()),
        ("full", 500, now_text()),
        ("half an hour", 0, now_text(1_800)),
    )
    ran = type_in(*COMMAND)
    assert (ran.code, ran.out) == (
        0,
        "old.db: 4 buckets with 1,001 tokens used, under hourly=500/hour for resource api: "
        "4 brought in\n",
    )
    left, used = balance(type_in, "ip:10.0.0.1")
    assert used == 500
    assert left < 250
    assert balance(type_in, "sha")[1] == 1
    left, used = balance(type_in, "half an hour")
    assert used == 500
    assert 250 <= left < 500
    assert type_in("entity", "show", "full").code == 0
    assert "hourly  500/hour" in type_in("limits", "show", "--resource", "api").out


def test_a_second_run_changes_nothing(type_in: Type) -> None:
    """Those that are there stay as they are: servers may have taken from them meanwhile."""
    make_old(("a", 100, now_text(3_000)), ("b", 100, now_text(3_000)))
    type_in(*COMMAND)
    before = [balance(type_in, name)[1] for name in "ab"]
    ran = type_in(*COMMAND)
    assert ran.out.endswith(": 0 brought in\n2 were there already, and are unchanged\n")
    assert [balance(type_in, name)[1] for name in "ab"] == before == [400, 400]


def test_an_interrupted_run_goes_on(type_in: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last bucket came in without its entity: it is not charged twice."""
    make_old(*[(f"user-{n:03}", n, now_text()) for n in range(40)])
    with monkeypatch.context() as patch:
        patch.setattr("penstock.cli.migrate_import.Entity", None)
        with pytest.raises(TypeError):
            type_in(*COMMAND)
    ran = type_in(*COMMAND)
    assert ": 40 brought in\n" in ran.out
    assert [balance(type_in, f"user-{n:03}")[1] for n in (0, 39)] == [500, 461]


def test_a_dry_run_writes_nothing(type_nowhere: Type) -> None:
    """And needs no store."""
    make_old(("a", 100, now_text()))
    ran = type_nowhere(*COMMAND, "--dry-run", "--limit-name", "requests")
    assert ran.out == (
        "old.db: 1 buckets with 400 tokens used would be brought in, under requests=500/hour for "
        "resource api\n"
    )
    assert not Path("penstock.db").exists()


def test_other_limits_of_the_resource_stay(type_in: Type) -> None:
    """It is refused, and nothing is brought in."""
    make_old(("a", 100, now_text()))
    type_in("limits", "set", "--resource", "api", "rpm=1/s")
    ran = type_in(*COMMAND)
    assert ran.code == 2
    assert "resource api has other limits already" in ran.err
    assert type_in("entity", "show", "a").code == 1


ANY = "CREATE TABLE rate_limit_buckets (bucket_id, tokens, last_refill)"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (("a", 501, "2026-01-01 00:00:00"), "bucket_id 'a' has tokens 501, not a number from 0 to"),
        (("a", None, "2026-01-01 00:00:00"), "bucket_id 'a' has tokens None"),
        (("a", 1, "yesterday"), "bucket_id 'a' has last_refill 'yesterday', not a time"),
        (("a", 1, 7), "bucket_id 'a' has last_refill 7, not a time"),
        ((7, 1, "2026-01-01 00:00:00"), "bucket_id 7 has no text as its id"),
        (("$a", 1, "2026-01-01 00:00:00"), "old.db: entity '$a' begins with $"),
    ],
)
def test_a_bad_row_is_named_before_anything_is_written(
    type_in: Type, row: tuple[object, ...], problem: str
) -> None:
    """Also where good rows come before it."""
    make_old(("B", 1, "2026-01-01T00:00:00+01:00"), row, schema=ANY)
    ran = type_in(*COMMAND)
    assert ran.code == 2
    assert problem in ran.err
    assert type_in("entity", "list").out == ""


def test_a_file_without_the_table_is_named(type_in: Type) -> None:
    """A store of ours, a text, and a file that is not there."""
    Path("text.db").write_text("hello")
    for file, problem in (
        ("penstock.db", "penstock.db: no table rate_limit_buckets"),
        ("text.db", "text.db: no table rate_limit_buckets"),
        ("none.db", "none.db: there is no such file"),
    ):
        ran = type_in("migrate", "import", file, "--resource", "api")
        assert ran.code == 2
        assert problem in ran.err
    assert not Path("none.db").exists()
