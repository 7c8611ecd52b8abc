"""Calls leave nothing behind that only the garbage collector could free."""

import asyncio
import gc
from collections.abc import Iterator

import grpc
import pytest
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.transport.codec import METHOD, SERVICE
from penstock.transport.listener import Listener
from penstock.transport.native.server import NativeServer
from penstock.transport.native.unary import UnaryCall
from penstock.transport.rls import RateLimitService

from tests.support.stores import AwaitedStore
from tests.unit.transport.conftest import NOW, rules
from tests.unit.transport.test_grpc import request


@pytest.fixture
def _no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collections")
async def test_a_call_that_waited_for_the_store_is_freed_with_its_answer() -> None:
    """Full collections are rare while calls come, so calls in cycles would fill the memory."""
    others = {id(one): one for one in gc.get_objects() if isinstance(one, UnaryCall)}
    limiter = Limiter(AwaitedStore(), Options(), lambda: NOW)
    limiter.use(rules())
    server = NativeServer(RateLimitService(limiter), Listener("127.0.0.1", 0))
    address = await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        method = channel.unary_unary(f"/{SERVICE}/{METHOD}")
        await asyncio.gather(*[method(request("bob", key="many"), timeout=60) for _ in range(20)])
        calls = [one for one in gc.get_objects() if isinstance(one, UnaryCall)]
        left = [call for call in calls if id(call) not in others]
    await server.stop(0)
    assert left == []
