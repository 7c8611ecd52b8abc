"""Rates as people write them: 100/minute, 5/s, 1000/90s, 10000/minute,burst=15000,max_debt=500."""

import re
from collections.abc import Mapping
from typing import Final

from penstock.config.durations import format_duration, parse_duration_ms
from penstock.config.rule_limits import MAX_FILL_MS, YEAR_MS
from penstock.config.similar import did_you_mean
from penstock.core.limits import MILLI, UINT32_MAX, Limit, Unit

MAX_LIMITS: Final = 10
"""Limits of one scope. Their buckets are one item, and every take writes the whole item."""

RATE_FORM: Final = "100/minute, 5/s or 1000/90s, with an optional ,burst=N or ,max_debt=N"
NAME_FORM: Final = "1 to 64 letters, digits, _ . or -"

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RATE: Final = re.compile(r"([^/,]*)/([^/,]*?)((?:,[^/,]*)*)")
_OPTION: Final = re.compile(r"(burst|max_debt)=([^/,]*)")
_COUNT: Final = re.compile("[0-9]{1,10}")

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


def parse_limit(name: str, rate: str) -> Limit:
    """Make a limit from a name and a rate. ValueError shows the right form."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"'{name[:70]}' is not a name for a limit: write {NAME_FORM}")
    parts = _RATE.fullmatch(rate.strip())
    if parts is None:
        raise ValueError(f"'{rate}' is not a rate: write {RATE_FORM}")
    tokens = _count(rate, parts[1])
    options = _options(rate, parts[3])
    burst = _count(rate, options["burst"]) if "burst" in options else None
    debt = _count(rate, options["max_debt"]) if "max_debt" in options else None
    period_ms = _period_ms(rate, parts[2])
    if (burst or tokens) * period_ms > MAX_FILL_MS * tokens:
        raise ValueError(f"'{rate}' takes more than {MAX_FILL_MS // YEAR_MS} years to refill")
    limit = Limit.per(tokens, period_ms, name=name, burst=burst)
    return limit._replace(max_debt=None if debt is None else debt * MILLI)


def parse_limits(rates: Mapping[str, str]) -> tuple[Limit, ...]:
    """Make the limits of one entity and resource. ValueError if there are too many, or for a rate.

    They are in the order of their names, so that the same limits are always the same item.
    """
    if len(rates) > MAX_LIMITS:
        raise ValueError(f"{len(rates)} limits, at most {MAX_LIMITS}")
    return tuple([parse_limit(name, rates[name]) for name in sorted(rates)])


def _options(rate: str, text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in text.split(",")[1:]:
        option = _OPTION.fullmatch(part.strip())
        if option is None or option[1] in options:
            raise ValueError(f"'{rate}' is not a rate: write {RATE_FORM}")
        options[option[1]] = option[2]
    return options


def _count(rate: str, text: str) -> int:
    if _COUNT.fullmatch(text) is None or not 0 < int(text) <= UINT32_MAX:
        raise ValueError(
            f"'{rate}' is not a rate: '{text}' is not a whole number from 1 to {UINT32_MAX}; "
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
    unit = limit.unit
    period = format_duration(limit.period_ms) if unit is Unit.UNKNOWN else unit.name.lower()
    burst = "" if limit.burst == limit.refill else f",burst={format_tokens(limit.burst)}"
    debt = "" if limit.max_debt is None else f",max_debt={format_tokens(limit.max_debt)}"
    return f"{format_tokens(limit.refill)}/{period}{burst}{debt}"


def format_tokens(amount: int) -> str:
    """Write an amount of millitokens, nearly always a whole number of tokens."""
    return str(amount // MILLI) if amount % MILLI == 0 else str(amount / MILLI)
