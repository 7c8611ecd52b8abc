"""Every way in which a call can fail, as a real client sees it, on each transport."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest
from penstock.core.request import Descriptor, Request
from penstock.errors import StoreError
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request

from tests.support.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    SETTINGS,
    RawAnswer,
    call_headers,
    connect,
    frame,
    read_answer,
)
from tests.support.processes import PATIENCE_S
from tests.unit.transport.conftest import Running

PATH = f"/{SERVICE}/{METHOD}"
ASK = encode_request(Request("d", (Descriptor((("five", "bob"),)),)))
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECT = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
STORE_TEXT = "the store did not answer (lost); the server's log has more"


@dataclass(frozen=True, slots=True)
class Case:
    path: str
    message: bytes
    code: str
    text: str
    error: Exception | None = None


CASES = {
    "no domain": Case(
        PATH, encode_request(Request("", ())), "UNKNOWN", "rate limit domain must not be empty"
    ),
    "no request": Case(PATH, b"\xff", "INVALID_ARGUMENT", "not a RateLimitRequest"),
    "the store fails": Case(PATH, ASK, "UNAVAILABLE", STORE_TEXT, StoreError("x", kind="lost")),
    "a fault": Case(
        PATH, ASK, "INTERNAL", "a fault of this server; its log has more", ValueError("secret")
    ),
    "a message too long": Case(
        PATH, b"x" * 262_145, "RESOURCE_EXHAUSTED", "Received message larger than max"
    ),
    "an unknown method": Case("/a/B", ASK, "UNIMPLEMENTED", "Method not found!"),
    "a service that is not checked": Case(CHECK, b"\x0a\x01x", "NOT_FOUND", ""),
    "no health request": Case(CHECK, b"\xff", "INVALID_ARGUMENT", "not a HealthCheckRequest"),
    "no request to watch": Case(WATCH, b"\xff", "INVALID_ARGUMENT", "not a HealthCheckRequest"),
    "no reflection request": Case(
        REFLECT, b"\xff", "INVALID_ARGUMENT", "not a ServerReflectionRequest"
    ),
}


def unary(running: Running) -> "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]":
    return running.channel.unary_unary(PATH)


def fail_and_ask(running: Running, case: Case) -> tuple[str, str, bytes]:
    """How a call ended, and the answer to the next call over the same connection.

    Not by grpc.aio: if a call ends while it sends a stream, it may report an error of its own.
    """
    with grpc.insecure_channel(running.address) as channel:
        stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(case.path)
        call = stream(iter([case.message]), timeout=PATIENCE_S)
        told = call.code().name, call.details()
        running.store.error = None
        good: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        return *told, good(ASK, timeout=PATIENCE_S)


@pytest.mark.parametrize("name", CASES)
async def test_a_call_that_fails_tells_its_client_how(running: Running, name: str) -> None:
    """The same code and text on each transport, and the connection lives on."""
    case = CASES[name]
    running.store.error = case.error
    code, text, answer = await asyncio.to_thread(fail_and_ask, running, case)
    assert code == case.code
    assert case.text in text
    assert decode_response(answer)["overall_code"] == "OK"


async def test_text_that_is_not_ascii_reaches_the_client(running: Running) -> None:
    """It is percent-encoded on the way."""
    running.store.error = StoreError("x", kind="größer als 100 % — \n")
    call = unary(running)(ASK, timeout=PATIENCE_S)
    text = "the store did not answer (größer als 100 % — \n); the server's log has more"
    assert await call.details() == text


async def test_a_deadline_that_passes_is_told_by_the_client_itself(running: Running) -> None:
    """A watch has no end of its own."""
    watching: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    watching = running.channel.unary_stream(WATCH)
    assert await watching(b"", timeout=PATIENCE_S).read() is not grpc.aio.EOF
    assert await watching(b"", timeout=0.01).code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_compressed_requests_are_answered(
    running: Running, compression: grpc.Compression
) -> None:
    """Once by itself, and once where a message is longer compressed than plain."""
    long = encode_request(Request("d", (Descriptor((("five", "b" * 10_000),)),)))
    for data in (ASK, long):
        method = unary(running)
        answer = await method(data, timeout=PATIENCE_S, compression=compression)
        assert decode_response(answer)["overall_code"] == "OK"


async def test_metadata_in_bytes_is_accepted(running: Running) -> None:
    """As tracing libraries send it."""
    metadata = grpc.aio.Metadata(("grpc-trace-bin", b"\0\xff"), ("a", "b"))
    await unary(running)(ASK, timeout=PATIENCE_S, metadata=metadata)


async def test_reflection_answers_each_message_and_ends_with_its_client(running: Running) -> None:
    """One after the other, also where the client sends nothing."""
    reflect: grpc.aio.StreamStreamMultiCallable[bytes, bytes]
    reflect = running.channel.stream_stream(REFLECT)
    listing = b"\x3a\x00"  # list_services: ""
    talk = reflect(timeout=PATIENCE_S)
    for _ in range(3):
        await talk.write(listing)
        answer = await talk.read()
        assert isinstance(answer, bytes)
        assert b"grpc.health.v1.Health" in answer
    await talk.done_writing()
    assert await talk.read() is grpc.aio.EOF
    assert await talk.code() is grpc.StatusCode.OK
    silent = reflect(_none(), timeout=PATIENCE_S)
    assert await silent.code() is grpc.StatusCode.OK


async def _none() -> AsyncIterator[bytes]:
    for message in list[bytes]():
        yield message


def framed(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


def head(method: bytes = b"POST", *extra: tuple[bytes, bytes], **changed: bytes) -> bytes:
    return call_headers(PATH.encode(), extra, method=method, **changed)


def talk(port: int, block: bytes, data: bytes | None) -> RawAnswer:
    """Send one request by hand; gives what comes back on its stream."""
    with connect(port) as connection:
        connection.sendall(frame(SETTINGS, 1, 0))
        end = END_STREAM if data is None else 0
        connection.sendall(frame(HEADERS, END_HEADERS | end, 1, block))
        if data is not None:
            connection.sendall(frame(DATA, END_STREAM, 1, data))
        return read_answer(connection)


Fields = dict[str, str]


Expected = dict[str, tuple[Fields, ...]]
"""What may come back on each transport."""


def by_transport(native: Fields, *grpcio: Fields) -> Expected:
    return {"native": (native,), "grpcio": grpcio}


def both(**fields: str) -> Expected:
    found = {name.replace("_", "-"): value for name, value in fields.items()}
    return by_transport(found, found)


RAW: dict[str, tuple[bytes, bytes | None, Expected]] = {
    "GET": (head(b"GET"), None, by_transport({":status": "405", "allow": "POST"}, {})),
    "another content-type": (
        head(content_type=b"application/json"),
        framed(ASK),
        by_transport({":status": "415"}, {"grpc-status": "0"}),
    ),
    "a bad timeout": (
        head(b"POST", (b"grpc-timeout", b"soon")),
        framed(ASK),
        both(grpc_status="13", grpc_message="Error parsing 'grpc-timeout' metadata"),
    ),
    "no time at all": (
        head(b"POST", (b"grpc-timeout", b"0n")),
        framed(ASK),
        by_transport(
            {"grpc-status": "4", "grpc-message": "Deadline Exceeded"},
            # It has a timer for that, and starts the call: either may come first.
            {"grpc-status": "4", "grpc-message": "Deadline Exceeded"},
            {"grpc-status": "0"},
        ),
    ),
    "an unknown compression": (
        head(b"POST", (b"grpc-encoding", b"br")),
        framed(ASK, 1),
        by_transport(
            {"grpc-status": "12", "grpc-accept-encoding": "identity,deflate,gzip"},
            # It calls that a header that can't be read, although the protocol asks for 12.
            {"grpc-status": "13"},
        ),
    ),
    "compressed, but not said how": (
        head(),
        framed(ASK, 1),
        both(grpc_status="13", grpc_message="Compression bit set but no encoding configured"),
    ),
    "not gzip": (
        head(b"POST", (b"grpc-encoding", b"gzip")),
        framed(ASK, 1),
        both(grpc_status="13", grpc_message="Decompression failed due to zlib error"),
    ),
    "a bomb": (
        head(b"POST", (b"grpc-encoding", b"gzip")),
        framed(gzip.compress(b"\0" * 3_000_000, mtime=0), 1),
        both(grpc_status="8", grpc_message="Decompressed message larger than max"),
    ),
    "metadata that is no base64": (
        head(b"POST", (b"x-bin", b"!")),
        framed(ASK),
        both(
            grpc_status="13", grpc_message="Error parsing 'x-bin' metadata: illegal base64 encoding"
        ),
    ),
    "two messages": (
        head(),
        framed(ASK) * 2,
        by_transport(
            {"grpc-status": "3", "grpc-message": "the call has more than one message"},
            # Nobody reads the second one there.
            {"grpc-status": "0"},
        ),
    ),
    "no message": (
        head(),
        None,
        both(grpc_status="3", grpc_message="the call has no message"),
    ),
    "half a message": (
        head(),
        framed(ASK)[:-1],
        both(grpc_status="3", grpc_message="the call has no message"),
    ),
}
"""The headers, the data, and what may come back on each transport."""


@pytest.mark.parametrize("name", RAW)
async def test_what_no_client_library_sends_is_answered_by_the_rules(
    running: Running, transport: str, name: str
) -> None:
    """And calls of others go on."""
    block, data, expected = RAW[name]
    port = int(running.address.rpartition(":")[2])
    answer = await asyncio.to_thread(talk, port, block, data)
    assert any(answer.fields.items() >= one.items() for one in expected[transport]), answer
    assert answer.fields or answer.was_reset
    assert decode_response(await running.call(ASK))["overall_code"] == "OK"
