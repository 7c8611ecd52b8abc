"""Windows of limits that were stored, perhaps by another machine or another version.

A store keeps a window as text. Another machine may have written a time zone that this machine's
database does not have, or a newer version a kind of window that this version does not know. Both
are a StoreError: without the window, nobody can tell what such a limit has refilled.
"""

from collections.abc import Iterable
from functools import lru_cache

from penstock.core.calendars import UnknownZoneError
from penstock.core.entities import Lookup, StoredLimits
from penstock.core.limits import Limit, Window
from penstock.core.windows import check_window, parse_window
from penstock.errors import StoreError


@lru_cache(maxsize=10_000)
def load_limit(
    name: str,
    capacity: int,
    burst: int,
    refill: int,
    period_ms: int,
    window: str | None = None,
    max_debt: int | None = None,
) -> Limit:
    """A limit from its parts in a store. Many items have the same limits, so equal limits share one
    object: this saves a third of the time of a read."""
    parsed = None if window is None else _load_window(name, window)
    return Limit(name, capacity, burst, refill, period_ms, max_debt, parsed)


def _load_window(limit: str, text: str) -> Window:
    try:
        return parse_window(text)
    except ValueError as exc:
        raise StoreError(
            f"limit '{limit}' has a stored window that this version does not know ({exc}): run the "
            "version that wrote it",
            transient=False,
            kind="unknown_window",
        ) from exc


def check_zones(limits: Iterable[Limit], where: str) -> None:
    """StoreError if this machine does not know the time zone of a stored limit."""
    for limit in limits:
        if limit.window is None:
            continue
        try:
            check_window(limit)
        except UnknownZoneError as exc:
            raise StoreError(
                f"{where}: the windows of limit '{limit.name}' are in the time zone "
                f"'{limit.window.timezone}', which this machine does not know: install the Python "
                "package tzdata, or your system's tzdata, as new as on the machine that stored it",
                transient=False,
                kind="unknown_time_zone",
            ) from exc
        except ValueError as exc:
            raise StoreError(
                f"{where}: limit '{limit.name}': {exc}", transient=False, kind="unknown_window"
            ) from exc


def check_stored(stored: StoredLimits | None, where: object) -> StoredLimits | None:
    """Stored limits that are to be used. StoreError as for `check_zones`."""
    if stored is not None:
        check_zones(stored.limits, f"the limits of {where}")
    return stored


def check_lookup(lookup: Lookup) -> Lookup:
    """What was looked up for an entity. StoreError as for `check_zones`."""
    for scope, stored in lookup.limits.items():
        check_stored(stored, scope)
    return lookup
