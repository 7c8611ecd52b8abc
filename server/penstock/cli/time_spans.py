"""Spans of time as people write them, for commands that show windows of usage."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.config.durations import parse_duration_ms
from penstock.core.usage import DAY_MS, Window
from penstock.errors import ConfigError

FORMS: Final = ("%Y-%m", "%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M")

SHOWN_MS: Final = {
    Window.HOUR: DAY_MS,
    Window.DAY: 30 * DAY_MS,
    Window.MONTH: 365 * DAY_MS,
}
"""How far back windows are shown if nobody says otherwise."""


class TimeSpan(NamedTuple):
    """Windows that begin at `since_ms` or later, and before `until_ms`."""

    window: Window
    since_ms: int
    until_ms: int

    @property
    def first(self) -> str:
        return self.window.label(self.since_ms)

    @property
    def last(self) -> str:
        return self.window.label(self.window.start_ms(self.until_ms - 1))

    def between(self, starts: Collection[int]) -> list[int]:
        """All windows from the first start to the last, so that a plot shows the gaps."""
        at_ms, found = min(starts), []
        while at_ms <= max(starts):
            found.append(at_ms)
            at_ms = self.window.next_ms(at_ms)
        return found


def read_span(window: Window, since: str | None, until: str | None, now_ms: int) -> TimeSpan:
    """The span that `--since` and `--until` name. It begins with a whole window."""
    since_ms = now_ms - SHOWN_MS[window] if since is None else _read("--since", since, now_ms)
    until_ms = now_ms + 1 if until is None else _read("--until", until, now_ms)
    if until_ms <= since_ms:
        raise ConfigError("--since has to be before --until")
    return TimeSpan(window, window.start_ms(since_ms), until_ms)


def _read(flag: str, text: str, now_ms: int) -> int:
    for form in FORMS:
        try:
            at = datetime.strptime(text.removesuffix("Z"), form).replace(tzinfo=UTC)
        except ValueError:
            continue
        return int(at.timestamp() * 1000)
    try:
        ago_ms = parse_duration_ms(text)
    except ValueError:
        ago_ms = now_ms + 1
    if ago_ms > now_ms:
        raise ConfigError(
            f"{flag}: '{text}' is no time: write 2026-11-18 or 2026-11-18T14:30 (UTC), or the time "
            "before now, such as 24h or 30d"
        )
    return now_ms - ago_ms
