"""Every client of the AWS SDK verifies the server's certificate, and the name in it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiobotocore.endpoint import AioEndpointCreator
from aiobotocore.httpsession import AIOHTTPSession
from penstock.archive.s3 import S3Location, open_s3
from penstock.aws_session import open_client
from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.errors import Failure, Fault
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.sdk import SdkClient, explain

from tests.support.certificates import Authority, Server
from tests.support.connect_proxy import ConnectProxy
from tests.support.raw_endpoint import RawEndpoint, http
from tests.support.tables import PATIENT_S

RIGHT, WRONG = "localhost", "elsewhere.test"


@pytest.fixture(autouse=True)
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that the environment trusts. There is no proxy, and one try for each call."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr("penstock.archive.s3.TRIES", 1)
    authority = Authority()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.write(tmp_path)))
    return authority


@asynccontextmanager
async def serving(authority: Authority, name: str, folder: Path) -> AsyncIterator[RawEndpoint]:
    """An endpoint with a certificate for this name."""
    async with RawEndpoint(tls=Server(authority.issue(name), folder).context) as endpoint:
        yield endpoint


def url(endpoint: RawEndpoint) -> str:
    return f"https://localhost:{endpoint.port}"


async def outcome(call: Awaitable[object]) -> object:
    """What a call of the SDK comes to."""
    try:
        await call
    except Exception as exc:  # noqa: BLE001 - as the store reads it
        return explain(exc).fault
    return "answered"


Call = Callable[[Location], Awaitable[object]]


async def describe_table(location: Location) -> object:
    async with location.client(PATIENT_S) as client:
        return await outcome(client.describe_table(TableName="t"))


async def describe_stream(location: Location) -> object:
    async with location.client(PATIENT_S, service="dynamodbstreams") as client:
        return await outcome(client.describe_stream(StreamArn="arn"))


async def scan(location: Location) -> object:
    async with location.client(PATIENT_S) as client:
        answer = await SdkClient(client).scan({"TableName": "t"})
    return answer.fault if isinstance(answer, Failure) else "answered"


@pytest.mark.parametrize("call", [describe_table, describe_stream, scan])
@pytest.mark.parametrize(("name", "comes_to"), [(RIGHT, "answered"), (WRONG, Fault.UNREACHABLE)])
async def test_a_server_must_have_a_certificate_for_its_name(
    authority: Authority, tmp_path: Path, call: Call, name: str, comes_to: object
) -> None:
    """Otherwise it gets no request, so nothing is unknown."""
    async with serving(authority, name, tmp_path) as endpoint:
        assert await call(Location("t", "eu-west-1", url(endpoint))) == comes_to
    assert len(endpoint.requests) == (name == RIGHT)


async def test_an_address_is_a_name_too(authority: Authority, tmp_path: Path) -> None:
    """An endpoint may be the address of an interface in a private network."""
    async with serving(authority, "127.0.0.1", tmp_path) as endpoint:
        assert await describe_table(Location("t", "eu-west-1", endpoint.url)) == "answered"
        assert await describe_table(Location("t", "eu-west-1", url(endpoint))) is Fault.UNREACHABLE
    assert len(endpoint.requests) == 1


async def test_plain_http_needs_no_certificate() -> None:
    """DynamoDB Local has none."""
    async with RawEndpoint() as endpoint:
        assert await describe_table(Location("t", "eu-west-1", endpoint.url)) == "answered"


async def test_an_archive_goes_only_to_a_server_with_the_right_name(
    authority: Authority, tmp_path: Path
) -> None:
    """S3, or a store that is compatible with S3."""
    page = b"<ListBucketResult><Contents><Key>file</Key></Contents></ListBucketResult>"
    for name in (RIGHT, WRONG):
        async with serving(authority, name, tmp_path) as endpoint:
            endpoint.answer = lambda _: http(page)
            folder = await open_s3(S3Location("bucket", "", "us-east-1", url(endpoint)))
            try:
                if name == RIGHT:
                    assert await folder.names() == ["file"]
                else:
                    with pytest.raises(StoreError, match="not valid for 'localhost'"):
                        await folder.put("file", b"secret")
            finally:
                await folder.close()
        assert len(endpoint.requests) == (name == RIGHT)


@pytest.mark.parametrize(("name", "is_asked"), [(RIGHT, True), (WRONG, False)])
async def test_a_web_identity_goes_only_to_a_server_with_the_right_name(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_asked: bool,
) -> None:
    """The SDK itself makes the client that sends the token."""
    token = tmp_path / "token"
    token.write_text("secret")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/penstock")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    async with RawEndpoint() as dynamodb, serving(authority, name, tmp_path) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url(sts))
        sts.answer = lambda _: http(b"<ErrorResponse/>", status=403)
        async with open_clients(Location("t", "eu-west-1", dynamodb.url), PATIENT_S) as clients:
            for client in (clients.items, SdkClient(clients.sdk)):
                answer = await client.get_item({"TableName": "t"})
                assert isinstance(answer, Failure)
                assert is_asked or answer.fault is Fault.UNREACHABLE
    assert any(b"secret" in request.body for request in sts.requests) == is_asked
    assert dynamodb.requests == []


@pytest.mark.parametrize("server", ["right", "another name", "unknown authority"])
async def test_a_proxy_is_not_trusted_with_what_goes_through_it(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    """TLS ends at the endpoint, and the endpoint must prove itself as without the proxy."""
    issued = {
        "right": authority.issue(RIGHT),
        "another name": authority.issue(WRONG),
        "unknown authority": Authority().issue(RIGHT),
    }[server]
    async with (
        RawEndpoint(tls=Server(issued, tmp_path).context) as endpoint,
        ConnectProxy() as proxy,
    ):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        comes_to = await scan(Location("t", "eu-west-1", url(endpoint)))
    assert comes_to == ("answered" if server == "right" else Fault.UNREACHABLE)
    assert proxy.targets == [f"localhost:{endpoint.port}"]
    assert len(endpoint.requests) == (server == "right")


# A later version of the SDK that no longer asks our class.


async def open_any() -> None:
    async with open_client("dynamodb", region="eu-west-1", endpoint=None, config=None):
        pass


async def test_an_sdk_that_ignores_the_http_class_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At the start, by a message that names the version."""
    create = AioEndpointCreator.create_endpoint

    def ignore(*args: Any, **options: Any) -> Any:
        return create(*args, **{**options, "http_session_cls": AIOHTTPSession})

    await open_any()
    monkeypatch.setattr(AioEndpointCreator, "create_endpoint", ignore)
    with pytest.raises(ConfigError, match=r"can't verify TLS certificates with aiobotocore \d"):
        await open_any()


@pytest.mark.parametrize("way", ["of its own", "asynchronous"])
async def test_an_sdk_that_connects_in_another_way_is_refused(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The HTTP class is in use, and its connections come from elsewhere, or not at all."""
    async with aiohttp.ClientSession() as elsewhere:

        async def connect(http: Any, proxy_url: str | None) -> Any:
            if way == "of its own":
                return elsewhere
            # As aiobotocore 3.10 does.
            return await http._create_connector(proxy_url)  # noqa: SLF001

        monkeypatch.setattr(AIOHTTPSession, "_get_session", connect)
        with pytest.raises(ConfigError, match=r"can't verify TLS certificates with aiobotocore \d"):
            await open_any()
