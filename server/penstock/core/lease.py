"""What a lease wants, and what becomes of it. Amounts are whole tokens, by the limit's name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from penstock.core.take import Key

MAX_AMOUNT: Final = 10**15
"""The largest amount. Sums of many such amounts still fit in the 64 bits of the wire."""


class LeaseAsk(NamedTuple):
    key: Key
    amounts: Mapping[str, int]
    limits: Mapping[str, str] = MappingProxyType({})
    """Rates by the limit's name. In force if no limits are stored for the entity and resource."""


class Refused(NamedTuple):
    """The limit with the longest wait, and how much it holds at most."""

    entity: str
    limit: str
    wait_ms: int
    burst: int


Recorded: TypeAlias = Mapping[str, int]
"""What is on record now. Limits that do not exist are left out."""
