"""A collector of traces: takes real OTLP exports, over gRPC and HTTP, for tests to read."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support.processes import wait_for

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"

Attributes = dict[str, Any]
Take = Callable[[Mapping[str, str], bytes], bytes]


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it was exported. Ids are in hex; the parent's is empty if there is none."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Attributes
    links: tuple[tuple[str, str], ...]
    """The trace and the span of each."""
    error: str | None
    """The text of its status, if that is an error."""
    resource: Attributes


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.headers: list[Mapping[str, str]] = []
        """Those of each export."""
        self.answers = threading.Event()
        """While it is not set, exports hang."""
        self.answers.set()
        self.grpc_url = self.http_url = ""
        self.exported = threading.Event()

    def take(self, headers: Mapping[str, str], data: bytes) -> bytes:
        self.headers.append(headers)
        self.exported.set()
        self.answers.wait()
        for resource_spans in ExportTraceServiceRequest.FromString(data).resource_spans:
            resource = _attributes(resource_spans.resource.attributes)
            for scope in resource_spans.scope_spans:
                self.spans += [_read(span, resource) for span in scope.spans]
        return ExportTraceServiceResponse().SerializeToString()

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, name: str, count: int = 1) -> list[Span]:
        """Wait until so many spans of a name have come."""
        wait_for(lambda: len(self.named(name)) >= count, f"{count} spans '{name}'")
        return self.named(name)

    def environment(self, protocol: str = "grpc") -> dict[str, str]:
        """The variables that lead here."""
        url = self.grpc_url if protocol == "grpc" else self.http_url
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}


@contextmanager
def run_collector() -> Iterator[Collector]:
    """Listen for exports on free ports of 127.0.0.1 until the block ends."""
    collector = Collector()
    threads = ThreadPoolExecutor(max_workers=4)
    grpc_server = grpc.server(threads)
    grpc_server.add_generic_rpc_handlers((_service(collector.take),))
    collector.grpc_url = f"http://127.0.0.1:{grpc_server.add_insecure_port('127.0.0.1:0')}"
    grpc_server.start()
    http_server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(collector.take))
    collector.http_url = f"http://127.0.0.1:{http_server.server_port}"
    serving = threading.Thread(target=http_server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield collector
    finally:
        collector.answers.set()
        http_server.shutdown()
        serving.join()
        http_server.server_close()
        grpc_server.stop(None).wait()
        threads.shutdown()


def _service(take: Take) -> grpc.GenericRpcHandler:
    def export(request: bytes, context: grpc.ServicerContext) -> bytes:
        return take({name: str(value) for name, value in context.invocation_metadata()}, request)

    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(export)
    return grpc.method_handlers_generic_handler(SERVICE, {"Export": handler})


def _handler(take: Take) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_known = self.path == "/v1/traces"
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = take(headers, body) if is_known else b""
            self.send_response(200 if is_known else 404)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            with suppress(ConnectionError):  # who has waited in vain is gone
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
            pass

    return Handler


def _read(span: trace_pb2.Span, resource: Attributes) -> Span:
    failed = span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    return Span(
        span.name,
        trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span.attributes),
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        span.status.message if failed else None,
        resource,
    )


def _attributes(pairs: Sequence[KeyValue]) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)
