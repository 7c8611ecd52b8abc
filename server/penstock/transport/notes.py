"""What the server tells `penstock check` beside the answer, as trailing metadata.

Envoy does not look at it. `penstock.v1.Console/Peek` takes a RateLimitRequest, takes nothing from
any bucket, and answers as ShouldRateLimit would.
"""

from typing import Final

from penstock.core.decision import Decision
from penstock.core.plan import Plan
from penstock.core.take import CHARGES

PEEK_SERVICE: Final = "penstock.v1.Console"
PEEK_METHOD: Final = "Peek"

DOMAIN: Final = "penstock-domain"
UNKNOWN: Final = "unknown"
"""The rules have no such domain."""

CHARGED: Final = "penstock-charged"
"""The numbers of the descriptors whose amounts were charged, although they did not fit."""

Trailers = tuple[tuple[str, str], ...]


def charged_trailers(plan: Plan, decision: Decision) -> Trailers:
    """For a request that is over its limit: a report was charged, a cost was not."""
    drawn = {(draw.descriptor, draw.mode) for take in plan.takes for draw in take.draws}
    charged = {number for number, mode in drawn if mode in CHARGES}
    refused = {number for number, mode in drawn if mode not in CHARGES}
    # Without a limit, the answer was given without the store, and nothing is known to be charged.
    blind = {number for number, status in enumerate(decision.statuses) if status.limit is None}
    return ((CHARGED, ",".join(map(str, sorted(charged - refused - blind)))),)


def read_charged(trailers: Trailers) -> frozenset[int] | None:
    """The numbers of the descriptors that were charged; None if the server does not tell."""
    text = dict(trailers).get(CHARGED)
    return None if text is None else frozenset(int(number) for number in text.split(",") if number)
