"""Connections to DynamoDB: whole answers or none, and used again only when they are sound."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.store.dynamodb.aws.http_connection import BrokenError, HttpAnswer
from penstock.store.dynamodb.aws.pool import NeverSentError, Pool

from tests.support.processes import PATIENCE_S
from tests.support.raw_endpoint import RawEndpoint, Reply, chunked, http, ok

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
BODY = json.dumps({"Attributes": {"b_rpm_tk": {"N": "5000"}}}).encode()
WHOLE = http(BODY, "x-amzn-RequestId: 1")


@asynccontextmanager
async def pool_on(endpoint: RawEndpoint, host: str = "127.0.0.1") -> AsyncIterator[Pool]:
    pool = Pool(host, endpoint.port, None, PATIENCE_S)
    yield pool
    await pool.close()
    assert pool.size == 0


def split(data: bytes, cuts: set[int]) -> list[bytes]:
    marks = [0, *sorted(cut for cut in cuts if 0 < cut < len(data)), len(data)]
    return [data[first:last] for first, last in pairwise(marks)]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([WHOLE, chunked(BODY, 7), b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE]),
    st.sets(st.integers(1, 150), max_size=6),
)
async def test_an_answer_is_whole_however_it_arrives(whole: bytes, cuts: set[int]) -> None:
    """In chunks or not, in any pieces; and the connection serves the next call."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        endpoint.script = [Reply(split(whole, cuts))]
        answer = await pool.exchange(REQUEST)
        assert (answer.status, answer.body) == (200, BODY)
        assert (await pool.exchange(REQUEST)).status == 200
        assert endpoint.connections == 1


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([WHOLE, chunked(BODY, 7)]), st.data())
async def test_a_cut_answer_is_none(whole: bytes, data: st.DataObject) -> None:
    """Wherever it is cut; the next call has a connection of its own."""
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        endpoint.script = [Reply([part], closes=True)]
        with pytest.raises(BrokenError):
            await pool.exchange(REQUEST)
        assert (await pool.exchange(REQUEST)).status == 200
        assert endpoint.connections == 2


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x15\x03\x01\x00\x02\x02",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nabc",
        b"<html>sorry</html>",
    ],
)
async def test_garbage_is_no_answer(garbage: bytes) -> None:
    """The connection is given up, and the next call has another."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        endpoint.script = [garbage]
        with pytest.raises(BrokenError):
            await pool.exchange(REQUEST)
        assert (await pool.exchange(REQUEST)).status == 200
        assert endpoint.connections == 2


async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, for headers as for bodies."""
    monkeypatch.setattr("penstock.store.dynamodb.aws.http_connection.MAX_ANSWER", 1_000_000)
    endless = b"HTTP/1.1 200 OK\r\n" + b"X-More: %b\r\n" % (b"x" * 1_000) * 2_000
    for reply in (endless, http(b"x" * 1_100_000)):
        async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
            endpoint.script = [reply]
            with pytest.raises(BrokenError, match="too large"):
                await pool.exchange(REQUEST)


@pytest.mark.parametrize(
    "last",
    [
        http(b"{}", "Connection: close"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        http(b"{}") + http(b"[]"),  # an answer that nobody asked for
        http(b"{}", "Connection: close") + b"more",
    ],
)
async def test_a_connection_that_is_at_its_end_is_not_used_again(last: bytes) -> None:
    """Its last answer counts."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        endpoint.script = [last]
        assert (await pool.exchange(REQUEST)).body == b"{}"
        assert (await pool.exchange(REQUEST)).body == b"{}"
        assert endpoint.connections == 2


async def test_what_comes_while_nothing_is_asked_closes_the_connection() -> None:
    """It would be taken for the answer to the next call."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        more = asyncio.Event()
        endpoint.script = [Reply([http(b"1")])]
        assert (await pool.exchange(REQUEST)).body == b"1"
        (connection,) = pool._idle  # noqa: SLF001 - the bytes must come at this moment
        connection.data_received(http(b"2"))
        endpoint.script = [Reply([http(b"3")], after=more)]
        more.set()
        assert (await pool.exchange(REQUEST)).body == b"3"
        assert endpoint.connections == 2


async def test_the_late_answer_to_a_cancelled_call_is_nobodys() -> None:
    """A call that ran out of time takes its connection with it."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        late = asyncio.Event()
        endpoint.script = [Reply([http(b"late")], after=late), http(b"right")]
        call = asyncio.create_task(pool.exchange(REQUEST))
        while not endpoint.requests:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        late.set()
        assert (await pool.exchange(REQUEST)).body == b"right"
        assert endpoint.connections == 2


async def test_there_are_as_many_connections_as_calls_at_once() -> None:
    """One request is under way on each, and later calls need no more."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        for _ in range(5):
            await asyncio.gather(*(pool.exchange(REQUEST) for _ in range(8)))
        assert endpoint.connections == pool.size == 8
        for _ in range(20):
            await pool.exchange(REQUEST)
        assert endpoint.connections == 8


async def test_idle_connections_are_closed_before_the_server_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a timer: nobody needs to call."""
    monkeypatch.setattr("penstock.store.dynamodb.aws.pool.IDLE_S", 0.05)
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        await asyncio.gather(*(pool.exchange(REQUEST) for _ in range(3)))
        async with asyncio.timeout(PATIENCE_S):
            await endpoint.all_left()
        assert pool.size == 0
        assert (await pool.exchange(REQUEST)).status == 200


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    """The loop has seen it before the next call."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        endpoint.script = [Reply([ok({})], closes=True)]
        await pool.exchange(REQUEST)
        async with asyncio.timeout(PATIENCE_S):
            while pool.size:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.001)
        assert (await pool.exchange(REQUEST)).status == 200


async def test_a_connection_that_the_server_is_closing_is_not_used() -> None:
    """The end has arrived, and asyncio has not closed the connection yet."""
    async with RawEndpoint() as endpoint, pool_on(endpoint) as pool:
        await pool.exchange(REQUEST)
        pool._idle[0].eof_received()  # noqa: SLF001 - it must come at this moment
        assert (await pool.exchange(REQUEST)).status == 200
        assert endpoint.connections == 2


async def test_a_changed_address_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """New connections ask DNS again, and no connection gets old."""
    addresses = ["127.0.0.1"]
    resolve = socket.getaddrinfo

    def answer(host: Any, *rest: Any, **options: Any) -> Any:
        return resolve(addresses[-1] if host == "moves.test" else host, *rest, **options)

    monkeypatch.setattr("socket.getaddrinfo", answer)
    async with (
        RawEndpoint(lambda _: http(b"old")) as old,
        RawEndpoint(lambda _: http(b"new"), host="127.0.0.2", port=old.port),
        pool_on(old, "moves.test") as pool,
    ):
        assert (await pool.exchange(REQUEST)).body == b"old"
        addresses.append("127.0.0.2")
        assert (await pool.exchange(REQUEST)).body == b"old"
        monkeypatch.setattr(pool._idle[0], "retires_s", 0.0)  # noqa: SLF001 - minutes later
        assert (await pool.exchange(REQUEST)).body == b"new"


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", f"{'x' * 64}.test"])
async def test_without_a_connection_nothing_was_sent(host: str) -> None:
    """A closed port, a name that DNS does not know, and one that it can't."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        pool = Pool(host, closed.getsockname()[1], None, PATIENCE_S)
        with pytest.raises(NeverSentError):
            await pool.exchange(REQUEST)
        await pool.close()


async def test_closing_ends_what_is_under_way() -> None:
    """Nothing is left open, and nobody waits for ever."""
    async with RawEndpoint() as endpoint:
        endpoint.script = [Reply([], after=asyncio.Event())]
        pool = Pool("127.0.0.1", endpoint.port, None, PATIENCE_S)
        call: asyncio.Task[HttpAnswer] = asyncio.create_task(pool.exchange(REQUEST))
        while not endpoint.requests:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.001)
        await pool.close()
        with pytest.raises(BrokenError):
            await call
        assert pool.size == 0
