"""Traces of real servers: when they are sent, and what a collector that fails does to a server."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.tracing_server import EXAMPLE_RULES, SERVED, ask, stop, traced_penstock
from tests.support.otlp import Collector, run_collector
from tests.support.processes import PATIENCE_S, PENSTOCK
from tests.support.tracing import caller, trace_id

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with run_collector() as running:
        yield running


@pytest.mark.parametrize(
    ("environment", "is_on"),
    [
        ({"TRACING_ENABLED": "true"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({}, False),
        ({"TRACING_ENABLED": "true", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"TRACING_ENABLED": "true", "OTEL_SDK_DISABLED": "true"}, False),
    ],
    ids=str,
)
def test_opentelemetry_is_not_even_imported_unless_traces_are_wanted(
    tmp_path: Path, collector: Collector, environment: dict[str, str], is_on: bool
) -> None:
    """And the last spans arrive when the server stops, however seldom it sends."""
    env = {
        "TRACING_ENABLED": "false",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
        "PYTHONPROFILEIMPORTTIME": "1",  # has Python tell on stderr what it imports
        **collector.environment("http/protobuf"),
        **environment,
    }
    with traced_penstock(tmp_path, env) as server:
        ask(server, 3)
        assert collector.headers == []
        stop(server)
        log = server.log()
    assert "could not be sent" not in log
    assert len(collector.named(SERVED)) == len(collector.named("commit")) == (3 if is_on else 0)
    assert "penstock.server" in log
    assert ("opentelemetry" in log) is is_on


def test_the_settings_of_the_reference_server_are_understood(
    tmp_path: Path, collector: Collector
) -> None:
    """Names of the service, the protocol, and the rate."""
    env = {
        "TRACING_SERVICE_NAME": "limits",
        "TRACING_SERVICE_NAMESPACE": "edge",
        "TRACING_SERVICE_INSTANCE_ID": "i-1",
        "TRACING_EXPORTER_PROTOCOL": "grpc",
        "TRACING_SAMPLING_RATE": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc_url,
    }
    with traced_penstock(tmp_path, env) as server:
        ask(server, 5)
        ask(server, headers=caller(1))
        stop(server)
    (served,) = collector.named(SERVED)
    named = {"service.name": "limits", "service.namespace": "edge", "service.instance.id": "i-1"}
    assert served.resource.items() >= named.items()
    assert served.trace_id == trace_id(1)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"TRACING_SAMPLING_RATE": "2"}, "TRACING_SAMPLING_RATE: '2' is not a share"),
        ({"TRACING_EXPORTER_PROTOCOL": "udp"}, "'udp' is not one of http, grpc"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "'zipkin' is not one of otlp, none"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "is not one of grpc, http/protobuf"),
        ({"OTEL_PROPAGATORS": "jaeger"}, "Propagator jaeger not found"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "secret"}, "write name=value,name=value"),
        ({"PYTHONPATH": "blocked"}, "pip install 'penstock-ratelimit[otlp]'"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_told_at_the_start(
    tmp_path: Path, environment: dict[str, str], text: str
) -> None:
    """By exit code 2, and one line that names it."""
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    module = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    (blocked / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    done = subprocess.run(
        [str(PENSTOCK), "serve", "--config", str(EXAMPLE_RULES), "--store", "memory:"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRACING_ENABLED": "true", **environment},
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2, done.stderr
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


# When the collector fails.


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("hangs", [False, True], ids=["gone", "hangs"])
def test_a_collector_that_fails_holds_up_nothing(
    tmp_path: Path, collector: Collector, protocol: str, hangs: bool
) -> None:
    """Decisions are as fast as ever, the log stays short and tells no secret, the server stops."""
    env = {
        **collector.environment(protocol),
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret",
        "OTEL_BSP_MAX_QUEUE_SIZE": "64",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
    }
    collector.answers.clear()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        if not hangs:
            env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with traced_penstock(tmp_path, env) as server:
            taken_s = ask(server, 1_000)
            server.wait_for_log("export")
            stop(server)
            log = server.log()
    # An export takes two seconds, and there are 15 of them: were they waited for, it would show.
    assert sum(seconds > 2 for seconds in taken_s) < 10
    # How many depends on how long the requests take. There is none for each of them.
    assert 1 <= sum("export" in line for line in log.splitlines()) <= 100, log
    assert len(log.splitlines()) < 200, log
    assert "secret" not in log
    assert "Traceback" not in log


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_collector_that_hangs_does_not_keep_the_server_from_stopping(
    tmp_path: Path, collector: Collector, protocol: str
) -> None:
    """However long an export may take, the server waits for the last one for a few seconds."""
    env = {**collector.environment(protocol), "OTEL_EXPORTER_OTLP_TIMEOUT": "600"}
    collector.answers.clear()
    with traced_penstock(tmp_path, env) as server:
        ask(server, 100)
        assert collector.exported.wait(PATIENCE_S)
        stop(server)
        assert "the last traces could not be sent in 5.0 s" in server.log()


def test_spans_arrive_again_once_the_collector_is_back(
    tmp_path: Path, collector: Collector
) -> None:
    """What it could not take is lost, and what comes after is not."""
    env = {**collector.environment("http/protobuf"), "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2"}
    collector.answers.clear()
    with traced_penstock(tmp_path, env) as server:
        ask(server, headers=caller(1))
        server.wait_for_log("Failed to export")
        collector.answers.set()
        ask(server, headers=caller(2))
        collector.wait_for("commit")
        stop(server)
    assert trace_id(2) in {span.trace_id for span in collector.spans}
