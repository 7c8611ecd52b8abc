"""A bucket in an older form: one limit of 500 an hour for each id, and nothing else."""

from typing import Final, NamedTuple

from penstock.core.limits import MILLI, Limit
from penstock.core.take import CHARGE, Draw, Key, Take

OLD_BURST: Final = 500
OLD_PERIOD_MS: Final = 3_600_000


class OldBucket(NamedTuple):
    id: str
    tokens: int
    refilled_ms: int

    def take(self, resource: str, limit: Limit) -> Take:
        """What was used by the time of `refilled_ms`. A charge: it already happened."""
        used = (OLD_BURST - self.tokens) * MILLI
        return Take(Key(self.id, resource), (limit,), (Draw(0, used, CHARGE),))


def old_limit(name: str) -> Limit:
    """The limit that these buckets had."""
    return Limit.per(OLD_BURST, OLD_PERIOD_MS, name=name)
