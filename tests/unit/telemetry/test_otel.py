"""Spans of requests and of work for them, read from a real OTLP export."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from opentelemetry import baggage
from penstock.errors import StoreError

from tests.support.tracing import Traced, caller, span_id, trace_id, traced

TRACE, PARENT = trace_id(0xABC), span_id(0xDEF)
W3C = f"00-{TRACE}-{PARENT}"


@pytest.fixture
def tracing() -> Iterator[Traced]:
    with traced() as made:
        yield made


def serve(tracing: Traced, headers: dict[str, str]) -> None:
    """One request that has some work done."""
    with tracing.tracer.request("serve", headers.items) as span:
        span.note("is", "served")
        found = tracing.tracer.caller()
        if found is not None:
            with tracing.tracer.work("write", [found]):
                pass


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": f"{W3C}-01"},
        {"traceparent": f"{W3C}-01", "tracestate": "vendor=x", "baggage": "user=bob"},
        {"b3": f"{TRACE}-{PARENT}-1"},
        {"b3": f"{TRACE}-{PARENT}-d"},
        {"b3": f"{TRACE}-{PARENT}-1-{span_id(7)}"},
        {"b3": f"{TRACE}-{PARENT}"},
        {"x-b3-traceid": TRACE, "x-b3-spanid": PARENT, "x-b3-sampled": "1"},
        {"x-b3-traceid": TRACE, "x-b3-spanid": PARENT, "x-b3-flags": "1"},
        {"x-b3-traceid": TRACE[16:], "x-b3-spanid": PARENT, "x-b3-sampled": "1"},
        {"traceparent": f"{W3C}-01", "b3": f"{trace_id(5)}-{span_id(5)}-0"},
        {"traceparent": f"{W3C}-01", "b3": "0"},
        {"traceparent": "nonsense", "b3": f"{TRACE}-{PARENT}-1"},
    ],
    ids=str,
)
def test_a_request_continues_its_callers_trace(tracing: Traced, headers: dict[str, str]) -> None:
    """Its span is below the caller's, and its work below that."""
    serve(tracing, headers)
    served, written = sorted(tracing.spans(), key=lambda span: span.name)
    assert (served.trace_id, served.parent_id, served.kind) == (TRACE, PARENT, "server")
    assert served.attributes == {"is": "served"}
    assert (written.trace_id, written.parent_id) == (TRACE, served.span_id)
    assert (written.kind, written.links, written.error) == ("internal", (), None)


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": f"{W3C}-00"},
        {"b3": f"{TRACE}-{PARENT}-0"},
        {"b3": "0"},
        {"x-b3-sampled": "0"},
        {"x-b3-traceid": TRACE, "x-b3-spanid": PARENT, "x-b3-sampled": "0"},
        {"traceparent": f"{W3C}-00", "b3": f"{TRACE}-{PARENT}-1"},
    ],
    ids=str,
)
def test_a_request_that_its_caller_does_not_sample_has_no_spans(
    tracing: Traced, headers: dict[str, str]
) -> None:
    """Whatever our own rate is."""
    serve(tracing, headers)
    assert tracing.spans() == []


@pytest.mark.parametrize(
    "headers",
    [{}, {"traceparent": "x"}, {"b3": "x"}, {"b3": "1"}, {"baggage": "a=b"}, {"x-b3-traceid": "1"}],
    ids=str,
)
@pytest.mark.parametrize(("rate", "names"), [(0.0, []), (1.0, ["serve", "write"])])
def test_the_rate_decides_where_no_caller_does(
    headers: dict[str, str], rate: float, names: list[str]
) -> None:
    """At 0 there is nothing, at 1 everything, in a trace of its own."""
    with traced(rate) as tracing:
        serve(tracing, headers)
        spans = sorted(tracing.spans(), key=lambda span: span.name)
    assert [span.name for span in spans] == names
    assert [span.parent_id for span in spans][:1] == [""][: len(spans)]


def test_a_caller_that_samples_goes_before_the_rate() -> None:
    """A rate of 0 is for those who have not decided."""
    with traced(0.0) as tracing:
        serve(tracing, caller(1))
        serve(tracing, {})
        assert {span.trace_id for span in tracing.spans()} == {trace_id(1)}


def test_a_share_of_the_traces_is_recorded() -> None:
    """And of those each span."""
    with traced(0.5) as tracing:
        for _ in range(200):
            serve(tracing, {})
        names = [span.name for span in tracing.spans()]
    assert 60 <= names.count("serve") == names.count("write") <= 140


def test_shared_work_is_below_the_first_caller_and_linked_to_the_others(tracing: Traced) -> None:
    """Each of them a trace of its own."""
    callers = []
    for number in (1, 2, 3):
        with tracing.tracer.request("serve", caller(number).items):
            callers.append(tracing.tracer.caller())
    with tracing.tracer.work("write", [one for one in callers if one is not None]):
        pass
    served = {span.trace_id: span.span_id for span in tracing.named("serve")}
    (written,) = tracing.named("write")
    assert (written.trace_id, written.parent_id) == (trace_id(1), served[trace_id(1)])
    assert written.links == tuple((trace_id(n), served[trace_id(n)]) for n in (2, 3))


async def test_work_for_one_caller_in_the_task_of_another_is_in_its_own_trace(
    tracing: Traced,
) -> None:
    """A task begins with the context of whoever began it, and that must not matter."""
    queue: asyncio.Queue[object] = asyncio.Queue()

    async def work() -> None:
        with tracing.tracer.work("write", [await queue.get()]):  # type: ignore[list-item]
            assert baggage.get_baggage("user") == "u2"

    with tracing.tracer.request("serve", {**caller(1), "baggage": "user=u1"}.items):
        task = asyncio.create_task(work())
    with tracing.tracer.request("serve", {**caller(2), "baggage": "user=u2"}.items):
        queue.put_nowait(tracing.tracer.caller())
    await task
    (written,) = tracing.named("write")
    assert written.trace_id == trace_id(2)


async def test_work_for_a_caller_that_is_gone_is_in_its_trace(tracing: Traced) -> None:
    """A task that outlives the request still knows whom it works for."""
    gone = asyncio.Event()

    async def outlive() -> None:
        await gone.wait()
        found = tracing.tracer.caller()
        assert found is not None
        with tracing.tracer.work("write", [found]):
            pass

    with tracing.tracer.request("serve", caller(1).items):
        task = asyncio.create_task(outlive())
    gone.set()
    await task
    (served,), (written,) = tracing.named("serve"), tracing.named("write")
    assert (written.trace_id, written.parent_id) == (trace_id(1), served.span_id)


def test_nothing_of_a_request_is_left_behind(tracing: Traced) -> None:
    """Whoever comes next in the same task is no part of it."""
    serve(tracing, {**caller(1), "baggage": "user=bob"})
    assert tracing.tracer.caller() is None
    assert baggage.get_all() == {}


@pytest.mark.parametrize(
    ("error", "text"),
    [(StoreError("the store is gone"), "the store is gone"), (KeyError("x"), "KeyError('x')")],
    ids=["ours", "a fault"],
)
def test_what_fails_says_why(tracing: Traced, error: Exception, text: str) -> None:
    """In its status; the error goes on."""
    with pytest.raises(type(error)), tracing.tracer.request("serve", dict[str, str]().items):
        raise error
    (served,) = tracing.spans()
    assert served.error == text


def test_being_cancelled_is_no_failure(tracing: Traced) -> None:
    """The span ends all the same."""
    with (
        pytest.raises(asyncio.CancelledError),
        tracing.tracer.request("serve", dict[str, str]().items),
    ):
        raise asyncio.CancelledError
    (served,) = tracing.spans()
    assert served.error is None


def test_what_callers_put_into_headers_stays_there(
    tracing: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    """Baggage is in no attribute, and nothing of a header that can't be read is in the log."""
    with caplog.at_level(logging.WARNING):
        serve(tracing, {**caller(1), "baggage": "user=secret"})
        serve(tracing, {**caller(1), "baggage": "secret secret;;=secret", "tracestate": "secret"})
        serve(tracing, {**caller(1), "baggage": "secret," * 2_000})
        serve(tracing, {"traceparent": "secret", "b3": "secret", "x-b3-traceid": "secret"})
    assert "secret" not in str(tracing.spans())
    assert caplog.text == ""
    assert len(tracing.spans()) == 8


def test_binary_headers_are_no_trouble(tracing: Traced) -> None:
    """gRPC has such, and none of them is of a trace."""
    headers: list[tuple[str, str | bytes]] = [
        ("grpc-trace-bin", b"\x00\x01"),
        ("traceparent", f"{W3C}-01"),
    ]
    with tracing.tracer.request("serve", lambda: headers):
        pass
    (served,) = tracing.spans()
    assert served.trace_id == TRACE


def test_long_attributes_are_cut(tracing: Traced) -> None:
    """Clients choose what is in some of them."""
    with tracing.tracer.request("serve", dict[str, str]().items) as span:
        span.note("text", "x" * 100_000)
        span.note("texts", ["y" * 100_000])
    (served,) = tracing.spans()
    assert served.attributes == {"text": "x" * 1_024, "texts": ["y" * 1_024]}


def test_what_a_span_tells_is_escaped(tracing: Traced) -> None:
    """Clients choose some of it, and AWS some."""
    hostile, shown = "\x1b[2J\u202e\n", r"\x1b[2J\u202e\n"
    with tracing.tracer.request("serve", dict[str, str]().items) as span:
        span.note("text", hostile)
        span.note("texts", [hostile])
        span.note("count", 3)
        span.fail(hostile + "x" * 100_000)
    (served,) = tracing.spans()
    assert served.attributes == {"text": shown, "texts": [shown], "count": 3}
    assert served.error is not None
    assert served.error.startswith(shown)
    assert len(served.error) < 2_000
