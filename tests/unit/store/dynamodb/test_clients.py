"""Which client a store has, and how it reaches DynamoDB: TLS, proxies, the URL's words."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from penstock.errors import ConfigError
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.endpoint import Endpoint
from penstock.store.dynamodb.aws.errors import Failure, Fault
from penstock.store.dynamodb.aws.lean import LeanClient
from penstock.store.dynamodb.aws.location import ClientName, Location, parse_location
from penstock.store.dynamodb.aws.sdk import SdkClient

from tests.support.certificates import Authority, Server
from tests.support.raw_endpoint import RawEndpoint
from tests.support.tables import CLIENTS, PATIENT_S

AWS = Location("table", "eu-west-1")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def test_decisions_have_the_lean_client_and_all_else_the_sdk() -> None:
    """Unless the URL says `client=aioboto3`."""
    async with open_clients(AWS) as clients:
        assert isinstance(clients.items, LeanClient)
        assert isinstance(clients.lists, SdkClient)
    async with open_clients(replace(AWS, client_name="aioboto3")) as clients:
        assert isinstance(clients.items, SdkClient)


def test_the_client_is_part_of_the_url() -> None:
    """Any other word is refused, by a message that names those that are known."""
    assert parse_location("dynamodb://table", {}).client_name == "lean"
    for name in CLIENTS:
        assert parse_location("dynamodb://table", {"client": name}).client_name == name
    with pytest.raises(ConfigError, match="client is lean or aioboto3"):
        parse_location("dynamodb://table", {"client": "boto"})


@pytest.mark.parametrize(
    ("variables", "is_lean"),
    [
        ({"HTTPS_PROXY": "http://127.0.0.1:1"}, False),
        ({"HTTP_PROXY": "http://127.0.0.1:1"}, True),
        ({"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": ".amazonaws.com"}, True),
    ],
    ids=["proxy", "for http", "not for AWS"],
)
async def test_a_proxy_is_left_to_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    is_lean: bool,
) -> None:
    """And one line of the log says so. `NO_PROXY` counts, as it does for the SDK."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with caplog.at_level(logging.INFO):
        async with open_clients(AWS) as clients:
            assert isinstance(clients.items, LeanClient) == is_lean
    lines = [line for line in caplog.messages if "aioboto3" in line]
    assert len(lines) == (not is_lean)


async def test_an_endpoint_with_a_path_is_left_to_the_sdk() -> None:
    """The lean client asks for `/` alone."""
    async with open_clients(replace(AWS, endpoint="http://127.0.0.1:8000/local/")) as clients:
        assert isinstance(clients.items, SdkClient)


async def test_the_endpoint_is_the_one_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The region's, FIPS or not, or what the environment says."""
    found = {}
    cases = {
        "region": {},
        "fips": {"AWS_USE_FIPS_ENDPOINT": "true"},
        "environment": {"AWS_ENDPOINT_URL_DYNAMODB": "https://vpce-1.example:8443"},
    }
    for name, variables in cases.items():
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            async with open_clients(replace(AWS, region="us-east-1")) as clients:
                endpoint = Endpoint(clients.sdk.meta.endpoint_url, "us-east-1", None)
                found[name] = endpoint.host, endpoint.port, endpoint.host_header
    assert found == {
        "region": ("dynamodb.us-east-1.amazonaws.com", 443, "dynamodb.us-east-1.amazonaws.com"),
        "fips": (
            "dynamodb-fips.us-east-1.amazonaws.com", 443, "dynamodb-fips.us-east-1.amazonaws.com",
        ),
        "environment": ("vpce-1.example", 8443, "vpce-1.example:8443"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("http://[::1]:8000", "[::1]:8000"),
        ("http://LOCALHOST:80/", "localhost"),
        ("https://user:word@h:80", "h:80"),
    ],
)
def test_the_host_header_has_a_port_only_where_it_is_needed(url: str, header: str) -> None:
    """It is signed, so it must be what the server makes of it."""
    assert Endpoint(url, "r", None).host_header == header


# TLS.


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that the environment trusts."""
    authority = Authority()
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.write(tmp_path)))
    return authority


async def ask(endpoint: RawEndpoint) -> object:
    """What a decision's call and a list come to, on each client."""
    location = Location("t", "eu-west-1", f"https://localhost:{endpoint.port}")
    answers = []
    for name in CLIENTS:
        async with open_clients(replace(location, client_name=name), PATIENT_S) as clients:
            for call in (clients.items.update_item, clients.lists.query):
                answer = await call({"TableName": "t"})
                answers.append(answer.fault if isinstance(answer, Failure) else "answered")
    assert len(set(answers)) == 1
    return answers[0]


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
async def test_the_certificate_is_verified_by_the_bundle_of_the_environment(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """And the server learns which name is asked for."""
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv(variable, str(authority.write(tmp_path)))
    server = Server(authority.issue("localhost"), tmp_path)
    async with RawEndpoint(tls=server.context) as endpoint:
        assert await ask(endpoint) == "answered"
    assert set(server.names) == {"localhost"}


@pytest.mark.parametrize("fault", ["expired", "unknown authority", "another name"])
async def test_a_server_that_can_not_prove_itself_gets_no_request(
    authority: Authority, tmp_path: Path, fault: str
) -> None:
    """Nothing was sent, so nothing is unknown."""
    issued = {
        "expired": authority.issue("localhost", expired=True),
        "unknown authority": Authority().issue("localhost"),
        "another name": authority.issue("elsewhere.test"),
    }[fault]
    async with RawEndpoint(tls=Server(issued, tmp_path).context) as endpoint:
        assert await ask(endpoint) is Fault.UNREACHABLE
    assert endpoint.requests == []


@pytest.mark.parametrize("bundle", [None, ""])
async def test_without_a_bundle_the_sdks_own_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: str | None
) -> None:
    """It does not know the authority of a test. An empty variable turns nothing off."""
    if bundle is not None:
        monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
    server = Server(Authority().issue("localhost"), tmp_path)
    async with RawEndpoint(tls=server.context) as endpoint:
        assert await ask(endpoint) is Fault.UNREACHABLE
    assert endpoint.requests == []


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_bundle_that_is_not_there_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, name: ClientName
) -> None:
    """And not with every call."""
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"/nowhere/ca\.pem"):
        async with open_clients(replace(AWS, client_name=name)):
            pass
