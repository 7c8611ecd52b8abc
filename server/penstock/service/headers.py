"""Response headers that tell a client what it has left, under the reference server's names."""

from dataclasses import dataclass

from penstock.core.decision import Decision

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HeaderNames:
    limit: str = "RateLimit-Limit"
    remaining: str = "RateLimit-Remaining"
    reset: str = "RateLimit-Reset"


def limit_headers(decision: Decision, names: HeaderNames) -> Headers:
    """Describe the refused descriptor that waits longest, else the one with the least left."""
    limited = [(status.limit, status) for status in decision.statuses if status.limit is not None]
    if not limited:
        return ()
    limit, status = min(
        limited, key=lambda pair: (not pair[1].over, pair[1].remaining, -pair[1].reset_s)
    )
    headers = (
        (names.limit, str(limit.requests_per_unit)),
        (names.remaining, str(status.remaining)),
        (names.reset, str(status.reset_s)),
    )
    # Envoy before 1.40 sends no retry-after of its own.
    return (*headers, ("retry-after", str(status.reset_s))) if decision.over else headers
