"""`penstock check` and `penstock serve` with real certificates."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority, encrypted
from tests.support.processes import Penstock, penstock
from tests.unit.cli.command import PATIENT, Ran, run, write_rules

NAME = "rls.test"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a server and its clients need."""
    folder = tmp_path_factory.mktemp("files")
    server_ca, client_ca = Authority(), Authority()
    (folder / "ca.crt").write_bytes(server_ca.cert)
    (folder / "client-ca.crt").write_bytes(client_ca.cert)
    issued = {
        "server": server_ca.issue("127.0.0.1"),
        "named": server_ca.issue(NAME),
        "client": client_ca.issue("client.test"),
        "other": client_ca.issue("other.test"),
    }
    for name, one in issued.items():
        (folder / f"{name}.crt").write_bytes(one.cert)
        (folder / f"{name}.key").write_bytes(one.key)
    (folder / "encrypted.key").write_bytes(encrypted(issued["client"].key))
    write_rules(folder)
    return folder


def tls_flags(name: str) -> tuple[str, ...]:
    cert, key = f"--grpc-server-tls-cert={name}.crt", f"--grpc-server-tls-key={name}.key"
    return ("--grpc-server-use-tls", cert, key)


@pytest.fixture(scope="module")
def server(files: Path) -> Iterator[Penstock]:
    with penstock(
        files, *tls_flags("server"), rules=files / "rules.yaml", store="memory:"
    ) as running:
        yield running


def check(files: Path, server: Penstock, *flags: str, env: dict[str, str] | None = None) -> Ran:
    where = ("--address", server.address, "--domain", "d", *PATIENT)
    return run("check", *where, *flags, "many=1", cwd=files, env=env)


def test_a_server_is_verified_by_a_ca(files: Path, server: Penstock) -> None:
    """Of the one that is named, and no other."""
    ran = check(files, server, "--cacert", "ca.crt")
    assert (ran.code, ran.err, ran.out.splitlines()[0]) == (0, "", "OK")
    ran = check(files, server, "--cacert", "client-ca.crt")
    assert ran.code == 2
    reason = "the server's certificate is not from a trusted CA: name its CA with --cacert FILE"
    assert ran.err == f"penstock: error: {server.address}: UNAVAILABLE: {reason}\n"


def test_a_server_is_verified_by_the_cas_of_the_system(
    files: Path, server: Penstock, tmp_path: Path
) -> None:
    """In a file or in a folder, where OpenSSL looks for them."""
    hashed = tmp_path / "0a1b2c3d.0"
    hashed.symlink_to(files / "ca.crt")
    missing = str(tmp_path / "missing")
    in_file = {"SSL_CERT_FILE": str(files / "ca.crt")}
    in_folder = {"SSL_CERT_FILE": missing, "SSL_CERT_DIR": str(tmp_path)}
    assert check(files, server, "--tls", env=in_file).code == 0
    assert check(files, server, "--tls", env=in_folder).code == 0
    assert check(files, server, "--tls").code == 2, "they are not of the system"
    nowhere = check(files, server, "--tls", env=in_folder | {"SSL_CERT_DIR": missing})
    assert nowhere.code == 2
    assert "--tls: no CAs found on this system: name them with --cacert FILE" in nowhere.err


def test_a_server_without_a_flag_for_tls_is_not_reached(files: Path, server: Penstock) -> None:
    """It does not answer to clients in the clear, and the message says so."""
    ran = check(files, server)
    assert ran.code == 2
    reason = "the server expects TLS: give --tls, or --cacert FILE with the server's CA"
    assert ran.err == f"penstock: error: {server.address}: UNAVAILABLE: {reason}\n"


def test_a_server_in_the_clear_is_not_reached_over_tls(files: Path) -> None:
    """Also on a unix socket."""
    for flags in ((), ("--grpc-uds=clear.sock",)):
        with penstock(files, *flags, rules=files / "rules.yaml", store="memory:") as server:
            ran = check(files, server, "--cacert", "ca.crt")
        assert ran.code == 2
        assert f"{server.address}: UNAVAILABLE: the server does not speak TLS: leave out" in ran.err


def test_a_certificate_for_another_name_needs_that_name(files: Path) -> None:
    """On a unix socket, which has none, always."""
    flags = (*tls_flags("named"), "--grpc-uds=named.sock")
    with penstock(files, *flags, rules=files / "rules.yaml", store="memory:") as server:
        named = ("--server-name", NAME)
        assert check(files, server, "--cacert", "ca.crt", *named).code == 0
        assert check(files, server, *named, env={"SSL_CERT_FILE": "ca.crt"}).code == 0
        ran = check(files, server, "--cacert", "ca.crt")
    assert ran.code == 2
    assert "UNAVAILABLE: the server's certificate is for another name: if that name is" in ran.err


def test_a_client_shows_its_certificate(files: Path) -> None:
    """Without one, or with one for another name, there is no answer."""
    flags = (*tls_flags("server"), "--grpc-client-tls-cacert=client-ca.crt")
    flags += ("--grpc-client-tls-san=client.test",)
    ca = ("--cacert", "ca.crt")
    with penstock(files, *flags, rules=files / "rules.yaml", store="memory:") as server:
        shown = check(files, server, *ca, "--cert", "client.crt", "--key", "client.key")
        other = check(files, server, *ca, "--cert", "other.crt", "--key", "other.key")
        none = check(files, server, *ca)
        stranger = check(files, server, *ca, "--cert", "server.crt", "--key", "server.key")
    assert (shown.code, shown.err) == (0, "")
    assert (other.code, none.code) == (2, 2)
    assert f"{server.address}: PERMISSION_DENIED: the client's certificate does not" in other.err
    asks = "the server asks for a client certificate: give --cert and --key"
    assert none.err == f"penstock: error: {server.address}: UNAVAILABLE: {asks}\n"
    refuses = "the server does not accept the certificate of --cert"
    assert stranger.err == f"penstock: error: {server.address}: UNAVAILABLE: {refuses}\n"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--cacert", "none.crt"), "--cacert: none.crt: there is no such file"),
        (("--cacert", "client.key"), "--cacert: client.key: no certificate in PEM form, or one"),
        (("--cert", "client.crt"), "--cert and --key belong together: give both, or none"),
        (("--key", "client.key"), "--cert and --key belong together: give both, or none"),
        (("--cert", "no", "--key", "client.key"), "--cert: no: there is no such file"),
        (("--cert", "client.crt", "--key", "no"), "--key: no: there is no such file"),
        (("--cert", "client.crt", "--key", "."), "--key: .: not a regular file"),
        (
            ("--cert", "client.crt", "--key", "other.key"),
            "--key: other.key: not the key of the first certificate of --cert: client.crt",
        ),
        (
            ("--cert", "client.crt", "--key", "encrypted.key"),
            "--key: encrypted.key: the key is encrypted, and nobody is there to type a password",
        ),
    ],
)
def test_files_that_cannot_be_used_are_named_with_their_flag(
    files: Path, server: Penstock, flags: tuple[str, ...], message: str
) -> None:
    """Before anything is sent."""
    cas = () if "--cacert" in flags else ("--cacert", "ca.crt")
    ran = check(files, server, *cas, *flags)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"penstock: error: {message}")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "GRPC_SERVER_USE_TLS needs a certificate and its key: set GRPC_SERVER_TLS_CERT to"),
        (
            {"GRPC_SERVER_TLS_CERT": "server.crt", "GRPC_SERVER_TLS_KEY": "none.key"},
            "GRPC_SERVER_TLS_KEY: none.key: there is no such file",
        ),
        (
            {"GRPC_SERVER_TLS_CERT": "server.crt", "GRPC_SERVER_TLS_KEY": "client.key"},
            "GRPC_SERVER_TLS_KEY: client.key: not the key of the first certificate of "
            "GRPC_SERVER_TLS_CERT: server.crt",
        ),
        (
            {"GRPC_SERVER_USE_TLS": "false", "GRPC_CLIENT_TLS_CACERT": "client-ca.crt"},
            "GRPC_CLIENT_TLS_CACERT needs TLS: set GRPC_SERVER_USE_TLS=true, or unset it",
        ),
    ],
)
def test_a_server_that_cannot_serve_over_tls_does_not_start(
    files: Path, env: dict[str, str], message: str
) -> None:
    """It exits with 2, rather than serve in the clear."""
    given = {"GRPC_SERVER_USE_TLS": "true", **env}
    ports = ("--grpc-host=127.0.0.1", "--grpc-port=0", "--port=0", "--debug-port=0")
    ran = run("serve", "--config=rules.yaml", "--store=memory:", *ports, cwd=files, env=given)
    assert ran.code == 2
    assert re.search(f"^penstock: error: {re.escape(message)}", ran.err, re.MULTILINE)
    assert "Traceback" not in ran.err


def test_help_shows_how_to_reach_a_server_over_tls() -> None:
    """By example."""
    ran = run("check", "--help", cwd=Path.cwd())
    assert "penstock check --cacert ca.crt --cert tls.crt --key tls.key" in ran.out
