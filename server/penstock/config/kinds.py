"""The kinds of settings: how each is written, and read."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.config.durations import parse_duration_ms


def _bool(text: str) -> bool:
    match text.lower():
        case "1" | "t" | "true" | "yes" | "on":
            return True
        case "0" | "f" | "false" | "no" | "off":
            return False
    raise ValueError(f"'{text}' is neither true nor false")


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text) is None or int(text) > 65535:
        raise ValueError(f"'{text}' is no port: write a number from 0 to 65535")
    return int(text)


def _one_of(*choices: str, **others: str) -> Callable[[str], str]:
    """Any case, and `others`: further names for some of the choices."""

    def parse(text: str) -> str:
        name = text.lower()
        if name in choices:
            return name
        if name in others:
            return others[name]
        raise ValueError(f"'{text}' is not one of {', '.join(choices)}")

    return parse


def _text(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    """How a setting is written."""

    parse: Callable[[str], Any]
    shown: str


TEXT: Final = Kind(_text, "TEXT")
BOOL: Final = Kind(_bool, "BOOL")
PORT: Final = Kind(_port, "PORT")
DURATION: Final = Kind(parse_duration_ms, "DURATION")
UNAVAILABLE: Final = Kind(_one_of("error", "allow", "deny"), "error|allow|deny")
# The reference server knows more names.
LEVEL: Final = Kind(
    _one_of(
        "debug", "info", "warn", "error",
        trace="debug", warning="warn", fatal="error", panic="error",
    ),
    "debug|info|warn|error",
)  # fmt: skip
