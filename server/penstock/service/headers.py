"""Response headers that tell a client its limit, under the names of the reference server."""

from dataclasses import dataclass

from penstock.core.decision import Decision
from penstock.core.limits import UINT32_MAX

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HeaderNames:
    limit: str = "RateLimit-Limit"
    remaining: str = "RateLimit-Remaining"
    reset: str = "RateLimit-Reset"


def limit_headers(decision: Decision, names: HeaderNames) -> Headers:
    """Describe the descriptor that the reference server describes.

    This is the last refused descriptor. If none is refused, it is the descriptor with the lowest
    `remaining`; of several, the first. `retry-after` is the longest wait of all refused
    descriptors. The reference server does not send `retry-after`.
    """
    limited = [(status.limit, status) for status in decision.statuses if status.limit is not None]
    if not limited:
        return ()
    refused = [pair for pair in limited if pair[1].over]
    limit, status = refused[-1] if refused else min(limited, key=lambda pair: pair[1].remaining)
    headers = (
        (names.limit, str(min(limit.requests_per_unit, UINT32_MAX))),
        (names.remaining, str(status.remaining)),
        (names.reset, str(status.reset_s)),
    )
    # Envoy before 1.40 does not send retry-after itself.
    if not decision.over:
        return headers
    wait_s = max((status.reset_s for _, status in refused), default=status.reset_s)
    return (*headers, ("retry-after", str(wait_s)))
