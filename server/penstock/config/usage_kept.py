"""How long usage is kept, as people write it: hour=90d,day=732d,month=3660d."""

from typing import Final

from penstock.config.durations import format_duration, parse_rounded_ms
from penstock.core.usage import DAY_MS, HOUR_MS, USAGE_KEPT, UsageKept, Window

FORM: Final = "write hour=90d,day=732d,month=3660d, or some of these parts; 0 means for ever"

_LEAST_MS: Final = {Window.HOUR: HOUR_MS, Window.DAY: DAY_MS, Window.MONTH: 31 * DAY_MS}
"""A window has to last until it ends, or what is consumed meanwhile would be lost."""


def parse_usage_kept(text: str) -> UsageKept:
    """Read how long windows are kept. A size that is left out keeps its default."""
    kept = USAGE_KEPT
    for part in text.split(","):
        name, equals, duration = part.strip().partition("=")
        if not equals or name not in [window.value for window in Window]:
            raise ValueError(f"'{part.strip()}' is not a size of windows with a time: {FORM}")
        window, kept_ms = Window(name), parse_rounded_ms(duration)
        if 0 < kept_ms < (least_ms := _LEAST_MS[window]):
            raise ValueError(f"'{part.strip()}' is too short: at least {_format(least_ms)}")
        kept = kept._replace(**{f"{name}_ms": kept_ms})
    return kept


def format_usage_kept(kept: UsageKept) -> str:
    return ",".join(f"{window.value}={_format(kept.of_ms(window))}" for window in Window)


def _format(kept_ms: int) -> str:
    days, rest_ms = divmod(kept_ms, DAY_MS)
    return f"{days}d" if days and not rest_ms else format_duration(kept_ms)
