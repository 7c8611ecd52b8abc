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


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice:
                return choice
        raise ValueError(f"'{text}' is not one of {', '.join(choices)}")

    return parse


_LEVELS: Final = {
    "debug": "debug", "info": "info", "warn": "warn", "error": "error",
    # The reference server knows more names.
    "trace": "debug", "warning": "warn", "fatal": "error", "panic": "error",
}  # fmt: skip


def _level(text: str) -> str:
    if text.lower() not in _LEVELS:
        raise ValueError(f"'{text}' is not one of debug, info, warn, error")
    return _LEVELS[text.lower()]


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
LEVEL: Final = Kind(_level, "debug|info|warn|error")
