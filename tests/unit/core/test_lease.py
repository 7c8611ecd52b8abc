"""What a lease asks for."""

import pytest
from penstock.core.lease import MAX_AMOUNT, LeaseAsk
from penstock.core.take import Key


def test_many_of_the_largest_amounts_fit_on_the_wire() -> None:
    """They are millitokens, and nine of the largest amounts are still within 64 bits."""
    assert 9 * MAX_AMOUNT < 2**63


def test_no_limits_are_asked_for_unless_they_are_named() -> None:
    """All such asks share one mapping, which nobody can change."""
    ask = LeaseAsk(Key("bob", "gpt-4"), {"rpm": 1})
    assert ask.limits == {}
    with pytest.raises(TypeError):
        ask.limits["rpm"] = "5/min"  # type: ignore[index]
