"""Every contract test runs on every store of this table."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from penstock.store.dynamodb.aws.location import Cascade, ClientName
from penstock.store.dynamodb.usage.opening import open_aggregator
from penstock.store.open import open_store
from penstock.store.policy_port import PolicyStore
from penstock.store.port import BucketStore, Store

from tests.support.tables import new_table, open_on
from tests.support.usage import Counted


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[BucketStore]:
    store = await open_store(url)
    yield store
    await store.close()


@asynccontextmanager
async def _dynamodb(
    request: pytest.FixtureRequest,
    cascade: Cascade = "transaction",
    client: ClientName = "lean",
) -> AsyncIterator[BucketStore]:
    endpoint: str = request.getfixturevalue("dynamodb_url")
    async with new_table(endpoint, cascade, client) as location, open_on(location) as store:
        yield store


Opener = Callable[[Path, pytest.FixtureRequest], AbstractAsyncContextManager[BucketStore]]

STORES: dict[str, Opener] = {
    "memory": lambda _path, _request: _open("memory:"),
    "sqlite": lambda path, _request: _open(f"sqlite:///{path}/contract.db"),
    "sqlite-full": lambda path, _request: _open(f"sqlite:///{path}/contract.db?synchronous=full"),
    "dynamodb": lambda _path, request: _dynamodb(request),
    "dynamodb-aioboto3": lambda _path, request: _dynamodb(request, client="aioboto3"),
    "dynamodb-speculative": lambda _path, request: _dynamodb(request, "speculative"),
}


SWEEPING = ("memory", "sqlite", "sqlite-full")
"""Those that forget stale items themselves. DynamoDB does it by the items' `ttl`."""


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BucketStore]:
    """A new, empty store of each kind."""
    async with STORES[request.param](tmp_path, request) as opened:
        yield opened


@pytest.fixture(params=SWEEPING)
async def sweeping_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[BucketStore]:
    """A new, empty store of each kind that cleans up after itself."""
    async with STORES[request.param](tmp_path, request) as opened:
        yield opened


POLICY_STORES = ("memory", "sqlite", "dynamodb", "dynamodb-aioboto3")
"""Those that keep policy."""


@pytest.fixture(params=POLICY_STORES)
async def full_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new, empty store of each kind that keeps policy, too."""
    async with STORES[request.param](tmp_path, request) as opened:
        yield cast("Store", opened)


@pytest.fixture
def policy_store(full_store: Store) -> PolicyStore:
    """The policy of a new, empty store of each kind."""
    return full_store.policy


@asynccontextmanager
async def _counted(url: str) -> AsyncIterator[Counted]:
    async with _open(url) as store:
        yield Counted(cast("Store", store), _nothing_to_do)


async def _nothing_to_do() -> None:
    """Memory and SQLite count a take before they answer."""


@asynccontextmanager
async def _counted_dynamodb(request: pytest.FixtureRequest) -> AsyncIterator[Counted]:
    endpoint: str = request.getfixturevalue("dynamodb_url")
    async with (
        new_table(endpoint, stream=True) as location,
        open_on(location) as store,
        open_aggregator(location) as worker,
    ):

        async def catch_up() -> None:
            await worker.catch_up()

        yield Counted(store, catch_up, has_own_clock=True)


COUNTED: dict[
    str, Callable[[Path, pytest.FixtureRequest], AbstractAsyncContextManager[Counted]]
] = {
    "memory": lambda _path, _request: _counted("memory:"),
    "sqlite": lambda path, _request: _counted(f"sqlite:///{path}/contract.db"),
    "dynamodb": lambda _path, request: _counted_dynamodb(request),
}


@pytest.fixture(params=COUNTED)
async def counted(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Counted]:
    """A new, empty store of each kind, with what counts its usage."""
    async with COUNTED[request.param](tmp_path, request) as opened:
        yield opened
