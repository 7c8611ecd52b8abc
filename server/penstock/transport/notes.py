"""What the server tells `penstock check` beside the answer, as trailing metadata.

Envoy does not look at it. `penstock.v1.Console/Peek` takes a RateLimitRequest, takes nothing from
any bucket, and answers as ShouldRateLimit would.
"""

from typing import Final

from penstock.core.charged import find_charged
from penstock.core.request import Request
from penstock.service.answer import Answer

PEEK_SERVICE: Final = "penstock.v1.Console"
PEEK_METHOD: Final = "Peek"

DOMAIN: Final = "penstock-domain"
UNKNOWN: Final = "unknown"
"""The rules have no such domain."""

CHARGED: Final = "penstock-charged"
"""How much of each descriptor's own amount was charged, such as `5,0,-`. `-` stands where there was
nothing to charge. Without this note, an amount that fits was charged in full."""

NOTHING: Final = "-"

Trailers = tuple[tuple[str, str], ...]


def charged_trailers(request: Request, answer: Answer) -> Trailers:
    """What was charged, if not all amounts fit: a report is charged, a cost is not."""
    decision, plan = answer.decision, answer.plan
    if plan is None or not any(status.over or status.shadowed for status in decision.statuses):
        return ()
    charged = find_charged(request, plan, answer.taken, decision)
    return ((CHARGED, ",".join(NOTHING if one is None else str(one) for one in charged)),)


def read_charged(trailers: Trailers) -> tuple[int | None, ...] | None:
    """How much of each descriptor's amount was charged; None if the server does not tell."""
    text = dict(trailers).get(CHARGED)
    if text is None:
        return None
    return tuple(None if one == NOTHING else int(one) for one in text.split(","))
