"""An endpoint that stands in for DynamoDB, and answers every request at once with the same JSON.

It runs in a process of its own, so that only its client is measured.
"""

import asyncio
import json
import os
import subprocess
import sys
from binascii import crc32
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

from tests.support.dynamodb import DUMMY_ENVIRONMENT


class AnswersAtOnce(asyncio.Protocol):
    """Takes every packet for a request: clients wait for one answer before the next request."""

    def __init__(self, body: bytes) -> None:
        head = (
            f"\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n"
            "Connection: keep-alive\r\nx-amzn-RequestId: 0123456789ABCDEF\r\n"
            f"x-amz-crc32: {crc32(body)}\r\n\r\n"
        )
        self._rest = head.encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}"):  # aiohttp sends the head and the body apart
            # The date is the present one: clients look for a clock that is wrong.
            begin = f"HTTP/1.1 200 OK\r\nServer: Server\r\nDate: {formatdate(usegmt=True)}"
            self._transport.write(begin.encode() + self._rest)


async def _serve(body: bytes) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: AnswersAtOnce(body), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until whoever started this has gone
    server.close()


@contextmanager
def answering(answer: Mapping[str, Any]) -> Iterator[str]:
    """The URL of an endpoint that answers so."""
    os.environ.update(DUMMY_ENVIRONMENT)
    body = json.dumps(answer, separators=(",", ":"))
    command = [sys.executable, "-m", "tests.benchmarks.instant_endpoint", body]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1].encode()))
