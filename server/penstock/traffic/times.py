"""The times of a trace: texts in ISO 8601, or milliseconds since the epoch."""

from datetime import UTC, datetime, timedelta
from typing import Final

EARLIEST_MS: Final = 10**11
"""March 1973. A smaller number is most likely a time in seconds."""

LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last that Python can show."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def parse_time_ms(text: str) -> int:
    """Read a time. Without a zone, it is in UTC. ValueError says what is wrong."""
    if text.isascii() and text.isdigit():
        return check_time_ms(int(text) if len(text) < 20 else LATEST_MS + 1)
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return check_time_ms((at - _EPOCH) // _MILLISECOND)
    except (ValueError, OverflowError) as exc:
        if str(exc).startswith("time "):
            raise
        raise ValueError(
            f"'{text}' is not a time: write 2026-01-31T08:00:00.123Z, or milliseconds since 1970"
        ) from exc


def check_time_ms(time_ms: int) -> int:
    if not EARLIEST_MS <= time_ms <= LATEST_MS:
        raise ValueError(
            f"time {time_ms} is before 1973 or after 9999: write milliseconds since 1970"
        )
    return time_ms


def format_time_ms(time_ms: int) -> str:
    """UTC, to the millisecond."""
    at = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
