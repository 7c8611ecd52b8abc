"""Connections that come and go leave nothing behind, however many they are."""

import asyncio
import socket
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from penstock.core.request import Descriptor, Request
from penstock.transport.codec import encode_request

from tests.attacks.calls import PATH, RULES, call
from tests.support.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    call_headers,
    frame,
)
from tests.support.metrics import read_text, sample
from tests.support.processes import Penstock, penstock, wait_for
from tests.support.web import get

ASK = encode_request(Request("d", (Descriptor((("many", "bob"),)),)))
MESSAGE = b"\0" + struct.pack(">I", len(ASK)) + ASK
HELLO = PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0)
CALL = frame(HEADERS, END_HEADERS, 1, call_headers(PATH.encode()))
ENDED = frame(DATA, END_STREAM, 1, MESSAGE)
MEMORY = sample("process_resident_memory_bytes")

SENT = (b"", PREFACE[:10], HELLO, HELLO + CALL, HELLO + CALL + ENDED)
"""How far a client gets before it goes: from not a word to an answer."""

AT_ONCE = 100
WARM_UP = 500

ROUNDS = 3
MOST_BYTES = 1_024
"""For each connection of a round. A connection that is kept takes four times as much, and a round
that leaves nothing behind adds about ten bytes for each."""

RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: close with a RST."""


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--attack-connections"))


async def visit(port: int, number: int) -> None:
    """Connect, send something, wait for what comes back, and go, politely or not."""
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        sent = SENT[number % len(SENT)]
        await loop.sock_sendall(client, sent)
        if len(sent) >= len(HELLO):
            await loop.sock_recv(client, 65_536)
        if number % 2:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


async def visit_often(port: int, count: int) -> None:
    numbers = iter(range(count))

    async def keep_visiting() -> None:
        for number in numbers:
            await visit(port, number)

    await asyncio.gather(*[keep_visiting() for _ in range(AT_ONCE)])


def open_files(server: Penstock) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def memory_bytes(server: Penstock) -> float:
    return read_text(get(server.http, "/metrics").text)[MEMORY]


async def test_connections_that_come_and_go_leave_memory_and_files_flat(
    tmp_path: Path, count: int
) -> None:
    """Whatever they sent, and however they ended: `--attack-connections` says how many.

    The later rounds are like the first, so each of them would add what connections leave behind.
    The smaller growth counts: something else may have grown meanwhile.

    Not on grpc.aio: its C library opens files for itself when many come at once.
    """
    flags = ("--transport", "native")
    with penstock(tmp_path, *flags, rules=RULES, store="memory:") as server:
        assert (await call(server.address, ASK)).overall_code == 1
        files = open_files(server)
        await visit_often(server.port, WARM_UP)
        used_bytes = []
        for _ in range(ROUNDS):
            await visit_often(server.port, count // ROUNDS)
            await asyncio.to_thread(
                wait_for, lambda: open_files(server) <= files, "the server to close its files"
            )
            used_bytes.append(memory_bytes(server))
        growth_bytes = min(after - before for before, after in pairwise(used_bytes))
        assert growth_bytes < MOST_BYTES * (count // ROUNDS), used_bytes
        assert (await call(server.address, ASK)).overall_code == 1
        assert "ERROR" not in server.log()
