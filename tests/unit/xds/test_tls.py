"""TLS to an xDS server: real certificates, and files that change."""

import asyncio
from pathlib import Path

import grpc
import pytest
from penstock.errors import ConfigError
from penstock.transport.ads_tls import AdsTls, FollowedAdsTls, choose_ads_tls

from tests.support.ads import Ads, config, limit, serve_ads
from tests.support.certificates import Authority, SecretMount
from tests.unit.xds.conftest import Following, following

GOOD = config("shop", limit("user"))


def server_credentials(authority: Authority, *names: str) -> grpc.ServerCredentials:
    """Of a server that trusts clients of the same CA alone, as Envoy Gateway's."""
    issued = authority.issue(*names)
    return grpc.ssl_server_credentials(
        [(issued.key, issued.cert)], authority.cert, require_client_auth=True
    )


def mount(folder: Path, authority: Authority) -> SecretMount:
    issued = authority.issue("envoy-ratelimit")
    return SecretMount(folder, tls_crt=issued.cert, tls_key=issued.key, ca_crt=authority.cert)


def swap(files: SecretMount, authority: Authority) -> None:
    issued = authority.issue("envoy-ratelimit")
    files.swap(tls_crt=issued.cert, tls_key=issued.key, ca_crt=authority.cert)


def followed(files: SecretMount, san: str = "") -> FollowedAdsTls:
    paths = (files.path("tls_crt"), files.path("tls_key"), files.path("ca_crt"))
    return FollowedAdsTls(AdsTls(*paths, server_name=san))


async def acked(ads: Ads, version: str) -> None:
    await asyncio.to_thread(ads.wait_for_ack, version)


async def test_rotated_files_are_used_for_the_next_connection(tmp_path: Path) -> None:
    """Of all three: the server has another CA from one moment to the next."""
    first, second = Authority(), Authority()
    files = mount(tmp_path / "certs", first)
    async with serve_ads(server_credentials(first, "localhost")) as ads:
        port, made = ads.port, Following(ads.address, tls=followed(files))
        following_it = following(made)
        await following_it.__aenter__()
        ads.publish(GOOD)
        await acked(ads, "v1")
    await made.until(lambda: made.paused, "a pause")
    async with serve_ads(server_credentials(second, "localhost"), port) as ads:
        tried = len(made.paused)
        await made.until(lambda: len(made.paused) > tried + 1, "a server with another CA refused")
        assert ads.heard == []
        swap(files, second)
        ads.publish(config("shop", limit("user", n=9)))
        await acked(ads, "v1")
        await following_it.__aexit__(None, None, None)


async def test_files_that_became_unusable_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last good ones stay, and the log names the file."""
    authority = Authority()
    files = mount(tmp_path / "certs", authority)
    tls = followed(files)
    files.swap(tls_crt=b"", tls_key=b"no key", ca_crt=authority.cert)
    async with (
        serve_ads(server_credentials(authority, "localhost")) as ads,
        following(Following(ads.address, tls=tls)),
    ):
        ads.publish(GOOD)
        await acked(ads, "v1")
    assert "TLS files for xDS changed but can't be used, the last stay" in caplog.text
    assert "CONFIG_GRPC_XDS_CLIENT_TLS_CERT: " in caplog.text


@pytest.mark.parametrize(("san", "is_trusted"), [("", False), ("envoy-gateway", True)])
async def test_the_name_of_the_server_is_checked(
    tmp_path: Path, san: str, is_trusted: bool
) -> None:
    """By the host of the address, or by the setting."""
    authority = Authority()
    files = mount(tmp_path / "certs", authority)
    async with (
        serve_ads(server_credentials(authority, "envoy-gateway")) as ads,
        following(Following(ads.address, tls=followed(files, san))) as made,
    ):
        ads.publish(GOOD)
        await made.until(lambda: made.used or len(made.paused) > 1, "rules or a refusal")
        assert bool(made.used) is is_trusted


async def test_a_client_without_a_certificate_trusts_a_ca(tmp_path: Path) -> None:
    """TLS without mTLS."""
    authority, file = Authority(), tmp_path / "ca.crt"
    file.write_bytes(authority.cert)
    issued = authority.issue("localhost")
    credentials = grpc.ssl_server_credentials([(issued.key, issued.cert)])
    tls = FollowedAdsTls(AdsTls(ca=file))
    async with serve_ads(credentials) as ads, following(Following(ads.address, tls=tls)):
        ads.publish(GOOD)
        await acked(ads, "v1")


async def test_the_cas_of_the_system_are_trusted_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SSL_CERT_FILE names them."""
    authority, file = Authority(), tmp_path / "system.crt"
    file.write_bytes(authority.cert)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    issued = authority.issue("localhost")
    credentials = grpc.ssl_server_credentials([(issued.key, issued.cert)])
    tls = FollowedAdsTls(AdsTls())
    async with serve_ads(credentials) as ads, following(Following(ads.address, tls=tls)):
        ads.publish(GOOD)
        await acked(ads, "v1")


NAMES = {"cert": "", "key": "", "ca": "", "san": ""}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"cert": "c"}, "CONFIG_GRPC_XDS_CLIENT_TLS_CERT needs TLS"),
        ({"key": "k"}, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY needs TLS"),
        ({"ca": "c"}, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT needs TLS"),
        ({"san": "s"}, "CONFIG_GRPC_XDS_SERVER_TLS_SAN needs TLS"),
        ({"use": True, "cert": "c"}, "set CONFIG_GRPC_XDS_CLIENT_TLS_KEY to a PEM file"),
        ({"use": True, "key": "k"}, "set CONFIG_GRPC_XDS_CLIENT_TLS_CERT to a PEM file"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    given: dict[str, object], told: str
) -> None:
    """Rules never come in the clear where the operator meant otherwise."""
    with pytest.raises(ConfigError, match=told):
        choose_ads_tls(**{"use": False, **NAMES, **given})  # type: ignore[arg-type]


def test_files_are_checked_at_the_start(tmp_path: Path) -> None:
    """A typo is found before the server serves."""
    missing = tmp_path / "missing.crt"
    with pytest.raises(ConfigError, match=r"CONFIG_GRPC_XDS_SERVER_TLS_CACERT: .*no such file"):
        FollowedAdsTls(AdsTls(ca=missing))
    assert choose_ads_tls(use=False, **NAMES) is None
    assert choose_ads_tls(use=True, **NAMES) == AdsTls()
