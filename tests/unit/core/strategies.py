"""What Hypothesis makes up for the core: limits, moments, amounts."""

from hypothesis import strategies as st
from penstock.core.limits import MILLI, Limit, Window

from tests.support.calendars import CALENDARS, PERIODS_MS

EPOCH_MS = 1_794_792_817_591
"""A moment like those of production: small numbers would hide what rounds only for large ones."""


@st.composite
def limits(draw: st.DrawFn, name: str = "") -> Limit:
    """Whole tokens, as rules have them; periods that divide evenly, and some that do not.

    Some refill steadily, some at the boundaries of fixed windows, some by a calendar.
    """
    tokens = draw(st.integers(0, 50))
    period_ms = draw(st.sampled_from([1, 7, 1_000, 1_001, 60_000, 90_000, 3_600_000]))
    burst = draw(st.none() | st.integers(1, 100)) if tokens else None
    window = draw(st.sampled_from([None, None, Window(), Window(carry_debt=False), *CALENDARS]))
    if window in CALENDARS:
        period_ms = draw(st.sampled_from(PERIODS_MS))
    return Limit.per(tokens, period_ms, name=name, burst=burst, window=window)


amounts = st.integers(0, 60).map(lambda tokens: tokens * MILLI)
steps_ms = st.integers(0, 400)
