"""Where a server can be reached, and what it says about itself."""

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.e2e.rls_client import XdsClient, entries
from tests.support.processes import PATIENCE_S, penstock
from tests.unit.cli.command import run

pytestmark = pytest.mark.usefixtures("transport")

RULES = Path(__file__).parent / "rls.yaml"
SERVICE = "envoy.service.ratelimit.v3.RateLimitService"


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    with (
        penstock(tmp_path, rules=RULES) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield channel


@pytest.mark.parametrize("name", ["", "ratelimit"])
def test_health_says_serving(channel: grpc.Channel, name: str) -> None:
    """Under the empty name, and under the one that the reference server goes by."""
    check: grpc.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse] = (
        channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
    )
    response = check(HealthCheckRequest(service=name), timeout=PATIENCE_S)
    assert response.status == HealthCheckResponse.SERVING


def test_reflection_describes_the_service(channel: grpc.Channel) -> None:
    """Tools such as grpcurl find the service and its messages without a .proto file."""
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {SERVICE, "grpc.health.v1.Health"} <= set(database.get_services())
    file = database.FindFileContainingSymbol(SERVICE)
    (service,) = file.service
    assert [method.name for method in service.method] == ["ShouldRateLimit"]


def test_all_addresses_are_reached_by_ipv4_and_ipv6(tmp_path: Path, xds: XdsClient) -> None:
    """`--grpc-host ::` listens to both, on one port and one set of buckets."""
    with penstock(tmp_path, "--grpc-host", "::", rules=RULES) as server:
        hosts = ("127.0.0.1", "[::1]")
        left = [
            xds.ask(f"{host}:{server.port}", "basic", entries(few="x"))["statuses"][0]
            for host in hosts
        ]
    assert [status["limit_remaining"] for status in left] == [1, 0]


def test_any_ipv4_address_is_not_reached_by_ipv6(tmp_path: Path, xds: XdsClient) -> None:
    """The default of every port: who opens IPv4 alone in a firewall has opened all there is."""
    any_ipv4 = "0.0.0.0"  # noqa: S104 - what is tested
    flags = ("--grpc-host", any_ipv4, "--host", any_ipv4, "--debug-host", any_ipv4)
    with penstock(tmp_path, *flags, rules=RULES) as server:
        ports = [int(at.rpartition(":")[2]) for at in (server.address, server.http, server.debug)]
        for port in ports:
            socket.create_connection(("127.0.0.1", port), 30).close()
            with pytest.raises(OSError, match=r"refused|unreachable|not available|not supported"):
                socket.create_connection(("::1", port), 30)
        assert xds.remaining(f"127.0.0.1:{ports[0]}", "basic", few="x") == 2


def test_unix_socket_serves_instead_of_a_port(tmp_path: Path, xds: XdsClient) -> None:
    """`--grpc-uds` listens on a socket file."""
    path = tmp_path / "rls.sock"
    with penstock(tmp_path, "--grpc-uds", str(path), rules=RULES) as server:
        assert server.address == f"unix:{path}"
        assert path.is_socket()
        response = xds.ask(server.address, "basic", entries(few="x"))
    assert response["statuses"][0]["limit_remaining"] == 1


def test_a_second_server_on_a_unix_socket_does_not_start(tmp_path: Path, xds: XdsClient) -> None:
    """The first serves on; once it is killed, another takes its place."""
    path = tmp_path / "rls.sock"
    flags = ("--grpc-uds", str(path))
    with penstock(tmp_path, *flags, rules=RULES) as first:
        common = ("--config", str(RULES), "--store", "memory:", "--host=127.0.0.1", "--port=0")
        local = ("--debug-host=127.0.0.1", "--debug-port=0")
        ran = run("serve", *common, *local, *flags, cwd=tmp_path)
        assert ran.code == 2
        assert "Traceback" not in ran.err
        assert f"cannot listen on unix:{path}: another process listens there; stop" in ran.err
        assert xds.remaining(first.address, "basic", few="x") == 2
    assert path.is_socket(), "the first was killed, and left its socket behind"
    with penstock(tmp_path, *flags, rules=RULES) as second:
        assert xds.remaining(second.address, "basic", few="y") == 2
