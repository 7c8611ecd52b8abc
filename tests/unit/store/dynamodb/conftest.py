"""What tests of failures share. They run on one loop a file, which the clients belong to."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest_asyncio

from tests.support.aws_proxy import AwsProxy
from tests.support.tables import PATIENT_S, new_table
from tests.unit.store.dynamodb.scenes import Connected, Scene, staged


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(dynamodb_url: str) -> AsyncIterator[Connected]:
    async with (
        AwsProxy(dynamodb_url) as proxy,
        new_table(dynamodb_url) as location,
        location.client(PATIENT_S) as direct,
        replace(location, endpoint=proxy.url).client(PATIENT_S) as proxied,
    ):
        yield Connected(proxy, location, direct, proxied)


@pytest_asyncio.fixture(loop_scope="module")
async def scene(connected: Connected) -> AsyncIterator[Scene]:
    """Every fault that a test asks for must have happened when it ends."""
    proxy = connected.proxy
    try:
        async with staged(connected) as scene:
            yield scene
    finally:
        left, proxy.faults, proxy.always = proxy.faults, [], None
    assert not left


@pytest_asyncio.fixture(loop_scope="module")
async def lonely(dynamodb_url: str, connected: Connected) -> AsyncIterator[Scene]:
    """A scene with a proxy of its own, which may go down, and no connection to it yet."""
    async with (
        AwsProxy(dynamodb_url) as proxy,
        replace(connected.location, endpoint=proxy.url).client(PATIENT_S) as proxied,
        staged(replace(connected, proxy=proxy, proxied=proxied)) as scene,
    ):
        yield scene
