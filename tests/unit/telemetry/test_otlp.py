"""What settings and OpenTelemetry's own variables make of a tracer, read from real exports."""

import logging
import os
import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanContext, TraceFlags
from penstock import __version__
from penstock.errors import ConfigError
from penstock.telemetry.otel_headers import Origin
from penstock.telemetry.otlp import _by_rate

from tests.support.otlp import Attributes, Span
from tests.support.tracing import Traced, caller, trace_id, traced

FLAGS = [TraceFlags(flags) for flags in range(4)]
IDS = st.integers(1, 2**64 - 1)


def one_span(tracing: Traced, headers: dict[str, str] | None = None) -> Span:
    with tracing.tracer.request("serve", (headers or {}).items):
        pass
    (span,) = tracing.spans()
    return span


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_spans_arrive_over_either_protocol(protocol: str) -> None:
    """With the headers that the collector wants."""
    secret = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret, x-tenant = a "}
    with traced(protocol=protocol, environment=secret) as tracing:
        assert one_span(tracing).name == "serve"
        (headers,) = tracing.collector.headers
    assert (headers["authorization"], headers["x-tenant"]) == ("Bearer secret", "a")


def test_our_setting_says_the_protocol_where_opentelemetry_does_not() -> None:
    """Here it is http, as the reference server has it."""
    with traced(protocol="http/protobuf", environment={"OTEL_EXPORTER_OTLP_PROTOCOL": ""}) as made:
        assert one_span(made).name == "serve"


def test_the_variable_for_traces_goes_before_the_one_for_all() -> None:
    """As OpenTelemetry has it."""
    environment = {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
    environment["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf"
    with traced(protocol="grpc", environment=environment) as tracing:
        assert one_span(tracing).name == "serve"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {"service.name": "RateLimit", "service.namespace": "edge"}),
        ({"OTEL_SERVICE_NAME": "limits"}, {"service.name": "limits", "service.namespace": "edge"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.namespace=core,service.instance.id=i,team=x%20y"},
            {
                "service.name": "RateLimit",
                "service.namespace": "core",
                "service.instance.id": "i",
                "team": "x y",
            },
        ),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=a", "OTEL_SERVICE_NAME": "b"},
            {"service.name": "b"},
        ),
    ],
    ids=str,
)
def test_spans_say_which_service_they_are_of(
    environment: dict[str, str], expected: Attributes
) -> None:
    """By our settings, and before them by OpenTelemetry's."""
    with traced(namespace="edge", environment=environment) as tracing:
        resource = one_span(tracing).resource
    assert resource.items() >= expected.items()
    assert resource["service.version"] == __version__
    assert resource["telemetry.sdk.language"] == "python"


def test_each_server_is_an_instance_of_its_own() -> None:
    """Where nobody names it, its id is random; and what is not set is not there."""
    ids = []
    for _ in range(2):
        with traced() as tracing:
            resource = one_span(tracing).resource
            ids.append(uuid.UUID(resource["service.instance.id"]))
    assert ids[0] != ids[1]
    assert "service.namespace" not in resource


@pytest.mark.parametrize(
    ("environment", "sampled", "names"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, True, []),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, False, ["serve"]),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_on"}, False, []),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
            True,
            [],
        ),
    ],
    ids=str,
)
def test_opentelemetrys_sampler_goes_before_our_rate(
    environment: dict[str, str], sampled: bool, names: list[str]
) -> None:
    """All of those that it knows."""
    with traced(environment=environment) as tracing:
        with tracing.tracer.request("serve", caller(1, sampled=sampled).items):
            pass
        assert [span.name for span in tracing.spans()] == names


@given(
    st.floats(0, 1),
    st.integers(1, 2**128 - 1),
    st.none()
    | st.builds(SpanContext, st.just(1), st.just(1), st.booleans(), st.sampled_from(FLAGS)),
)
def test_our_rate_samples_as_opentelemetry_does_it(
    rate: float, trace_id: int, parent: SpanContext | None
) -> None:
    """By the caller's decision, or by the id of the trace."""
    origin = Origin(parent)
    theirs = ParentBased(TraceIdRatioBased(rate)).should_sample(origin.as_context(), trace_id, "x")
    ours = _by_rate(rate)(origin, trace_id, "x")
    assert ours == (theirs.decision is Decision.RECORD_AND_SAMPLE)


def test_a_sampler_that_opentelemetry_does_not_know_is_one_that_samples_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As its specification has it, and the log says so."""
    with traced(0.0, environment={"OTEL_TRACES_SAMPLER": "sometimes"}) as tracing:
        assert one_span(tracing).name == "serve"
    assert "Couldn't recognize sampler sometimes" in caplog.text


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' is not one of grpc, http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "thrift"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'thrift' is not one of grpc, http/protobuf",
        ),
        (
            {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
            "check the OTEL_* variables: max_queue_size must be a positive",
        ),
        (
            {"OTEL_EXPORTER_OTLP_TIMEOUT": "soon"},
            "check the OTEL_* variables: could not convert string to float",
        ),
        (
            {"OTEL_EXPORTER_OTLP_COMPRESSION": "xz"},
            'check the OTEL_* variables: Invalid value "xz"',
        ),
        (
            {"OTEL_SPAN_LINK_COUNT_LIMIT": "x"},
            "check the OTEL_* variables: OTEL_SPAN_LINK_COUNT_LIMIT must be",
        ),
    ],
    ids=str,
)
def test_a_variable_that_cannot_be_used_is_an_error(environment: dict[str, str], text: str) -> None:
    """Said when the server starts, not while it runs."""
    with pytest.raises(ConfigError) as caught, traced(environment=environment):
        pass
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"]
)
@pytest.mark.parametrize(
    "value",
    [
        "Authorization: Bearer secret",
        "a=b,secret",
        "authorization=secret;",
        "authorization=secret%0Asecret",
        "authorization=secr%C3%A9t",
        "=secret",
    ],
)
def test_a_header_that_cannot_be_sent_is_an_error_that_does_not_tell_it(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenTelemetry would log it, and it is a secret."""
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ConfigError) as caught,
        traced(environment={name: value}),
    ):
        pass
    assert str(caught.value) == f"{name}: write name=value,name=value, with values URL-encoded"
    assert "secr" not in caplog.text


def test_the_last_spans_arrive_when_the_tracer_stops() -> None:
    """However many there are, and however little time was left to send them."""
    environment = {"OTEL_BSP_SCHEDULE_DELAY": "600000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100"}
    with traced(environment=environment) as tracing:
        for number in range(1, 1_001):
            with tracing.tracer.request("serve", caller(number).items):
                pass
        found = {span.trace_id for span in tracing.spans()}
    assert found == {trace_id(number) for number in range(1, 1_001)}


def test_a_collector_that_hangs_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The tracer gives up after its time, and says so."""
    monkeypatch.setattr("penstock.telemetry.otel.STOP_S", 0.1)
    with traced() as tracing:
        tracing.collector.answers.clear()
        with tracing.tracer.request("serve", caller(1).items):
            pass
        tracing.tracer.stop()
        assert tracing.collector.spans == []
        assert "the last traces could not be sent in 0.1 s" in caplog.text
        tracing.collector.answers.set()


BLOCKED = """
import sys
sys.modules[{module!r}] = None
from penstock.errors import ConfigError
from penstock.telemetry.otlp import TracingOptions, make_tracer
try:
    make_tracer(TracingOptions("RateLimit", "", "", {protocol!r}, 1.0))
except ConfigError as exc:
    print(exc)
"""


@pytest.mark.parametrize(
    ("protocol", "module"),
    [
        ("http", "opentelemetry.exporter.otlp.proto.http.trace_exporter"),
        ("grpc", "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"),
        ("http", "opentelemetry.propagators.b3"),
    ],
)
def test_without_the_extra_the_error_says_how_to_get_it(protocol: str, module: str) -> None:
    """Each part of it may be missing."""
    done = _run(BLOCKED.format(module=module, protocol=protocol))
    assert done == f"traces need {module}: pip install 'penstock-ratelimit[otlp]'\n"


PROPAGATED = """
from penstock.telemetry.otlp import _propagator
from opentelemetry.trace import get_current_span
trace = "{:032x}".format(1)
headers = {"b3": f"{trace}-" + "1" * 16 + "-1"}
print(get_current_span(_propagator().extract(headers)).get_span_context().is_valid)
"""


@pytest.mark.parametrize(
    ("value", "found"), [("b3", True), ("tracecontext,baggage", False), ("none", False), ("", True)]
)
def test_opentelemetrys_propagators_go_before_ours(value: str, found: bool) -> None:
    """It reads the variable when it is imported, hence a process of its own."""
    assert _run(PROPAGATED, OTEL_PROPAGATORS=value) == f"{found}\n"


def _run(code: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**clean, **environment},
    )
    return done.stdout


def test_a_propagator_that_is_not_there_is_an_error() -> None:
    """Told as such, though OpenTelemetry raises it from an import."""
    code = BLOCKED.format(module="nothing", protocol="http")
    text = "traces can't be sent; check the OTEL_* variables: Propagator jaeger not found."
    assert _run(code, OTEL_PROPAGATORS="jaeger").startswith(text)
