"""How connections end: timers, drains, faults. Time is an argument."""

import gc
import weakref

import pytest
from penstock.transport.http2 import Bounds, ErrorCode

from tests.support.http2 import PREFACE, frame
from tests.unit.transport.http2.peer import (
    ACK,
    DATA,
    END,
    END_STREAM,
    GOAWAY,
    HEAD,
    HEADERS,
    PING,
    SETTINGS,
    TAIL,
    Peer,
    answer,
    request,
)

BOUNDS = Bounds(
    handshake_s=5, settings_ack_s=10, ping_after_s=60, pong_within_s=20, idle_s=300,
    max_age_s=1_000, age_grace_s=30, drain_ping_s=1,
)  # fmt: skip
EVERYTHING = 2**31 - 1
DRAIN = [f"GOAWAY {EVERYTHING} NO_ERROR", "PING draining"]
DRAIN_PONG = frame(PING, ACK, 0, b"draining")


def at(peer: Peer, now_s: float) -> list[str]:
    """What is heard when the clock of the server shows this."""
    peer.now_s = now_s
    peer.server.tick(now_s)
    return peer.heard()


def live(peer: Peer, until_s: float) -> list[str]:
    """Let time pass, as a shell does: tick at every deadline. The client answers every PING."""
    heard = []
    while (due_s := peer.server.deadline_s()) is not None and due_s <= until_s:
        assert due_s > peer.now_s or peer.now_s == 0
        lines = at(peer, due_s)
        heard += [line for line in lines if line != "PING alive???"]
        if "PING alive???" in lines:
            peer.send(frame(PING, ACK, 0, b"alive???"))
        if peer.server.is_over:
            break
    peer.now_s = until_s
    return heard


# Beginnings that do not come


@pytest.mark.parametrize("sent", [b"", PREFACE[:5], PREFACE, PREFACE + frame(SETTINGS, 0, 0)[:5]])
def test_a_handshake_has_its_time(sent: bytes) -> None:
    """A connection that says nothing, or not enough, is closed."""
    peer = Peer(BOUNDS, greet=False)
    peer.send(sent)
    peer.heard()
    assert at(peer, 4.9) == []
    assert at(peer, 5) == ["GOAWAY 0 SETTINGS_TIMEOUT"]
    assert peer.server.is_over
    assert peer.server.deadline_s() is None


def test_settings_have_to_be_acknowledged() -> None:
    """A client that does not follow our SETTINGS breaks our bounds (RFC 9113 6.5.3)."""
    peer = Peer(BOUNDS, greet=False)
    peer.send(PREFACE, frame(SETTINGS, 0, 0), request(1))
    peer.heard()
    assert at(peer, 9.9) == []
    assert at(peer, 10) == ["GOAWAY 1 SETTINGS_TIMEOUT"]


def test_a_good_beginning_needs_nothing_more() -> None:
    """Both timers pass without effect."""
    assert at(Peer(BOUNDS), 59.9) == []


# Silence


def test_a_silent_peer_is_asked_and_dropped() -> None:
    """A host that vanished sends no FIN."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    assert at(peer, 60) == ["PING alive???"]
    assert at(peer, 79.9) == []
    assert at(peer, 80) == ["GOAWAY 1 NO_ERROR"]
    assert peer.server.is_over


def test_a_peer_that_answers_lives() -> None:
    """Anything that it sends is an answer; late ticks are no fault of the peer."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    assert at(peer, 60) == ["PING alive???"]
    peer.now_s = 61
    peer.send(frame(PING, ACK, 0, b"alive???"))
    assert at(peer, 100) == []
    assert peer.server.deadline_s() == 61 + 60
    assert at(peer, 121) == ["PING alive???"]


def test_a_peer_that_talks_is_not_asked() -> None:
    """The PING comes a minute after its last word."""
    peer = Peer(BOUNDS)
    peer.now_s = 30
    peer.send(request(1))
    assert at(peer, 60) == []
    assert peer.server.deadline_s() == 90
    assert at(peer, 90) == ["PING alive???"]


# Idleness and age


def test_an_idle_connection_is_drained() -> None:
    """Answering PINGs is no use of it."""
    peer = Peer(BOUNDS)
    assert live(peer, 302) == [*DRAIN, "GOAWAY 0 NO_ERROR"]
    assert peer.server.is_over
    assert peer.server.fault is None


def test_a_connection_in_use_is_not_idle() -> None:
    """With a stream that is open, or with requests now and then."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    assert live(peer, 700) == []
    peer.server.respond(1, HEAD, b"hello", TAIL)
    assert peer.heard() == answer(1)
    assert live(peer, 999) == []
    peer = Peer(BOUNDS)
    for turn in range(3):
        peer.serve(request(1 + 2 * turn))
        assert live(peer, 250.0 * (turn + 1)) == []


def test_an_old_connection_is_drained_and_gets_its_grace() -> None:
    """Streams that are open may finish; those that do not are cut off."""
    peer = Peer(BOUNDS)
    peer.send(request(1), request(3))
    assert live(peer, 1_000) == DRAIN
    assert live(peer, 1_029) == ["GOAWAY 3 NO_ERROR"]
    peer.server.respond(1, HEAD, b"hello", TAIL)
    assert peer.heard() == answer(1)
    assert not peer.server.is_over
    assert live(peer, 1_030) == ["GOAWAY 3 NO_ERROR"]
    assert peer.server.is_over


def test_without_an_age_a_connection_lives_on() -> None:
    """Nothing but its streams and the client's answers keeps it."""
    peer = Peer(Bounds(ping_after_s=60, idle_s=300))
    peer.send(request(1))
    assert live(peer, 100_000) == []


# Drains


def test_a_drain_loses_no_request() -> None:
    """What the client sent before it knew is served. What comes later is refused."""
    peer = Peer(BOUNDS)
    peer.send(request(1, ends=False))
    peer.server.shut_down(0)
    assert peer.heard() == DRAIN
    assert peer.serve(request(3)) == answer(3)
    assert not peer.server.is_over
    assert peer.told(DRAIN_PONG) == ["GOAWAY 3 NO_ERROR"]
    assert peer.told(request(5)) == ["RST_STREAM 5 REFUSED_STREAM"]
    assert peer.serve(frame(DATA, END_STREAM, 1, b"rest")) == answer(1)
    assert peer.server.is_over


def test_a_drain_does_not_wait_long_for_a_client_that_does_not_answer() -> None:
    """A second, then the last stream is named anyway."""
    peer = Peer(BOUNDS)
    assert at(peer, 10) == []
    peer.server.shut_down(10)
    assert peer.heard() == DRAIN
    assert peer.server.deadline_s() == 11
    assert at(peer, 11) == ["GOAWAY 0 NO_ERROR"]
    assert peer.server.is_over


def test_a_drain_happens_once() -> None:
    """However often it is asked for, and whatever PING is answered."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    peer.server.shut_down(0)
    peer.heard()
    peer.server.shut_down(0)
    assert peer.told(frame(PING, ACK, 0, b"whatever")) == []
    assert peer.told(DRAIN_PONG) == ["GOAWAY 1 NO_ERROR"]
    assert peer.told(DRAIN_PONG) == []


def test_a_pong_for_a_drain_that_is_not_does_nothing() -> None:
    """A client cannot make us drain."""
    peer = Peer(BOUNDS)
    assert peer.told(DRAIN_PONG) == []
    assert peer.serve(request(1)) == answer(1)


def test_a_drain_is_not_cut_short_by_age() -> None:
    """Whoever drains decides how long that may take."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    live(peer, 990)
    peer.server.shut_down(990)
    assert live(peer, 1_100)[-1] == "GOAWAY 1 NO_ERROR"
    assert not peer.server.is_over


# Ends


def test_an_end_by_the_application_is_told() -> None:
    """GOAWAY with its code, once."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    peer.server.close(ErrorCode.INTERNAL_ERROR)
    peer.server.close(ErrorCode.NO_ERROR)
    assert peer.heard() == ["GOAWAY 1 INTERNAL_ERROR"]
    assert peer.server.is_over
    peer.server.shut_down(0)
    peer.server.tick(10_000)
    assert peer.heard() == []


def test_a_peer_that_hangs_up_is_gone() -> None:
    """Nothing can be sent to it."""
    peer = Peer(BOUNDS)
    peer.send(request(1))
    peer.server.end_of_input()
    assert peer.server.is_over
    peer.server.respond(1, HEAD, b"hello", TAIL)
    assert peer.heard() == []


def test_a_peer_that_says_goodbye_gets_its_answers() -> None:
    """Then the connection is over."""
    peer = Peer(BOUNDS)
    peer.send(request(1), frame(GOAWAY, 0, 0, bytes(8)))
    assert not peer.server.is_over
    peer.server.respond(1, HEAD, b"hello", TAIL)
    assert peer.heard() == answer(1)
    assert peer.server.is_over


@pytest.mark.parametrize("last", [b"", frame(SETTINGS, 0, 1), frame(HEADERS, END, 9, b"\x80")])
def test_a_connection_that_is_dropped_is_freed_at_once(last: bytes) -> None:
    """It does not refer to itself, so it does not wait for the garbage collector."""
    peer = Peer(BOUNDS)
    peer.serve(request(1), request(3, ("Bad", "1")), request(5, ends=False), last)
    gone = weakref.ref(peer.server)
    parts = [weakref.ref(part) for part in vars(peer.server).values() if hasattr(part, "__dict__")]
    assert len(parts) > 3
    gc.disable()
    try:
        del peer
        assert gone() is None
        assert [part() for part in parts] == [None] * len(parts)
    finally:
        gc.enable()
