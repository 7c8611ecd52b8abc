"""What the application is told of requests, turn by turn."""

from penstock.transport.http2 import Received, WasReset

from tests.support.http2 import frame
from tests.unit.transport.http2.peer import (
    DATA,
    END,
    END_STREAM,
    HEAD,
    HEADERS,
    RST_STREAM,
    SETTINGS,
    TAIL,
    Peer,
    block,
    number,
    request,
    setting,
    window_update,
)

RESET = frame(RST_STREAM, 0, 1, number(8))


def shown(peer: Peer, *frames: bytes) -> list[tuple[object, ...]]:
    """Events in short: (stream, has a head, data, ended), or (stream, "reset")."""
    return [
        (event.stream_id, event.head is not None, event.data, event.ended)
        if isinstance(event, Received)
        else (event.stream_id, "reset")
        for event in peer.send(*frames)
    ]


def test_frames_of_one_turn_are_one_event() -> None:
    """A request that comes in one read is told in one piece."""
    body = [frame(DATA, 0, 1, b"one "), frame(DATA, 0, 1, b"two "), frame(DATA, 1, 1, b"three")]
    assert shown(Peer(), request(1, ends=False), *body) == [(1, True, b"one two three", True)]


def test_frames_of_several_turns_are_events_of_their_own() -> None:
    """The head comes with the first one only."""
    peer = Peer()
    assert shown(peer, request(1, ends=False)) == [(1, True, b"", False)]
    assert shown(peer, frame(DATA, 0, 1, b"one")) == [(1, False, b"one", False)]
    assert shown(peer, frame(DATA, END_STREAM, 1, b"two")) == [(1, False, b"two", True)]


def test_trailers_end_a_request() -> None:
    """What is in them is nobody's business."""
    peer = Peer()
    peer.send(request(1, ends=False), frame(DATA, 0, 1, b"x"))
    assert shown(peer, frame(HEADERS, END, 1, block(("x", "y")))) == [(1, False, b"", True)]


def test_streams_that_take_turns_are_told_one_by_one() -> None:
    """In the order in which they began."""
    frames = [
        request(1, ends=False), request(3, ends=False), frame(DATA, 0, 1, b"a"),
        frame(DATA, END_STREAM, 3, b"b"), frame(DATA, END_STREAM, 1, b"c"), request(5),
    ]  # fmt: skip
    assert shown(Peer(), *frames) == [
        (1, True, b"ac", True), (3, True, b"b", True), (5, True, b"", True),
    ]  # fmt: skip


def test_a_request_that_came_is_told_even_if_it_is_reset_at_once() -> None:
    """What a client asked for counts, whatever becomes of its stream."""
    peer = Peer()
    assert shown(peer, request(1), RESET) == [(1, True, b"", True), (1, "reset")]


def test_half_a_request_that_is_reset_at_once_is_not_told() -> None:
    """Nobody has begun to serve it."""
    assert shown(Peer(), request(1, ends=False), frame(DATA, 0, 1, b"half"), RESET) == []


def test_the_application_hears_of_a_reset() -> None:
    """By the client, or because of what the client did. DATA before it is dropped."""
    peer = Peer()
    peer.send(request(1, ends=False), request(3, ends=False))
    assert shown(peer, frame(DATA, 0, 1, b"x"), RESET) == [(1, "reset")]
    assert shown(peer, window_update(3, 0)) == [(3, "reset")]


def test_the_end_and_a_reset_in_one_later_turn_are_both_told() -> None:
    """The rest of the request comes with its end."""
    peer = Peer()
    peer.send(request(1, ends=False))
    events = shown(peer, frame(DATA, END_STREAM, 1, b"rest"), RESET)
    assert events == [(1, False, b"rest", True), (1, "reset")]


def test_an_end_is_told_once() -> None:
    """A reset in a later turn does not repeat it."""
    peer = Peer()
    peer.send(request(1))
    assert peer.send(RESET) == [WasReset(1)]


def test_nothing_is_told_of_a_stream_that_was_answered() -> None:
    """Neither DATA nor a reset, even while the answer waits for a window."""
    peer = Peer()
    peer.send(frame(SETTINGS, 0, 0, setting(4, 0)), request(1, ends=False))
    peer.server.respond(1, HEAD, b"waits", TAIL)
    assert peer.server.open_streams == 1
    assert peer.send(frame(DATA, 0, 1, b"more")) == []
    assert peer.send(RESET) == []
    assert peer.server.open_streams == 0


def test_what_came_before_a_fault_is_told() -> None:
    """The connection is over, but the request before the fault was a good one."""
    peer = Peer()
    assert shown(peer, request(1), frame(SETTINGS, 0, 1)) == [(1, True, b"", True)]
    assert peer.server.is_over


def test_requests_with_the_same_block_share_a_head() -> None:
    """So that work on a head can be kept with it."""
    peer = Peer()
    first, second = peer.send(request(1), request(3))
    assert isinstance(first, Received)
    assert isinstance(second, Received)
    assert first.head is second.head
