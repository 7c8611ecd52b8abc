"""Every number that bounds a connection: what a peer may make us keep, do, or wait for."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    # What is open at the same time.
    max_concurrent_streams: int = 2048

    # Header blocks. The peer is told the size of a list. A larger list costs the peer its stream;
    # beyond four times the size we stop decoding, and the peer loses its connection.
    max_header_list_bytes: int = 16 * KIB
    cached_blocks: int = 256
    cached_block_bytes: int = 64 * KIB

    # Input. The windows bound what waits for the application.
    max_frame_bytes: int = 16 * KIB
    stream_window: int = 64 * KIB
    connection_window: int = 1024 * KIB

    # Output that the peer's windows do not admit, or that nobody has taken by `output()`.
    max_waiting_bytes: int = 4096 * KIB

    # Floods. `floods.py` has the price of each frame.
    flood_points: int = 10_000
    flood_points_per_s: int = 1_000

    # Time.
    handshake_s: float = 10.0
    settings_ack_s: float = 20.0
    ping_after_s: float = 60.0
    pong_within_s: float = 20.0
    idle_s: float = 600.0
    max_age_s: float | None = None
    age_grace_s: float | None = None
    drain_ping_s: float = 1.0

    def __post_init__(self) -> None:
        # A peer may use the defaults of HTTP/2 before it knows ours, so ours cannot be lower.
        least = {"max_frame_bytes": 16_384, "stream_window": 65_535, "connection_window": 65_535}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name} must be at least {value}")
