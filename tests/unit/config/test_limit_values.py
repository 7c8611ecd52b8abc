"""Limits as JSON and as the audit has them."""

import pytest
from penstock.config.limit_values import recorded_limit
from penstock.core.limits import Limit, Window
from penstock.errors import StoreError

RECORD = {"capacity": 5, "burst": 5, "refill": 5, "period_ms": 1_000}


def test_the_audit_of_a_newer_version_is_an_error_that_says_so() -> None:
    """A window of a kind that this version does not know."""
    assert recorded_limit("w", {**RECORD, "window": "fixed"}) == Limit(
        "w", 5, 5, 5, 1_000, window=Window()
    )
    with pytest.raises(StoreError, match=r"limit 'w'.*'lunar' is not a window.*run the version"):
        recorded_limit("w", {**RECORD, "window": "lunar"})
