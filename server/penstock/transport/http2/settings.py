"""SETTINGS (RFC 9113 section 6.5): what we tell the peer, and what the peer may tell us."""

from typing import Final, NamedTuple

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode
from penstock.transport.http2.frames import setting_pairs

HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6
NO_RFC7540_PRIORITIES: Final = 0x9

DEFAULT_HEADER_TABLE: Final = 4096
DEFAULT_WINDOW: Final = 65_535
DEFAULT_MAX_FRAME: Final = 16_384
MAX_WINDOW: Final = 2**31 - 1


class Rule(NamedTuple):
    lowest: int
    highest: int
    code: ErrorCode


RULES: Final = {
    ENABLE_PUSH: Rule(0, 1, ErrorCode.PROTOCOL_ERROR),
    INITIAL_WINDOW_SIZE: Rule(0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    MAX_FRAME_SIZE: Rule(DEFAULT_MAX_FRAME, 2**24 - 1, ErrorCode.PROTOCOL_ERROR),
    NO_RFC7540_PRIORITIES: Rule(0, 1, ErrorCode.PROTOCOL_ERROR),
}


def ours(bounds: Bounds) -> dict[int, int]:
    """What differs from the defaults. The table of headers stays at its default of 4,096 bytes."""
    return {
        MAX_CONCURRENT_STREAMS: bounds.max_concurrent_streams,
        INITIAL_WINDOW_SIZE: bounds.stream_window,
        MAX_FRAME_SIZE: bounds.max_frame_bytes,
        MAX_HEADER_LIST_SIZE: bounds.max_header_list_bytes,
    }


def of_peer(payload: bytes) -> dict[int, int]:
    """The peer's values, checked. If a frame names a setting twice, the last value counts."""
    if len(payload) % 6:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a broken length")
    values = {}
    for identifier, value in setting_pairs(payload):
        rule = RULES.get(identifier)
        if rule is not None and not rule.lowest <= value <= rule.highest:
            raise ConnectionFault(rule.code, f"setting {identifier} may not be {value}")
        values[identifier] = value
    return values
