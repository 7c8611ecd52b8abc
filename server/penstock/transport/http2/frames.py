"""Frames on the wire (RFC 9113 sections 4 and 6): nine bytes of header, then the payload.

The law of this file: it knows what frames look like, and nothing about when they are allowed.
"""

from struct import Struct
from typing import Final

from penstock.transport.http2.codes import ConnectionFault, ErrorCode

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

# Plain integers, because the loop over frames compares them, and an IntEnum takes thrice the time.
DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

MAX_STREAM_ID: Final = 2**31 - 1
"""Also the mask that takes off the reserved bit."""

HEADER_BYTES: Final = 9
FRAME_HEADER: Final = Struct(">IBI")
"""Length (24 bits) and type (8 bits) as one number, then flags, then the stream's id."""

_pack_header = FRAME_HEADER.pack
_U32: Final = Struct(">I")
_GOAWAY: Final = Struct(">II")
_SETTING: Final = Struct(">HI")


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return _pack_header(len(payload) << 8 | kind, flags, stream_id) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values.items()))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    return frame(RST_STREAM, 0, stream_id, _U32.pack(code))


def goaway(last_stream_id: int, code: ErrorCode, reason: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, _GOAWAY.pack(last_stream_id, code) + reason.encode("ascii"))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, _U32.pack(increment))


def header_frames(stream_id: int, block: bytes, max_frame_bytes: int, *, ends: bool) -> bytes:
    """HEADERS, followed by CONTINUATION where the block is larger than a frame of the peer."""
    flags = END_STREAM if ends else 0
    if len(block) <= max_frame_bytes:
        return frame(HEADERS, flags | END_HEADERS, stream_id, block)
    pieces = [block[i : i + max_frame_bytes] for i in range(0, len(block), max_frame_bytes)]
    return b"".join(
        [
            frame(HEADERS, flags, stream_id, pieces[0]),
            *(frame(CONTINUATION, 0, stream_id, piece) for piece in pieces[1:-1]),
            frame(CONTINUATION, END_HEADERS, stream_id, pieces[-1]),
        ]
    )


def number(payload: bytes) -> int:
    """The one 32-bit number of a RST_STREAM or WINDOW_UPDATE frame."""
    return int.from_bytes(payload, "big")


def setting_pairs(payload: bytes) -> list[tuple[int, int]]:
    return list(_SETTING.iter_unpack(payload))


def without_padding(flags: int, payload: bytes) -> bytes:
    """What is left of a DATA or HEADERS payload once padding is taken off."""
    if not flags & PADDED:
        return payload
    if not payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "padded frame without a pad length")
    end = len(payload) - payload[0]
    if end < 1:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1:end]


def without_priority(flags: int, stream_id: int, payload: bytes) -> bytes:
    """The block of a HEADERS payload. Priorities are checked and ignored (RFC 9113 5.3.2)."""
    if not flags & PRIORITIZED:
        return payload
    if len(payload) < 5:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
    if depends_on_itself(stream_id, payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a stream depends on itself")
    return payload[5:]


def depends_on_itself(stream_id: int, payload: bytes) -> bool:
    return int.from_bytes(payload[:4], "big") & MAX_STREAM_ID == stream_id
