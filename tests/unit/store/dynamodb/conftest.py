"""What tests of failures share. They run on one loop a file, which the clients belong to."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.location import ClientName

from tests.support.aws_proxy import AwsProxy
from tests.support.tables import CLIENTS, PATIENT_S, new_table
from tests.unit.store.dynamodb.busy import Busy, busy_server
from tests.unit.store.dynamodb.scenes import Connected, Scene, staged


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module that says so has its tests run on both clients; the others run on the lean one."""
    if getattr(metafunc.module, "ON_BOTH_CLIENTS", False) and "connected" in metafunc.fixturenames:
        metafunc.parametrize("connected", CLIENTS, indirect=True, scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(request: pytest.FixtureRequest, dynamodb_url: str) -> AsyncIterator[Connected]:
    client: ClientName = getattr(request, "param", "lean")
    async with (
        AwsProxy(dynamodb_url) as proxy,
        new_table(dynamodb_url, client=client) as location,
        open_clients(location, PATIENT_S) as direct,
        open_clients(replace(location, endpoint=proxy.url), PATIENT_S) as proxied,
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
        open_clients(replace(connected.location, endpoint=proxy.url), PATIENT_S) as proxied,
        staged(replace(connected, proxy=proxy, proxied=proxied)) as scene,
    ):
        yield scene


@pytest_asyncio.fixture(loop_scope="module")
async def busy(scene: Scene) -> AsyncIterator[Busy]:
    async with busy_server(scene) as server:
        yield server
