"""How much of the amounts that a client reports was charged."""

from collections.abc import Sequence

from penstock.core.decision import Decision, Status
from penstock.core.plan import Part, Plan
from penstock.core.request import Descriptor, Request
from penstock.core.take import Taken


def find_charged(
    request: Request, plan: Plan, taken: Sequence[Taken], decision: Decision
) -> list[int | None]:
    """How much of each descriptor's own amount was charged to the limit in its status.

    None if the descriptor has no amount of its own, or no limit.
    """
    told = zip(request.descriptors, plan.parts, decision.statuses, strict=True)
    return [_charged(descriptor, part, status, taken) for descriptor, part, status in told]


def _charged(
    descriptor: Descriptor, part: Part | Status, status: Status, taken: Sequence[Taken]
) -> int | None:
    hits = descriptor.hits
    if not hits or descriptor.refund or isinstance(part, Status):
        return None
    for leg in part.legs:
        for number, (limit, amount) in enumerate(zip(leg.limits, leg.amounts, strict=True)):
            if limit == status.limit:
                # A mapping may take another amount of the limit than the client has named.
                consumed = taken[leg.take].consumed[leg.first_draw + number]
                return hits * consumed // amount if amount else hits
    return None
