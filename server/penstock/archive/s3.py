"""An archive in S3."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiohttp import ClientError as HttpClientError
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from penstock.aws_session import open_client
from penstock.errors import ConfigError, StoreError

T = TypeVar("T")

CALL_S: Final = 30
"""The timeout of one call. Nobody waits for an archive, so a slow network is no failure."""

TRIES: Final = 4
"""Of one call, with the SDK's own pauses. A PUT of the same bytes may safely be repeated."""


@dataclass(frozen=True, slots=True)
class S3Location:
    bucket: str
    prefix: str
    """Empty, or ends with a slash."""
    region: str | None = None
    endpoint: str | None = None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


class S3Folder:
    def __init__(self, client: Any, location: S3Location, resources: AsyncExitStack) -> None:
        self._client = client
        self._location = location
        self._resources = resources

    async def put(self, name: str, data: bytes) -> None:
        await self._call(
            self._client.put_object(
                Bucket=self._location.bucket,
                Key=self._location.prefix + name,
                Body=data,
                ContentType="application/x-ndjson",
                ContentEncoding="gzip",
            )
        )

    async def names(self) -> list[str]:
        return await self._call(self._list())

    async def get(self, name: str) -> bytes:
        return await self._call(self._read(self._location.prefix + name))

    async def close(self) -> None:
        await self._resources.aclose()

    async def _list(self) -> list[str]:
        prefix, found = self._location.prefix, []
        pages = self._client.get_paginator("list_objects_v2")
        async for page in pages.paginate(Bucket=self._location.bucket, Prefix=prefix):
            found += [entry["Key"].removeprefix(prefix) for entry in page.get("Contents", ())]
        return found

    async def _read(self, key: str) -> bytes:
        answer = await self._client.get_object(Bucket=self._location.bucket, Key=key)
        async with answer["Body"] as body:
            data: bytes = await body.read()
        return data

    async def _call(self, work: Awaitable[T]) -> T:
        try:
            return await work
        except (BotoCoreError, ClientError, HttpClientError, TimeoutError) as exc:
            raise StoreError(f"audit archive {self._location}: {exc}", kind="archive") from exc


@asynccontextmanager
async def _client_of(location: S3Location) -> AsyncIterator[Any]:
    config = Config(
        connect_timeout=CALL_S, read_timeout=CALL_S, retries={"total_max_attempts": TRIES}
    )
    async with open_client(
        "s3", region=location.region, endpoint=location.endpoint, config=config
    ) as client:
        yield client


async def open_s3(location: S3Location) -> S3Folder:
    """Prepare to use a bucket, as whoever the AWS tools would be. Nothing is sent yet."""
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(_client_of(location))
        except (BotoCoreError, ValueError) as exc:
            raise ConfigError(f"audit archive {location}: {exc}") from exc
        return S3Folder(client, location, stack.pop_all())
