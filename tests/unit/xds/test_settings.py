"""Every setting of the reference server for xDS, and what becomes of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from penstock import __version__, build
from penstock.telemetry.metrics import Metrics
from penstock.transport.ads import AdsServer
from penstock.transport.codec import XdsNode
from penstock.xds import client, pauses
from penstock.xds.pauses import PauseOptions
from penstock.xds.reading import read_rules

from tests.support.ads import config, limit, pack_response
from tests.support.certificates import Authority
from tests.support.reference_variables import REFERENCE_VARIABLES
from tests.unit.config.test_settings import read


class Made:
    """What a client is made of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str]) -> None:
        self.options = PauseOptions()

        def note_pauses(options: PauseOptions) -> None:
            self.options = options

        def note(server: AdsServer, node: XdsNode, read_all: Any, *_: object) -> None:
            self.server, self.node, self.read = server, node, read_all

        monkeypatch.setattr(pauses, "Pauses", note_pauses)
        monkeypatch.setattr(client, "XdsClient", note)
        build.make_xds_client(read(env=env), Metrics(), read_rules)


def test_defaults_are_the_reference_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out or not."""
    names = ("CONFIG_GRPC_XDS_", "XDS_CLIENT_")
    written = {name: text for name, text in REFERENCE_VARIABLES if name.startswith(names)}
    assert len(written) == 15
    for env in ({}, written):
        made = Made(monkeypatch, env)
        assert made.server == AdsServer("localhost:18000", 4 * 2**20)
        assert made.node == XdsNode("default", {}, __version__)
        assert made.options == PauseOptions(3, 10, 60, 0.5, has_jitter=True)


async def test_every_setting_has_its_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at once, but for the files of TLS."""
    made = Made(
        monkeypatch,
        {
            "CONFIG_GRPC_XDS_NODE_ID": "edge-1",
            "CONFIG_GRPC_XDS_NODE_METADATA": "zone=a,team=edge",
            "CONFIG_GRPC_XDS_SERVER_URL": "control:18001",
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "500ms",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "authorization:Bearer s3cret",
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "1s",
            "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "5m",
            "XDS_CLIENT_BACKOFF_RANDOM_FACTOR": "0.1",
            "XDS_CLIENT_BACKOFF_JITTER": "false",
            "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": "104857600",
            "MERGE_DOMAIN_CONFIG": "true",
        },
    )
    assert made.node == XdsNode("edge-1", {"zone": "a", "team": "edge"}, __version__)
    assert made.server.address == "control:18001"
    assert made.server.headers == (("authorization", "Bearer s3cret"),)
    assert "s3cret" not in repr(made.server)
    assert "s3cret" not in repr(read("--config-grpc-xds-client-additional-headers", "a:s3cret"))
    assert dict(made.server.options)["grpc.max_receive_message_length"] == 104_857_600
    assert made.options == PauseOptions(0.5, 1, 300, 0.1, has_jitter=False)
    parts = [config("d", limit(key), name=key) for key in ("a", "b")]
    assert list((await made.read(pack_response(parts, "v"))).rules) == ["d"]


def test_files_of_tls_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the name that the server's certificate must have."""
    authority = Authority()
    issued = authority.issue("client")
    env = {"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "eg"}
    for name, content in (
        ("CLIENT_TLS_CERT", issued.cert),
        ("CLIENT_TLS_KEY", issued.key),
        ("SERVER_TLS_CACERT", authority.cert),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        env[f"CONFIG_GRPC_XDS_{name}"] = str(file)
    made = Made(monkeypatch, env)
    assert made.server.tls is not None
    assert dict(made.server.options)["grpc.ssl_target_name_override"] == "eg"
