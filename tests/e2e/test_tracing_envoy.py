"""Traces that begin before Envoy and end in the store, as a collector gets them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.transport.codec import METHOD, SERVICE

from tests.e2e.tracing_server import SERVED, stop, traced_penstock
from tests.support.envoy import EnvoyConfig, Node, run_envoy
from tests.support.otlp import Collector, run_collector
from tests.support.processes import PENSTOCK, Penstock
from tests.support.tracing import caller, span_id, trace_id

pytestmark = pytest.mark.usefixtures("transport")

CALLED = f"async {SERVICE}.{METHOD} egress"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_collector() as running:
        yield running


def envoy_config(
    server: Penstock, provider: Node, collector_url: str, *, http2: bool
) -> EnvoyConfig:
    """Envoy that makes traces, and sends its own spans to the collector."""
    config = EnvoyConfig(server.port)
    manager = config.listener("ingress")["filter_chains"][0]["filters"][0]["typed_config"]
    manager["tracing"] = {"provider": provider, "random_sampling": {"value": 100}}
    host, port = collector_url.removeprefix("http://").split(":")
    address = {"socket_address": {"address": host, "port_value": int(port)}}
    cluster: Node = {
        "name": "collector",
        "load_assignment": {
            "cluster_name": "collector",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if http2:
        options = config.cluster("ratelimit")["typed_extension_protocol_options"]
        cluster["typed_extension_protocol_options"] = options
    config.tree["static_resources"]["clusters"].append(cluster)
    # Envoy would wait for 5 seconds, or for some spans more.
    soon = {"flush_interval_ms": 20, "min_flush_spans": 1}
    runtime = {f"tracing.opentelemetry.{name}": value for name, value in soon.items()}
    layer = {"name": "soon", "static_layer": runtime}
    config.tree["layered_runtime"] = {"layers": [layer]}
    return config


def opentelemetry() -> Node:
    kind = "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig"
    service = {"envoy_grpc": {"cluster_name": "collector"}, "timeout": "5s"}
    settings = {"@type": kind, "grpc_service": service, "service_name": "envoy"}
    return {"name": "envoy.tracers.opentelemetry", "typed_config": settings}


def zipkin() -> Node:
    settings = {
        "@type": "type.googleapis.com/envoy.config.trace.v3.ZipkinConfig",
        "collector_cluster": "collector",
        "collector_endpoint": "/api/v2/spans",
        "collector_endpoint_version": "HTTP_JSON",
    }
    return {"name": "envoy.tracers.zipkin", "typed_config": settings}


@pytest.mark.parametrize("kind", ["sqlite", "dynamodb"])
def test_a_request_through_envoy_is_one_trace_down_to_the_store(
    tmp_path: Path,
    collector: Collector,
    transport: str,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    """Envoy's span, its call, our server's span, and the write, each below the one before."""
    store, write = "sqlite:///penstock.db", "commit"
    if kind == "dynamodb":
        endpoint = request.getfixturevalue("dynamodb_url")
        store = f"dynamodb://traces-{transport}?region=eu-west-1&endpoint={endpoint}"
        subprocess.run([str(PENSTOCK), "table", "create", "--store", store], check=True)
        write = "write upsert"
    with traced_penstock(tmp_path, collector.environment(), store=store, patient=True) as server:
        config = envoy_config(server, opentelemetry(), collector.grpc_url, http2=True)
        with run_envoy(tmp_path, config) as envoy:
            assert envoy.get(x_user="bob", **caller(7)).status == 200
            (written,) = collector.wait_for(write)
            (served,) = collector.wait_for(SERVED)
            (called,) = collector.wait_for(CALLED)
            (ingress,) = [s for s in collector.wait_for("ingress") if s.kind == "server"]
    chain = [ingress, called, served, written]
    assert {span.trace_id for span in chain} == {trace_id(7)}
    assert [span.parent_id for span in chain] == [
        span_id(7),
        ingress.span_id,
        called.span_id,
        served.span_id,
    ]
    assert [s.resource["service.name"] for s in chain] == ["envoy", "envoy", *["RateLimit"] * 2]
    assert served.attributes["penstock.code"] == "ok"
    assert written.attributes["penstock.outcome"] == "landed"


def test_envoy_with_a_zipkin_tracer_is_understood_too(tmp_path: Path, collector: Collector) -> None:
    """It sends B3 in several headers; what it does not sample has no spans."""
    with traced_penstock(tmp_path, collector.environment()) as server:
        config = envoy_config(server, zipkin(), collector.http_url, http2=False)
        with run_envoy(tmp_path, config) as envoy:
            b3 = {"x_b3_traceid": trace_id(7), "x_b3_spanid": span_id(7)}
            assert envoy.get(x_user="bob", **b3, x_b3_sampled="0").status == 200
            assert envoy.get(x_user="bob", **b3, x_b3_sampled="1").status == 200
        stop(server)
    (served,) = collector.named(SERVED)
    assert served.trace_id == trace_id(7)
    assert served.parent_id not in {"", span_id(7)}
