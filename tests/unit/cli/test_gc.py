"""`penstock gc` and `penstock audit --archive`, as a user types them."""

import json
import time
from pathlib import Path

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take

from tests.unit.cli.conftest import Type, take

KEPT = "hour=90d,day=732d,month=3660d"
RPM = Limit.per(60, 60_000, name="rpm")


def change_twice(type_in: Type) -> None:
    type_in("limits", "set", "rpm=1/s", "--by", "ann")
    type_in("limits", "set", "rpm=2/s", "--by", "bob")


def use_a_bucket(name: str, ago_s: int) -> None:
    now_ms = time.time_ns() // 1_000_000 - ago_s * 1_000
    take([Take(Key(name, "gpt-4"), (RPM,), (Draw(0, MILLI),))], now_ms)


@pytest.fixture
def old(type_in: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes from long ago."""
    with monkeypatch.context() as patch:
        patch.setattr("penstock.cli.store.now_ms", lambda: 1_000_000_000_000)
        change_twice(type_in)


@pytest.mark.usefixtures("old")
def test_a_dry_run_only_counts(type_in: Type) -> None:
    """And the answer says that nothing was removed."""
    use_a_bucket("idle", 3_600)
    use_a_bucket("busy", 0)
    for _ in range(2):
        ran = type_in("gc", "--dry-run")
        assert ran.code == 0
        assert ran.out == (
            "audit events older than 90 days: 2 would be removed\n"
            f"windows of usage older than {KEPT}: 0 would be removed\n"
            "idle buckets: 1 would be removed\n"
        )


@pytest.mark.usefixtures("old")
def test_old_records_are_removed(type_in: Type) -> None:
    """And a second time there is nothing left to do."""
    use_a_bucket("idle", 3_600)
    assert type_in("gc").out == (
        "audit events older than 90 days: 2 removed\n"
        f"windows of usage older than {KEPT}: 0 removed\n"
        "idle buckets: 1 removed\n"
    )
    assert json.loads(type_in("gc", "--json").out) == {
        "audit_events": 0, "usage_windows": 0, "idle_buckets": 0, "dry_run": False,
    }  # fmt: skip
    assert type_in("audit", "--system").code == 1


@pytest.mark.usefixtures("old")
def test_archived_changes_are_shown_again(type_in: Type) -> None:
    """Behind those that the store has, as if nothing had gone."""
    before = type_in("audit", "--system").out
    ran = type_in("gc", "--audit-archive", "audit")
    assert ran.out.startswith("audit events older than 90 days: 2 archived in audit and removed\n")
    assert type_in("audit", "--system").out == ""
    shown = ("audit", "--system", "--archive", "--audit-archive", "audit")
    assert type_in(*shown).out == before
    type_in("limits", "set", "rpm=3/s", "--by", "kim")
    newest = type_in("audit", "--system").out
    assert type_in(*shown).out == newest + before
    assert (
        type_in(*shown, "--last", "2").out
        == newest
        + before.partition("2001-09-09")[0]
        + ("".join(before.partition("2001-09-09")[1:]).rpartition("2001-09-09")[0])
    )


@pytest.mark.usefixtures("old")
def test_a_change_in_both_places_is_shown_once(type_in: Type) -> None:
    """As after a crash between archiving and removing."""
    whole = Path("penstock.db").read_bytes()
    before = type_in("audit", "--system").out
    type_in("gc", "--audit-archive", "audit")
    for file in Path().glob("penstock.db*"):
        file.unlink()
    Path("penstock.db").write_bytes(whole)
    shown = ("audit", "--system", "--archive", "--audit-archive", "audit")
    assert type_in(*shown).out == before


def test_a_retention_of_0_keeps_the_audit(type_in: Type) -> None:
    """And says so."""
    change_twice(type_in)
    ran = type_in("gc", "--audit-retention", "0")
    assert ran.out.startswith("audit events: kept for ever (--audit-retention 0)\n")


def test_old_usage_is_removed(type_in: Type) -> None:
    """By size, as the setting says; a dry run counts the same. What was used of idle buckets is
    booked, and stays."""
    for days in (5, 3, 0):
        use_a_bucket("user", days * 86_400)
    wanted = ("gc", "--usage-retention", "hour=1d,day=4d")
    told = "windows of usage older than hour=1d,day=4d,month=3660d: 3"
    assert f"{told} would be removed\n" in type_in(*wanted, "--dry-run").out
    assert f"{told} removed\n" in type_in(*wanted).out
    for window, takes in (("hour", 1), ("day", 2), ("month", 3)):
        shown = type_in("usage", "user", "--since", "10d", "--window", window, "--json")
        assert json.loads(shown.out)["total"]["takes"] == takes


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("gc", "--audit-archive", "ftp://x"), "audit archive 'ftp://x': an archive is"),
        (("gc", "--audit-retention", "soon"), "--audit-retention: 'soon' is not a duration"),
        (("gc", "--usage-retention", "30d"), "'30d' is not a size of windows with a time: write"),
        (("gc", "--usage-retention", "day=90"), "--usage-retention: '90' is not a duration"),
        (
            ("gc", "--usage-retention", "hour=1d,month=30d"),
            "'month=30d' is too short: at least",
        ),
        (("audit", "--system", "--archive"), "--archive: name the archive with --audit-archive"),
        (("gc", "--store", "memory:"), "what is in memory is gone"),
    ],
)
def test_what_is_wrong_is_said(type_in: Type, arguments: tuple[str, ...], problem: str) -> None:
    """With exit code 2, and nothing is removed."""
    ran = type_in(*arguments)
    assert ran.code == 2
    assert problem in ran.err
