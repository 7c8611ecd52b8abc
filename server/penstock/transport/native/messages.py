"""Messages on a stream: five bytes before each, a flag and a length, then the message.

The law of this file: a stream never holds more than one message that is as long as may be, and
what came of the next ones in the same turn. A message that is too long is refused by its length,
before it has come.
"""

from struct import Struct
from typing import Final

from penstock.transport.failures import CallError, Code
from penstock.transport.native.encodings import Decompress

_PREFIX: Final = Struct(">BI")
PREFIX: Final = _PREFIX.size

PLAIN: Final = 0
COMPRESSED: Final = 1


def frame_message(message: bytes) -> bytes:
    """The message with its prefix. Answers are small, so none is compressed."""
    return _PREFIX.pack(PLAIN, len(message)) + message


def read_lone_message(data: bytes, most: int) -> bytes | None:
    """The message, if this is exactly one, whole and not compressed; None to have it looked at.

    Nearly every request is so.
    """
    length = len(data) - PREFIX
    if 0 <= length <= most and _PREFIX.unpack_from(data) == (PLAIN, length):
        return data[PREFIX:]
    return None


class MessageReader:
    """Cuts what one client sends on a stream into messages."""

    __slots__ = ("_buffer", "_decompress", "_most")

    def __init__(self, most: int, decompress: Decompress | None) -> None:
        """`most`: bytes of a message, before and after it is decompressed."""
        self._most = most
        self._decompress = decompress
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def held(self) -> int:
        """Bytes that came and were not read yet."""
        return len(self._buffer)

    def read(self) -> bytes | None:
        """The next message; None if it has not come whole. CallError if it can't be read."""
        buffer = self._buffer
        if len(buffer) < PREFIX:
            return None
        flag, length = buffer[0], int.from_bytes(buffer[1:PREFIX], "big")
        self._check(flag, length)
        if len(buffer) < PREFIX + length:
            return None
        message = bytes(memoryview(buffer)[PREFIX : PREFIX + length])
        del buffer[: PREFIX + length]
        if flag == COMPRESSED and self._decompress is not None:
            return self._decompress(message, self._most)
        return message

    def _check(self, flag: int, length: int) -> None:
        """The texts are those of gRPC's C library, where it has some."""
        if length > self._most:
            raise CallError(
                Code.RESOURCE_EXHAUSTED,
                f"SERVER: Received message larger than max ({length} vs. {self._most})",
            )
        if flag not in {PLAIN, COMPRESSED}:
            raise CallError(
                Code.INTERNAL, f"a message has the flag {flag}, which gRPC does not know"
            )
        if flag == COMPRESSED and self._decompress is None:
            raise CallError(Code.INTERNAL, "Compression bit set but no encoding configured")
