"""Writes a request and its decision as one line, for the log at level debug."""

import re
from itertools import islice
from typing import Final

from penstock.core.decision import Decision, Status
from penstock.core.foreign_text import cut, escape
from penstock.core.limits import Limit, Unit
from penstock.core.request import Descriptor, Request
from penstock.core.windows import format_window

MAX_DESCRIPTORS: Final = 10
MAX_ENTRIES: Final = 10
MAX_TEXT: Final = 80
"""Clients choose the content of a request. These bounds keep the line short."""

HIDDEN: Final = "(hidden)"

_QUOTES: Final = str.maketrans({"\\": "\\\\", "'": "\\'"})

_SECRET_KEY: Final = re.compile(
    "(api|access|private).?key|token|secret|auth(?!or(?!i[sz]))|jwt|bearer|passw|pwd|cookie"
    "|credential|session|signature",
    re.IGNORECASE,
)
"""If the name of an entry has one of these words, its value may be a secret, and is hidden.

The words author and authority (Envoy's word for a host) do not count.
"""

_SECRET_VALUE: Final = re.compile(r"\s*(bearer|basic|digest)\s|eyJ[\w-]+\.", re.IGNORECASE)
"""The value of an Authorization header, or a JWT. It is hidden under any name."""


def decision_text(request: Request, decision: Decision) -> str:
    """Write the request and the decision, without values that may be secrets."""
    both = zip(request.descriptors, decision.statuses, strict=True)
    parts = [_part(*one) for one in islice(both, MAX_DESCRIPTORS)]
    parts += _left_out(len(request.descriptors) - MAX_DESCRIPTORS)
    code = "OVER_LIMIT" if decision.over else "OK"
    return f"{code} domain={_cut(request.domain)}: {'; '.join(parts)}"


def _part(descriptor: Descriptor, status: Status) -> str:
    entries = descriptor.entries
    shown = [f"{_bare(key)}={_shown(key, value)}" for key, value in entries[:MAX_ENTRIES]]
    shown += _left_out(len(entries) - MAX_ENTRIES)
    return f"[{', '.join(shown)}] {_verdict(status)}"


def _verdict(status: Status) -> str:
    if status.limit is None:
        return "no limit"
    code = "over" if status.over or status.shadowed else "within"
    # The name of a stored limit begins with its entity, which may be a secret, too.
    name = _bare(status.limit.name.rpartition("/")[2] or "limit")
    return f"{code} {name} {_rate(status.limit)}, {status.remaining} left"


def _rate(limit: Limit) -> str:
    rate = f"{limit.requests_per_unit} per {limit.unit.name.lower()}"
    if limit.unit is Unit.UNKNOWN:
        rate = f"{limit.requests_per_unit} in {limit.period_ms} ms"
    return rate if limit.window is None else f"{rate} ({format_window(limit.window)})"


def _shown(key: str, value: str) -> str:
    if _SECRET_KEY.search(key) or _SECRET_VALUE.match(value):
        return HIDDEN
    path, question, _ = value.partition("?")
    # The parameters of a path come after the question mark.
    return f"{_cut(path)}?{HIDDEN}" if question else _cut(value)


def _cut(text: str) -> str:
    """Cut the text, and put it in quotes. Quotes and line ends in the text are escaped."""
    return f"'{_bare(text)}'"


def _bare(text: str) -> str:
    return escape(cut(text, MAX_TEXT).translate(_QUOTES))


def _left_out(count: int) -> list[str]:
    return [f"and {count} more"] if count > 0 else []
