"""What spans tell of limits, whatever the store."""

import pytest
from penstock.core.limits import Limit, Window
from penstock.store.spans import limit_text


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit.per(100, 60_000, name="rpm"), "rpm=100/60000ms"),
        (Limit.per(100, 60_000), "100/60000ms"),
        (
            Limit.per(100, 60_000, window=Window(carry_debt=False)),
            "100/60000ms fixed carry_debt=false",
        ),
    ],
)
def test_a_limit_is_shown_with_its_window(limit: Limit, text: str) -> None:
    """A window changes when a limit refills."""
    assert limit_text(limit) == text
