"""`penstock bucket`, as a user types it."""

import json
import time

import pytest
from penstock.config.rates import parse_limit
from penstock.core.take import CHARGE, TAKE, Draw, Key, Mode, Take

from tests.unit.cli.conftest import Type, take

KEY = Key("user-123", "gpt-4")


@pytest.fixture
def now_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """Time stands still for the command."""
    now_ms = time.time_ns() // 1_000_000 // 60_000 * 60_000
    monkeypatch.setattr("penstock.cli.bucket.now_ms", lambda: now_ms)
    monkeypatch.setattr("penstock.cli.store.now_ms", lambda: now_ms)
    return now_ms


def consume(amount: int, now_ms: int, mode: Mode = TAKE, key: Key = KEY) -> None:
    limits = parse_limit("rpm", "100/minute"), parse_limit("tpm", "10/minute,burst=20")
    take([Take(key, limits, (Draw(0, amount * 1000, mode),))], now_ms)


def set_limits(type_in: Type) -> None:
    type_in("limits", "set", "--resource", "gpt-4", "rpm=100/minute", "tpm=10/minute,burst=20")


def test_balances_are_shown_as_bars(type_in: Type, now_ms: int) -> None:
    """As a take would find them now."""
    set_limits(type_in)
    consume(83, now_ms - 30_000)
    ran = type_in("bucket", "show", "user-123", "gpt-4")
    assert (ran.code, ran.out) == (
        0,
        """\
user-123 on gpt-4
  rpm  ████████░░░░  67 of 100  100/minute  full in 20s
  tpm  ████████████  20 of 20   10/minute   full
""",
    )
    found = json.loads(type_in("bucket", "show", "user-123", "gpt-4", "--json").out)
    assert found["stored"] is True
    assert found["buckets"][0] == {
        "name": "rpm",
        "rate": "100/minute",
        "tokens": 100,
        "period_ms": 60_000,
        "burst": 100,
        "max_debt": None,
        "window": None,
        "balance": 67,
        "consumed": 83,
        "full_in_ms": 19_800,
        "resets_at": None,
    }


def test_debt_is_shown_as_such(type_in: Type, now_ms: int) -> None:
    """And the bar is empty."""
    set_limits(type_in)
    consume(150, now_ms, CHARGE)
    ran = type_in("bucket", "show", "user-123", "gpt-4")
    row = ran.out.splitlines()[1]
    assert row == "  rpm  ░░░░░░░░░░░░  50 in debt, of 100  100/minute  full in 1m30s"
    found = json.loads(type_in("bucket", "show", "user-123", "gpt-4", "--json").out)
    assert found["buckets"][0]["balance"] == -50


def test_a_bucket_of_a_clock_that_was_ahead_is_full_later_and_reset_at_once(
    type_in: Type, now_ms: int
) -> None:
    """It stands still until then, and says so; a reset fills it, and it refills from now on."""
    set_limits(type_in)
    consume(50, now_ms + 600_000)
    found = json.loads(type_in("bucket", "show", "user-123", "gpt-4", "--json").out)
    assert found["buckets"][0]["full_in_ms"] == 600_000 + 30_000
    assert type_in("bucket", "reset", "user-123", "gpt-4", "--yes").code == 0
    consume(50, now_ms)
    found = json.loads(type_in("bucket", "show", "user-123", "gpt-4", "--json").out)
    assert found["buckets"][0]["full_in_ms"] == 30_000


def test_the_limits_in_force_count(type_in: Type, now_ms: int) -> None:
    """Not those that the last take had; what was used is used."""
    consume(30, now_ms)
    type_in("limits", "set", "rpm=50/hour", "new=5/s")
    assert (
        type_in("bucket", "show", "user-123", "gpt-4").out
        == """\
user-123 on gpt-4
  new  ████████████  5 of 5    5/second  full
  rpm  ████░░░░░░░░  20 of 50  50/hour   full in 36m
"""
    )


def test_without_a_take_all_is_full(type_in: Type) -> None:
    """If there are limits at all."""
    ran = type_in("bucket", "show", "user-123", "gpt-4")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "user-123 on gpt-4: no limits\n"
    set_limits(type_in)
    ran = type_in("bucket", "show", "user-123", "gpt-4")
    assert ran.code == 0
    assert ran.out.startswith("user-123 on gpt-4: not used lately\n  rpm  ████████████ ")


def test_buckets_are_listed_and_reset(type_in: Type, now_ms: int) -> None:
    """Reset says whether there was one."""
    set_limits(type_in)
    ran = type_in("bucket", "list", "--resource", "gpt-4")
    assert (ran.code, ran.out, ran.err) == (0, "", "resource gpt-4: no buckets\n")
    ran = type_in("bucket", "reset", "user-123", "gpt-4", "--yes")
    assert (ran.code, ran.out) == (1, "user-123 on gpt-4: no bucket found\n")
    consume(50, now_ms)
    assert type_in("bucket", "list", "--resource", "gpt-4").out == "user-123\n"
    found = json.loads(type_in("bucket", "list", "--resource", "gpt-4", "--json").out)
    assert found == [{"entity": "user-123", "resource": "gpt-4"}]
    ran = type_in("bucket", "reset", "user-123", "gpt-4", "--yes")
    assert (ran.code, ran.out) == (0, "user-123 on gpt-4: full again\n")
    assert "100 of 100" in type_in("bucket", "show", "user-123", "gpt-4").out


def test_buckets_of_rules_are_there_too(type_in: Type, now_ms: int) -> None:
    """Under the limits of their file, whatever is stored for the system."""
    consume(50, now_ms, key=Key("user=bob", "$domain:d"))
    type_in("limits", "set", "rpm=1/s")
    assert "50 of 100" in type_in("bucket", "show", "user=bob", "$domain:d").out
    assert type_in("bucket", "list", "--resource", "$domain:d").out == "user=bob\n"


@pytest.mark.parametrize("action", ["show", "reset"])
def test_a_name_that_can_not_be_is_told(type_in: Type, action: str) -> None:
    """With exit code 2."""
    ran = type_in("bucket", action, "a\nb", "gpt-4")
    assert ran.code == 2
    assert "characters that can't be printed" in ran.err


def test_a_reset_asks_and_is_on_record(type_in: Type, now_ms: int) -> None:
    """Who did it, what was left, and what is there now; one that is not made is not recorded."""
    set_limits(type_in)
    consume(150, now_ms, CHARGE)
    reset = ("bucket", "reset", "user-123", "gpt-4", "--by", "ann")
    ran = type_in(*reset)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(
        "can't ask, because the input is not a terminal: give --yes to fill the buckets\n"
    )
    ran = type_in(*reset, answer="no\n")
    assert (ran.code, ran.out) == (1, "user-123 on gpt-4: not changed\n")
    question = "This fills user-123 on gpt-4: rpm -50 of 100, tpm 20 of 20."
    assert ran.err == f"{question}\nType yes to go on: "
    assert type_in("audit", "user-123").code == 1
    assert "50 in debt" in type_in("bucket", "show", "user-123", "gpt-4").out
    ran = type_in(*reset, answer="yes\n")
    assert (ran.code, ran.out) == (0, "user-123 on gpt-4: full again\n")
    when, rpm = type_in("audit", "user-123").out.splitlines()
    assert when.endswith("Z  ann  bucket.reset  entity user-123, resource gpt-4")
    assert rpm == "    ~ rpm: -50 left → 100 left"
    (event,) = json.loads(type_in("audit", "user-123", "--json").out)
    assert event["before"]["buckets"][0] == {"name": "rpm", "balance": -50}
    assert event["after"]["buckets"][0] == {"name": "rpm", "balance": 100}


def test_a_reset_of_a_rules_bucket_is_on_record(type_in: Type, now_ms: int) -> None:
    """Under the name that the bucket has, however long."""
    entity = f"user={'b' * 400}"
    consume(50, now_ms, key=Key(entity, "$domain:d"))
    assert type_in("bucket", "reset", entity, "$domain:d", "--yes").code == 0
    ran = type_in("audit", entity)
    assert (ran.code, "bucket.reset" in ran.out) == (0, True)


def test_a_child_is_shown_with_its_parents(type_in: Type, now_ms: int) -> None:
    """What it takes is taken there, too, as far as it cascades."""
    set_limits(type_in)
    type_in("entity", "create", "org")
    type_in("entity", "create", "project", "--parent", "org")
    type_in("entity", "create", "user-123", "--parent", "project", "--cascade")
    type_in("limits", "set", "--entity", "project", "rpm=50/minute")
    consume(30, now_ms)
    shown = ("bucket", "show", "user-123", "gpt-4")
    assert (
        type_in(*shown).out
        == """\
user-123 on gpt-4
  rpm  ████████░░░░  70 of 100  100/minute  full in 18s
  tpm  ████████████  20 of 20   10/minute   full
project on gpt-4 (parent): not used lately
  rpm  ████████████  50 of 50  50/minute  full
org on gpt-4 (parent, not counted: no cascade): not used lately
  rpm  ████████████  100 of 100  100/minute  full
  tpm  ████████████  20 of 20    10/minute   full
"""
    )
    parents = json.loads(type_in(*shown, "--json").out)["parents"]
    assert [(one["entity"], one["is_counted"]) for one in parents] == [
        ("project", True), ("org", False),
    ]  # fmt: skip
    assert parents[0]["buckets"][0]["balance"] == 50


@pytest.mark.parametrize(("cascade", "code"), [((), 1), (("--cascade",), 0)])
def test_a_child_without_limits_is_shown_with_the_limits_of_its_parent(
    type_in: Type, cascade: tuple[str, ...], code: int
) -> None:
    """The exit code tells whether some limit is counted."""
    type_in("limits", "set", "--create", "--entity", "project", "rpm=50/minute")
    type_in("entity", "create", "project")
    type_in("entity", "create", "kid", "--parent", "project", *cascade)
    counted = "(parent)" if cascade else "(parent, not counted: no cascade)"
    ran = type_in("bucket", "show", "kid", "gpt-4")
    assert (ran.code, ran.err) == (code, "")
    assert ran.out.startswith(f"kid on gpt-4: no limits\nproject on gpt-4 {counted}: not used")
    assert "50 of 50" in ran.out
    ran = type_in("bucket", "show", "kid", "gpt-4", "--json")
    assert (ran.code, len(json.loads(ran.out)["parents"][0]["buckets"])) == (code, 1)
    assert type_in("limits", "show", "--entity", "kid", "--resource", "gpt-4").code == code
