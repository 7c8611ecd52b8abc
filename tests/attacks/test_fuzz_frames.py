"""Whatever frames come in at the gRPC port: an answer or a closed connection, and it serves on."""

import asyncio
import errno
import random
import socket
import struct
from pathlib import Path

import grpc
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
    literal,
)
from tests.support.processes import PATIENCE_S, Penstock, penstock, wait_for
from tests.support.web import get

CONNECTIONS = 150
ASK = encode_request(Request("d", (Descriptor((("many", "bob"),)),)))
MESSAGE = b"\0" + struct.pack(">I", len(ASK)) + ASK


def good_frames(rng: random.Random) -> list[bytes]:
    """A few calls as a client makes them, some with odd headers."""
    frames = [frame(SETTINGS, 0, 0)]
    for number in range(1, 2 * rng.randint(1, 4), 2):
        extra = [(rng.randbytes(rng.randint(1, 9)), rng.randbytes(rng.randint(0, 90)))]
        path = PATH.encode() if rng.random() < 0.7 else rng.randbytes(rng.randint(0, 9))
        head = call_headers(path, extra if rng.random() < 0.5 else ())
        frames.append(frame(HEADERS, END_HEADERS, number, head))
        frames.append(frame(DATA, END_STREAM, number, MESSAGE))
    return frames


def mutate(rng: random.Random, frames: list[bytes]) -> list[bytes]:
    """Change bytes, drop, repeat or swap frames, or put frames in that are made up."""
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(frames))
        match rng.randrange(5):
            case 0:
                changed = bytearray(frames[at])
                changed[rng.randrange(len(changed))] = rng.randrange(256)
                frames[at] = bytes(changed)
            case 1:
                frames.insert(at, frames[rng.randrange(len(frames))])
            case 2:
                made_up = rng.randbytes(rng.randint(0, 60))
                frames.insert(
                    at, frame(rng.randrange(12), rng.randrange(256), rng.randrange(9), made_up)
                )
            case 3:
                frames.insert(at, frame(HEADERS, 4, 2 * at + 1, literal(b":path", b"/\xff\xfe")))
            case 4 if len(frames) > 1:
                del frames[at]
    return frames


def send(server: Penstock, data: bytes) -> None:
    """Send, and read until the server has nothing more to say or closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        except OSError as exc:
            # Closed by the server in the middle, as it may be.
            if exc.errno not in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN}:
                raise


def connect_when_it_listens(server: Penstock, data: bytes) -> None:
    """Frames may end gRPC's server, which is started again: for a moment nobody listens."""
    for _ in range(1_000):
        try:
            return send(server, data)
        except (ConnectionRefusedError, ConnectionResetError):
            get(server.http, "/healthcheck")
    pytest.fail(f"the port is closed for good:\n{server.log()}")


def penstock_answers(server: Penstock) -> bool:
    try:
        return asyncio.run(call(server.address, ASK)).overall_code == 1
    except grpc.aio.AioRpcError:
        return False


@pytest.mark.parametrize("seed", [1, 2])
def test_random_and_mutated_frames_do_not_end_the_service(
    transport: str, tmp_path: Path, seed: int
) -> None:
    """Afterwards it answers, looks well, and has said nothing but that grpc.aio was restarted."""
    rng = random.Random(seed)
    with penstock(tmp_path, "--transport", transport, rules=RULES, store="memory:") as server:
        for _ in range(CONNECTIONS):
            preface = PREFACE if rng.random() < 0.9 else rng.randbytes(rng.randint(1, 40))
            connect_when_it_listens(server, preface + b"".join(mutate(rng, good_frames(rng))))
        # The last connection may have led to a restart, which cancels a call that comes just then.
        wait_for(lambda: penstock_answers(server), "an answer")
        assert get(server.http, "/healthcheck").status == 200
        errors = [line for line in server.log().splitlines() if " ERROR " in line]
        # Frames can end grpc.aio's server. The second is asyncio's, for the task in which it ends.
        known = {
            "native": (),
            "grpcio": ("the gRPC server ended by itself", "Task exception was never retrieved"),
        }[transport]
        assert all(any(text in line for text in known) for line in errors), errors
        assert server.terminate() == 0
