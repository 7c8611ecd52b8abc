"""The kinds of settings: how a value is written and read."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.config.cores import usable_cores
from penstock.config.durations import format_duration, parse_rounded_ms
from penstock.config.similar import did_you_mean
from penstock.config.usage_kept import format_usage_kept, parse_usage_kept

Address = tuple[str, int]
"""A host and a port. An empty host means all addresses of this machine."""

Tags = tuple[tuple[str, str], ...]

MAX_WORKERS: Final = 256


def _bool(text: str) -> bool:
    match text.lower():
        case "1" | "t" | "true" | "yes" | "on":
            return True
        case "0" | "f" | "false" | "no" | "off":
            return False
    raise ValueError(f"'{text}' is not true or false")


def _port(text: str) -> int:
    if re.fullmatch("[0-9]{1,5}", text) is None or int(text) > 65535:
        raise ValueError(f"'{text}' is not a port: write a number from 0 to 65535")
    return int(text)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"'{text}' is not an address: write HOST:PORT, or :PORT for all addresses")
    return host.removeprefix("[").removesuffix("]"), _port(port)


def _show_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _share(text: str) -> float:
    """Read a decimal number. Refuse names and exponents, which Python accepts: nan, 1e3."""
    if re.fullmatch(r"[0-9]*\.?[0-9]+", text) is None or float(text) > 1:
        raise ValueError(f"'{text}' is not a share: write a number from 0 to 1, such as 0.8")
    return float(text)


def _size(text: str) -> int:
    if re.fullmatch("[0-9]{1,18}", text) is None:
        raise ValueError(f"'{text}' is not a number of bytes")
    return int(text)


def _between(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if re.fullmatch("[0-9]{1,9}", text) is None or not least <= int(text) <= most:
            raise ValueError(f"'{text}' is not a number from {least} to {most}")
        return int(text)

    return parse


def _count(text: str) -> int:
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise ValueError(f"'{text}' is not a number: write a number such as 1000")
    return int(text)


def _workers(text: str) -> int:
    return usable_cores() if text.lower() == "auto" else _between(1, MAX_WORKERS)(text)


def _tags(text: str) -> Tags:
    found = [tuple(part.strip().split(":", 1)) for part in text.split(",") if part.strip()]
    if any(len(tag) != 2 or not tag[0] for tag in found):
        raise ValueError(f"'{text}' has a tag without a value: write name:value,name:value")
    return tuple((name, value) for name, value in found)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> Tags:
    """Read node metadata. The reference server skips parts without a `=`, and so does this."""
    found = [part.split("=", 1) for part in text.split(",")]
    return tuple((pair[0], pair[1]) for pair in found if len(pair) == 2)


def _headers(text: str) -> Tags:
    """Read headers for gRPC. Their values may be secrets, so errors show none of the text."""
    found = [part.strip().partition(":") for part in text.split(",") if part.strip()]
    for number, (name, _, value) in enumerate(found, start=1):
        if re.fullmatch(r"[0-9a-zA-Z_.-]+", name) is None or not value:
            raise ValueError(f"header {number} has no name or value: write name:value,name:value")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"header {number} has a value with characters that it can't have")
    return tuple((name.lower(), value) for name, _, value in found)


def _one_of(*choices: str, **others: str) -> Callable[[str], str]:
    """Accept a choice in any case. `others` are more names for some choices."""

    def parse(text: str) -> str:
        name = text.lower()
        if name in choices:
            return name
        if name in others:
            return others[name]
        raise ValueError(
            f"'{text}' is not one of {', '.join(choices)}{did_you_mean(name, choices)}"
        )

    return parse


def _text(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Kind:
    """How a setting is written."""

    parse: Callable[[str], Any]
    shown: str
    write: Callable[[Any], str] = str
    """A value as `parse` reads it."""


TEXT: Final = Kind(_text, "TEXT")
PATH: Final = Kind(_text, "PATH")
BOOL: Final = Kind(_bool, "BOOL", lambda value: "true" if value else "false")
PORT: Final = Kind(_port, "PORT")
ADDRESS: Final = Kind(_address, "HOST:PORT", _show_address)
# The reference server accepts durations down to 1 ns. No setting needs less than 1 ms.
DURATION: Final = Kind(parse_rounded_ms, "DURATION", format_duration)
USAGE: Final = Kind(parse_usage_kept, "WINDOW=DURATION", format_usage_kept)
SHARE: Final = Kind(_share, "SHARE", lambda value: f"{value:g}")
SIZE: Final = Kind(_size, "BYTES")
COUNT: Final = Kind(_count, "NUMBER")
CALLS: Final = Kind(_between(1, 1_000_000), "1-1000000")
WORKERS: Final = Kind(_workers, f"1-{MAX_WORKERS}|auto")
# Decoding 1 MiB takes 20 ms. A longer request would make other callers wait too long.
REQUEST_BYTES: Final = Kind(_between(1_024, 1_048_576), "1024-1048576")
MESSAGE_BYTES: Final = Kind(_between(1_024, 104_857_600), "1024-104857600")
PAIRS: Final = Kind(_pairs, "PAIRS", lambda pairs: ",".join(f"{k}={v}" for k, v in pairs))
HEADERS: Final = Kind(_headers, "HEADERS", lambda pairs: ",".join(f"{k}:{v}" for k, v in pairs))
TAGS: Final = Kind(_tags, "TAGS", lambda tags: ",".join(f"{k}:{v}" for k, v in tags))
NAMES: Final = Kind(_names, "NAMES", ",".join)
FORMAT: Final = Kind(_one_of("text", "json"), "text|json")
PROTOCOL: Final = Kind(_one_of("http", "grpc"), "http|grpc")
SOURCE: Final = Kind(_one_of("file", "grpc_xds_sotw"), "file|grpc_xds_sotw")
COUNTING: Final = Kind(_one_of("steady", "fixed", "reference"), "steady|fixed|reference")
UNAVAILABLE: Final = Kind(_one_of("error", "allow", "deny"), "error|allow|deny")
TRANSPORT: Final = Kind(_one_of("native", "grpcio"), "native|grpcio")
EVENT_LOOP: Final = Kind(_one_of("auto", "uvloop", "asyncio"), "auto|uvloop|asyncio")
VALUES: Final = Kind(_one_of("shown", "hashed", "hidden"), "shown|hashed|hidden")
DECISIONS: Final = Kind(_one_of("auto", "on", "off"), "auto|on|off")
# The reference server knows more names.
LEVEL: Final = Kind(
    _one_of(
        "debug", "info", "warn", "error",
        trace="debug", warning="warn", fatal="error", panic="error",
    ),
    "debug|info|warn|error",
)  # fmt: skip
