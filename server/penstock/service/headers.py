"""Response headers that tell a client what it has left, under the reference server's names."""

from dataclasses import dataclass

from penstock.core.decision import Decision, Status

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class HeaderNames:
    limit: str = "RateLimit-Limit"
    remaining: str = "RateLimit-Remaining"
    reset: str = "RateLimit-Reset"


def whole_seconds(duration_ms: int) -> int:
    """Round up: Envoy cuts off the fraction, and nobody should come back too early."""
    return -(-duration_ms // 1000)


def limit_headers(decision: Decision, names: HeaderNames) -> Headers:
    """Describe the refused descriptor that waits longest, else the one with the least left."""
    limited = [status for status in decision.statuses if status.limit is not None]
    if not limited:
        return ()
    refused = [status for status in limited if status.over]
    status = max(refused, key=_reset) if refused else min(limited, key=_remaining)
    reset = str(whole_seconds(status.reset_ms))
    headers = (
        (names.limit, str(status.limit.requests_per_unit if status.limit else 0)),
        (names.remaining, str(status.remaining)),
        (names.reset, reset),
    )
    # Envoy before 1.40 sends no retry-after of its own.
    return (*headers, ("retry-after", reset)) if decision.over else headers


def _reset(status: Status) -> int:
    return status.reset_ms


def _remaining(status: Status) -> int:
    return status.remaining
