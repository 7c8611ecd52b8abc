"""Every contract test runs on every store of this table.

Tests that have their store from here run on one event loop a file, which the clients belong to.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio
from penstock.store.dynamodb.aws.location import Cascade, ClientName
from penstock.store.dynamodb.usage.opening import open_aggregator
from penstock.store.open import open_store
from penstock.store.policy_port import PolicyStore
from penstock.store.port import BucketStore, Store

from tests.support.tables import SharedClients, new_table, open_exact_on, open_with
from tests.support.usage import Counted


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_clients" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_clients() -> AsyncIterator[SharedClients]:
    async with AsyncExitStack() as stack:
        yield SharedClients(stack)


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[BucketStore]:
    store = await open_store(url)
    yield store
    await store.close()


@asynccontextmanager
async def _dynamodb(
    request: pytest.FixtureRequest,
    clients: SharedClients,
    cascade: Cascade = "transaction",
    client: ClientName = "lean",
) -> AsyncIterator[BucketStore]:
    endpoint: str = request.getfixturevalue("dynamodb_url")
    async with (
        new_table(endpoint, cascade, client) as location,
        open_with(await clients.reach(location), location) as store,
    ):
        yield store


Opener = Callable[
    [Path, pytest.FixtureRequest, SharedClients], AbstractAsyncContextManager[BucketStore]
]

STORES: dict[str, Opener] = {
    "memory": lambda _path, _request, _clients: _open("memory:"),
    "sqlite": lambda path, _request, _clients: _open(f"sqlite:///{path}/contract.db"),
    "sqlite-full": lambda path, _request, _clients: _open(
        f"sqlite:///{path}/contract.db?synchronous=full"
    ),
    "dynamodb": lambda _path, request, clients: _dynamodb(request, clients),
    "dynamodb-aioboto3": lambda _path, request, clients: _dynamodb(
        request, clients, client="aioboto3"
    ),
    "dynamodb-speculative": lambda _path, request, clients: _dynamodb(
        request, clients, "speculative"
    ),
}


SWEEPING = ("memory", "sqlite", "sqlite-full")
"""Those that forget stale items themselves. DynamoDB does it by the items' `ttl`."""


@pytest_asyncio.fixture(params=STORES, loop_scope="module")
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, shared_clients: SharedClients
) -> AsyncIterator[BucketStore]:
    """A new, empty store of each kind."""
    async with STORES[request.param](tmp_path, request, shared_clients) as opened:
        yield opened


@pytest_asyncio.fixture(params=SWEEPING, loop_scope="module")
async def sweeping_store(
    request: pytest.FixtureRequest, tmp_path: Path, shared_clients: SharedClients
) -> AsyncIterator[BucketStore]:
    """A new, empty store of each kind that cleans up after itself."""
    async with STORES[request.param](tmp_path, request, shared_clients) as opened:
        yield opened


POLICY_STORES = ("memory", "sqlite", "dynamodb", "dynamodb-aioboto3")
"""Those that keep policy."""


@pytest_asyncio.fixture(params=POLICY_STORES, loop_scope="module")
async def full_store(
    request: pytest.FixtureRequest, tmp_path: Path, shared_clients: SharedClients
) -> AsyncIterator[Store]:
    """A new, empty store of each kind that keeps policy, too."""
    async with STORES[request.param](tmp_path, request, shared_clients) as opened:
        yield cast("Store", opened)


@pytest_asyncio.fixture(params=("sqlite", "dynamodb"), loop_scope="module")
async def two_servers(
    request: pytest.FixtureRequest, tmp_path: Path, shared_clients: SharedClients
) -> AsyncIterator[tuple[Store, Store]]:
    """The stores of two servers that share a file, or a table."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shared.db"
        async with _open(url) as one, _open(url) as other:
            yield cast("Store", one), cast("Store", other)
        return
    async with new_table(request.getfixturevalue("dynamodb_url")) as location:
        clients = await shared_clients.reach(location)
        async with open_with(clients, location) as one, open_with(clients, location) as other:
            yield cast("Store", one), cast("Store", other)


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
        open_exact_on(location) as store,
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
