"""Keys at hand: refreshed beside the calls, and waited for only where there are none."""

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

import pytest
from aiobotocore.credentials import AioCredentials, AioRefreshableCredentials
from botocore.exceptions import NoCredentialsError
from penstock.store.dynamodb.aws.credentials import (
    CHECK_EVERY_S,
    FAILED_CHECK_S,
    RESOLVE_EVERY_S,
    CredentialCache,
)

START = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
HOUR_S = 3_600.0


class Fixed:
    """A provider of lasting keys, or of none."""

    def __init__(self, access: str | None, failure: Exception | None = None) -> None:
        self.access = access
        self.failure = failure
        self.resolved = 0

    async def resolve(self) -> Any:
        self.resolved += 1
        if self.failure is not None:
            raise self.failure
        return self.access and AioCredentials(self.access, "secret")


class Rotating:
    """The SDK's own temporary keys, good for an hour each, from a service that may be slow."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.made = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.failure: Exception | None = None

    def timer_s(self) -> float:
        return self.now_s

    def clock(self) -> datetime.datetime:
        return START + datetime.timedelta(seconds=self.now_s)

    async def resolve(self) -> Any:
        first = await self.fetch()
        expires = datetime.datetime.fromisoformat(first["expiry_time"])
        names = ("access_key", "secret_key", "token")
        return AioRefreshableCredentials(
            *(first[name] for name in names), expires, self.fetch, "test", time_fetcher=self.clock
        )

    async def fetch(self) -> dict[str, str]:
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure
        self.made += 1
        expires = self.clock() + datetime.timedelta(seconds=HOUR_S)
        return {
            "access_key": f"key-{self.made}",
            "secret_key": "secret",
            "token": "token",
            "expiry_time": expires.isoformat(),
        }


@pytest.fixture
async def rotating() -> Rotating:
    return Rotating()


def access(cache: CredentialCache) -> str | None:
    keys = cache.at_hand()
    return None if keys is None else keys.access


async def settle(is_so: Callable[[], bool]) -> None:
    for _ in range(100):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came so")


async def test_a_refresh_happens_beside_the_calls(rotating: Rotating) -> None:
    """The old keys are good for ten minutes more: nobody waits for the new ones."""
    cache = CredentialCache(rotating.resolve, rotating.resolve, rotating.timer_s)
    assert (await cache.wait()).access == "key-1"
    rotating.now_s = HOUR_S - 600
    rotating.answers.clear()
    for _ in range(5):
        assert access(cache) == "key-1"
        await asyncio.sleep(0)
    rotating.answers.set()
    await settle(lambda: access(cache) == "key-2")
    assert rotating.made == 2
    await cache.close()


async def test_expired_keys_are_waited_for(rotating: Rotating) -> None:
    """After a night without calls. All who wait share one refresh."""
    cache = CredentialCache(rotating.resolve, rotating.resolve, rotating.timer_s)
    await cache.wait()
    rotating.now_s = 3 * HOUR_S
    assert access(cache) is None
    keys = await asyncio.gather(*(cache.wait() for _ in range(5)))
    assert {one.access for one in keys} == {"key-2"}
    assert rotating.made == 2
    await cache.close()


async def test_a_failed_refresh_leaves_the_keys_that_are_still_good(
    rotating: Rotating, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again a while later, and said in the log."""
    cache = CredentialCache(rotating.resolve, rotating.resolve, rotating.timer_s)
    await cache.wait()
    rotating.now_s = HOUR_S - 300
    rotating.failure = OSError("metadata is away")
    assert access(cache) == "key-1"
    await settle(lambda: "can't be refreshed" in caplog.text)
    rotating.failure = None
    rotating.now_s += FAILED_CHECK_S - 1
    assert access(cache) == "key-1"
    await asyncio.sleep(0)
    assert rotating.made == 1
    rotating.now_s += 1
    await settle(lambda: access(cache) == "key-2")
    await cache.close()


async def test_a_failed_refresh_of_expired_keys_is_an_error(rotating: Rotating) -> None:
    """Expired keys are never signed with."""
    cache = CredentialCache(rotating.resolve, rotating.resolve, rotating.timer_s)
    await cache.wait()
    rotating.now_s = 2 * HOUR_S
    rotating.failure = OSError("metadata is away")
    assert access(cache) is None
    with pytest.raises(OSError, match="away"):
        await cache.wait()
    assert access(cache) is None
    await cache.close()


async def test_lasting_keys_stay_the_same_value() -> None:
    """So the signer keeps what it has made of them."""
    now, source = [0.0], Fixed("AKID")
    cache = CredentialCache(source.resolve, source.resolve, lambda: now[0])
    first = await cache.wait()
    for _ in range(5):
        now[0] += CHECK_EVERY_S
        assert cache.at_hand() is first
        await asyncio.sleep(0)
    await cache.close()


async def test_refused_keys_are_replaced_by_one_look() -> None:
    """However many calls were refused; those that come later know it already."""
    now, source = [100.0], Fixed("old")
    cache = CredentialCache(source.resolve, source.resolve, lambda: now[0])
    old = await cache.wait()
    source.access = "new"
    assert await asyncio.gather(*(cache.replace(old) for _ in range(5))) == [True] * 5
    assert await cache.replace(old)
    assert source.resolved == 2
    assert access(cache) == "new"
    await cache.close()


async def test_a_look_for_other_keys_is_not_repeated_at_once() -> None:
    """If there are none, or none can be had; a while later they may be there."""
    now, source = [100.0], Fixed("old")
    cache = CredentialCache(source.resolve, source.resolve, lambda: now[0])
    old = await cache.wait()
    source.failure = OSError("metadata is away")
    assert [await cache.replace(old) for _ in range(3)] == [False] * 3
    assert source.resolved == 2
    source.access, source.failure = "new", None
    now[0] += RESOLVE_EVERY_S
    assert await cache.replace(old)
    await cache.close()


async def test_missing_keys_are_looked_for_again_later() -> None:
    """Somebody may mount them after the start."""
    now, source = [100.0], Fixed(None)
    cache = CredentialCache(source.resolve, source.resolve, lambda: now[0])
    for _ in range(3):
        with pytest.raises(NoCredentialsError):
            await cache.wait()
    source.access = "AKID"
    now[0] += RESOLVE_EVERY_S
    assert (await cache.wait()).access == "AKID"
    assert source.resolved == 2
    await cache.close()
