"""Rates as people write them: 100/minute, 1000/90s, 5/s,burst=9, 1000000/month,window=calendar.

A rate is `unlimited`, or tokens and a period, and then options in any order. `format_rate` writes
what `parse_limit` reads.
"""

import re
from collections.abc import Mapping
from typing import Final

from penstock.config.durations import format_duration, parse_duration_ms
from penstock.config.rate_windows import WINDOW_OPTIONS, read_window
from penstock.config.rule_limits import MAX_FILL_MS, YEAR_MS
from penstock.config.similar import did_you_mean
from penstock.core.amounts import MAX_TOKENS, format_tokens
from penstock.core.limits import MILLI, Limit, Unit
from penstock.core.windows import format_window

MAX_LIMITS: Final = 10
"""Limits of one scope. Their buckets are one item, and every take writes the whole item."""

UNLIMITED: Final = "unlimited"
RATE_FORM: Final = (
    "100/minute, 5/s, 1000/90s, 0/minute (refuses all) or unlimited, with an optional ,burst=N, "
    ",max_debt=N or ,window=fixed|calendar|steady"
)
NAME_FORM: Final = "1 to 64 letters, digits, _ . or -"

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RATE: Final = re.compile(r"([^/,]*)/([^/,]*)((?:,[^,]*)*)")
_COUNT: Final = re.compile("[0-9]{1,16}")

_SPELLINGS: Final = {
    Unit.SECOND: ("s", "sec", "secs", "second", "seconds"),
    Unit.MINUTE: ("m", "min", "mins", "minute", "minutes"),
    Unit.HOUR: ("h", "hour", "hours"),
    Unit.DAY: ("d", "day", "days"),
    Unit.WEEK: ("w", "week", "weeks"),
    Unit.MONTH: ("month", "months"),
    Unit.YEAR: ("y", "year", "years"),
}
_AMBIGUOUS: Final = "M"
"""Some people mean a minute, others a month, which is 43,200 times as long."""

_PERIODS_MS: Final = {name: unit.value for unit, names in _SPELLINGS.items() for name in names}

OPTIONS: Final = ("burst", "max_debt", *WINDOW_OPTIONS)


def parse_limit(name: str, rate: str) -> Limit:
    """Make a limit from a name and a rate. ValueError shows the right form."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"'{name[:70]}' is not a name for a limit: write {NAME_FORM}")
    text = rate.strip()
    if text.partition(",")[0].rstrip().lower() == UNLIMITED:
        if "," in text:
            raise ValueError(f"'{rate}': {UNLIMITED} takes no options")
        return Limit.unlimited(name)
    parts = _RATE.fullmatch(text)
    if parts is None:
        meant = did_you_mean(text, [UNLIMITED])
        raise ValueError(f"'{rate}' is not a rate: write {RATE_FORM}{meant}")
    tokens, period_ms = _count(rate, parts[1], least=0), _period_ms(rate, parts[2])
    limit = Limit.per(tokens, period_ms, name=name)
    options = _split_options(rate, parts[3])
    if tokens == 0:
        _check_zero(rate, options)
    if "burst" in options:
        limit = limit._replace(burst=_count(rate, options["burst"], least=1) * MILLI)
    if "max_debt" in options:
        limit = limit._replace(max_debt=_count(rate, options["max_debt"], least=1) * MILLI)
    if (limit.burst or 1) * period_ms > MAX_FILL_MS * (limit.refill or 1):
        raise ValueError(f"'{rate}' takes more than {MAX_FILL_MS // YEAR_MS} years to refill")
    # 30d is as long as the unit month, but no month of a calendar.
    unit = limit.unit if parts[2].lower() in _PERIODS_MS else Unit.UNKNOWN
    window = read_window(rate, unit, options)
    if window is not None and limit.burst < limit.refill:
        raise ValueError(
            f"'{rate}': burst is below the tokens of a window, and a window refills no more than "
            "the burst: raise burst, or leave out the window"
        )
    return limit._replace(window=window)


def parse_limits(rates: Mapping[str, str]) -> tuple[Limit, ...]:
    """Make the limits of one entity and resource. ValueError if there are too many, or for a rate.

    They are in the order of their names, so that the same limits are always the same item.
    """
    if len(rates) > MAX_LIMITS:
        raise ValueError(f"{len(rates)} limits, at most {MAX_LIMITS}")
    return tuple([parse_limit(name, rates[name]) for name in sorted(rates)])


def _split_options(rate: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(",")[1:]:
        name, equals, value = [word.strip() for word in part.partition("=")]
        if name not in OPTIONS or not equals:
            meant = did_you_mean(name, OPTIONS)
            raise ValueError(
                f"'{rate}' is not a rate: '{part.strip()}' is not an option{meant}; "
                f"write {RATE_FORM}"
            )
        if name in options:
            raise ValueError(f"'{rate}' is not a rate: {name} is there twice")
        options[name] = value
    return options


def _check_zero(rate: str, options: Mapping[str, str]) -> None:
    """A limit of 0 holds nothing, and remembers one token of debt, to refuse checks, too."""
    for name in ("burst", "max_debt"):
        if name in options:
            raise ValueError(f"'{rate}': {name} needs a rate above 0, because 0 refuses all")


def _count(rate: str, text: str, *, least: int) -> int:
    if _COUNT.fullmatch(text) is None or not least <= int(text) <= MAX_TOKENS:
        raise ValueError(
            f"'{rate}' is not a rate: '{text}' is not a whole number from {least} to {MAX_TOKENS}; "
            f"write {RATE_FORM}"
        )
    return int(text)


def _period_ms(rate: str, text: str) -> int:
    known = _PERIODS_MS.get(text.lower())
    if known is not None and text != _AMBIGUOUS:
        return known
    try:
        period_ms = parse_duration_ms(text)
    except ValueError:
        period_ms = 0
    if period_ms == 0:
        units = ", ".join(unit.name.lower() for unit in _SPELLINGS)
        meant = did_you_mean(text, _PERIODS_MS)
        if text == _AMBIGUOUS:
            meant = "; did you mean minute or month?"
        raise ValueError(
            f"'{rate}' is not a rate: '{text}' is neither one of {units} nor a duration such as 90s"
            f"{meant}"
        )
    return period_ms


def format_rate(limit: Limit) -> str:
    """Write a limit's rate in the form that `parse_limit` reads."""
    if limit.is_unlimited:
        return UNLIMITED
    unit = limit.unit
    period = format_duration(limit.period_ms) if unit is Unit.UNKNOWN else unit.name.lower()
    words = [f"{format_tokens(limit.refill)}/{period}"]
    if limit.burst != limit.refill:
        words.append(f"burst={format_tokens(limit.burst)}")
    if limit.max_debt is not None:
        words.append(f"max_debt={format_tokens(limit.max_debt)}")
    if limit.window is not None:
        words.append(f"window={format_window(limit.window).replace(' ', ',')}")
    return ",".join(words)
