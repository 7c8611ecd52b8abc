"""What the headers of a request tell, against OpenTelemetry's propagators."""

from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, get_current_span
from penstock.telemetry.otel_headers import NOWHERE, W3C_AND_B3, HeaderReader
from penstock.telemetry.otlp import _propagator

READS_ALL = HeaderReader(_propagator(), None)
READS_FAST = HeaderReader(_propagator())

VALID = f"00-{'0' * 31}1-{'0' * 15}1-01"

HEX = st.text("0123456789abcdef", min_size=16, max_size=16)
FLAGS = st.sampled_from(["00", "01", "03", "ff", "1", "0_", "0A"])
IDS = st.one_of(HEX, st.just("0" * 16), st.text("0aAg_ ", min_size=16, max_size=16))
W3C = st.builds("{}-{}{}-{}-{}{}".format, st.sampled_from(["00", "01", "ff"]), IDS, IDS, IDS, FLAGS,
                st.sampled_from(["", " ", "\n", "-x"]))  # fmt: skip
B3 = st.builds("{}{}-{}-{}".format, IDS, IDS, IDS, st.sampled_from("01dx"))
VALUES = st.one_of(W3C, B3, IDS, st.sampled_from(["0", "1", "a=b", "user=bob", ""]))
HEADERS = st.dictionaries(
    st.sampled_from([*sorted(W3C_AND_B3), "te", "content-type"]), VALUES, max_size=4
) | st.fixed_dictionaries({"traceparent": W3C})


def _parent(context: Context) -> SpanContext:
    return get_current_span(context).get_span_context()


@given(HEADERS)
@example({"traceparent": VALID})
@example({"traceparent": VALID + "\n"})
@example({"traceparent": VALID, "tracestate": "a=1"})
@example({"traceparent": VALID, "baggage": "user=bob"})
@example({"traceparent": "nonsense", "b3": VALID[3:]})
@example({"traceparent": f"00-{'0' * 32}-{'0' * 15}1-01"})
def test_what_is_read_fast_is_what_the_propagators_read(headers: dict[str, str]) -> None:
    """The parent, with its flags and its state, baggage, and whether the caller declines."""
    fast, slow = READS_FAST.read(headers.items), READS_ALL.read(headers.items)
    assert fast.parent == slow.parent
    assert fast.is_declined == slow.is_declined
    contexts = fast.as_context(), slow.as_context()
    assert baggage.get_all(contexts[0]) == baggage.get_all(contexts[1])
    assert _parent(contexts[0]) == _parent(contexts[1])


def test_headers_of_others_are_not_looked_at() -> None:
    """Most requests have no others."""
    assert READS_FAST.read(lambda: [("te", "trailers"), ("user-agent", "x")]) is NOWHERE


def test_a_binary_header_with_the_name_of_a_trace_is_left_out() -> None:
    """Propagators would fail on it."""
    for reader in (READS_FAST, READS_ALL):
        assert reader.read(lambda: [("traceparent", b"\x00"), ("b3", b"0")]).parent is None
