"""How long every store tries to write what is owed: charges and refunds, which tell what happened.

Their callers do not wait for it: they are answered at their deadline. What is not written in this
time is lost, and counted in `penstock_store_not_landed_total`.
"""

from typing import Final

LANDS_WITHIN_S: Final = 5.0
"""Counted from when the caller asked. A try that is under way then is the last."""

TRIES: Final = 20
"""In that time, at equal distances."""
