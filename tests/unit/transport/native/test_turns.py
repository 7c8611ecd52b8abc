"""One turn of the event loop with many connections: who is worked on when, and who is written."""

import asyncio
from typing import cast

import pytest
from penstock.transport.methods import Call, Methods
from penstock.transport.native.turns import ALONE_S, AT_ONCE, MANY_BYTES, Turns

from tests.unit.transport.native.wire import HeldMethod, Wire, make_shared, methods, request


def gathering(served: Methods, count: int) -> list[Wire]:
    """Connections of one server, several of which have just sent something."""
    shared = make_shared(served)
    wires = [Wire(served, shared=shared) for _ in range(count)]
    shared.turns._is_gathering = True  # noqa: SLF001 - else it depends on the time
    return wires


class StillClock:
    """An event loop whose clock moves only if it is told to."""

    def __init__(self) -> None:
        self.now_s = 1.0
        self.call_soon = asyncio.get_running_loop().call_soon

    def time(self) -> float:
        return self.now_s


class Noted:
    """A method that notes what it was sent."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def start(self, message: bytes, _: Call) -> bytes:
        self.messages.append(message)
        return b""


async def test_nothing_is_written_before_all_that_came_is_worked_on() -> None:
    """Reading, working and writing are three steps, each for all connections."""
    worked: list[bytes] = []
    wires: list[Wire] = []

    def start(message: bytes, _: Call) -> bytes:
        worked.append(message)
        assert [wire.writes for wire in wires] == [[], [], []]
        return message

    wires += gathering(methods(start), 3)
    for wire in wires:
        wire.send_in_turn(request(1))
    assert worked == []
    await asyncio.sleep(0)
    assert len(worked) == 3
    assert [len(wire.writes) for wire in wires] == [1, 1, 1]


async def test_a_connection_that_is_alone_is_answered_at_once() -> None:
    """Once another one sends at the same time, both are gathered, until one is alone again."""
    served = methods(lambda message, _: message)
    shared = make_shared(served)
    one, other = (Wire(served, shared=shared) for _ in range(2))
    await asyncio.sleep(0)
    clock = StillClock()
    shared.turns = Turns(cast("asyncio.AbstractEventLoop", clock))

    def is_answered_at_once(wire: Wire, stream: int) -> bool:
        wire.writes.clear()
        wire.send_in_turn(request(stream))
        return bool(wire.writes)

    assert is_answered_at_once(one, 1)
    assert is_answered_at_once(one, 3)
    assert not is_answered_at_once(other, 1)
    assert not is_answered_at_once(one, 5)
    await asyncio.sleep(0)
    assert one.writes
    assert not is_answered_at_once(one, 7), "two were gathered in the turn before"
    await asyncio.sleep(0)
    assert one.writes
    clock.now_s += 2 * ALONE_S
    assert is_answered_at_once(other, 3)


async def test_pieces_of_one_connection_are_worked_on_in_order() -> None:
    """The event loop may read from a socket twice in a turn."""
    (wire,) = gathering(methods(lambda message, _: message), 1)
    data = request(1, b"abc")
    for start in range(0, len(data), 7):
        wire.send_in_turn(data[start : start + 7])
    await asyncio.sleep(0)
    assert wire.answers()[1]["grpc-status"] == "0"


@pytest.mark.parametrize(("connections", "calls"), [(AT_ONCE, 1), (1, MANY_BYTES // 100)])
async def test_no_more_is_gathered_than_a_turn_may_hold(connections: int, calls: int) -> None:
    """By the number of reads, or the size of one: then the turn ends at once."""
    noted = Noted()
    wires = gathering(methods(noted.start), connections)
    for wire in wires:
        assert noted.messages == []
        wire.send_in_turn(b"".join(request(2 * call + 1) for call in range(calls)))
    assert len(noted.messages) == connections * calls


async def test_what_came_before_the_end_of_a_connection_is_worked_on() -> None:
    """A charge that was received is made."""
    noted = Noted()
    (wire,) = gathering(methods(noted.start), 1)
    wire.send_in_turn(request(1, b"charge"))
    assert noted.messages == []
    wire.connection.eof_received()
    assert noted.messages == [b"charge"]
    assert wire.is_closing()


async def test_a_fault_on_one_connection_ends_that_connection_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it happens at work or while writing. The others are answered."""
    at_work, writing, healthy = wires = gathering(methods(lambda message, _: message), 3)

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(at_work.connection, "receive", fail)
    monkeypatch.setattr(writing, "write", fail)
    for wire in wires:
        wire.send_in_turn(request(1))
    await asyncio.sleep(0)
    assert [wire.is_closing() for wire in wires] == [True, True, False]
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
