"""Whatever bytes a client sends: an answer, or a clean error, and the server serves on."""

import asyncio
import random

import grpc
from penstock._proto import rls_pb2
from penstock.core.request import Descriptor, Request
from penstock.transport.codec import decode_response, encode_request

from tests.unit.transport.conftest import Running

ROUNDS = 5_000
OUTCOMES = {"answered", "INVALID_ARGUMENT", "UNKNOWN"}
SEEDS = [
    encode_request(Request("d", (Descriptor((("five", "bob"),)),))),
    encode_request(Request("d", (Descriptor((("five", "bob"), ("x", "y")), 2**64 - 1),), 7)),
    encode_request(Request("d", (Descriptor((("many", ""),), 3, refund=True),) * 5)),
    b"\x0a\x01d\x12\x0f\x0a\x09\x0a\x04five\x12\x01v\x12\x02\x10\x02",
    b"",
]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Flip, drop, repeat or insert bytes, or make all of it up."""
    mutated = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randint(0, len(mutated))
        match rng.randrange(5):
            case 0 if mutated:
                mutated[at % len(mutated)] = rng.randrange(256)
            case 1:
                del mutated[at : at + rng.randint(1, 4)]
            case 2:
                mutated[at:at] = mutated[at : at + rng.randint(1, 8)]
            case 3:
                mutated[at:at] = rng.randbytes(rng.randint(1, 4))
            case 4 if rng.random() < 0.1:
                mutated = bytearray(rng.randbytes(rng.randint(0, 64)))
    return bytes(mutated)


async def test_random_and_mutated_requests_never_crash_or_wedge_it(running: Running) -> None:
    """Thousands of them, many at a time."""
    rng = random.Random(20_261_116)
    outcomes: dict[str, int] = {}

    async def send(data: bytes) -> None:
        try:
            answer = rls_pb2.RateLimitResponse.FromString(await running.call(data))
        except grpc.aio.AioRpcError as exc:
            outcome = exc.code().name
        else:
            assert answer.overall_code in {1, 2}, data
            sent = rls_pb2.RateLimitRequest.FromString(data)
            assert len(answer.statuses) == len(sent.descriptors)
            outcome = "answered"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    for _ in range(ROUNDS // 50):
        await asyncio.gather(*[send(mutate(rng, rng.choice(SEEDS))) for _ in range(50)])
    assert sum(outcomes.values()) == ROUNDS
    # No other outcome, and each of these was really met.
    assert set(outcomes) == OUTCOMES
    assert min(outcomes.values()) > 100
    after = decode_response(await running.call(SEEDS[2]))
    assert after["overall_code"] == "OK"
