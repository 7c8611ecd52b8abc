"""Servers in processes of their own, driven over the loopback by h2load."""

import asyncio
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
from penstock.core.request import Descriptor, Request
from penstock.transport.codec import METHOD, SERVICE, encode_request

REQUESTS = 10_000
EMPTY_ANSWER = b"\x08\x01"


async def serve_empty() -> None:
    """Answer every call with the same bytes: what any gRPC server in Python pays at the least."""

    async def answer(_request: bytes, _context: object) -> bytes:
        return EMPTY_ANSWER

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
    )
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination(timeout=60)


def empty_handler_per_s() -> float:
    command = [sys.executable, "-m", "tests.benchmarks.over_grpc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            return h2load_per_s(int(server.stdout.readline()))
        finally:
            server.kill()


def h2load_per_s(port: int) -> float:
    """Requests a second that the server on a port of this machine answers."""
    message = encode_request(Request("bench", (Descriptor((("user", "u1"),)),)))
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder, "body")
        body.write_bytes(b"\0" + struct.pack(">I", len(message)) + message)
        command = ["h2load", "-n", str(REQUESTS), "-c", "4", "-m", "32", "-d", str(body)]
        command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        command += [f"http://127.0.0.1:{port}/{SERVICE}/{METHOD}"]
        output = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=60
        ).stdout
    found = re.search(r"([\d.]+) req/s", output)
    assert found is not None, output
    assert f"{REQUESTS} succeeded" in output, output
    return float(found[1])


if __name__ == "__main__":
    asyncio.run(serve_empty())
