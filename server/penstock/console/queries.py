"""Reads the parameters of a request for JSON.

The law of this file: a parameter that is wrong, unknown or given twice is an error that says so.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from penstock.core.foreign_text import is_plain, show
from penstock.errors import InvalidRequestError

MOST_ROWS: Final = 1_000
MOST_PARAMETERS: Final = 10
MAX_TEXT: Final = 1_024
"""Characters. The entity of a rule has at most 512, and `next` of a list may have more."""

_NUMBER: Final = re.compile("[0-9]{1,15}")


def read_query(text: str, known: Sequence[str]) -> dict[str, str]:
    """The parameters of a query string, by name."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError as exc:
        raise InvalidRequestError(f"more than {MOST_PARAMETERS} parameters") from exc
    query: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            names = ", ".join(known) or "none"
            raise InvalidRequestError(f"unknown parameter '{show(name, 40)}', there is {names}")
        if name in query:
            raise InvalidRequestError(f"parameter '{name}' is given twice")
        if len(value) > MAX_TEXT or not is_plain(value):
            raise InvalidRequestError(f"{name}: '{show(value, 40)}' is too long, or no plain text")
        query[name] = value
    return query


def read_choice(query: Mapping[str, str], name: str, choices: Sequence[str], default: str) -> str:
    value = query.get(name, default)
    if value not in choices:
        raise InvalidRequestError(f"{name}: '{show(value, 40)}' is not one of {', '.join(choices)}")
    return value


def read_number(query: Mapping[str, str], name: str, default: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if _NUMBER.fullmatch(value) is None:
        raise InvalidRequestError(f"{name}: '{show(value, 40)}' is not a whole number")
    return int(value)


def read_rows(query: Mapping[str, str], default: int) -> int:
    """How many rows are wanted."""
    rows = read_number(query, "limit", default)
    if not 1 <= rows <= MOST_ROWS:
        raise InvalidRequestError(f"limit: {rows} is not a number from 1 to {MOST_ROWS}")
    return rows


def read_given(query: Mapping[str, str], name: str) -> str:
    """A parameter that must be given."""
    value = query.get(name, "")
    if not value:
        raise InvalidRequestError(f"give the parameter '{name}'")
    return value
