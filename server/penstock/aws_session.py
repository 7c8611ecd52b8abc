"""Clients of the AWS SDK. Each of them verifies the server's certificate, and the name in it.

aiobotocore 2.25 verifies less: any name will do, and behind a proxy any certificate. The reason is
that aiobotocore prepares TLS for urllib3, which compares names itself, and uses aiohttp, which does
not. So the session here gives every client an HTTP class of our own. This includes the clients that
the SDK makes itself, such as those of STS, which fetch credentials.

The law of this file: no client is handed out before its HTTP class has shown that it is in use. A
version of aiobotocore that goes another way stops Penstock at the start.
"""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aioboto3
import aiobotocore
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from aiohttp import TCPConnector
from botocore.httpsession import get_cert_path

from penstock.errors import ConfigError


def trusting(ca_bundle: str | None) -> ssl.SSLContext:
    """Trust a file or folder of certificates; None: those of the SDK. ConfigError without them."""
    bundle = ca_bundle or get_cert_path(True)
    try:
        if os.path.isdir(bundle):  # noqa: PTH112 - as ssl takes it
            return ssl.create_default_context(capath=bundle)
        return ssl.create_default_context(cafile=bundle)
    except OSError as exc:
        raise ConfigError(f"the CA bundle '{bundle}' can't be read: {exc}") from exc


class VerifyingHttp(AIOHTTPSession):  # type: ignore[misc]  # the SDK has no types
    """Sends the requests of one client.

    Knows no client certificates and no certificates of a proxy's own: Penstock sets neither, and
    the environment can't.
    """

    def __init__(self, verify: bool | str = True, **options: Any) -> None:
        super().__init__(verify=verify, **options)
        self._ca_bundle = verify if isinstance(verify, str) else None
        self._verifying: list[TCPConnector] = []

    def _create_connector(self, _proxy_url: str | None) -> TCPConnector:
        connector = TCPConnector(
            limit=self._max_pool_connections,
            # For both hops, if the proxy is reached by TLS, too.
            ssl=trusting(self._ca_bundle),
            **self._connector_args,
        )
        self._verifying.append(connector)
        return connector

    async def verifies(self) -> bool:
        """Whether requests leave by a connector that this class has made."""
        try:
            session = await self._get_session(None)
        except (AttributeError, TypeError):  # another version has these methods in another form
            return False
        return session.connector in self._verifying


class _VerifyingSession(AioSession):  # type: ignore[misc]
    @asynccontextmanager
    async def create_client(
        self, *args: Any, config: Any = None, **options: Any
    ) -> AsyncIterator[Any]:
        """As the SDK's. The SDK calls this, too, for the clients that fetch credentials."""
        # A copy, because the SDK uses some configs again.
        verifying = AioConfig() if config is None else AioConfig().merge(config)
        verifying.http_session_cls = VerifyingHttp
        async with super().create_client(*args, config=verifying, **options) as client:
            http = client._endpoint.http_session  # noqa: SLF001 - what it really sends with
            if not isinstance(http, VerifyingHttp) or not await http.verifies():
                raise ConfigError(
                    f"Penstock can't verify TLS certificates with aiobotocore "
                    f"{aiobotocore.__version__}: install version 2.25"
                )
            yield client


def aws_session() -> Any:
    """A new session of aiobotocore, which has found no credentials yet."""
    return _VerifyingSession()


def open_client(
    service: str,
    *,
    region: str | None,
    endpoint: str | None,
    config: Any,
    session: Any = None,
) -> AbstractAsyncContextManager[Any]:
    """A client of a service, from a session of `aws_session` or from a new one."""
    client: AbstractAsyncContextManager[Any] = aioboto3.Session(
        botocore_session=session or aws_session()
    ).client(service, region_name=region, endpoint_url=endpoint, config=config)
    return client
