"""Answers of a server as `penstock check` shows them."""

from collections.abc import Sequence
from typing import Any

from penstock.cli.styled import Line, Styled
from penstock.config.durations import format_duration
from penstock.core.limits import UINT32_MAX, Unit
from penstock.core.request import Descriptor, Request
from penstock.transport.client import Answered


def answer_values(request: Request, answered: Answered) -> dict[str, Any]:
    """An answer as scripts see it, always with the same keys."""
    response = answered.response
    statuses = response.get("statuses", ())
    told = zip(request.descriptors, statuses, _charged(request, answered), strict=False)
    headers = response.get("response_headers_to_add", ())
    return {
        "code": response.get("overall_code", "UNKNOWN"),
        "statuses": [_status_values(*one) for one in told],
        "headers": [[header["key"], header.get("value", "")] for header in headers],
    }


def _charged(request: Request, answered: Answered) -> list[int | None]:
    """How much was charged for each descriptor. None: nothing to charge, or nobody knows."""
    if answered.charged is not None:
        return list(answered.charged)
    # Servers tell only if an amount does not fit, and other servers do not tell at all.
    return [
        None if descriptor.refund or not _fits_a_limit(status) else descriptor.hits
        for descriptor, status in zip(
            request.descriptors, answered.response.get("statuses", ()), strict=False
        )
    ]


def _fits_a_limit(status: dict[str, Any]) -> bool:
    return status.get("code") == "OK" and "current_limit" in status


def _status_values(
    descriptor: Descriptor, status: dict[str, Any], charged: int | None
) -> dict[str, Any]:
    remaining, limit = status.get("limit_remaining", 0), status.get("current_limit")
    is_unlimited = limit is None and remaining == UINT32_MAX
    return {
        "entries": [list(entry) for entry in descriptor.entries],
        "code": status.get("code", "UNKNOWN"),
        "unlimited": is_unlimited,
        "limit": None if limit is None else _limit_values(limit),
        "charged": charged,
        "remaining": None if limit is None else remaining,
        "remaining_is_largest": limit is not None and remaining == UINT32_MAX,
        "reset_in_ms": None if limit is None else _reset_ms(status),
    }


def _limit_values(limit: dict[str, Any]) -> dict[str, Any]:
    """What the protocol tells about a limit. It has no period that is not a unit."""
    unit = Unit.__members__.get(limit.get("unit", ""), Unit.UNKNOWN)
    return {
        "name": limit.get("name", ""),
        "tokens": (tokens := limit.get("requests_per_unit", 0)),
        "tokens_is_largest": tokens == UINT32_MAX,
        "period_ms": unit.value or None,
    }


def _reset_ms(status: dict[str, Any]) -> int:
    return round(float(status.get("duration_until_reset", "0s").removesuffix("s")) * 1000)


def answer_lines(texts: Sequence[str], request: Request, answered: Answered) -> list[Line]:
    """An answer as people see it. `texts` are the descriptors as they were typed."""
    response = answered.response
    code = response.get("overall_code", "UNKNOWN")
    lines: list[Line] = [Styled(code, "good" if code == "OK" else "bad")]
    # Another server may answer with fewer statuses.
    statuses = response.get("statuses", ())
    told = zip(texts, request.descriptors, statuses, _charged(request, answered), strict=False)
    for text, descriptor, status, charged in told:
        lines.append(f"  {text}: {_describe(descriptor, status, charged)}")
    headers = response.get("response_headers_to_add", ())
    lines += [f"  {header['key']}: {header.get('value', '')}" for header in headers]
    return lines


def _tell(tokens: int) -> str:
    """The protocol can show no larger number."""
    return f"at least {tokens}" if tokens == UINT32_MAX else str(tokens)


def _describe(descriptor: Descriptor, status: dict[str, Any], charged: int | None) -> str:
    remaining = status.get("limit_remaining", 0)
    limit = status.get("current_limit")
    code = status.get("code", "UNKNOWN")
    if limit is None:
        return f"{code}, unlimited" if remaining == UINT32_MAX else f"{code}, no limit applies"
    per = limit.get("unit", "UNKNOWN").lower()
    tokens = _tell(limit.get("requests_per_unit", 0))
    rate = f"{tokens} per {'period' if per == 'unknown' else per}"
    name = f" ({limit['name']})" if "name" in limit else ""
    reset_ms = _reset_ms(status)
    wait = format_duration(reset_ms)
    outcome = _outcome(descriptor, charged)
    if code == "OK":
        # Full again, or, with a window, at its end: the protocol does not tell which.
        then = f"resets in {wait}" if reset_ms else "full"
        return f"{code}, {outcome}{_tell(remaining)} left of {rate}{name}, {then}"
    if descriptor.hits and not descriptor.refund and charged != 0:
        return f"{code}, {outcome}more than was left of {rate}{name}"
    return f"{code}, {outcome}{remaining} left of {rate}{name}, try again in {wait}"


def _outcome(descriptor: Descriptor, charged: int | None) -> str:
    hits = descriptor.hits
    if charged is None or not hits:
        return ""
    if charged == 0:
        return "not charged, "
    return f"charged {hits}, " if charged == hits else f"charged {charged} of {hits}, "
