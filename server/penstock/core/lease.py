"""What a lease wants, and what becomes of it. Amounts are millitokens, by the limit's name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from penstock.core.amounts import MAX_TOKENS
from penstock.core.limits import MILLI
from penstock.core.take import Key

MAX_AMOUNT: Final = MAX_TOKENS * MILLI


DOMAIN: Final = "leases"
"""The domain under which leases are counted that name none. Stored limits belong to no domain."""


class LeaseAsk(NamedTuple):
    key: Key
    amounts: Mapping[str, int]
    limits: Mapping[str, str] = MappingProxyType({})
    """Rates by the limit's name. In force if no limits are stored for the entity and resource."""
    domain: str = DOMAIN
    taken_ms: Mapping[str, int] = MappingProxyType({})
    """When the amounts that go back were taken, by the limit's name. What belongs to windows that
    have ended does not go back."""


class Recorded(NamedTuple):
    """What is on record now. Limits that do not exist, or are unlimited, are left out."""

    amounts: Mapping[str, int]
    at_ms: int
    """When it was taken, by the clock of the process that asked the store."""


class Refused(NamedTuple):
    """The limit with the longest wait, and how much it holds at most."""

    entity: str
    limit: str
    wait_ms: int
    burst: int


Balances: TypeAlias = Mapping[str, int | None]
"""What could be taken now; negative if in debt, and None if the limit is unlimited."""
