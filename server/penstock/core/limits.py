"""A limit: the policy of one bucket."""

from enum import Enum
from typing import Final, Literal, NamedTuple

MILLI: Final = 1000
"""Millitokens in a token. Amounts are in millitokens, so that a slow refill needs no fractions."""

UINT32_MAX: Final = 2**32 - 1
"""On the wire, a limit and the remaining tokens are a uint32."""

NO_BOUND: Final = 10**30
"""A debt without a bound, in millitokens. Nobody reaches it: it takes more than 10**7 reports of
the largest number on the wire. DynamoDB keeps 38 digits, so it keeps such a debt exactly."""


class Unit(Enum):
    """The reference server's units. The value is the length in milliseconds."""

    UNKNOWN = 0
    SECOND = 1_000
    MINUTE = 60_000
    HOUR = 3_600_000
    DAY = 86_400_000
    WEEK = 7 * 86_400_000
    MONTH = 30 * 86_400_000
    YEAR = 365 * 86_400_000


_UNIT_OF_PERIOD: Final = {unit.value: unit for unit in Unit if unit is not Unit.UNKNOWN}


WindowKind = Literal["fixed", "calendar"]
WeekStart = Literal["monday", "sunday"]


class Window(NamedTuple):
    """How a limit refills at boundaries. `windows.py` knows when they are."""

    kind: WindowKind = "fixed"
    timezone: str = "UTC"
    """Of a calendar window."""
    week_starts: WeekStart = "monday"
    """Of a calendar window that is a week."""
    carry_debt: bool = True
    """Whether a debt is still owed in the next window. The reference server forgets debts."""


class Limit(NamedTuple):
    """Refills `refill` each `period_ms`, holds at most `burst`. Amounts are millitokens.

    A stored limit may be unlimited. It has no period, and never gets to a take: `Level.of` in
    `entities.py` leaves it out. A tuple, because limits are part of the keys of the cache of
    answers.
    """

    name: str
    capacity: int
    burst: int
    refill: int
    period_ms: int
    max_debt: int | None = None
    """How deep charges go on a stored limit; None: without a bound. Each draw brings its own
    `max_debt`, so in the limits of takes and buckets it is None."""
    window: Window | None = None
    """None: the limit refills steadily."""

    @classmethod
    def per(
        cls,
        tokens: int,
        period_ms: int,
        *,
        name: str = "",
        burst: int | None = None,
        window: Window | None = None,
    ) -> "Limit":
        """Build a limit from whole tokens."""
        return cls(
            name=name,
            capacity=tokens * MILLI,
            burst=(tokens if burst is None else burst) * MILLI,
            refill=tokens * MILLI,
            period_ms=period_ms,
            window=window,
        )

    @classmethod
    def unlimited(cls, name: str) -> "Limit":
        """A limit that counts nothing, and hides the limits of the same name at wider scopes."""
        return cls(name, 0, 0, 0, 0)

    @property
    def is_unlimited(self) -> bool:
        return self.period_ms == 0

    @property
    def without_max_debt(self) -> "Limit":
        """The limit for takes and buckets, which do not keep `max_debt`."""
        return self if self.max_debt is None else self._replace(max_debt=None)

    @property
    def forgets_debt(self) -> bool:
        """Whether a debt is gone at the next boundary."""
        return self.window is not None and not self.window.carry_debt

    @property
    def requests_per_unit(self) -> int:
        """In whole tokens. A stored limit may be larger than the wire can show."""
        return self.capacity // MILLI

    @property
    def unit(self) -> Unit:
        """The unit that is as long as the period; UNKNOWN if there is no such unit."""
        return _UNIT_OF_PERIOD.get(self.period_ms, Unit.UNKNOWN)
