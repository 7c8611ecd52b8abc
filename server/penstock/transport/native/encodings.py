"""Compressed messages: what `grpc-encoding` may name, and how much may come out.

The law of this file: no more is decompressed than a message may have.
"""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.transport.failures import CallError, Code

Decompress = Callable[[bytes, int], bytes]
"""From a message, and the most bytes it may have, to what was compressed."""

IDENTITY: Final = "identity"


def _inflate(wbits: int, data: bytes, most: int) -> bytes:
    """The texts are those of gRPC's C library."""
    inflating = zlib.decompressobj(wbits)
    try:
        # One byte more than may be tells that there is more.
        message = inflating.decompress(data, most + 1)
    except zlib.error as exc:
        raise CallError(Code.INTERNAL, "Decompression failed due to zlib error") from exc
    if len(message) > most:
        raise CallError(Code.RESOURCE_EXHAUSTED, "Decompressed message larger than max")
    if not inflating.eof or inflating.unused_data:
        raise CallError(Code.INTERNAL, "Decompression failed due to zlib error")
    return message


ENCODINGS: Final[dict[str, Decompress | None]] = {
    IDENTITY: None,
    "deflate": partial(_inflate, zlib.MAX_WBITS),
    # zlib reads the header and trailer of gzip if 16 is added.
    "gzip": partial(_inflate, 16 + zlib.MAX_WBITS),
}
"""By the name that `grpc-encoding` has for them."""
