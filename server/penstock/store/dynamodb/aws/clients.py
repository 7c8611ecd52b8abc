"""Opens the clients of a serving store: who makes which calls, by the `client` of the URL."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock.aws_session import aws_session
from penstock.store.dynamodb.aws.client import ItemClient, ListClient
from penstock.store.dynamodb.aws.credentials import CredentialCache
from penstock.store.dynamodb.aws.endpoint import Endpoint
from penstock.store.dynamodb.aws.lean import LeanClient
from penstock.store.dynamodb.aws.location import CALL_S, Location
from penstock.store.dynamodb.aws.pool import Pool
from penstock.store.dynamodb.aws.sdk import SdkClient
from penstock.store.dynamodb.aws.signing import Signer

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clients:
    items: ItemClient
    lists: ListClient
    sdk: Any
    """The SDK's own client, for what the ports do not have."""

    @classmethod
    def all_sdk(cls, sdk: Any) -> "Clients":
        """Every call through the SDK."""
        client = SdkClient(sdk)
        return cls(client, client, sdk)


@asynccontextmanager
async def open_clients(location: Location, call_s: float = CALL_S) -> AsyncIterator[Clients]:
    """Clients that live as long as the block. ConfigError if there is no region."""
    session = aws_session()
    async with location.client(call_s, session) as sdk:
        through_sdk = Clients.all_sdk(sdk)
        endpoint = Endpoint.of(sdk, session)
        if location.client_name == "aioboto3":
            yield through_sdk
        elif why := endpoint.why_only_sdk:
            LOG.info("all calls to DynamoDB go through aioboto3: %s", why)
            yield through_sdk
        else:
            async with _open_lean(endpoint, session, call_s) as lean:
                yield Clients(lean, through_sdk.lists, sdk)


@asynccontextmanager
async def _open_lean(endpoint: Endpoint, session: Any, call_s: float) -> AsyncIterator[LeanClient]:
    # Half of the call's timeout, as the SDK has it, too: see `Location.client`.
    pool = Pool(endpoint.host, endpoint.port, endpoint.tls(), call_s / 2)
    credentials = CredentialCache(
        session.get_credentials, lambda: aws_session().get_credentials(), time.monotonic
    )
    try:
        yield LeanClient(Signer(endpoint.region, endpoint.host_header), credentials, pool)
    finally:
        await credentials.close()
        await pool.close()
