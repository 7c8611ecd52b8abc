"""Certificates that change while the server serves."""

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import grpc
import pytest
from penstock.transport.tls import Tls

from tests.support.certificates import Authority, Issued, SecretMount
from tests.support.transports import MakeServer
from tests.unit.transport.tls_server import NAME, ask, call, channel, serve, served, write

Change = Callable[[Tls, Issued], object]


@pytest.fixture(scope="module")
def ca() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def other_ca() -> Authority:
    return Authority()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


async def test_a_swapped_certificate_is_for_new_connections(
    make_server: MakeServer, tmp_path: Path, ca: Authority
) -> None:
    """As Kubernetes swaps secrets. One that was open before goes on."""
    old, new = ca.issue(NAME), ca.issue(NAME)
    mount = SecretMount(tmp_path / "tls", tls_crt=old.cert, tls_key=old.key)
    tls = Tls(mount.path("tls_crt"), mount.path("tls_key"))
    async with serve(make_server, tls) as address, channel(address, ca) as open_before:
        assert await call(open_before) == "OK"
        assert await served(address) == old.der
        mount.swap(tls_crt=new.cert, tls_key=new.key)
        assert await served(address) == new.der
        assert await call(open_before) == "OK"
        assert open_before.get_state() is grpc.ChannelConnectivity.READY
        assert await ask(address, ca) == "OK"


async def test_a_connection_that_was_open_before_a_swap_is_the_same_after(
    make_server: MakeServer, tmp_path: Path, ca: Authority, other_ca: Authority
) -> None:
    """It could not be opened again: its client does not trust the new certificate."""
    old, new = ca.issue(NAME), other_ca.issue(NAME)
    tls = write(tmp_path, old)
    async with serve(make_server, tls) as address, channel(address, ca) as open_before:
        assert await call(open_before) == "OK"
        write(tmp_path, new)
        assert await ask(address, ca) == "UNAVAILABLE"
        assert await call(open_before) == "OK"


async def test_a_swapped_client_ca_is_for_new_connections(
    make_server: MakeServer, tmp_path: Path, ca: Authority, other_ca: Authority
) -> None:
    """Clients of the old one no longer get in, those of the new one do."""
    issued, old, new = ca.issue(NAME), ca.issue("client.test"), other_ca.issue("client.test")
    files = {"tls_crt": issued.cert, "tls_key": issued.key}
    mount = SecretMount(tmp_path / "tls", **files, ca_crt=ca.cert)
    tls = Tls(mount.path("tls_crt"), mount.path("tls_key"), mount.path("ca_crt"))
    async with serve(make_server, tls) as address, channel(address, ca, old) as open_before:
        assert await call(open_before) == "OK"
        assert await ask(address, ca, new) == "UNAVAILABLE"
        mount.swap(**files, ca_crt=ca.cert + other_ca.cert)
        assert [await ask(address, ca, one) for one in (old, new)] == ["OK", "OK"]
        mount.swap(**files, ca_crt=other_ca.cert)
        assert [await ask(address, ca, one) for one in (old, new)] == ["UNAVAILABLE", "OK"]
        assert await call(open_before) == "OK"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tls, new: tls.cert.write_bytes(new.cert), "tls.key: not the key of the first"),
        (lambda tls, new: tls.key.write_bytes(new.key), "tls.key: not the key of the first"),
        (lambda tls, new: tls.cert.write_bytes(new.cert[:400]), "tls.crt: no certificate in PEM"),
        (lambda tls, new: tls.key.write_bytes(new.key[:100]), "tls.key: no private key in PEM"),
        (lambda tls, _: tls.key.write_bytes(b""), "tls.key: no private key in PEM"),
        (lambda tls, _: tls.cert.unlink(), "tls.crt: there is no such file"),
        (lambda tls, _: tls.key.unlink(), "tls.key: there is no such file"),
        (lambda tls, _: tls.client_ca.unlink(), "ca.crt: there is no such file"),
        (lambda tls, _: tls.client_ca.write_bytes(b"no"), "ca.crt: no certificate in PEM form"),
    ],
)
async def test_files_that_cannot_be_used_change_nothing_but_the_log(
    make_server: MakeServer,
    tmp_path: Path,
    ca: Authority,
    caplog: pytest.LogCaptureFixture,
    change: Change,
    said: str,
) -> None:
    """The last good ones stay, the log says why once, and mended files are used."""
    old, new, client = ca.issue(NAME), ca.issue(NAME), ca.issue("client.test")
    tls = write(tmp_path, old, ca.cert)
    async with serve(make_server, tls) as address:
        change(tls, new)
        assert [await ask(address, ca, client) for _ in range(3)] == ["OK"] * 3
        assert await served(address) == old.der
        (error,) = errors(caplog)
        assert "TLS files changed but can't be used, the last good ones stay: GRPC_" in error
        assert said in error

        write(tmp_path, new, ca.cert)
        assert await served(address) == new.der
        assert await ask(address, ca, client) == "OK"
        assert await ask(address, ca) == "UNAVAILABLE"
    assert len(errors(caplog)) == 1


async def test_an_expired_certificate_does_not_replace_a_good_one(
    make_server: MakeServer, tmp_path: Path, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever put it there took the wrong file."""
    old = ca.issue(NAME)
    async with serve(make_server, write(tmp_path, old)) as address:
        write(tmp_path, ca.issue(NAME, expired=True))
        assert await served(address) == old.der
    (error,) = errors(caplog)
    assert error.endswith(f"{tmp_path}/tls.crt: the certificate has expired")


async def test_a_server_starts_with_an_expired_certificate_and_says_so(
    make_server: MakeServer, tmp_path: Path, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Not every client looks, and it is replaced as soon as there is a new one."""
    async with serve(make_server, write(tmp_path, ca.issue(NAME, expired=True))) as address:
        (error,) = errors(caplog)
        assert f"{tmp_path}/tls.crt: the certificate has expired" in error
        assert await ask(address, ca) == "UNAVAILABLE"
        write(tmp_path, ca.issue(NAME))
        assert await ask(address, ca) == "OK"


async def test_files_that_are_swapped_all_the_time_are_never_mixed(
    make_server: MakeServer, tmp_path: Path, ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A certificate of before and a key of after are no reason for an error."""
    pairs = [ca.issue(NAME) for _ in range(2)]
    mount = SecretMount(tmp_path / "tls", tls_crt=pairs[0].cert, tls_key=pairs[0].key)
    done = threading.Event()

    def swap_on() -> None:
        for number in count():
            if done.is_set():
                return
            pair = pairs[number % 2]
            mount.swap(tls_crt=pair.cert, tls_key=pair.key)

    async with serve(make_server, Tls(mount.path("tls_crt"), mount.path("tls_key"))) as address:
        swapping = asyncio.create_task(asyncio.to_thread(swap_on))
        answers = [await ask(address, ca) for _ in range(60)]
        done.set()
        await swapping
    assert set(answers) == {"OK"}
    assert errors(caplog) == []
