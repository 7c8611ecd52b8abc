"""A server whose ports are full of clients that say nothing, and one with few files to open."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from tests.e2e.rls_client import XdsClient
from tests.support.processes import PATIENCE_S, Penstock, penstock
from tests.support.web import decide, get
from tests.unit.cli.command import run

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000}
"""
OPEN_FILES = 1_024
SILENT = 1_100


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let this process, the attacker, open what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * SILENT:
        pytest.skip(f"this process may open no more than {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * SILENT), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def silence(*addresses: str) -> Iterator[None]:
    """Connect to each address, again and again, and send nothing."""
    with ExitStack() as opened:
        for address in addresses:
            host, _, port = address.rpartition(":")
            for _ in range(SILENT):
                opened.enter_context(socket.create_connection((host, int(port)), 60))
        yield


def assert_serving(server: Penstock) -> None:
    """Every HTTP page, again and again, and a decision that is written to the store."""
    for _ in range(5):
        assert get(server.http, "/healthcheck").status == 200
        assert get(server.http, "/ready").status == 200
        assert get(server.debug, "/rlconfig").status == 200
        assert decide(server.http, "shop", ("user", "ann")).status == 200
    said = server.log()
    assert "Traceback" not in said
    assert "Too many open files" not in said


@pytest.mark.parametrize("ports", ["http", "debug", "address", "http debug address"])
def test_silent_connections_take_no_page_and_no_client_away(
    tmp_path: Path, rules: Path, ports: str
) -> None:
    """1,100 of them on a port, or on all, where the process may open 1,024 files."""
    with (
        penstock(tmp_path, rules=rules, open_files=OPEN_FILES) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        check: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        check(b"", timeout=PATIENCE_S)
        with silence(*[getattr(server, port) for port in ports.split()]):
            assert_serving(server)
            check(b"", timeout=PATIENCE_S)
        assert_serving(server)


def test_new_grpc_clients_get_in_once_silent_ones_have_ended(
    tmp_path: Path, rules: Path, xds: XdsClient
) -> None:
    """Those of the HTTP ports never keep them out."""
    with penstock(tmp_path, rules=rules, open_files=OPEN_FILES) as server:
        with silence(server.http, server.debug):
            assert xds.remaining(server.address, "shop", user="bob") == 1_000
        with silence(server.address):
            pass
        assert xds.remaining(server.address, "shop", user="eve") == 1_000


def test_the_log_says_how_many_connections_there_may_be(tmp_path: Path, rules: Path) -> None:
    """By what the process may open, or by the setting."""
    with penstock(tmp_path, rules=rules, open_files=OPEN_FILES) as server:
        assert "480 for gRPC, 192 for HTTP, 48 on each other port" in server.log()
    flags = ("--grpc-max-connections", "100")
    with penstock(tmp_path, *flags, rules=rules, open_files=OPEN_FILES) as server:
        assert "100 for gRPC, 192 for HTTP, 48 on each other port" in server.log()


def test_the_server_allows_itself_more_open_files(tmp_path: Path, rules: Path) -> None:
    """The soft limit is often 1,024, where the hard one is far higher."""
    with penstock(tmp_path, rules=rules) as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text().splitlines()
        (line,) = [line for line in limits if line.startswith("Max open files")]
        soft, hard = line.split()[3:5]
    assert soft == (hard if hard != "unlimited" and int(hard) < 65_536 else "65536")


def test_more_connections_than_files_are_refused_at_the_start(tmp_path: Path, rules: Path) -> None:
    """With what to do about it."""
    flags = ("--config", str(rules), "--store", "memory:", "--grpc-max-connections", "1000000")
    ran = run("serve", *flags, cwd=tmp_path)
    assert ran.code == 2
    assert "PENSTOCK_GRPC_MAX_CONNECTIONS is 1000000, but the process may open " in ran.err
    assert "raise the limit (ulimit -n)" in ran.err
