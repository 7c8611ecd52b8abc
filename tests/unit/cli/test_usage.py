"""`penstock usage`, as a user types it."""

import csv
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from penstock.cli.columns import align
from penstock.cli.time_spans import TimeSpan, read_span
from penstock.cli.usage_plot import Row, plot_table, tokens
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.core.usage import DAY_MS, HOUR_MS, Used, Window
from penstock.errors import ConfigError

from tests.unit.cli.conftest import Type, take

NOW = 1_794_792_780_000
LIMITS = (Limit.per(10**9, 60_000, name="rpm"), Limit.per(10**9, 60_000, name="tpm"))


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is this day, and this month, must not change during a test."""
    monkeypatch.setattr("penstock.cli.usage.now_ms", lambda: NOW)


def consume(
    rpm: int, tpm: int, entity: str = "user-1", resource: str = "gpt-4", ago: int = 0
) -> None:
    draws = (Draw(0, rpm * MILLI), Draw(1, tpm * MILLI))
    take([Take(Key(entity, resource), LIMITS, draws)], NOW - ago * DAY_MS)


def day(ago: int = 0) -> str:
    return Window.DAY.label(NOW - ago * DAY_MS)


def test_a_table_with_bars_shows_each_day(type_in: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days without usage are shown, too, so that the bars tell the truth. Bars fill the width."""
    monkeypatch.setenv("COLUMNS", "60")
    consume(1, 1_000, ago=3)
    for _ in range(2):
        consume(1, 250, ago=1)
    ran = type_in("usage", "user-1", "--limit", "tpm")
    assert ran.code == 0
    bar = "█" * (60 - len(f"  {day()}  1      1    1,000") - 3)
    assert (
        ran.out
        == f"""\
user-1, gpt-4
  DAY         TAKES  rpm  tpm
  {day(3)}  1      1    1,000  {bar}
  {day(2)}  0      0    0
  {day(1)}  2      2    500    {"█" * round(len(bar) / 2)}
  total       3      3    1,500
"""
    )
    ran = type_in("usage", "user-1", "--since", day(2), "--until", day(1))
    assert ran.code == 1
    assert ran.err == f"user-1: no usage from {day(2)} to {day(2)}\n"


def test_scripts_get_json_and_csv(type_in: Type) -> None:
    """The same figures, in tokens."""
    consume(2, 300)
    consume(1, 5, resource="b,c")
    start = day()
    ran = type_in("usage", "user-1", "--json")
    values = json.loads(ran.out)
    assert values["total"] == {"takes": 2, "amounts": {"rpm": 3, "tpm": 305}}
    assert values["windows"] == [
        {"entity": "user-1", "resource": resource, "start": start, "takes": 1,
         "start_ms": Window.DAY.start_ms(NOW), "amounts": {"rpm": rpm, "tpm": tpm}}
        for resource, rpm, tpm in (("b,c", 1, 5), ("gpt-4", 2, 300))
    ]  # fmt: skip
    assert (values["entity"], values["window"], values["last"]) == ("user-1", "day", start)
    rows = list(csv.reader(io.StringIO(type_in("usage", "user-1", "--csv").out)))
    assert rows == [
        ["entity", "resource", "window", "start", "takes", "rpm", "tpm"],
        ["user-1", "b,c", "day", start, "1", "1", "5"],
        ["user-1", "gpt-4", "day", start, "1", "2", "300"],
    ]
    ran = type_in("usage", "nobody", "--json")
    assert (ran.code, json.loads(ran.out)["windows"]) == (1, [])


def test_a_limit_called_as_a_column_has_a_column_of_its_own(type_in: Type) -> None:
    """No two columns have the same name, whatever the limits are called."""
    names = ("start", "takes", "tpm")
    limits = tuple(Limit.per(10**9, 60_000, name=name) for name in names)
    draws = tuple(Draw(n, (n + 5) * MILLI) for n in range(3))
    take([Take(Key("user-1", "gpt-4"), limits, draws)], NOW)
    figures = {"takes": "1", "takes (limit)": "6", "tpm": "7"}
    (row,) = csv.DictReader(io.StringIO(type_in("usage", "user-1", "--csv").out))
    assert row == figures | {
        "entity": "user-1", "resource": "gpt-4", "window": "day", "start": day(),
        "start (limit)": "5",
    }  # fmt: skip
    ran = type_in("usage", "--top", "--resource", "gpt-4", "--csv")
    (row,) = csv.DictReader(io.StringIO(ran.out))
    assert row == figures | {"entity": "user-1", "resource": "gpt-4", "start": "5"}


def test_children_and_their_total(type_in: Type) -> None:
    """Who used how much, then how much all used, window by window."""
    type_in("entity", "create", "project")
    for n in (1, 2):
        type_in("entity", "create", f"user-{n}", "--parent", "project")
        for _ in range(n):
            consume(n, 10, f"user-{n}")
    ran = type_in("usage", "project", "--children", "--window", "month")
    assert ran.code == 0
    lines = [line.split("  ") for line in ran.out.splitlines()]
    assert [line[1] for line in lines if len(line) > 1] == [
        "ENTITY", "user-2", "user-1", "total", "MONTH", Window.MONTH.label(NOW), "total",
    ]  # fmt: skip
    assert "  total   3      5    30" in ran.out
    values = json.loads(type_in("usage", "project", "--children", "--json").out)
    assert {one["entity"]: one["takes"] for one in values["children"]} == {"user-1": 1, "user-2": 2}


def test_the_top_entities_of_a_resource(type_in: Type) -> None:
    """In this month, by takes or by a limit."""
    for n in (1, 2, 3):
        consume(n, 100 - n, f"user-{n}")
    ran = type_in("usage", "--top", "2", "--resource", "gpt-4", "--limit", "rpm")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == [
        "gpt-4,",
        "ENTITY",
        "user-3",
        "user-2",
    ]
    values = json.loads(
        type_in("usage", "--top", "--resource", "gpt-4", "--limit", "tpm", "--json").out
    )
    assert [one["entity"] for one in values["top"]] == ["user-1", "user-2", "user-3"]
    ran = type_in("usage", "--top", "--resource", "gpt-4", "--csv", "--window", "hour")
    assert ran.out.splitlines()[:2] == ["entity,resource,takes,rpm,tpm", "user-1,gpt-4,1,1,99"]
    assert type_in("usage", "--top", "--resource", "b").code == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "name an entity"),
        (["--top"], "give --resource"),
        (["user-1", "--top", "--resource", "r"], "leave the entity"),
        (["--top", "many", "--resource", "r"], "'many' is not a whole number"),
        (["user-1", "--json", "--csv"], "not both"),
        (["user-1", "--since", "yesterday"], "'yesterday' is no time"),
        (["user-1", "--since", "1d", "--until", "2d"], "has to be before --until"),
        (["user-1", "--resource", "$domain:d"], "begins with $"),
        (["user\x1b[2J"], "can't be printed"),
    ],
)
def test_errors_say_what_to_do(type_in: Type, arguments: list[str], error: str) -> None:
    """Before a store is asked."""
    ran = type_in("usage", *arguments)
    assert ran.code == 2
    assert error in ran.err


def at(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("window", "since", "until", "span"),
    [
        (Window.HOUR, None, None, (at(2026, 11, 17, 14), at(2026, 11, 18, 14, 30) + 1)),
        (Window.DAY, "2026-11", "2026-11-18", (at(2026, 11, 1), at(2026, 11, 18))),
        (Window.HOUR, "2026-11-18T12:10Z", "1h", (at(2026, 11, 18, 12), at(2026, 11, 18, 13, 30))),
        (Window.MONTH, "90d", None, (at(2026, 8, 1), at(2026, 11, 18, 14, 30) + 1)),
    ],
)
def test_spans_begin_with_a_whole_window(
    window: Window, since: str | None, until: str | None, span: tuple[int, int]
) -> None:
    """A time inside a window stands for the whole window."""
    assert read_span(window, since, until, at(2026, 11, 18, 14, 30)) == TimeSpan(window, *span)


def test_a_time_before_the_epoch_is_an_error() -> None:
    """As is any text that is no time."""
    with pytest.raises(ConfigError, match="is no time"):
        read_span(Window.DAY, "99999d", None, NOW)


def test_a_plot_shows_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was given back has no bar."""
    monkeypatch.setenv("COLUMNS", "20")
    span = TimeSpan(Window.HOUR, 0, DAY_MS)
    assert span.between([HOUR_MS, 3 * HOUR_MS]) == [HOUR_MS, 2 * HOUR_MS, 3 * HOUR_MS]
    rows = [Row("中文", Used(1, {"": 1_500})), Row("b", Used(0, {"": -1_000}))]
    assert list(plot(rows, [""], "")) == [
        "  H     TAKES  (no name)",
        "  中文  1      1.5        ██████████",
        "  b     0      -1",
    ]


def plot(rows: list[Row], limits: list[str], by: str | None) -> Iterable[str]:
    return align(plot_table("H", rows, limits, by))[0]


def test_tokens_are_exact() -> None:
    """In thousandths, where there are any."""
    assert [tokens(n) for n in (0, 1_000, 1_500, -1, 10**21)] == [
        "0",
        "1",
        "1.5",
        "-0.001",
        "1" + "0" * 18,
    ]
