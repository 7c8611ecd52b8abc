"""Where the table is, and how to reach it: the parts of a `dynamodb://` URL."""

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoRegionError

from penstock.aws_session import open_client
from penstock.errors import ConfigError

FORM: Final = "dynamodb://TABLE?region=REGION"

Cascade = Literal["transaction", "speculative"]

ClientName = Literal["lean", "aioboto3"]
"""Who makes the calls of decisions: our own client, or the SDK."""

Service = Literal["dynamodb", "dynamodbstreams"]

CALL_S: Final = 1.0
"""The timeout of one call, whatever the caller's deadline is. After a longer time, the condition of
a write would be out of date."""

CONNECTIONS: Final = 128
"""A core makes about 1,000 calls a second, and each takes some 5 ms: 5 connections a core would do.
The rest is for times when DynamoDB is slow. Connections are opened as needed."""

ACCURACY: Final = 0.01

_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class Location:
    table: str
    region: str | None = None
    endpoint: str | None = None
    cascade: Cascade = "transaction"
    client_name: ClientName = "lean"
    accuracy: float = ACCURACY
    """How long tokens may be held, as a part of the time that fills a burst. 0: not at all."""

    def __str__(self) -> str:
        """As `--store` takes it."""
        options = {"region": self.region, "endpoint": self.endpoint}
        query = "&".join(f"{name}={value}" for name, value in options.items() if value)
        return f"dynamodb://{self.table}?{query}" if query else f"dynamodb://{self.table}"

    @asynccontextmanager
    async def client(
        self, call_s: float = CALL_S, session: Any = None, service: Service = "dynamodb"
    ) -> AsyncIterator[Any]:
        """The SDK's client, from a session of `aws_session`. ConfigError if there is no region."""
        config = Config(
            # Shorter than the call's timeout: a call that could not connect was not sent, and this
            # way we know it.
            connect_timeout=call_s / 2,
            read_timeout=call_s,
            max_pool_connections=CONNECTIONS,
            # No retries by the SDK: an ADD that is sent twice is added twice.
            retries={"total_max_attempts": 1},
            # Validation costs a tenth of a call's time. Tests check the parameters instead.
            parameter_validation=False,
        )
        async with AsyncExitStack() as stack:
            try:
                client = await stack.enter_async_context(
                    open_client(
                        service,
                        region=self.region,
                        endpoint=self.endpoint,
                        config=config,
                        session=session,
                    )
                )
            except NoRegionError as exc:
                raise ConfigError(
                    f"store '{self}': no region; add ?region=… to it, or set AWS_DEFAULT_REGION"
                ) from exc
            except (BotoCoreError, ValueError) as exc:
                raise ConfigError(f"store '{self}': {exc}") from exc
            yield client


def parse_location(url: str, options: dict[str, str]) -> Location:
    """Read a URL whose query is already taken apart; ConfigError says what is wrong with it."""
    parts = urlsplit(url)
    table = parts.netloc
    if parts.path not in {"", "/"} or not _TABLE.fullmatch(table):
        raise ConfigError(
            f"store '{url}': write {FORM}; a table's name is 3 to 255 letters, digits, _ . or -"
        )
    unknown = options.keys() - {"region", "endpoint", "cascade", "client", "accuracy"}
    if unknown:
        raise ConfigError(f"store '{url}': unknown option '{min(unknown)}'")
    cascade = options.get("cascade", "transaction")
    if cascade not in {"transaction", "speculative"}:
        raise ConfigError(f"store '{url}': cascade is transaction or speculative")
    client_name = options.get("client", "lean")
    if client_name not in {"lean", "aioboto3"}:
        raise ConfigError(f"store '{url}': client is lean or aioboto3")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in {"http", "https"}:
        raise ConfigError(f"store '{url}': endpoint is a URL, such as http://127.0.0.1:8000")
    return Location(
        table,
        options.get("region"),
        endpoint,
        cast("Cascade", cascade),
        cast("ClientName", client_name),
        _parse_accuracy(url, options.get("accuracy")),
    )


def _parse_accuracy(url: str, text: str | None) -> float:
    if text is None:
        return ACCURACY
    with suppress(ValueError):
        accuracy = float(text)
        if 0 <= accuracy <= 1:
            return accuracy
    raise ConfigError(f"store '{url}': accuracy is a number from 0 to 1, such as {ACCURACY}")
