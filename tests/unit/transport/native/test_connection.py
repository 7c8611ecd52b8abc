"""One connection of the native transport: when it writes, what it waits for, and how it ends."""

import asyncio

import pytest
from penstock.transport.http2 import Bounds
from penstock.transport.methods import Call

from tests.support.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, call_headers, frame
from tests.unit.transport.native.wire import HeldMethod, Wire, methods, request, reset


def echo(message: bytes, _: Call) -> bytes:
    return message


async def test_all_answers_of_one_read_leave_in_one_write() -> None:
    """In the same turn of the loop, and without a task."""
    wire = Wire(methods(echo))
    tasks = asyncio.all_tasks()
    wire.send(b"".join(request(stream) for stream in range(1, 65, 2)))
    assert len(wire.writes) == 1
    assert {status["grpc-status"] for status in wire.answers().values()} == {"0"}
    assert len(wire.answers()) == 32
    assert asyncio.all_tasks() == tasks


async def test_answers_that_were_waited_for_leave_in_one_write_a_turn() -> None:
    """However many futures are done in it."""
    method = HeldMethod()
    wire = Wire(methods(method.start))
    tasks = asyncio.all_tasks()
    wire.send(b"".join(request(stream) for stream in range(1, 21, 2)))
    assert (wire.writes, asyncio.all_tasks()) == ([], tasks)
    for held in method.held:
        held.future.set_result(b"done")
    await wire.written.wait()
    assert len(wire.writes) == 1
    assert len(wire.answers()) == 10
    assert [held.ended_by for held in method.held] == [["finish"]] * 10


@pytest.mark.parametrize("ended", ["reset", "lost"])
async def test_a_client_that_is_gone_cancels_what_it_waited_for(ended: str) -> None:
    """By its stream or its connection. The method hears of it, and nobody is answered."""
    method = HeldMethod()
    wire = Wire(methods(method.start))
    wire.send(request(1))
    if ended == "reset":
        wire.send(reset(1))
    else:
        wire.connection.connection_lost(None)
    await asyncio.sleep(0)
    (held,) = method.held
    assert held.future.cancelled()
    assert held.ended_by == ["finish"]
    assert wire.answers() == {}


async def test_a_call_that_is_reset_at_once_is_started_even_so() -> None:
    """It came whole: what it asks for counts."""
    started: list[bytes] = []

    def note(message: bytes, _: Call) -> bytes:
        started.append(message)
        return b""

    wire = Wire(methods(note))
    wire.send(request(1, b"charge") + reset(1))
    assert started == [b"charge"]


async def test_a_deadline_that_comes_first_gives_the_answer_without_the_store() -> None:
    """Once, whatever the store says later."""
    method = HeldMethod()
    wire = Wire(methods(method.start))
    wire.send(request(1, timeout=b"1m"))
    await wire.written.wait()
    (held,) = method.held
    held.future.set_result(b"too late")
    await asyncio.sleep(0)
    assert held.ended_by == ["expire"]
    assert wire.answers()[1]["grpc-status"] == "0"
    assert b"late" in b"".join(wire.writes)
    assert b"too late" not in b"".join(wire.writes)


async def test_a_message_that_comes_in_pieces_is_started_once_it_is_whole() -> None:
    """With the time that is left by then, and before its stream has ended."""
    method = HeldMethod()
    wire = Wire(methods(method.start))
    head = call_headers(b"/a.B/C", [(b"grpc-timeout", b"10S")])
    wire.send(frame(HEADERS, END_HEADERS, 1, head))
    wire.send(frame(DATA, 0, 1, b"\0\0\0"))
    await asyncio.sleep(0.05)
    assert method.held == []
    wire.send(frame(DATA, 0, 1, b"\0\x01x"))
    (held,) = method.held
    assert held.within_s is not None
    assert held.within_s < 9.96
    wire.send(frame(DATA, END_STREAM, 1))
    held.future.set_result(b"done")
    await wire.written.wait()
    assert wire.answers()[1]["grpc-status"] == "0"


async def test_a_message_that_comes_after_its_deadline_is_started_even_so() -> None:
    """With no time to wait: a charge that was received is made."""
    method = HeldMethod()
    wire = Wire(methods(method.start))
    head = call_headers(b"/a.B/C", [(b"grpc-timeout", b"1m")])
    wire.send(frame(HEADERS, END_HEADERS, 1, head))
    await asyncio.sleep(0.01)
    wire.send(frame(DATA, END_STREAM, 1, b"\0\0\0\0\0"))
    (held,) = method.held
    assert held.within_s == 0
    await wire.written.wait()
    assert held.ended_by == ["expire"]


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """Until it reads again."""
    wire = Wire(methods(echo))
    seen = []
    for change in (wire.connection.pause_writing, wire.connection.resume_writing):
        change()
        seen.append(wire.may_read)
    assert seen == [False, True]
    await asyncio.sleep(0.05)
    assert not wire.is_closing()


async def test_a_client_that_does_not_read_for_long_is_dropped() -> None:
    """As long as it has to answer a PING."""
    wire = Wire(methods(echo), Bounds(pong_within_s=0.02))
    wire.connection.pause_writing()
    await wire.closed.wait()


async def test_headers_that_were_seen_before_are_not_read_again() -> None:
    """A connection remembers a bounded number of lists, and no long ones."""
    wire = Wire(methods(echo))
    openings = wire.connection._openings  # noqa: SLF001 - nothing else tells
    for number in range(300):
        extra = [(b"x", b"%d" % number), *[(b"long", b"x" * 100)] * (12 if number % 2 else 1)]
        head = call_headers(b"/a.B/C", extra)
        stream = 2 * number + 1
        data = frame(DATA, END_STREAM, stream, b"\0\0\0\0\0")
        wire.send(frame(HEADERS, END_HEADERS, stream, head) + data)
        assert len(openings) <= 64
    assert openings
    assert all(len(head.headers) == 4 for head in openings)


async def test_a_fault_of_a_method_is_told_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has more than the caller."""

    def fail(message: bytes, _: Call) -> bytes:
        if message == b"bad":
            raise ValueError("secret")
        return message

    wire = Wire(methods(fail))
    wire.send(request(1, b"bad") + request(3, b"good"))
    statuses = {stream: status["grpc-status"] for stream, status in wire.answers().items()}
    assert statuses == {1: "13", 3: "0"}
    assert "secret" not in wire.answers()[1]["grpc-message"]
    assert "answering INTERNAL" in caplog.text


async def test_what_breaks_http2_ends_the_connection_and_its_calls() -> None:
    """The client is told why, and what it waited for is cancelled."""
    method = HeldMethod()
    wire = Wire(methods(method.start))
    wire.send(request(1) + frame(DATA, 0, 0, b"x"))
    assert wire.is_closing()
    assert b"".join(wire.writes)[3] == 7, "a GOAWAY"
    await asyncio.sleep(0.01)
    assert method.held == [] or method.held[0].future.cancelled()
    assert wire.connection.shared.connections == set()
