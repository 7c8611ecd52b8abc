"""Calls to a real server, for attacks and for those who must not notice them."""

from pathlib import Path

import grpc
from penstock._proto import rls_pb2
from penstock.transport.codec import METHOD, SERVICE

RULES = Path(__file__).parent / "rules.yaml"

PATH = f"/{SERVICE}/{METHOD}"

ALONE = (("grpc.use_local_subchannel_pool", 1),)
"""Channels to one address share a connection unless they are told not to."""


async def call(
    address: str,
    data: bytes,
    timeout_s: float = 60,
    compression: grpc.Compression | None = None,
) -> rls_pb2.RateLimitResponse:
    """Make one call over a connection of its own."""
    async with grpc.aio.insecure_channel(address, options=ALONE) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        answer = await method(data, timeout=timeout_s, compression=compression, wait_for_ready=True)
    return rls_pb2.RateLimitResponse.FromString(answer)
