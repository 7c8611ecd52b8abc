"""Every contract test runs on every store of this table."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from penstock.store.open import open_store
from penstock.store.port import BucketStore

STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder}/contract.db",
    "sqlite-full": lambda folder: f"sqlite:///{folder}/contract.db?synchronous=full",
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BucketStore]:
    """A new, empty store of each kind."""
    opened = open_store(STORES[request.param](tmp_path))
    yield opened
    await opened.close()
