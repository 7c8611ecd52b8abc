"""Variables of the reference server that Penstock ignores, and the reasons.

All its other variables are settings of Penstock, under the same names.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

IGNORED: Final = {
    "BACKEND_TYPE": "`PENSTOCK_STORE` names the store",
    "REDIS_*": "Penstock does not use Redis",
    "MEMCACHE_*": "Penstock does not use Memcached",
    "RUNTIME_WATCH_ROOT": "Penstock notices changed rules in every directory",
    "EXPIRATION_JITTER_MAX_SECONDS": "buckets do not all expire at the same moment, as windows do",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "`PENSTOCK_COUNTING` says whether denials count",
    "DISABLE_STATS": "metrics that nobody reads cost almost nothing",
    "USE_DOG_STATSD": "Penstock supports only Prometheus and StatsD",
    "USE_DOG_STATSD_MOGRIFIERS": "Penstock supports only Prometheus and StatsD",
    "PROMETHEUS_MAPPER_YAML": "the names and labels of metrics are fixed",
}
"""Names, or beginnings of names with a `*`, and the reasons."""


def find_ignored(variables: Iterable[str]) -> list[str]:
    """The variables that Penstock ignores, in the order of their names."""
    return sorted(
        name for name in variables if any(fnmatchcase(name, pattern) for pattern in IGNORED)
    )
