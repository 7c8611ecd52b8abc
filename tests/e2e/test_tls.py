"""The way from Envoy to Penstock over TLS, with certificates that are renewed on the way."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Issued, SecretMount, served_certificate
from tests.support.envoy import EnvoyConfig, Node, run_envoy
from tests.support.processes import Penstock, penstock
from tests.support.web import decide, get

pytestmark = pytest.mark.usefixtures("transport")

NAME = "penstock.test"
ENVOY = "spiffe://cluster.local/ns/gateway/sa/envoy"
COUNT = 60
RULES = f"""\
domain: example
descriptors:
  - key: user
    rate_limit: {{unit: day, requests_per_unit: {COUNT}}}
"""
UPSTREAM_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that asks for client certificates, and what its own are made of."""

    running: Penstock
    mount: SecretMount
    ca: Authority
    client_ca: Authority

    def renew(self) -> Issued:
        """Swap the server's certificate for a new one."""
        issued = self.ca.issue(NAME)
        self.mount.swap(tls_crt=issued.cert, tls_key=issued.key, ca_crt=self.client_ca.cert)
        return issued


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """With further settings, if a test has some."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    ca, client_ca = Authority(), Authority()
    issued = ca.issue(NAME)
    files = {"tls_crt": issued.cert, "tls_key": issued.key, "ca_crt": client_ca.cert}
    mount = SecretMount(tmp_path / "certs", **files)
    env = {
        "GRPC_SERVER_USE_TLS": "true",
        "GRPC_SERVER_TLS_CERT": str(mount.path("tls_crt")),
        "GRPC_SERVER_TLS_KEY": str(mount.path("tls_key")),
        "GRPC_CLIENT_TLS_CACERT": str(mount.path("ca_crt")),
        "GRPC_CLIENT_TLS_SAN": ENVOY,
    }
    env |= getattr(request, "param", {})
    with penstock(tmp_path, rules=rules, env=env) as running:
        yield Server(running, mount, ca, client_ca)


def test_json_decides_nothing_while_grpc_asks_for_certificates(server: Server) -> None:
    """There would be a way around it; the answer and the log say what to do."""
    page = decide(server.running.http, "example", ("user", "bob"))
    assert page.status == 403
    told = (
        "decisions over HTTP are off: clients need a certificate for gRPC (GRPC_CLIENT_TLS_CACERT)"
        ", and this port asks for none; PENSTOCK_HTTP_DECISIONS=on allows them"
    )
    assert page.text == f"{told}\n"
    assert f"/json answers 403, {told}" in server.running.log()
    assert get(server.running.http, "/healthcheck").status == 200
    metrics = get(server.running.http, "/metrics").text
    assert 'rate_limit_total_hits{domain="example",key1="user"} 0' in metrics


@pytest.mark.parametrize("server", [{"PENSTOCK_HTTP_DECISIONS": "on"}], indirect=True)
def test_json_decides_where_it_is_allowed_to(server: Server) -> None:
    """Although gRPC asks for certificates; the log has a warning."""
    assert decide(server.running.http, "example", ("user", "bob")).status == 200
    assert "/json decides for clients without a certificate" in server.running.log()


def test_envoy_is_served_over_mtls_while_the_certificate_is_renewed(
    server: Server, tmp_path: Path
) -> None:
    """Not one request fails, although Envoy connects anew all the time; then the limit refuses."""
    config = _config(server, server.client_ca.issue_for_uri(ENVOY))
    options = config.cluster("ratelimit")["typed_extension_protocol_options"][HTTP_OPTIONS]
    options["common_http_protocol_options"] = {"max_requests_per_connection": 2}
    with run_envoy(tmp_path, config) as envoy, envoy.connect() as get:
        statuses = []
        for number in range(COUNT):
            if number in (COUNT // 3, 2 * COUNT // 3):
                issued = server.renew()
            statuses.append(get(x_user="bob").status)
        refused = get(x_user="bob").status
    assert statuses == [200] * COUNT
    assert refused == 429
    assert server.running.log().count("TLS files changed: new connections use") == 2
    assert "can't be used" not in server.running.log()
    assert served_certificate("127.0.0.1", server.running.port) == issued.der


def test_envoy_with_another_name_is_not_served(server: Server, tmp_path: Path) -> None:
    """Although its certificate is of the right CA: health checks fail, and requests are denied."""
    config = _config(server, server.client_ca.issue_for_uri(f"{ENVOY}-2"))
    with run_envoy(tmp_path, config, healthy=0) as envoy:
        assert envoy.get(x_user="bob").status == 500
        server.running.wait_for_log("refusing clients with")
        assert envoy.healthy() == 0


def test_envoy_without_tls_is_not_served(server: Server, tmp_path: Path) -> None:
    """There is no way around it."""
    config = EnvoyConfig(server.running.port)
    config.rate_limit_filter["failure_mode_deny"] = True
    with run_envoy(tmp_path, config, healthy=0) as envoy:
        assert envoy.get(x_user="bob").status == 500


def _config(server: Server, shown: Issued) -> EnvoyConfig:
    """Envoy with a client certificate, that trusts the server's CA and expects its name."""
    config = EnvoyConfig(server.running.port)
    config.rate_limit_filter["failure_mode_deny"] = True
    expected = {"san_type": "DNS", "matcher": {"exact": NAME}}
    pair = {"certificate_chain": _inline(shown.cert), "private_key": _inline(shown.key)}
    context: Node = {
        "alpn_protocols": ["h2"],
        "tls_certificates": [pair],
        "validation_context": {
            "trusted_ca": _inline(server.ca.cert),
            "match_typed_subject_alt_names": [expected],
        },
    }
    config.cluster("ratelimit")["transport_socket"] = {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {"@type": UPSTREAM_TLS, "sni": NAME, "common_tls_context": context},
    }
    return config


def _inline(pem: bytes) -> Node:
    return {"inline_string": pem.decode()}
