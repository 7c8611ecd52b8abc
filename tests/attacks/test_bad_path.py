"""One request must not end the service: a path that is not UTF-8 ends gRPC's own server."""

import socket
from pathlib import Path

import pytest
from penstock.core.request import Descriptor, Request
from penstock.transport.codec import encode_request

from tests.attacks.calls import RULES, call
from tests.support.http2 import (
    END_HEADERS,
    END_STREAM,
    HEADERS,
    call_headers,
    connect,
    frame,
    literal,
)
from tests.support.metrics import read_text, sample
from tests.support.processes import PATIENCE_S, Penstock, penstock, wait_for
from tests.support.web import get

ASK = encode_request(Request("d", (Descriptor((("many", "bob"),)),)))
UNIMPLEMENTED = literal(b"grpc-status", b"12")
RESTARTS = sample("penstock_part_restarts_total", part="the gRPC server")


def send_bad_path(connection: socket.socket) -> bytes:
    """Returns what the server answers, once it has closed the connection."""
    connection.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 1, call_headers(b"/\xff")))
    connection.shutdown(socket.SHUT_WR)
    answer = b""
    while received := connection.recv(65_536):
        answer += received
    return answer


def is_healthy(server: Penstock) -> bool:
    return get(server.http, "/healthcheck").status == 200


def restarts(server: Penstock) -> float:
    return read_text(get(server.http, "/metrics").text).get(RESTARTS, 0)


@pytest.mark.parametrize("times", [1, 5])
async def test_a_path_that_is_not_utf8_does_not_end_the_service(tmp_path: Path, times: int) -> None:
    """With grpc.aio it ends the server, which is started again, at the same port."""
    flags = ("--transport", "grpcio")
    with penstock(tmp_path, *flags, rules=RULES, store="memory:") as server:
        for sent in range(times):
            with connect(server.port) as connection:
                send_bad_path(connection)
            # Until then the port may be closed: the next one would not get through.
            wait_for(lambda: restarts(server) > sent and is_healthy(server), "a restart")  # noqa: B023 - called at once
        assert (await call(server.address, ASK)).overall_code == 1
        assert is_healthy(server)
        assert restarts(server) == times
        assert "the gRPC server ended by itself, starting it again" in server.log()
        assert "the gRPC server runs again" in server.log()
        assert server.terminate() == 0


async def test_a_path_that_is_not_utf8_is_a_method_that_does_not_exist(tmp_path: Path) -> None:
    """With our own transport nothing ends: the caller is told, and others notice nothing."""
    flags = ("--transport", "native")
    with penstock(tmp_path, *flags, rules=RULES, store="memory:") as server:
        for _ in range(5):
            with connect(server.port) as connection:
                assert UNIMPLEMENTED in send_bad_path(connection)
        assert (await call(server.address, ASK)).overall_code == 1
        assert is_healthy(server)
        assert restarts(server) == 0
        assert server.terminate() == 0


async def test_a_server_that_cannot_listen_again_ends_with_an_error(tmp_path: Path) -> None:
    """Whoever runs it learns of it: a process that serves nobody must not look well.

    Only grpc.aio's server can be brought to end.
    """
    folder = tmp_path / "sockets"
    folder.mkdir()
    path = folder / "rls.sock"
    flags = ("--transport", "grpcio", "--grpc-uds", str(path))
    with penstock(tmp_path, *flags, rules=RULES, store="memory:") as server:
        assert (await call(f"unix:{path}", ASK)).overall_code == 1
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            folder.rename(tmp_path / "moved")
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
            send_bad_path(connection)
        assert server.process.wait(PATIENCE_S) == 2
        assert "the gRPC server ended by itself and can't go on: cannot listen on" in server.log()
