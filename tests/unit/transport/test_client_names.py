"""Clients are let in by the names of their certificates."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse
from penstock.transport.client_names import Names

from tests.support.certificates import Authority, Issued
from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer
from tests.unit.transport.tls_server import NAME, ask, channel, serve, write

SERVING = HealthCheckResponse.SERVING
SPIFFE = "spiffe://cluster.local/ns/gateway/sa/envoy"


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


@pytest.mark.parametrize(
    ("wanted", "name", "answer"),
    [
        ("envoy.mesh.test", "envoy.mesh.test", "OK"),
        ("Envoy.mesh.test", "envoy.mesh.test", "OK"),
        ("envoy.mesh.test", "*.mesh.test", "OK"),
        ("envoy.mesh.test", "*.test", "PERMISSION_DENIED"),
        ("envoy.mesh.test", "other.mesh.test", "PERMISSION_DENIED"),
        ("10.1.2.3", "10.1.2.3", "OK"),
        ("::1", "::1", "OK"),
        ("[0::1]", "::1", "OK"),
        ("10.1.2.3", "10.1.2.4", "PERMISSION_DENIED"),
        (SPIFFE, SPIFFE, "OK"),
        ("https://a.test/b", "https://a.test/b", "OK"),
        (SPIFFE, f"{SPIFFE}2", "PERMISSION_DENIED"),
        (SPIFFE, "envoy.mesh.test", "PERMISSION_DENIED"),
    ],
)
async def test_the_name_has_to_be_among_those_of_the_certificate(
    make_server: MakeServer, tmp_path: Path, ca: Authority, wanted: str, name: str, answer: str
) -> None:
    """A DNS name, one below a wildcard, an address, or a URI as of SPIFFE."""
    issued = ca.issue_for_uri(name) if "://" in name else ca.issue(name)
    async with serve(make_server, write(tmp_path, ca.issue(NAME), ca.cert, wanted)) as address:
        assert await ask(address, ca, issued) == answer
        assert await ask(address, ca) == "UNAVAILABLE", "a certificate is needed in any case"


@pytest.mark.parametrize(
    ("wanted", "names", "included"),
    [
        ("a.test", Names(dns=("b.test", "a.test")), True),
        ("a.test.", Names(dns=("a.test",)), True),
        ("a.test.", Names(dns=("*.test",)), True),
        ("a_b.test", Names(dns=("*.test",)), True),
        ("a.b.test", Names(dns=("*.test",)), False),
        ("test", Names(dns=("*",)), False),
        ("test", Names(dns=("*.",)), False),
        ("test.", Names(dns=("*.",)), False),
        ("a.test", Names(dns=("a*.test",)), False),
        ("a.b.test", Names(dns=("a.*.test",)), False),
        ("-a.test", Names(dns=("*.test",)), False),
        ("-a.test", Names(dns=("-a.test",)), True),
        (".test", Names(dns=("*.test",)), False),
        ("*.test", Names(dns=("*.test",)), True),
        ("*.test", Names(dns=("a.test",)), False),
        ("a.test", Names(uri=("a.test",)), False),
        ("spiffe://d/a", Names(dns=("spiffe://d/a",)), False),
        ("urn:uuid:1", Names(uri=("urn:uuid:1",)), True),
        ("urn:uuid:1", Names(dns=("urn:uuid:1",)), False),
        ("10.0.0.1", Names(dns=("10.0.0.1",)), False),
        ("10.0.0.1", Names(uri=("10.0.0.1",)), False),
        ("10.0.0.1", Names(dns=("*.0.0.1",)), False),
        ("fe80::0:1", Names(ip=("10.0.0.1", "fe80::1")), True),
        ("spiffe://d/a", Names(uri=("spiffe://d/A",)), False),
        ("a.test", Names(), False),
    ],
)
def test_names_fit_as_the_reference_server_has_it(
    wanted: str, names: Names, included: bool
) -> None:
    """A `*` stands for one whole label, the first; what is no host name fits as it is written."""
    assert names.include(wanted) is included


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (SPIFFE, x509.DNSName(SPIFFE)),
        ("urn:uuid:1", x509.DNSName("urn:uuid:1")),
        ("envoy.mesh.test", x509.UniformResourceIdentifier("envoy.mesh.test")),
        ("10.1.2.3", x509.DNSName("10.1.2.3")),
        ("10.1.2.3", x509.UniformResourceIdentifier("10.1.2.3")),
        ("envoy.mesh.test", x509.RFC822Name("envoy.mesh.test")),
    ],
)
async def test_a_name_of_another_kind_is_not_the_one_asked_for(
    make_server: MakeServer, tmp_path: Path, ca: Authority, wanted: str, name: x509.GeneralName
) -> None:
    """Although it reads the same: a CA that signs any DNS name may not sign any URI."""
    async with serve(make_server, write(tmp_path, ca.issue(NAME), ca.cert, wanted)) as address:
        assert await ask(address, ca, ca.issue_for(name)) == "PERMISSION_DENIED"


@asynccontextmanager
async def guarded(
    make_server: MakeServer, folder: Path, ca: Authority, shown: str
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a server that asks for `envoy.test`, by a client that is so named."""
    tls = write(folder, ca.issue(NAME), ca.cert, "envoy.test")
    async with serve(make_server, tls) as address, channel(address, ca, ca.issue(shown)) as opened:
        yield opened


async def test_every_method_is_there_for_the_name(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """Health checks and reflection too, whether they stream or not."""
    async with guarded(make_server, tmp_path, ca, "envoy.test") as over:
        check, watch, reflect = methods(over)
        assert (
            HealthCheckResponse.FromString(await check(b"", timeout=PATIENCE_S)).status == SERVING
        )
        async for answer in watch(b"", timeout=PATIENCE_S):
            assert HealthCheckResponse.FromString(answer).status == SERVING
            break
        asked = ServerReflectionRequest(list_services="").SerializeToString()
        answers = [answer async for answer in reflect(iter([asked, asked]), timeout=PATIENCE_S)]
    assert len(answers) == 2
    found = ServerReflectionResponse.FromString(answers[1]).list_services_response.service
    assert [service.name for service in found] == [
        "envoy.service.ratelimit.v3.RateLimitService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


async def test_every_method_refuses_other_names(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """They don't learn which one would do."""
    async with guarded(make_server, tmp_path, ca, "other.test") as over:
        check, watch, reflect = methods(over)
        for call in (
            check(b"", timeout=PATIENCE_S),
            watch(b"", timeout=PATIENCE_S),
            reflect(timeout=PATIENCE_S),
        ):
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "envoy.test" not in await call.details()


def methods(
    over: grpc.aio.Channel,
) -> tuple[
    "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]",
    "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]",
    "grpc.aio.StreamStreamMultiCallable[bytes, bytes]",
]:
    return (
        over.unary_unary("/grpc.health.v1.Health/Check"),
        over.unary_stream("/grpc.health.v1.Health/Watch"),
        over.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    )


async def test_an_unknown_method_is_unimplemented_as_ever(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """There is nothing to guard."""
    async with guarded(make_server, tmp_path, ca, "envoy.test") as over:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = over.unary_unary("/a/B")
        with pytest.raises(grpc.aio.AioRpcError, match="Method not found"):
            await method(b"", timeout=PATIENCE_S)


async def test_a_refused_certificate_is_logged_once(
    make_server: MakeServer, tmp_path: Path, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """With its names, and the one that was asked for: a typo in either is found so."""
    strangers: list[Issued] = [ca.issue("one.test"), ca.issue_for_uri(SPIFFE)]
    async with serve(
        make_server, write(tmp_path, ca.issue(NAME), ca.cert, "envoy.test")
    ) as address:
        for stranger in strangers * 3:
            assert await ask(address, ca, stranger) == "PERMISSION_DENIED"
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == 2
    assert "dns=('one.test',)" in said[0]
    assert f"uri=('{SPIFFE}',)" in said[1]
    assert all("GRPC_CLIENT_TLS_SAN is 'envoy.test'" in text for text in said)
