"""Floods, and peers that do not read: GOAWAY(ENHANCE_YOUR_CALM), and memory that stays flat."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from penstock.transport.http2 import Bounds, ErrorCode

from tests.support.http2 import frame
from tests.unit.transport.http2.peer import (
    ACK,
    CONTINUATION,
    DATA,
    END,
    END_STREAM,
    GOAWAY,
    HEAD,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    TAIL,
    Peer,
    answer,
    block,
    number,
    request,
    setting,
    window_update,
)

CALM = "ENHANCE_YOUR_CALM"
MOST = 6_000
"""No flood goes on for as many frames as this."""
FLAT_BYTES = 1024 * 1024


OPENED = request(1, ends=False)
CLOSED = OPENED + frame(RST_STREAM, 0, 1, number(8))
ABANDONED = OPENED + window_update(1, 0)


@dataclass(frozen=True)
class Flood:
    """A beginning, and what follows it again and again, each time with another stream."""

    again: Callable[[int], bytes]
    first: bytes = b""


def repeated(data: bytes, first: bytes = b"") -> Flood:
    return Flood(lambda _: data, first)


FLOODS = {
    "ping": repeated(frame(PING, 0, 0, bytes(8))),
    "pong": repeated(frame(PING, ACK, 0, bytes(8))),
    "settings": repeated(frame(SETTINGS, 0, 0, setting(4, 1) * 100)),
    "acknowledged settings": repeated(frame(SETTINGS, ACK, 0)),
    "goaway": repeated(frame(GOAWAY, 0, 0, bytes(8)), OPENED),
    "priority": repeated(frame(PRIORITY, 0, 77, bytes(5))),
    "unknown frames": repeated(frame(0x77, 0, 0)),
    "window of the connection": repeated(window_update(0, 1)),
    "window of a stream": repeated(window_update(1, 1), OPENED),
    "window of a closed stream": repeated(window_update(1, 1), CLOSED),
    "empty data": repeated(frame(DATA, 0, 1), OPENED),
    "data of nothing but padding": repeated(frame(DATA, PADDED, 1, b"\5" + bytes(5)), OPENED),
    "rapid reset (CVE-2023-44487)": Flood(lambda s: request(s) + frame(RST_STREAM, 0, s, bytes(4))),
    "made you reset by a window of 0 (CVE-2025-8671)": Flood(
        lambda s: request(s) + window_update(s, 0)
    ),
    "made you reset by a window too large": Flood(
        lambda s: request(s) + window_update(s, 2**31 - 1)
    ),
    "made you reset by data after the end": Flood(
        lambda s: request(s) + frame(DATA, END_STREAM, s, b"x")
    ),
    "made you reset by headers after the end": Flood(lambda s: request(s) * 2),
    "made you reset by a short priority": Flood(
        lambda s: request(s) + frame(PRIORITY, 0, s, bytes(4))
    ),
    "made you reset by a wrong length": Flood(
        lambda s: request(s, ("content-length", "1"), ends=False) + frame(DATA, END_STREAM, s)
    ),
    "empty headers": Flood(lambda s: frame(HEADERS, END, s)),
    "bad requests": Flood(lambda s: frame(HEADERS, END, s, block(("Bad", "name")))),
    "streams beyond the bound": Flood(lambda s: request(s, ends=False)),
    "data on a stream that is gone": repeated(frame(DATA, 0, 1), ABANDONED),
    "headers on a stream that is gone": repeated(request(1), ABANDONED),
}


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "does not read"])
def test_a_flood_is_ended_and_leaves_memory_flat(name: str, reads: bool) -> None:
    """Whether the client reads our answers or not."""
    flood = FLOODS[name]
    peer = Peer(Bounds(max_concurrent_streams=200, flood_points=2_000))
    peer.told(flood.first)
    tracemalloc.start()
    heard: list[str] = []
    try:
        for stream in range(1, 2 * MOST, 2):
            peer.send(flood.again(stream))
            if reads:
                heard = peer.heard()
            if peer.server.fault is not None:
                break
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if not reads:
        heard = peer.heard()
    assert heard[-1].split()[2] == CALM
    assert peer.server.fault is not None
    assert peer.server.fault.reason.startswith("flood: too many ")
    assert peak < FLAT_BYTES


def test_small_pieces_of_a_block_are_a_flood() -> None:
    """CONTINUATION without end, empty or not (CVE-2024-27316)."""
    for piece in (b"", b"x"):
        peer = Peer(Bounds(flood_points=2_000))
        peer.send(frame(HEADERS, 0, 1, block(*REQUEST)))
        sent = 0
        while peer.server.fault is None and sent < MOST:
            peer.send(frame(CONTINUATION, 0, 1, piece) * 100)
            sent += 100
        assert peer.heard() == [f"GOAWAY 0 {CALM}"]


def test_large_pieces_of_a_block_end_soon() -> None:
    """A block has a bound in bytes, which no request needs."""
    peer = Peer()
    piece = bytes(16_384)
    heard = peer.told(frame(HEADERS, 0, 1, piece), *[frame(CONTINUATION, 0, 1, piece)] * 4)
    assert heard == [f"GOAWAY 0 {CALM}"]


def test_a_header_list_over_the_bound_costs_its_stream() -> None:
    """The table stays right, so the connection goes on."""
    peer = Peer(Bounds(max_header_list_bytes=4_000))
    large = [(f"x-{i}", "v" * 100) for i in range(40)]
    assert peer.told(request(1, *large)) == [f"RST_STREAM 1 {CALM}"]
    assert peer.serve(request(3, *large[:10])) == answer(3)


def test_a_small_block_of_a_huge_list_is_not_unpacked() -> None:
    """The "HPACK bomb": a large field once, and then a thousand references of one byte."""
    peer = Peer()
    field = b"\x40\x01a\x7f\xd1\x0e" + b"v" * 2000
    peer.serve(frame(HEADERS, END, 1, block(*REQUEST) + field))
    tracemalloc.start()
    try:
        heard = peer.told(frame(HEADERS, END, 3, block(*REQUEST) + b"\xbe" * 16_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert heard == [f"GOAWAY 3 {CALM}"]
    assert peak < FLAT_BYTES


@pytest.mark.parametrize("reads", [True, False], ids=["window is closed", "nobody reads"])
def test_a_client_that_asks_and_does_not_read_is_dropped(reads: bool) -> None:
    """Answers wait for its window, or in our output; both together have a bound."""
    bounds = Bounds(max_waiting_bytes=100_000)
    peer = Peer(bounds)
    peer.told(frame(SETTINGS, 0, 0, setting(4, 0 if reads else 2**30)), window_update(0, 2**30))
    for stream in range(1, 400, 2):
        peer.send(request(stream))
        if reads:
            peer.heard()
        if peer.server.is_over:
            break
        peer.server.respond(stream, HEAD, bytes(1_000), TAIL)
    assert peer.server.fault is not None
    assert peer.server.fault.code is ErrorCode.ENHANCE_YOUR_CALM
    assert len(peer.server.output()) < 110_000


def test_a_stream_of_data_that_nobody_reads_is_dropped() -> None:
    """The same for an answer in steps."""
    peer = Peer(Bounds(max_waiting_bytes=100_000))
    peer.send(request(1))
    peer.server.send_head(1, HEAD)
    waiting = [peer.server.send_data(1, bytes(1_000)) for _ in range(200)]
    assert max(waiting) < 100_000
    assert peer.server.is_over


def test_half_a_frame_is_all_that_is_kept_of_input() -> None:
    """A client that never completes a frame, however it cuts it."""
    peer = Peer()
    tracemalloc.start()
    try:
        for byte in frame(DATA, 0, 1, bytes(16_384))[:-1]:
            peer.send(bytes([byte]))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 40_000
    assert not peer.server.is_over


def test_a_busy_client_is_no_flood() -> None:
    """For every answer that it takes it may also ping, open windows, and reset a stream."""
    peer = Peer()
    for stream in range(1, 12_000, 4):
        extras = frame(PING, 0, 0, bytes(8)) + window_update(0, 5)
        given_up = request(stream + 2) + frame(RST_STREAM, 0, stream + 2, number(8))
        peer.serve(request(stream), given_up, extras)
    assert peer.server.fault is None


def test_time_makes_up_for_frames() -> None:
    """A hundred a second, for minutes, is no flood; twice as many soon are."""
    for at_once, is_flood in [(10, False), (20, True)]:
        peer = Peer(Bounds(flood_points=1_000, flood_points_per_s=100))
        for _ in range(600):
            peer.now_s += 0.1
            peer.told(frame(PING, 0, 0, bytes(8)) * at_once)
        assert (peer.server.fault is not None) == is_flood


def test_a_long_rest_gives_no_more_than_a_full_purse() -> None:
    """Otherwise a client could save up for a flood."""
    peer = Peer(Bounds(flood_points=100))
    ping = frame(PING, 0, 0, bytes(8))
    for _ in range(3):
        peer.told(ping * 94)
        peer.now_s += 1_000_000
    assert peer.server.fault is None
    peer.told(ping * 300)
    assert peer.server.fault is not None


def test_settings_cost_more_the_more_streams_they_change() -> None:
    """Each of them looks at every open stream."""
    faults = []
    for streams in (1, 1_600):
        peer = Peer(Bounds(flood_points=500))
        peer.send(*(request(2 * i + 1) for i in range(streams)))
        peer.told(*(frame(SETTINGS, 0, 0, setting(4, i)) for i in range(20)))
        faults.append(peer.server.fault is not None)
    assert faults == [False, True]


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    """The answers before it still count."""
    peer = Peer(Bounds(flood_points=10))
    peer.serve(request(1))
    peer.now_s = -1_000_000.0
    peer.told(frame(PING, 0, 0, bytes(8)) * 6)
    assert peer.server.fault is None
