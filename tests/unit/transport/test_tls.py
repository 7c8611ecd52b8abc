"""The service over TLS: who gets in, and what keeps it from starting."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from penstock.errors import ConfigError
from penstock.transport.listener import ConnectionBounds
from penstock.transport.tls import Tls, choose_tls

from tests.support.certificates import Authority, Issued, encrypted
from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer
from tests.unit.transport.tls_server import NAME, ask, call, serve, served, write

Change = Callable[[Tls, Issued], object]


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def other_ca() -> Authority:
    return Authority()


@pytest.mark.parametrize("rsa", [False, True])
async def test_requests_are_answered_over_tls(
    make_server: MakeServer, tmp_path: Path, ca: Authority, rsa: bool
) -> None:
    """Without a client CA, no certificate is asked of clients."""
    issued = ca.issue(NAME, rsa=rsa)
    async with serve(make_server, write(tmp_path, issued)) as address:
        assert await ask(address, ca) == "OK"
        assert await served(address) == issued.der


async def test_a_client_of_another_ca_does_not_trust_the_server(
    make_server: MakeServer, tmp_path: Path, ca: Authority, other_ca: Authority
) -> None:
    """The server goes on for those who do."""
    async with serve(make_server, write(tmp_path, ca.issue(NAME))) as address:
        assert await ask(address, other_ca) == "UNAVAILABLE"
        assert await ask(address, ca) == "OK"


async def test_a_client_without_tls_is_refused_and_harms_nobody(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """There is no way around TLS."""
    async with serve(make_server, write(tmp_path, ca.issue(NAME))) as address:
        async with grpc.aio.insecure_channel(address) as plain:
            assert await call(plain) == "UNAVAILABLE"
        assert await ask(address, ca) == "OK"


async def test_with_a_client_ca_only_its_certificates_get_in(
    make_server: MakeServer, tmp_path: Path, ca: Authority, other_ca: Authority
) -> None:
    """None, and one of the CA that the server itself is of, do not."""
    async with serve(make_server, write(tmp_path, ca.issue(NAME), other_ca.cert)) as address:
        assert await ask(address, ca) == "UNAVAILABLE"
        assert await ask(address, ca, ca.issue("client.test")) == "UNAVAILABLE"
        assert await ask(address, ca, other_ca.issue("client.test", expired=True)) == "UNAVAILABLE"
        assert await ask(address, ca, other_ca.issue("client.test")) == "OK"


async def test_a_ca_below_another_one_is_enough(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """It is trusted by itself: not every operator has the root at hand, or wants all below it."""
    below = ca.below()
    client = below.issue("client.test")
    async with serve(make_server, write(tmp_path, ca.issue(NAME), below.cert)) as address:
        assert await ask(address, ca, client) == "OK"
        assert await ask(address, ca, ca.issue("client.test")) == "UNAVAILABLE"


async def test_a_client_that_does_not_shake_hands_is_ended(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """Whether it sends nothing, or something that is no TLS for a while."""
    bounds = ConnectionBounds(handshake_ms=200)
    async with serve(make_server, write(tmp_path, ca.issue(NAME)), bounds=bounds) as address:
        host, _, port = address.rpartition(":")
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()


async def test_tls_works_on_a_unix_socket(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """With client certificates, too; the name has to be given, as the socket has none."""
    tls = write(tmp_path, ca.issue(NAME), ca.cert)
    async with serve(make_server, tls, uds=str(tmp_path / "s.sock")) as address:
        assert address == f"unix:{tmp_path}/s.sock"
        assert await ask(address, ca) == "UNAVAILABLE"
        assert await ask(address, ca, ca.issue("client.test")) == "OK"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tls, _: tls.cert.unlink(), "GRPC_SERVER_TLS_CERT: {}/tls.crt: there is no such"),
        (lambda tls, _: tls.key.unlink(), "GRPC_SERVER_TLS_KEY: {}/tls.key: there is no such"),
        (lambda tls, _: tls.client_ca.unlink(), "GRPC_CLIENT_TLS_CACERT: {}/ca.crt: there is no"),
        (lambda tls, new: tls.key.write_bytes(new.key), "GRPC_SERVER_TLS_KEY: {}/tls.key: not the"),
        (
            lambda tls, new: tls.key.write_bytes(encrypted(new.key)),
            "GRPC_SERVER_TLS_KEY: {}/tls.key: the key is encrypted",
        ),
    ],
)
async def test_a_server_does_not_start_on_files_that_cannot_be_used(
    make_server: MakeServer, tmp_path: Path, ca: Authority, change: Change, said: str
) -> None:
    """The setting and the file are named."""
    tls = write(tmp_path, ca.issue(NAME), ca.cert)
    change(tls, ca.issue(NAME))
    with pytest.raises(ConfigError) as caught:
        async with serve(make_server, tls):
            pass
    assert str(caught.value).startswith(said.format(tmp_path))


async def test_a_key_of_a_kind_that_no_client_takes_is_refused(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """By itself gRPC would say that it can't listen."""
    tls = write(tmp_path, ca.issue_for_uri("spiffe://d/server", ec.SECP256K1()))
    with pytest.raises(ConfigError, match=r"GRPC_SERVER_TLS_CERT: .*/tls.crt: not fit for TLS"):
        async with serve(make_server, tls):
            pass


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"use": True, "cert": "", "key": "k"},
            "GRPC_SERVER_USE_TLS needs a certificate and its key: "
            "set GRPC_SERVER_TLS_CERT to a PEM file",
        ),
        (
            {"use": True, "cert": "c", "key": ""},
            "GRPC_SERVER_USE_TLS needs a certificate and its key: "
            "set GRPC_SERVER_TLS_KEY to a PEM file",
        ),
        (
            {"use": False, "cert": "c", "key": "k", "client_ca": "ca"},
            "GRPC_CLIENT_TLS_CACERT needs TLS: set GRPC_SERVER_USE_TLS=true, or unset it",
        ),
        (
            {"use": False, "cert": "c", "key": "k", "client_san": "x"},
            "GRPC_CLIENT_TLS_SAN needs TLS: set GRPC_SERVER_USE_TLS=true, or unset it",
        ),
        (
            {"use": True, "cert": "c", "key": "k", "client_san": "x"},
            "GRPC_CLIENT_TLS_SAN needs a CA to trust: set GRPC_CLIENT_TLS_CACERT to a PEM file",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    settings: dict[str, object], message: str
) -> None:
    """With what to set."""
    with pytest.raises(ConfigError) as caught:
        choose_tls(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_settings_choose_the_files() -> None:
    """A certificate alone does not turn TLS on: charts may always set its path."""
    assert choose_tls(use=False, cert="c", key="k") is None
    assert choose_tls(use=True, cert="c", key="k") == Tls(Path("c"), Path("k"))
    both = choose_tls(use=True, cert="c", key="k", client_ca="ca", client_san="x")
    assert both == Tls(Path("c"), Path("k"), Path("ca"), "x")
