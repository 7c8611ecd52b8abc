"""The reference server's variables that are no settings here: accepted, and why they are ignored.

All others of its variables are settings under the same name.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

IGNORED: Final = {
    "BACKEND_TYPE": "the store is named by `PENSTOCK_STORE`",
    "REDIS_*": "there is no Redis",
    "MEMCACHE_*": "there is no Memcached",
    "RUNTIME_WATCH_ROOT": "rules are followed wherever they are",
    "EXPIRATION_JITTER_MAX_SECONDS": "buckets have no windows that end all at once",
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "a denied request consumes nothing anyway",
    "DISABLE_STATS": "metrics that nobody reads cost next to nothing",
    "USE_DOG_STATSD": "metrics are for Prometheus and StatsD",
    "USE_DOG_STATSD_MOGRIFIERS": "metrics are for Prometheus and StatsD",
    "PROMETHEUS_MAPPER_YAML": "names and labels are fixed",
    "CONFIG_GRPC_XDS_*": "rules over xDS are not there yet",
    "XDS_CLIENT_*": "rules over xDS are not there yet",
}
"""Names, or the beginnings of names, and the reason."""


def find_ignored(variables: Iterable[str]) -> list[str]:
    """Those of some variables that will be ignored, in order of name."""
    return sorted(
        name for name in variables if any(fnmatchcase(name, pattern) for pattern in IGNORED)
    )
