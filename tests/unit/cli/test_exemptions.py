"""Windows, limits of 0, exemptions and large budgets, as a user types and sees them."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.config.rates import parse_limits
from penstock.core.take import CHARGE, Draw, Key, Take
from penstock.store.memory import MemoryStore

from tests.unit.cli.conftest import Type, take

NOW = 1_794_955_800_000  # 2026-11-17 22:50 UTC, which is the 17th in Berlin, too
BERLIN = "window=calendar,timezone=Europe/Berlin"
KEY = Key("user-123", "gpt-4")
SHOW = ("bucket", "show", "user-123", "gpt-4")


@pytest.fixture
def _new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of this machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The store of all commands of a test, at a time that stands still."""
    store = MemoryStore()

    async def opened(*_: Any, **__: Any) -> MemoryStore:
        return store

    monkeypatch.setattr("penstock.cli.store.open_store", opened)
    for module in ("bucket", "store"):
        monkeypatch.setattr(f"penstock.cli.{module}.now_ms", lambda: NOW)
    return store


def charge(store: MemoryStore, rates: dict[str, str], amount: int) -> None:
    """Charge each limit with these millitokens, as a server would."""
    limits = parse_limits(rates)
    draws = tuple(Draw(i, amount, CHARGE, max_debt=10**9) for i in range(len(limits)))
    asyncio.run(store.take([Take(KEY, limits, draws)], NOW))


RATES = {
    "busy": "100/hour,window=fixed,carry_debt=false",
    "month": f"1000/month,{BERLIN}",
    "week": "50/week,window=calendar,timezone=Asia/Kolkata,week_starts=sunday",
}


@pytest.mark.usefixtures("_new_york")
def test_windows_are_set_and_shown(type_in: Type, store: MemoryStore) -> None:
    """As they were written. A bucket tells when it resets: in the time of its zone, or of this
    machine; for scripts, in UTC."""
    rates = [f"{name}={rate}" for name, rate in RATES.items()]
    ran = type_in("limits", "set", "--resource", "gpt-4", *rates, "plain=5/minute")
    assert (ran.code, ran.out) == (
        0,
        f"resource gpt-4: busy={RATES['busy']} month={RATES['month']} plain=5/minute "
        f"week={RATES['week']}\n",
    )
    assert (
        type_in("limits", "show", "--resource", "gpt-4").out
        == """\
resource gpt-4: version 1
  LIMIT  RATE        BURST  WINDOW
  busy   100/hour    100    fixed carry_debt=false
  month  1000/month  1000   calendar timezone=Europe/Berlin
  plain  5/minute    5      -
  week   50/week     50     calendar timezone=Asia/Kolkata week_starts=sunday
"""
    )
    charge(store, RATES | {"plain": "5/minute"}, 2_500)
    assert (
        type_in(*SHOW).out
        == """\
user-123 on gpt-4
  busy   ███████████░  97 of 100    100/hour    resets 2026-11-17 18:00 EST
  month  ███████████░  997 of 1000  1000/month  resets 2026-12-01 00:00 CET
  plain  ██████░░░░░░  2 of 5       5/minute    full in 30s
  week   ███████████░  47 of 50     50/week     resets 2026-11-22 00:00 IST
"""
    )
    busy, month, plain, _ = json.loads(type_in(*SHOW, "--json").out)["buckets"]
    assert (busy["resets_at"], month["resets_at"]) == (
        "2026-11-17 23:00:00Z",
        "2026-11-30 23:00:00Z",
    )
    assert (plain["resets_at"], plain["window"], plain["consumed"]) == (None, None, 2.5)
    zone = {"timezone": None, "week_starts": None}
    assert busy["window"] == {"kind": "fixed", "carry_debt": False, **zone}
    assert month["window"] == {
        "kind": "calendar",
        "carry_debt": True,
        "timezone": "Europe/Berlin",
        "week_starts": "monday",
    }
    assert month["rate"] == RATES["month"]


def test_windows_go_through_files_and_the_record(type_in: Type, store: MemoryStore) -> None:
    """What is exported changes nothing when it is applied; a change is told on both sides."""
    assert store.policy is not None
    file = Path("policy.yaml")
    file.write_text(f"system: {{limits: {{tpm: '1000/month,{BERLIN}', rpm: unlimited}}}}\n")
    assert type_in("policy", "apply", "-f", str(file), "--yes").code == 0
    file.write_text(type_in("policy", "export").out)
    assert type_in("policy", "diff", "-f", str(file)).code == 0
    file.write_text("system: {limits: {tpm: 1000/month, rpm: 0/minute}}\n")
    before = f"rpm=unlimited tpm=1000/month,{BERLIN}"
    assert (
        type_in("policy", "diff", "-f", str(file)).out
        == f"~ limits of system: {before} → rpm=0/minute tpm=1000/month\n"
    )
    assert type_in("policy", "apply", "-f", str(file), "--yes").code == 0
    told = type_in("audit", "--system", "--last", "1").out.splitlines()[1:]
    assert told == [
        "    ~ rpm: unlimited → 0/minute",
        f"    ~ tpm: 1000/month,{BERLIN} → 1000/month",
    ]
    (change,) = json.loads(type_in("audit", "--system", "--last", "1", "--json").out)
    rpm, tpm = change["before"]["limits"]
    free = dict.fromkeys(("tokens", "period_ms", "burst", "max_debt", "window"))
    assert rpm == {"name": "rpm", "rate": "unlimited", **free}
    assert tpm["window"]["timezone"] == "Europe/Berlin"


def test_blocks_and_exemptions_are_shown_as_such(type_in: Type) -> None:
    """In a file, too. A reset fills the buckets that there are."""
    rates = "rpm=0/minute", "tpm=unlimited", "usd=10000000000/month,max_debt=5000000000"
    ran = type_in("limits", "set", "--entity", "user-123", *rates)
    assert ran.out == f"entity user-123: {' '.join(rates)}\n"
    assert (
        type_in("limits", "show", "--entity", "user-123").out
        == """\
entity user-123: version 1
  LIMIT  RATE               BURST        MAX DEBT
  rpm    0/minute           0            -
  tpm    unlimited          -            -
  usd    10000000000/month  10000000000  5000000000
"""
    )
    limits = parse_limits({"rpm": "0/minute", "usd": "10000000000/month"})
    take([Take(KEY, limits, (Draw(1, 4_000_000_000_250),))], 1_000)
    shown = type_in(*SHOW).out.splitlines()
    assert shown[1:3] == [
        "  rpm  ░░░░░░░░░░░░  0 of 0                      0/minute           refuses all",
        "  tpm                                            unlimited          not counted",
    ]
    rpm, tpm, usd = json.loads(type_in(*SHOW, "--json").out)["buckets"]
    assert (rpm["tokens"], rpm["balance"], rpm["rate"]) == (0, 0, "0/minute")
    assert (tpm["tokens"], tpm["balance"], tpm["rate"]) == (None, None, "unlimited")
    assert usd["max_debt"] == 5 * 10**9
    assert (usd["tokens"], usd["consumed"]) == (10**10, 4_000_000_000.25)
    ran = type_in("bucket", "reset", "user-123", "gpt-4", answer="yes\n")
    assert (ran.code, ran.out) == (0, "user-123 on gpt-4: full again\n")
    assert "tpm unlimited, usd 1" in ran.err
    assert "tpm" not in type_in("audit", "user-123", "--last", "1").out


def test_what_is_wrong_with_a_window_is_told(type_in: Type) -> None:
    """With the limit, and how to write it."""
    ran = type_in("limits", "set", "tpm=5/day,window=calendar,timezone=Europe/Berln")
    assert (ran.code, ran.out) == (2, "")
    assert "'Europe/Berln' is not a time zone" in ran.err
    assert "did you mean Europe/Berlin?" in ran.err
    Path("policy.yaml").write_text("system: {limits: {tpm: 5/day,window=fixed}}\n")
    ran = type_in("policy", "diff", "-f", "policy.yaml")
    assert "'window=fixed': put a rate with a comma in quotes" in ran.err


@pytest.mark.usefixtures("_new_york")
def test_a_carried_debt_tells_when_the_bucket_passes_again(
    type_in: Type, store: MemoryStore
) -> None:
    """After as many windows as the debt takes, and not at the next boundary."""
    rates = {
        "busy": "100/hour,window=fixed",
        "century": "1/year,window=fixed",
        "month": f"200/month,{BERLIN}",
        "next": "400/hour,window=fixed",
    }
    type_in("limits", "set", "--resource", "gpt-4", *[f"{n}={rate}" for n, rate in rates.items()])
    charge(store, rates, 500_000)
    told = {
        line.split()[0]: line.rsplit("  ", 1)[1] for line in type_in(*SHOW).out.splitlines()[1:]
    }
    assert told == {
        "busy": "passes again 2026-11-17 22:00 EST",
        "century": "passes again 2525-08-18 20:00 EDT",
        "month": "passes again 2027-01-01 00:00 CET",
        "next": "resets 2026-11-17 18:00 EST",
    }
    charge(store, rates, 100_000_000)
    assert "in debt for thousands of years" in type_in(*SHOW).out
