"""The AWS SDK behind the port of `client.py`: calls through aioboto3, and what its errors mean."""

from typing import Any

from aiohttp import ClientConnectorError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
)

from penstock.core.foreign_text import show
from penstock.store.dynamodb.aws.client import AwsRequest, Response, parameters_of
from penstock.store.dynamodb.aws.errors import (
    MAX_SAID,
    NOT_IN_TIME,
    Failure,
    Fault,
    explain_answer,
    first_line,
)


class SdkClient:
    """Every call of the port, through a client that `Location.client` has made."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def update_item(self, request: AwsRequest) -> Response | Failure:
        return await self._send("update_item", request)

    async def put_item(self, request: AwsRequest) -> Response | Failure:
        return await self._send("put_item", request)

    async def get_item(self, request: AwsRequest) -> Response | Failure:
        return await self._send("get_item", request)

    async def batch_get_item(self, request: AwsRequest) -> Response | Failure:
        return await self._send("batch_get_item", request)

    async def transact_write_items(self, request: AwsRequest) -> Response | Failure:
        return await self._send("transact_write_items", request)

    async def query(self, request: AwsRequest) -> Response | Failure:
        return await self._send("query", request)

    async def scan(self, request: AwsRequest) -> Response | Failure:
        return await self._send("scan", request)

    async def batch_write_item(self, request: AwsRequest) -> Response | Failure:
        return await self._send("batch_write_item", request)

    async def _send(self, operation: str, request: AwsRequest) -> Response | Failure:
        try:
            answer: Response = await getattr(self._client, operation)(**parameters_of(request))
        except Exception as exc:  # noqa: BLE001 - whatever it is, `explain` tells what it means
            return explain(exc)
        return answer


def explain(exc: Exception) -> Failure:
    """Tell what a failed call means."""
    if isinstance(exc, ClientError):
        return explain_answer(exc.response, str(exc))
    if isinstance(exc, TimeoutError):
        return NOT_IN_TIME
    if isinstance(exc, NoCredentialsError | PartialCredentialsError):
        return Failure(Fault.PERMANENT, f"no AWS credentials: {_said(exc)}", {})
    if isinstance(exc, CredentialRetrievalError):
        # The service that hands out credentials may be back in a moment.
        return Failure(Fault.UNREACHABLE, f"AWS credentials can't be had: {_said(exc)}", {})
    if _never_sent(exc):
        return Failure(Fault.UNREACHABLE, f"DynamoDB can't be reached: {_said(exc)}", {})
    if isinstance(exc, HTTPClientError | EndpointConnectionError):
        return Failure(Fault.UNKNOWN, f"the connection to DynamoDB broke: {_said(exc)}", {})
    if isinstance(exc, BotoCoreError):
        return Failure(Fault.PERMANENT, f"the AWS SDK gave up: {_said(exc)}", {})
    return Failure(
        Fault.UNKNOWN, f"DynamoDB's answer can't be read: {show(repr(exc), MAX_SAID)}", {}
    )


def _said(exc: Exception) -> str:
    return first_line(str(exc))


def _never_sent(exc: Exception) -> bool:
    if isinstance(exc, ConnectTimeoutError | ProxyConnectionError | SSLError):
        return True
    # The SDK raises the same error for a failed connect and for a connection that broke later.
    return isinstance(exc, EndpointConnectionError) and isinstance(
        exc.kwargs.get("error"), ClientConnectorError
    )
