"""Metadata of a call, as headers carry it: text, or bytes in base64 under a name with `-bin`."""

import binascii
from collections.abc import Iterable
from typing import Final

BINARY: Final = "-bin"

Metadata = tuple[tuple[str, str | bytes], ...]


def read_metadata(headers: Iterable[tuple[str, str | bytes]]) -> Metadata:
    """Decode the binary values; ValueError names the header that is not base64."""
    found: list[tuple[str, str | bytes]] = []
    for name, value in headers:
        if name.endswith(BINARY):
            # Proxies may join headers of one name with commas.
            parts = value.split(b",") if isinstance(value, bytes) else value.split(",")
            found += [(name, _from_base64(name, part)) for part in parts]
        else:
            found.append((name, value))
    return tuple(found)


def _from_base64(name: str, text: str | bytes) -> bytes:
    """Senders may leave the padding out."""
    try:
        data = text.encode("ascii") if isinstance(text, str) else text
        data = data.strip()
        return binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
    except (ValueError, UnicodeError) as exc:
        # The words of gRPC's C library.
        raise ValueError(f"Error parsing '{name}' metadata: illegal base64 encoding") from exc
