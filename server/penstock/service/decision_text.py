"""A request and its decision as a line of the log, for times when somebody looks closely."""

import re
from itertools import islice
from typing import Final

from penstock.core.decision import Decision, Status
from penstock.core.foreign_text import cut, escape
from penstock.core.limits import Limit, Unit
from penstock.core.request import Descriptor, Request

MAX_DESCRIPTORS: Final = 10
MAX_ENTRIES: Final = 10
MAX_TEXT: Final = 80
"""Clients choose what is in a request, and so how long a line would be."""

HIDDEN: Final = "(hidden)"

_QUOTES: Final = str.maketrans({"\\": "\\\\", "'": "\\'"})

_SECRET_KEY: Final = re.compile(
    "(api|access|private).?key|token|secret|auth(?!or(?!i[sz]))|jwt|bearer|passw|pwd|cookie"
    "|credential|session|signature",
    re.IGNORECASE,
)
"""In the name of an entry: its value may let its reader in somewhere, and logs are read by many.

An author, and an authority, which is Envoy's word for a host, are none.
"""

_SECRET_VALUE: Final = re.compile(r"\s*(bearer|basic|digest)\s|eyJ[\w-]+\.", re.IGNORECASE)
"""What an Authorization header has, and a JWT, whatever the entry is called."""


def decision_text(request: Request, decision: Decision) -> str:
    """Tell what was asked and answered, without values that may be secrets."""
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
    # A stored limit has an entity before its name, which may be a secret too.
    name = _bare(status.limit.name.rpartition("/")[2] or "limit")
    return f"{code} {name} {_rate(status.limit)}, {status.remaining} left"


def _rate(limit: Limit) -> str:
    if limit.unit is Unit.UNKNOWN:
        return f"{limit.requests_per_unit} in {limit.period_ms} ms"
    return f"{limit.requests_per_unit} per {limit.unit.name.lower()}"


def _shown(key: str, value: str) -> str:
    if _SECRET_KEY.search(key) or _SECRET_VALUE.match(value):
        return HIDDEN
    path, question, _ = value.partition("?")
    # Behind it, a path has parameters.
    return f"{_cut(path)}?{HIDDEN}" if question else _cut(value)


def _cut(text: str) -> str:
    """In quotes that no text can end: a line stays a line, and tells what is whose."""
    return f"'{_bare(text)}'"


def _bare(text: str) -> str:
    return escape(cut(text, MAX_TEXT).translate(_QUOTES))


def _left_out(count: int) -> list[str]:
    return [f"and {count} more"] if count > 0 else []
