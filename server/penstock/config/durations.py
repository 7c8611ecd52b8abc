"""Durations as people write them: 90s, 1h30m, 250ms, or 1.5h and 1500us as in Go."""

import math
import re
from fractions import Fraction
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, **{unit: 1_000_000 * unit_ms for unit, unit_ms in _UNITS_MS.items()}
}  # fmt: skip
_MICRO: Final = str.maketrans("\N{MICRO SIGN}\N{GREEK SMALL LETTER MU}", "uu")
"""Go accepts either of these for the u in us."""
_PART: Final = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(ns|us|ms|s|m|h|d)")
_WHOLE: Final = re.compile(f"(?:{_PART.pattern})+")

MAX_LENGTH: Final = 100
"""Characters. Nobody needs more, and to add up a million parts takes seconds."""

FORM: Final = "a number with ms, s, m, h or d, such as 90s or 1h30m"


def parse_duration_ms(text: str) -> int:
    """Read a duration. ValueError if the text is no duration, or has fractions of a ms."""
    duration_ms = _parse(text)
    if duration_ms.denominator != 1:
        raise ValueError(f"'{text}' has fractions of a millisecond: write whole milliseconds")
    return int(duration_ms)


def parse_rounded_ms(text: str) -> int:
    """Read a duration, and round up to a whole millisecond. So only 0 becomes 0."""
    return math.ceil(_parse(text))


def _parse(text: str) -> Fraction:
    """Return the duration in milliseconds."""
    if text == "0":
        return Fraction(0)
    plain = text.translate(_MICRO)
    if len(plain) > MAX_LENGTH or _WHOLE.fullmatch(plain) is None:
        raise ValueError(f"'{text}' is not a duration: write {FORM}")
    parts_ns = [
        Fraction(f"{whole}.{part or 0}") * _UNITS_NS[unit]
        for whole, part, unit in _PART.findall(plain)
    ]
    return sum(parts_ns, Fraction(0)) / 1_000_000


def format_duration(duration_ms: int) -> str:
    """Write a duration in the form that `parse_duration_ms` reads."""
    text = ""
    for unit in ("h", "m", "s", "ms"):
        count, duration_ms = divmod(duration_ms, _UNITS_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0"
