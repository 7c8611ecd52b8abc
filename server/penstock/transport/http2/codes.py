"""Error codes of HTTP/2 (RFC 9113 section 7), and the two kinds of faults a peer can make.

The law of this file: a fault says how far it reaches. A `StreamFault` ends one request, and the
peer gets RST_STREAM. A `ConnectionFault` ends the connection, and the peer gets GOAWAY.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Fault(Exception):  # noqa: N818 - whose error it is matters: this is the peer's
    """The peer broke a rule. The text is for operators: the peer and the log get it."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


class ConnectionFault(Fault):
    """Nothing more can be understood or served on this connection."""


class StreamFault(Fault):
    """One request is broken. The others on the connection go on."""
