"""Answers of a server as `penstock check` shows them."""

import argparse
from typing import Any

from penstock.config.durations import format_duration
from penstock.core.limits import UINT32_MAX
from penstock.transport.client import Answered


def answer_lines(arguments: argparse.Namespace, answered: Answered) -> list[str]:
    response = answered.response
    lines = [response.get("overall_code", "UNKNOWN")]
    # Another server may answer with fewer statuses.
    statuses = zip(arguments.descriptors, response.get("statuses", ()), strict=False)
    for number, (text, status) in enumerate(statuses):
        outcome = None if answered.charged is None else number in answered.charged
        lines.append(f"  {text}: {_describe(status, arguments.charge, outcome)}")
    headers = response.get("response_headers_to_add", ())
    lines += [f"  {header['key']}: {header.get('value', '')}" for header in headers]
    return lines


def _describe(status: dict[str, Any], charge: str | None, is_charged: bool | None) -> str:
    """`is_charged`: a charge over the limit was made. None if the server does not say."""
    remaining = status.get("limit_remaining", 0)
    limit = status.get("current_limit")
    code = status.get("code", "UNKNOWN")
    if limit is None:
        return f"{code}, unlimited" if remaining == UINT32_MAX else f"{code}, no limit applies"
    per = limit.get("unit", "UNKNOWN").lower()
    rate = f"{limit.get('requests_per_unit', 0)} per {'period' if per == 'unknown' else per}"
    name = f" ({limit['name']})" if "name" in limit else ""
    seconds = float(status.get("duration_until_reset", "0s").removesuffix("s"))
    wait = format_duration(round(seconds * 1000))
    if code == "OK":
        charged = "" if charge is None else f"charged {charge}, "
        then = f"full in {wait}" if seconds else "full"
        return f"{code}, {charged}{remaining} left of {rate}{name}, {then}"
    if charge is not None and is_charged is not False:
        charged = f"charged {charge}, " if is_charged else ""
        return f"{code}, {charged}more than was left of {rate}{name}"
    refused = "" if charge is None else "not charged, "
    return f"{code}, {refused}{remaining} left of {rate}{name}, try again in {wait}"
