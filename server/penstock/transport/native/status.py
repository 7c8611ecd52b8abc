"""How an answer ends: `grpc-status` and `grpc-message`, as blocks of headers that are made once."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import quote_from_bytes

from penstock.transport.failures import Code, Status
from penstock.transport.http2 import encode_block
from penstock.transport.notes import Trailers

MAX_TEXT_BYTES: Final = 1_024
"""Of a `grpc-message`: clients take a few KiB of headers, and some texts repeat what they sent."""

REMEMBERED: Final = 256
"""Failures whose blocks are kept. Most are the same again and again."""

# Space to ~ but % go as they are, by the gRPC protocol. Letters and digits do in any case.
_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

_ANSWER: Final = ((":status", "200"), ("content-type", "application/grpc"))

TIME_IS_UP: Final = Status(Code.DEADLINE_EXCEEDED, "Deadline Exceeded")
"""By the client's own `grpc-timeout`. The words are those of gRPC's C library."""

ANSWER_HEAD: Final = encode_block(_ANSWER)
"""Before the message of an answer."""

OK_TAIL: Final = encode_block((("grpc-status", "0"),))
"""After it."""


def ok_tail(trailers: Trailers) -> bytes:
    """What ends a call that was answered."""
    return encode_block((("grpc-status", "0"), *trailers))


@lru_cache(REMEMBERED)
def failed(code: Code, text: str, trailers: Trailers = ()) -> bytes:
    """A whole answer in one block, for a call that failed before anything was sent."""
    return encode_block((*_ANSWER, *_status(code, text), *trailers))


@lru_cache(REMEMBERED)
def failed_tail(code: Code, text: str) -> bytes:
    """What ends a stream that has sent its head."""
    return encode_block(_status(code, text))


def http_error(status: int, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The head of an answer to what is HTTP, but not gRPC."""
    kind = ("content-type", "text/plain; charset=utf-8")
    return encode_block(((":status", str(status)), kind, *headers))


def _status(code: Code, text: str) -> Trailers:
    if not text:
        return (("grpc-status", str(code.value)),)
    return (("grpc-status", str(code.value)), ("grpc-message", percent_encode(text)))


def percent_encode(text: str) -> str:
    """As `grpc-message` is written. Halves of surrogate pairs, which have no UTF-8, become `?`."""
    data = text.encode(errors="replace")
    if len(data) > MAX_TEXT_BYTES:
        data = data[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
    return quote_from_bytes(data, _SAFE)
