"""AWS keys that change in the middle of load, while tokens are held: on the lean client.

Its calls go to DynamoDB Local through a proxy that refuses old keys, as AWS does.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
from aiobotocore.session import get_session
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Taken
from penstock.core.usage import Used
from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.credentials import RESOLVE_EVERY_S, CredentialCache
from penstock.store.dynamodb.aws.lean import LeanClient
from penstock.store.dynamodb.aws.pool import Pool
from penstock.store.dynamodb.aws.signing import Signer
from penstock.store.dynamodb.usage.opening import open_aggregator

from tests.support.aws_proxy import AwsProxy
from tests.support.tables import PATIENT_S, new_table
from tests.support.usage import Counted
from tests.unit.store.dynamodb.busy import Busy, busy_server
from tests.unit.store.dynamodb.scenes import DAY, FIVE, NOW, Connected, staged
from tests.unit.store.dynamodb.test_credentials import HOUR_S, Rotating

BUSY = Limit.per(1, 365 * DAY, burst=1_000)
"""Hardly refilled, and large enough for tokens to be taken ahead."""
ROTATIONS = 5
CALLERS, CALLS = 8, 20
"""So many callers make so many calls around each rotation."""
TARGETS = [("bob",), ("bob",), *((f"user{n}", "project") for n in range(3)), ("small",)]


class Source(Protocol):
    """Where the client has its keys from."""

    @property
    def used(self) -> str:
        """The access key that is good now."""

    def timer_s(self) -> float: ...
    async def resolve(self) -> Any: ...
    def rotate(self) -> None: ...


class KeyFile:
    """A file of keys, which somebody replaces without notice."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._now_s = 0.0
        self._made = 0
        self.rotate()

    @property
    def used(self) -> str:
        return f"key{self._made}"

    def timer_s(self) -> float:
        return self._now_s

    async def resolve(self) -> Any:
        return await get_session().get_credentials()

    def rotate(self) -> None:
        self._made += 1
        self._now_s += RESOLVE_EVERY_S
        text = f"[default]\naws_access_key_id={self.used}\naws_secret_access_key=s\n"
        self._file.write_text(text + "aws_session_token=token\n")


class Expiring(Rotating):
    """Temporary keys. The service that gives them was not asked in time."""

    lives_s = HOUR_S

    @property
    def used(self) -> str:
        return f"key{self.made}"

    async def fetch(self) -> dict[str, str]:
        return await super().fetch() | {"access_key": self.used}  # DynamoDB Local wants no hyphens

    def rotate(self) -> None:
        self.now_s += self.lives_s


class Renewed(Expiring):
    """Temporary keys, renewed ten minutes before they expire."""

    lives_s = HOUR_S - 600


@asynccontextmanager
async def server_with_keys_of(
    source: Source, dynamodb_url: str
) -> AsyncIterator[tuple[Busy, Counted]]:
    """A server on a table of its own, and what counts the table's usage."""
    async with (
        AwsProxy(dynamodb_url) as proxy,
        new_table(dynamodb_url, stream=True) as location,
        open_clients(location, PATIENT_S) as direct,
        open_aggregator(location) as worker,
    ):
        port = urlsplit(proxy.url).port
        assert port is not None
        credentials = CredentialCache(source.resolve, source.resolve, source.timer_s)
        pool = Pool("127.0.0.1", port, None, PATIENT_S)
        lean = LeanClient(Signer("eu-west-1", f"127.0.0.1:{port}"), credentials, pool)
        clients = Clients(lean, direct.lists, direct.sdk)

        async def catch_up() -> None:
            await worker.catch_up()

        async with (
            staged(Connected(proxy, location, direct, clients)) as scene,
            busy_server(scene) as busy,
        ):
            yield busy, Counted(scene.other, catch_up)
        await credentials.close()
        await pool.close()


class Load:
    """Callers of a busy item, and of a busy parent through its children."""

    def __init__(self, busy: Busy) -> None:
        self._busy = busy
        self._rng = Random(1)
        self.answers = 0
        self.admitted: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()

    async def run(self, rotate: Callable[[], None]) -> None:
        """Let the keys change once, after half of the calls, at a moment when tokens are held."""
        waits, middle = True, self.answers + CALLERS * CALLS // 2

        async def call() -> None:
            nonlocal waits
            for _ in range(CALLS):
                await self._call()
                if waits and self.answers >= middle and self._busy.held:
                    waits = False
                    rotate()
                    self._busy.timers.fire()  # what is held goes back, signed with the old keys
                elif self.answers % 20 == 0:
                    self._busy.timers.fire()

        await asyncio.gather(*(call() for _ in range(CALLERS)))
        assert not waits

    async def _call(self) -> None:
        scene, entities = self._busy.scene, self._rng.choice(TARGETS)
        limit = FIVE if entities == ("small",) else BUSY
        begun = self._busy.store.begin(scene.chain(*entities, limit=limit), NOW)
        if isinstance(begun, asyncio.Future):
            taken = await begun
        else:
            taken = begun
            await asyncio.sleep(0)  # the other callers have their turn, too
        self.answers += 1
        (self.admitted if _all_fit(taken) else self.denied).update(entities)


def _all_fit(taken: Sequence[Taken]) -> bool:
    return all(one.drawn[0].fits for one in taken)


@pytest.fixture(params=["replaced", "expired", "renewed"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Source:
    if request.param != "replaced":
        return Expiring() if request.param == "expired" else Renewed()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return KeyFile(tmp_path / "credentials")


async def test_keys_that_change_while_tokens_are_held_change_no_decision(
    dynamodb_url: str, source: Source
) -> None:
    """No call fails, each admitted take is on record once, and all that was held went back."""
    async with server_with_keys_of(source, dynamodb_url) as (busy, counted):
        load, proxy = Load(busy), busy.scene.proxy

        def rotate() -> None:
            if not isinstance(source, Renewed):  # AWS takes renewed keys until they expire
                proxy.refused_keys.add(source.used)
            source.rotate()

        for _ in range(ROTATIONS):
            await load.run(rotate)
        await busy.store.close()

        assert proxy.used_keys.keys() == {f"key{n + 1}" for n in range(ROTATIONS + 1)}
        metrics = busy.store.metrics
        assert (metrics.held_lost.value, metrics.unknown_outcomes.value) == (0, 0)
        assert load.denied.keys() == {"small"}
        assert load.admitted["small"] == 5
        for entity, admitted in load.admitted.items():
            item = await busy.scene.other.read(busy.scene.key(entity))
            assert item is not None
            (bucket,) = item.buckets
            assert bucket.tokens == bucket.limit.burst - admitted * MILLI
            assert (bucket.consumed, item.takes) == (admitted * MILLI, admitted)
            assert await counted.total(entity) == Used(admitted, {"": admitted * MILLI})
