"""One turn of the event loop with many connections: who is worked on when, and who is written."""

import asyncio

import pytest
from penstock.transport.methods import Call
from penstock.transport.native.turns import AT_ONCE, MANY_BYTES

from tests.unit.transport.native.wire import HeldMethod, Wire, make_shared, methods, request


class Noted:
    """A method that notes what it was sent."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def start(self, message: bytes, _: Call) -> bytes:
        self.messages.append(message)
        return b""


async def test_nothing_is_written_before_all_that_came_is_worked_on() -> None:
    """Reading, working and writing are three steps, each for all connections."""
    steps: list[str] = []

    class Noting(Wire):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            steps.append("written")
            super().write(data)

    def start(message: bytes, _: Call) -> bytes:
        steps.append("worked")
        return message

    shared = make_shared(methods(start))
    wires = [Noting(methods(start), shared=shared) for _ in range(3)]
    steps.clear()
    for wire in wires:
        wire.send_in_turn(request(1))
    assert steps == []
    await asyncio.sleep(0)
    assert steps == ["worked"] * 3 + ["written"] * 3
    assert [len(wire.writes) for wire in wires] == [1, 1, 1]


async def test_pieces_of_one_connection_are_worked_on_in_order() -> None:
    """The event loop may read from a socket twice in a turn."""
    wire = Wire(methods(lambda message, _: message))
    data = request(1, b"abc")
    for start in range(0, len(data), 7):
        wire.send_in_turn(data[start : start + 7])
    await asyncio.sleep(0)
    assert wire.answers()[1]["grpc-status"] == "0"


@pytest.mark.parametrize(("connections", "calls"), [(AT_ONCE, 1), (1, MANY_BYTES // 100)])
async def test_no_more_is_gathered_than_a_turn_may_hold(connections: int, calls: int) -> None:
    """By the number of reads, or the size of one: then the turn ends at once."""
    noted = Noted()
    served = methods(noted.start)
    shared = make_shared(served)
    wires = [Wire(served, shared=shared) for _ in range(connections)]
    for wire in wires:
        assert noted.messages == []
        wire.send_in_turn(b"".join(request(2 * call + 1) for call in range(calls)))
    assert len(noted.messages) == connections * calls


async def test_what_came_before_the_end_of_a_connection_is_worked_on() -> None:
    """A charge that was received is made."""
    noted = Noted()
    wire = Wire(methods(noted.start))
    wire.send_in_turn(request(1, b"charge"))
    wire.connection.eof_received()
    assert noted.messages == [b"charge"]
    assert wire.is_closing()


async def test_a_fault_on_one_connection_ends_that_connection_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it happens at work or while writing. The others are answered."""
    served = methods(lambda message, _: message)
    shared = make_shared(served)
    at_work, writing, healthy = (Wire(served, shared=shared) for _ in range(3))

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(at_work.connection, "receive", fail)
    monkeypatch.setattr(writing, "write", fail)
    for wire in (at_work, writing, healthy):
        wire.send_in_turn(request(1))
    await asyncio.sleep(0)
    assert [wire.is_closing() for wire in (at_work, writing, healthy)] == [True, True, False]
    assert healthy.answers()[1]["grpc-status"] == "0"
    assert caplog.text.count("a fault of this server") == 2


async def test_answers_of_many_connections_are_written_in_one_step() -> None:
    """What the store answers in one turn leaves at its end, once for each connection."""
    method = HeldMethod()
    served = methods(method.start)
    shared = make_shared(served)
    wires = [Wire(served, shared=shared) for _ in range(3)]
    for wire in wires:
        wire.send(request(1) + request(3))
    for held in method.held:
        held.future.set_result(b"done")
    await asyncio.gather(*[wire.written.wait() for wire in wires])
    assert [len(wire.writes) for wire in wires] == [1, 1, 1]
    assert [len(wire.answers()) for wire in wires] == [2, 2, 2]
