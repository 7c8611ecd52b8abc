"""`penstock simulate`, as a user types it."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from penstock.traffic.hashing import make_hash

from tests.unit.cli.conftest import Type

START_MS = 1_794_792_780_000
SECRET = "sixteen characters"  # noqa: S105 - of this test
OLD = """\
domain: d
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
"""
NEW = """\
domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
  - key: user
    value: eve
    rate_limit: {unit: minute, requests_per_unit: 1}
"""
STORED = """\
domain: d
entities:
  - {keys: [tenant], entity: "{tenant}", resource: api}
"""


TWO_POLICIES = """\
7 requests, 2026-11-16 01:33:00Z to 2026-11-16 01:34:00Z

REQUESTS  IN FORCE  PROPOSED
OK               6         5
denied           1         2

RULE        HITS IN FORCE  OVER IN FORCE  HITS PROPOSED  OVER PROPOSED
d.user_eve              0              0              3              2
d.user                  7              1              4              0

LIMITED      BY          IN FORCE  PROPOSED  FIRST                 LAST                  \
LONGEST WAIT
d: user=eve  d.user_eve  0         2         2026-11-16 01:33:50Z  2026-11-16 01:34:00Z  50s
d: user=bob  d.user      1         0         2026-11-16 01:33:30Z  2026-11-16 01:33:30Z  19m30s

newly limited: 1 descriptor
  d: user=eve: denied 2 times
no longer limited: 1 descriptor
  d: user=bob: denied 1 time
limited as before: 0 descriptors

"""


@pytest.fixture
def files(type_nowhere: Type, tmp_path: Path) -> Type:
    """Old and new rules, and a trace: bob asks four times and eve three times, in 70 s."""
    del tmp_path
    for name, text in (("old.yaml", OLD), ("new.yaml", NEW), ("stored.yaml", STORED)):
        Path(name).write_text(text)
    asked = ["bob", "bob", "bob", "bob", "eve", "eve", "eve"]
    rows = [f"{START_MS + 10_000 * at},d,{who}" for at, who in enumerate(asked)]
    Path("trace.csv").write_text("\n".join(["time,domain,user", *rows]))
    tenants = [f"{START_MS + at},d,t-{at % 2}" for at in range(6)]
    Path("tenants.csv").write_text("\n".join(["time,domain,tenant", *tenants]))
    return type_nowhere


def values(simulate: Type, *arguments: str) -> dict[str, Any]:
    ran = simulate("simulate", "--json", *arguments)
    assert ran.err == ""
    found: dict[str, Any] = json.loads(ran.out)
    return found


BOTH = ("--against", "old.yaml", "--rules", "new.yaml", "--trace", "trace.csv")


def test_two_policies_stand_side_by_side(files: Type) -> None:
    """Totals, rules, who is limited by what and when, who is so newly and no longer, and a plot."""
    ran = files("simulate", *BOTH)
    assert ran.code == 1  # eve is newly limited
    report, _, plot = ran.out.partition("requests over time, 5s a row: ")
    assert report == TWO_POLICIES
    signs, names, *rows = plot.splitlines()
    assert signs == "█ OK, ░ denied, and how many were denied"
    assert names.split() == ["in", "force", "proposed"]
    assert all(len(row) <= 80 for row in rows)
    assert [row[:19] for row in rows if "░" in row] == [
        "2026-11-16 01:33:30", "2026-11-16 01:33:50", "2026-11-16 01:34:00",
    ]  # fmt: skip
    assert [row.split()[-1] for row in rows][-3:] == ["1", "0", "1"]


def test_windows_can_be_compared_with_steady_limits(files: Type) -> None:
    """eve's third request comes with a new minute. As the reference server counts, it passes too,
    and what is denied is still a denial."""
    Path("fixed.yaml").write_text(NEW.replace("unit: 1}", "unit: 1, window: fixed}"))
    ran = files(
        "simulate", "--against", "new.yaml", "--rules", "fixed.yaml", "--trace", "trace.csv"
    )
    assert "\nOK               5         6\ndenied           2         1\n" in ran.out
    counting = ("--counting", "reference")
    ran = files("simulate", "--rules", "new.yaml", "--trace", "trace.csv", *counting)
    assert "denied    1\n" in ran.out
    assert "reports over a limit" not in ran.out


def test_one_policy_needs_no_second_column(files: Type) -> None:
    """And nobody is newly limited, so the exit code is 0."""
    ran = files("simulate", "--rules", "new.yaml", "--trace", "trace.csv")
    assert ran.code == 0
    assert "IN FORCE" not in ran.out
    assert "newly" not in ran.out
    assert "denied    2\n" in ran.out


def test_a_narrow_terminal_gets_short_bars(files: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars have a least width."""
    monkeypatch.setenv("COLUMNS", "20")
    ran = files("simulate", *BOTH)
    assert "2026-11-16 01:33:30  ░░░░░░░░░░  1  ██████████  0" in ran.out


def test_json_has_the_same_facts(files: Type) -> None:
    """In numbers, and with times to the millisecond."""
    found = values(files, *BOTH)
    assert (found["requests"], found["first_ms"]) == (7, START_MS)
    assert (found["in_force"]["denied"], found["proposed"]["denied"]) == (1, 2)
    assert found["proposed"]["limited"] == [
        {
            "domain": "d", "entries": [["user", "eve"]], "limit": "d.user_eve",
            "outcome": "denied", "count": 2, "first_ms": START_MS + 50_000,
            "last_ms": START_MS + 60_000, "longest_wait_ms": 50_000,
        }
    ]  # fmt: skip
    assert found["newly_limited"] == [{"domain": "d", "entries": [["user", "eve"]], "denied": 2}]
    assert found["no_longer_limited_count"] == 1
    over_time = found["proposed"]["over_time"]
    assert sum(one["denied"] for one in over_time) == 2
    assert sum(one["ok"] for one in over_time) == 5
    alone = values(files, "--rules", "new.yaml", "--trace", "trace.csv")
    assert alone["in_force"] is alone["newly_limited"] is None
    assert alone.keys() == found.keys()


def test_csv_has_a_row_for_each_denial(files: Type) -> None:
    """Of both policies."""
    ran = files("simulate", "--csv", *BOTH)
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["time"][14:19], row["policy"], row["descriptor"]) for row in rows] == [
        ("33:30", "in force", "user=bob"),
        ("33:50", "proposed", "user=eve"),
        ("34:00", "proposed", "user=eve"),
    ]
    assert rows[0]["limit"] == "d.user"
    assert (rows[0]["outcome"], rows[0]["wait_s"]) == ("denied", "1170")


def test_text_of_clients_is_harmless(files: Type) -> None:
    """On terminals, and in CSV: a descriptor is written as `penstock check` takes it."""
    entry = ["user", "a,b\x1b[31m\n=1"]
    line = {"time": START_MS, "domain": "d", "descriptors": [{"entries": [entry], "hits": 9}]}
    Path("evil.jsonl").write_text(f"{json.dumps(line)}\n")
    for flag in ((), ("--csv",), ("--json",)):
        ran = files("simulate", "--rules", "new.yaml", "--trace", "evil.jsonl", *flag)
        assert ran.code == 0
        assert "\x1b" not in ran.out
    ran = files("simulate", "--rules", "new.yaml", "--trace", "evil.jsonl", "--csv")
    assert "user=a\\,b\\x1b[31m\\n=1" in ran.out


def test_a_policy_file_is_tried_on_the_stored_limits(files: Type) -> None:
    """As `penstock policy apply` would make them: what the file does not name stays."""
    files("limits", "set", "--create", "--resource", "api", "rpm=2/minute")
    Path("policy.yaml").write_text("entities: {t-1: {limits: {rpm: 1/minute}}}\n")
    tried = ("--policy", "policy.yaml", "--against", "stored.yaml", "--trace", "tenants.csv")
    found = values(files, *tried)
    counts = [
        {one["limit"]: one["count"] for one in found[side]["limited"]}
        for side in ("in_force", "proposed")
    ]
    assert counts == [
        {"t-0/api/rpm": 1, "t-1/api/rpm": 1},
        {"t-0/api/rpm": 1, "t-1/api/rpm": 2},
    ]
    pruned = values(files, *tried, "--prune")
    assert [one["limit"] for one in pruned["proposed"]["limited"]] == ["t-1/api/rpm"]
    assert pruned["proposed"]["unlimited"] == 3
    assert files("policy", "diff", "-f", "policy.yaml").code == 1  # nothing was changed


def test_a_policy_with_windows_and_exemptions_is_tried(files: Type) -> None:
    """Six requests on both sides of midnight in Berlin: the exempt tenant is never limited, and
    the other one has a new budget with the new day."""
    midnight = 1_794_956_400_000  # 2026-11-17 23:00 UTC
    rows = [f"{midnight + at},d,t-{who}" for at in (-3, -2, -1, 0, 1, 2) for who in (0, 1)]
    Path("night.csv").write_text("\n".join(["time,domain,tenant", *rows]))
    Path("policy.yaml").write_text("""\
system: {limits: {rpm: "2/day,window=calendar,timezone=Europe/Berlin"}}
entities: {t-1: {limits: {rpm: unlimited}}}
""")
    given = ("--policy", "policy.yaml", "--rules", "stored.yaml", "--trace", "night.csv")
    proposed = values(files, *given)["proposed"]
    assert {one["limit"]: one["count"] for one in proposed["limited"]} == {"t-0/api/rpm": 2}
    assert proposed["unlimited"] == 6


def test_rules_in_force_come_from_the_settings_of_the_server(
    files: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same variables, so that an operator need not repeat them."""
    monkeypatch.setenv("PENSTOCK_CONFIG", "old.yaml")
    found = values(files, "--rules", "new.yaml", "--trace", "trace.csv")
    assert found["in_force"]["denied"] == 1
    monkeypatch.setenv("SHADOW_MODE", "true")
    found = values(files, "--rules", "new.yaml", "--trace", "trace.csv")
    assert (found["proposed"]["denied"], found["proposed"]["shadowed"]) == (0, 2)


def test_rules_for_one_value_apply_to_hashed_values(
    files: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the secret of the recording is given."""
    rows = [f"{START_MS + at},d,{make_hash(SECRET, 'eve')}" for at in range(3)]
    Path("hashed.csv").write_text("\n".join(["time,domain,user", *rows]))
    tried = ("--rules", "new.yaml", "--trace", "hashed.csv")
    assert values(files, *tried)["proposed"]["denied"] == 0
    monkeypatch.setenv("PENSTOCK_RECORD_HASH_KEY", SECRET)
    assert values(files, *tried)["proposed"]["denied"] == 2


def test_notes_on_the_trace_go_to_stderr(files: Type) -> None:
    """Bad lines that were skipped, and times out of order."""
    lines = ["time,user", f"{START_MS},bob", "now,bob", f"{START_MS - 1500},bob"]
    Path("odd.csv").write_text("\n".join(lines))
    tried = ("simulate", "--rules", "new.yaml", "--trace", "odd.csv", "--domain", "d")
    ran = files(*tried, "--skip-bad-lines")
    assert ran.code == 0
    assert "1 line was skipped; the first: odd.csv:3: 'now' is not a time" in ran.err
    assert "1 requests are earlier than the request before them, by up to 1s500ms" in ran.err
    ran = files(*tried)
    assert ran.code == 2
    assert ran.err.startswith("penstock: error: odd.csv:3: 'now' is not a time")
    assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--trace", "trace.csv"), "nothing to try: give --rules, or --policy, or both"),
        (("--policy", "p", "--trace", "trace.csv"), "p: No such file or directory"),
        (("--rules", "none.yaml", "--trace", "trace.csv"), "none.yaml: there is no such file"),
        (("--rules", "new.yaml", "--trace", "none.csv"), "none.csv: cannot be read"),
        (("--rules", "new.yaml", "--trace", "trace.csv", "--prune"), "--prune is about --policy"),
        (("--rules", "new.yaml", "--trace", "trace.csv", "--top", "x"), "--top: 'x' is not"),
        (("--rules", "new.yaml", "--trace", "empty"), "the trace has no requests"),
        (
            ("--rules", "new.yaml", "--trace", "trace.csv", "--store", "sqlite:///no.db"),
            "name the store of your server with --store",
        ),
        (("--policy", "empty", "--trace", "trace.csv"), "which rules are in force?"),
    ],
)
def test_what_cannot_be_done_is_an_error(files: Type, arguments: tuple[str, ...], why: str) -> None:
    """On stderr, with exit code 2 and nothing on stdout."""
    Path("empty").touch()
    ran = files("simulate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err


def test_limits_that_do_not_exist_are_counted(files: Type) -> None:
    """As a server counts them. Nothing is logged between the lines of the report."""
    files("limits", "set", "--create", "--resource", "api", "rpm=2/minute")
    Path("named.csv").write_text(f"time,entity,resource,limit\n{START_MS},e,api,tpm\n")
    ran = files("simulate", "--rules", "new.yaml", "--trace", "named.csv", "--domain", "d")
    assert ran.err == ""
    assert "amounts for limits that do not exist  1\n" in ran.out
    assert "OK because no limit applies           1\n" in ran.out


def test_top_bounds_the_lists(files: Type) -> None:
    """0 shows all."""
    rows = [f"{START_MS + at},u-{at % 20}" for at in range(140)]
    Path("many.csv").write_text("\n".join(["time,user", *rows]))
    tried = ("simulate", "--rules", "new.yaml", "--trace", "many.csv", "--domain", "d")
    ran = files(*tried, "--top", "3")
    assert ran.out.count("d: user=u-") == 3
    assert "… and 17 more: --top 0 shows all" in ran.out
    assert files(*tried, "--top", "0").out.count("d: user=u-") == 20
