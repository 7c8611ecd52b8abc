"""The channel between a parent and a worker: questions, answers, and what becomes of them."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from penstock.workers.channel import Channel, ChannelError, Handle, open_channel

from tests.support.processes import PATIENCE_S


@asynccontextmanager
async def connected(handles: dict[str, Handle]) -> AsyncIterator[tuple[Channel, Channel]]:
    """Two ends that hear each other. The second one answers by `handles`."""
    one, other = socket.socketpair()
    ends = await open_channel(one, "the other", {}), await open_channel(other, "this one", handles)
    hearing = [asyncio.create_task(end.run()) for end in ends]
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield ends
    finally:
        for end in ends:
            end.close()
        await asyncio.wait(hearing)


async def test_answers_find_their_questions() -> None:
    """In whatever order they come, and however long they are."""
    gates = [asyncio.Event() for _ in range(3)]

    async def answer(number: int) -> str:
        await gates[number].wait()
        return str(number) * 1_000_000

    async with connected({"text": answer}) as (asking, _):
        asked = [asyncio.create_task(asking.ask("text", number)) for number in range(3)]
        for number in (2, 0, 1):
            gates[number].set()
            assert await asked[number] == str(number) * 1_000_000


async def test_what_is_told_is_heard_in_order() -> None:
    """Without an answer."""
    heard: list[Any] = []
    async with connected({"say": heard.append, "all": lambda _: heard}) as (telling, _):
        for number in range(10):
            telling.tell("say", number)
        assert await telling.ask("all") == list(range(10))


async def test_a_fault_of_the_other_side_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Its log has more; and the channel goes on."""

    def fail(_: object) -> None:
        raise KeyError("odd")

    async with connected({"fail": fail, "go on": lambda _: "ok"}) as (asking, _):
        with pytest.raises(ChannelError, match="the other: 'odd'"):
            await asking.ask("fail")
        assert await asking.ask("go on") == "ok"
    (told,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert told.getMessage() == "fail can't be answered: a fault of this server"


async def test_no_answer_in_time_is_an_error() -> None:
    """An answer that comes later does no harm."""
    gate = asyncio.Event()

    async def answer(_: object) -> str:
        await gate.wait()
        return "late"

    async with connected({"slow": answer, "fast": lambda _: "soon"}) as (asking, _):
        with pytest.raises(ChannelError, match="the other does not answer"):
            await asking.ask("slow", timeout_s=0.01)
        gate.set()
        assert await asking.ask("fast") == "soon"


async def test_who_waits_for_an_answer_learns_that_the_other_side_has_gone() -> None:
    """At once, as do those who ask later. To tell something is in vain, and no error."""
    asked = asyncio.Event()

    async def answer(_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with connected({"slow": answer}) as (asking, other):
        waiting = asyncio.create_task(asking.ask("slow"))
        await asked.wait()
        other.close()
        with pytest.raises(ChannelError, match="the other has ended"):
            await waiting
        with pytest.raises(ChannelError, match="the other has ended"):
            await asking.ask("slow")
        asking.tell("anything")


async def test_answers_under_way_are_sent_before_the_end() -> None:
    """A worker that ends gives its last answer first."""
    gate, asked = asyncio.Event(), asyncio.Event()

    async def answer(_: object) -> str:
        asked.set()
        await gate.wait()
        return "last"

    async with connected({"slow": answer}) as (asking, other):
        waiting = asyncio.create_task(asking.ask("slow"))
        await asked.wait()
        finishing = asyncio.create_task(other.finish())
        gate.set()
        assert await waiting == "last"
        await finishing
