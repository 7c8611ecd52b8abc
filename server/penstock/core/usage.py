"""Usage: what was consumed in each hour, day and month of UTC.

The law of this file: usage is a difference of `consumed`, never of balances. A difference belongs
to the window in which it was written. So the windows of a bucket add up to its `consumed`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from penstock.core.bucket import Item, old_buckets
from penstock.core.take import Key

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


class Window(Enum):
    """A size of window. The value is the word for it in keys and commands."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    def start_ms(self, at_ms: int) -> int:
        """The start of the window that contains a time."""
        if self is Window.MONTH:
            days = at_ms // DAY_MS
            _, _, day = _date(days)
            return (days - day + 1) * DAY_MS
        size_ms = HOUR_MS if self is Window.HOUR else DAY_MS
        return at_ms - at_ms % size_ms

    def next_ms(self, start_ms: int) -> int:
        """The start of the next window. `start_ms` is the start of this window."""
        if self is Window.MONTH:
            return self.start_ms(start_ms + 31 * DAY_MS)
        return start_ms + (HOUR_MS if self is Window.HOUR else DAY_MS)

    def label(self, start_ms: int) -> str:
        """The window's name: 2026-11-18T14 (an hour), 2026-11-18 or 2026-11. Names sort by time."""
        year, month, day = _date(start_ms // DAY_MS)
        if self is Window.MONTH:
            return f"{year:04}-{month:02}"
        date = f"{year:04}-{month:02}-{day:02}"
        return date if self is Window.DAY else f"{date}T{start_ms % DAY_MS // HOUR_MS:02}"


class UsageKept(NamedTuple):
    """How long a store keeps the windows of each size, after they began. 0: for ever."""

    hour_ms: int
    day_ms: int
    month_ms: int

    def of_ms(self, window: Window) -> int:
        return self[list(Window).index(window)]

    def first_ms(self, now_ms: int) -> dict[Window, int]:
        """By size, the time before which a window began that is not kept any more."""
        return {window: now_ms - kept_ms for window in Window if (kept_ms := self.of_ms(window))}


USAGE_KEPT: Final = UsageKept(90 * DAY_MS, 2 * 366 * DAY_MS, 10 * 366 * DAY_MS)


class Used(NamedTuple):
    """What was consumed: by how many takes, and how much of each limit, in millitokens."""

    takes: int
    amounts: Mapping[str, int]

    @property
    def is_nothing(self) -> bool:
        return not self.takes and not self.amounts

    def plus(self, other: "Used") -> "Used":
        amounts = dict(self.amounts)
        for limit, amount in other.amounts.items():
            amounts[limit] = amounts.get(limit, 0) + amount
        return used(self.takes + other.takes, amounts)


NOTHING: Final = Used(0, {})


class WindowUsage(NamedTuple):
    """What an entity consumed of a resource in one window."""

    key: Key
    window: Window
    start_ms: int
    used: Used


def used(takes: int, amounts: Mapping[str, int]) -> Used:
    """Leaves out limits of which nothing was consumed."""
    return Used(takes, {limit: amount for limit, amount in amounts.items() if amount})


def total(parts: Iterable[Used]) -> Used:
    result = NOTHING
    for part in parts:
        result = result.plus(part)
    return result


def is_counted(key: Key) -> bool:
    """Whether usage counts an item. The items of rules don't count: clients make them up."""
    return not key.resource.startswith("$")


def used_between(before: Item | None, after: Item) -> Used:
    """What was consumed between two states of an item. `before` is None if there was no item."""
    base = consumed_before(before, after)
    takes = after.takes - (0 if before is None else before.takes)
    return used(takes, {name: count - base[name] for name, count in consumed_of(after).items()})


def consumed_of(item: Item) -> dict[str, int]:
    return {bucket.limit.name: bucket.consumed for bucket in item.buckets}


def consumed_before(before: Item | None, after: Item) -> dict[str, int]:
    """`consumed` of an earlier state, by the limits of a later one.

    A renamed limit keeps what it had consumed. A new limit has consumed nothing.
    """
    names = [bucket.limit.name for bucket in after.buckets]
    if before is None:
        return dict.fromkeys(names, 0)
    old = old_buckets(before, tuple(bucket.limit for bucket in after.buckets))
    return {name: old[name].consumed if name in old else 0 for name in names}


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day, from days since 1970-01-01, in the Gregorian calendar.

    Years begin with March here, so that the extra day of a leap year is the last day of its year.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    leaps = day_of_era // 1_460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day
