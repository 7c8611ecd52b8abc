"""The windows of rules: what a file says, what a setting says for files that say nothing."""

from pathlib import Path

import pytest
from penstock.config import rule_windows
from penstock.config.print_rules import rule_lines
from penstock.config.problems import RulesError
from penstock.config.rules import RulesSource
from penstock.config.rules_resource import Resource, load_resources
from penstock.core import calendars
from penstock.core.limits import Window
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Rules, all_nodes

FORGETS = Window(carry_debt=False)


def load(folder: Path, limit: str, counting: RuleCounting = RuleCounting.STEADY) -> Rules:
    """The rules of a file with one limit, on line 4."""
    file = folder / "rules.yaml"
    file.write_text(f"domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{{limit}}}\n")
    return RulesSource(file, counting=counting).load().rules


def window_of(rules: Rules) -> Window | None:
    (node,) = all_nodes(rules)
    assert node.rule is not None
    return node.rule.limits[0].window


def errors_of(folder: Path, limit: str, counting: RuleCounting = RuleCounting.STEADY) -> list[str]:
    with pytest.raises(RulesError) as caught:
        load(folder, limit, counting)
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


BERLIN = Window("calendar", "Europe/Berlin")

READ = [
    ("unit: minute, requests_per_unit: 5", None, Window(), FORGETS),
    ("unit: minute, requests_per_unit: 5, window: steady", None, None, None),
    ("unit: minute, requests_per_unit: 5, window: null, timezone: null, week_starts: null, "
     "carry_debt: null", None, Window(), FORGETS),
    ("unit: minute, requests_per_unit: 5, window: fixed", Window(), Window(), FORGETS),
    ("period: 90s, requests_per_unit: 5, window: fixed", Window(), Window(), FORGETS),
    ("unit: day, requests_per_unit: 5, burst: 9, window: fixed", Window(), Window(), FORGETS),
    ("unit: day, requests_per_unit: 0, window: fixed", Window(), Window(), FORGETS),
    ("unit: minute, requests_per_unit: 5, window: fixed, carry_debt: false", *[FORGETS] * 3),
    ("unit: minute, requests_per_unit: 5, window: fixed, carry_debt: true", *[Window()] * 3),
    ("unit: DAY, requests_per_unit: 5, window: calendar", Window("calendar"), Window("calendar"),
     Window("calendar", carry_debt=False)),
    ("unit: month, requests_per_unit: 5, window: calendar, timezone: Europe/Berlin", BERLIN, BERLIN,
     BERLIN._replace(carry_debt=False)),
    ("unit: week, requests_per_unit: 5, window: calendar, week_starts: sunday, carry_debt: true",
     *[Window("calendar", "UTC", "sunday")] * 3),
    ("unit: week, requests_per_unit: 5, window: calendar, week_starts: monday, carry_debt: false",
     *[Window("calendar", carry_debt=False)] * 3),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "steady", "fixed", "reference"), READ)
def test_a_limit_has_the_window_that_it_names_else_that_of_the_setting(
    tmp_path: Path, limit: str, steady: Window | None, fixed: Window | None, reference: Window
) -> None:
    """A rule's own words go before the setting, each by itself."""
    found = [window_of(load(tmp_path, limit, counting)) for counting in RuleCounting]
    assert found == [steady, fixed, reference]


UNITS = "write one of these instead, or window: fixed"

WRONG = [
    ("unit: day, window: sliding", "invalid window 'sliding': write fixed, calendar or steady"),
    ("unit: day, window: calender, timezone: Europe/Berlin",
     "invalid window 'calender': write fixed, calendar or steady; did you mean calendar?"),
    ("unit: day, timezone: UTC", "timezone needs window: calendar"),
    ("unit: day, window: fixed, timezone: UTC", "timezone needs window: calendar"),
    ("unit: day, window: calendar, timezone: Europe/Berln",
     "'Europe/Berln' is not a time zone: write a name such as Europe/Berlin or UTC; did you mean "
     "Europe/Berlin?"),
    ("unit: day, window: calendar, timezone: ../etc",
     "'../etc' is not a time zone: write a name such as Europe/Berlin or UTC"),
    *[(f"unit: {unit}, window: calendar",
       f"window: calendar needs the unit day, week, month or year: {UNITS}")
      for unit in ("second", "minute", "hour")],
    *[(f"period: {period}, window: calendar",
       f"window: calendar needs the unit day, week, month or year: {UNITS}")
      for period in ("90s", "24h")],
    ("unit: month, window: calendar, week_starts: sunday",
     "week_starts needs window: calendar and unit: week"),
    ("unit: week, window: fixed, week_starts: sunday",
     "week_starts needs window: calendar and unit: week"),
    ("unit: week, window: calendar, week_starts: friday",
     "invalid week_starts 'friday': write monday or sunday"),
    ("unit: day, carry_debt: false",
     "carry_debt needs window: fixed or window: calendar; a steady limit repays its debt as it "
     "refills"),
    ("unit: day, window: steady, carry_debt: true",
     "carry_debt needs window: fixed or window: calendar; a steady limit repays its debt as it "
     "refills"),
    ("unit: day, window: fixed, carry_debt: maybe",
     "error loading config file: carry_debt must be true or false"),
    ("unit: day, requests_per_unit: 9, burst: 5, window: fixed",
     "burst is below requests_per_unit, and a window refills no more than the burst: raise burst, "
     "or write window: steady"),
    ("unlimited: true, window: fixed", "window has no meaning when unlimited"),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "message"), WRONG)
def test_wrong_windows_are_told_with_their_place(tmp_path: Path, limit: str, message: str) -> None:
    """One error for each fault, with what to write instead."""
    assert errors_of(tmp_path, limit) == [f"rules.yaml:4: {message}"]


def test_a_setting_can_make_a_rule_wrong(tmp_path: Path) -> None:
    """A burst below the rate smooths a steady limit, and would starve a window."""
    limit = "unit: day, requests_per_unit: 9, burst: 5"
    assert window_of(load(tmp_path, limit)) is None
    (error,) = errors_of(tmp_path, limit, RuleCounting.FIXED)
    assert error.endswith("raise burst, or write window: steady")


def test_a_machine_without_time_zones_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And suggests no other zone, because it knows none."""
    for module in (calendars, rule_windows):
        monkeypatch.setattr(module, "available_timezones", set)
    monkeypatch.setattr(calendars, "ZoneInfo", {}.__getitem__)
    zone = "Mars/Utopia_Planitia"  # no test has looked it up, so it is not remembered
    assert errors_of(tmp_path, f"unit: day, window: calendar, timezone: {zone}") == [
        f"rules.yaml:4: time zone '{zone}': this machine has no time zone database; install the "
        "Python package tzdata, or your system's tzdata"
    ]


def test_every_limit_of_a_list_has_its_own_window() -> None:
    """Resources of an xDS server as well as files."""
    limits = [
        {"name": "rpm", "unit": "minute", "requests_per_unit": 5},
        {"name": "budget", "unit": "month", "requests_per_unit": 5, "window": "calendar"},
        {"name": "smooth", "unit": "hour", "requests_per_unit": 5, "window": "steady"},
    ]
    content = {"domain": "d", "descriptors": [{"key": "k", "rate_limits": limits}]}
    loaded = load_resources(
        [Resource("one", content)], merge_domains=False, counting=RuleCounting.REFERENCE
    )
    (node,) = all_nodes(loaded.rules)
    assert node.rule is not None
    windows = [limit.window for limit in node.rule.limits]
    assert windows == [FORGETS, Window("calendar", carry_debt=False), None]


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        ("unit: minute, requests_per_unit: 5", ""),
        ("unit: minute, requests_per_unit: 5, window: fixed", ", window: fixed"),
        ("period: 90s, requests_per_unit: 5, burst: 9, window: fixed, carry_debt: false, name: n",
         ", period: 1m30s, window: fixed, carry_debt: false, burst: 9, name: n"),
        ("unit: month, requests_per_unit: 5, window: calendar",
         ", window: calendar, timezone: UTC"),
        ("unit: week, requests_per_unit: 5, window: calendar, timezone: Asia/Tokyo, "
         "week_starts: sunday",
         ", window: calendar, timezone: Asia/Tokyo, week_starts: sunday"),
    ],
)  # fmt: skip
def test_windows_are_printed_behind_what_the_reference_server_prints(
    tmp_path: Path, limit: str, shown: str
) -> None:
    """In the words of the file."""
    (line,) = rule_lines(load(tmp_path, limit))
    assert line.partition("quota_mode: false")[2] == shown
