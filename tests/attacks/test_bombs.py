"""Small messages that are large to handle: other callers must not wait for them."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from penstock.core.request import MAX_DESCRIPTORS, MAX_ENTRIES, Descriptor, Request
from penstock.errors import InvalidRequestError, RequestError
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport.codec import decode_request, encode_request, json_to_request
from penstock.transport.rls import RateLimitService

from tests.attacks.calls import RULES, call
from tests.support.processes import penstock
from tests.support.web import post
from tests.unit.transport.conftest import NOW, rules

BYTES = 262_144
ASK = encode_request(Request("d", (Descriptor((("many", "bob"),)),)))


def field(tag: int, payload: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
    length, left = b"", len(payload)
    while left > 127:
        length += bytes([left % 128 + 128])
        left //= 128
    return bytes([tag]) + length + bytes([left]) + payload


DOMAIN = b"\x0a\x01d"
EMPTY_DESCRIPTORS = b"\x12\x00"
EMPTY_ENTRIES = b"\x0a\x00"

BOMBS = {
    "empty descriptors": DOMAIN + EMPTY_DESCRIPTORS * 131_000,
    "empty entries in one descriptor": DOMAIN + field(0x12, EMPTY_ENTRIES * 131_000),
    "unknown fields": DOMAIN + b"\x38\x01" * 131_000,
    "overrides that are merged": DOMAIN + field(0x12, b"\x12\x00" * 131_000),
    "as many descriptors and entries as may be": encode_request(
        Request(
            "d",
            tuple(
                Descriptor(tuple(("many", f"{number}-{one}") for one in range(8)))
                for number in range(MAX_DESCRIPTORS)
            ),
        )
    ),
    "as many descriptors as may be, all of them limited": encode_request(
        Request("d", tuple(Descriptor((("many", str(n)),)) for n in range(MAX_DESCRIPTORS)))
    ),
}

JSON_BOMBS = {
    "empty descriptors": '{"domain": "d", "descriptors": [' + "{}," * 87_000 + "{}]}",
    "entries": json.dumps(
        {"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "v"}] * 5_000}]}
    ),
    "keys": json.dumps({f"{number}": 0 for number in range(20_000)}),
    "numbers": '{"descriptors": [' + "0," * 130_000 + "0]}",
    "lists": "[" * 131_000 + "]" * 131_000,
    "as many entries as may be": json.dumps(
        {
            "domain": "d",
            "descriptors": [{"entries": [{"key": "k", "value": "v"}] * 8}] * MAX_DESCRIPTORS,
        }
    ),
}


def cpu_s(work: Callable[[], object]) -> float:
    """What it costs this thread: how busy the machine is does not matter."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def yardstick_s() -> float:
    """Some Python that takes about 10 ms where 50 ms were measured to be far off."""
    return cpu_s(lambda: [(str(number), [number]) for number in range(30_000)])


def check_cost(work: Callable[[], object]) -> None:
    """The best of three, so that a garbage collection is not held against it."""
    costs = [(cpu_s(work), yardstick_s()) for _ in range(3)]
    assert min(cost / yardstick for cost, yardstick in costs) < 5, costs


@pytest.mark.parametrize("name", BOMBS)
def test_a_message_as_long_as_may_be_costs_no_more_than_a_moment(name: str) -> None:
    """Decoded, decided on and answered, or refused: others wait less than 50 ms for it."""
    assert len(BOMBS[name]) <= BYTES
    limiter = Limiter(MemoryStore(), Options(dynamic_metadata=True), lambda: NOW)
    limiter.use(rules())
    service = RateLimitService(limiter)

    async def answer() -> None:
        with suppress(RequestError):
            await service.should_rate_limit(BOMBS[name])

    with asyncio.Runner() as runner:
        check_cost(lambda: runner.run(answer()))


@pytest.mark.parametrize("name", JSON_BOMBS)
def test_a_json_text_as_long_as_may_be_costs_no_more_than_a_moment(name: str) -> None:
    """Also where it is refused."""
    text = JSON_BOMBS[name].encode()
    assert len(text) <= BYTES + 1_000

    def read() -> None:
        with suppress(InvalidRequestError):
            json_to_request(text)

    check_cost(read)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (DOMAIN + EMPTY_DESCRIPTORS * 257, "257 descriptors in one request, at most 256"),
        (
            DOMAIN + field(0x12, EMPTY_ENTRIES * (MAX_ENTRIES + 1)),
            "2049 entries in one request, at most 2048",
        ),
        (
            DOMAIN + field(0x12, EMPTY_ENTRIES * 1_024) * 3,
            "3072 entries in one request, at most 2048",
        ),
    ],
)
def test_too_many_descriptors_or_entries_are_refused(data: bytes, text: str) -> None:
    """By number, and the entries of all descriptors count together."""
    with pytest.raises(InvalidRequestError, match=text):
        decode_request(data)


def test_as_many_as_may_be_are_taken() -> None:
    """The bounds themselves are still fine."""
    data = DOMAIN + field(0x12, EMPTY_ENTRIES * 8) * MAX_DESCRIPTORS
    decoded = decode_request(data)
    assert len(decoded.descriptors) == MAX_DESCRIPTORS
    assert sum(len(one.entries) for one in decoded.descriptors) == MAX_ENTRIES


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_two_million_descriptors_are_refused_by_a_real_server(
    transport: str, tmp_path: Path, compression: grpc.Compression
) -> None:
    """By their length, also where gzip makes 4 KB of them; and it serves on."""
    bomb = DOMAIN + EMPTY_DESCRIPTORS * 2_000_000
    with penstock(tmp_path, "--transport", transport, rules=RULES, store="memory:") as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(server.address, bomb, compression=compression)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert post(server.http, "/json", JSON_BOMBS["empty descriptors"] * 2).status == 413
        assert (await call(server.address, ASK)).overall_code == 1


async def test_the_longest_request_is_a_setting(transport: str, tmp_path: Path) -> None:
    """Over gRPC and on /json alike."""
    long = encode_request(Request("d", (Descriptor((("many", "v" * 2_000),)),)))
    with penstock(
        tmp_path,
        "--transport",
        transport,
        "--max-request-bytes",
        "1024",
        rules=RULES,
        store="memory:",
    ) as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(server.address, long)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert post(server.http, "/json", " " * 1_025).status == 413
        assert (await call(server.address, ASK)).overall_code == 1
