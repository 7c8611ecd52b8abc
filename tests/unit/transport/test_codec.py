"""Bytes to requests, and answers to bytes."""

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from penstock._proto import rls_pb2
from penstock.core.decision import UNLIMITED, UNMATCHED, Decision, Status
from penstock.core.limits import UINT32_MAX, Limit, Unit
from penstock.core.request import Descriptor, Override, Request
from penstock.errors import InvalidRequestError
from penstock.service.answer import Answer
from penstock.transport.codec import (
    CACHED_STATUSES,
    decode_request,
    decode_response,
    encode_answer,
    encode_request,
)

entries = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3).map(tuple)
descriptors = st.builds(
    Descriptor, entries, st.none() | st.integers(0, 2**64 - 1), st.booleans(), st.none()
)
requests = st.builds(
    Request,
    st.text(max_size=5),
    st.lists(descriptors, max_size=3).map(tuple),
    st.integers(0, UINT32_MAX),
)
statuses = st.builds(
    Status,
    st.booleans(),
    st.none()
    | st.builds(
        Limit.per,
        st.integers(0, UINT32_MAX) | st.integers(0, 10**15),
        st.sampled_from([unit.value for unit in Unit if unit.value] + [90_000]),
        name=st.text(max_size=300),
    ),
    st.integers(0, UINT32_MAX),
    st.integers(0, 10**9),
)


@given(requests)
def test_a_request_comes_out_as_it_went_in(request: Request) -> None:
    """Every field, also a hits_addend of 0, which is not the same as none."""
    assert decode_request(encode_request(request)) == request


@given(st.booleans(), st.lists(statuses, max_size=CACHED_STATUSES + 2))
def test_an_answer_says_what_was_decided(over: bool, made: list[Status]) -> None:
    """Statuses are one for one, whether the answer comes from the cache or not."""
    data = encode_answer(Answer(Decision(over, tuple(made))))
    message = rls_pb2.RateLimitResponse.FromString(data)
    codes = rls_pb2.RateLimitResponse.Code
    assert message.overall_code == (codes.Value("OVER_LIMIT") if over else codes.Value("OK"))
    assert len(message.statuses) == len(made)
    for sent, status in zip(message.statuses, made, strict=True):
        assert sent.code == codes.Value("OVER_LIMIT" if status.over else "OK")
        assert sent.limit_remaining == status.remaining
        assert sent.HasField("current_limit") == (status.limit is not None)
        assert sent.HasField("duration_until_reset") == (status.limit is not None)
        if status.limit is not None:
            shown = min(status.limit.requests_per_unit, UINT32_MAX)
            assert sent.current_limit.requests_per_unit == shown
            assert sent.current_limit.name == status.limit.name
            unit = rls_pb2.RateLimitResponse.RateLimit.Unit.Name(sent.current_limit.unit)
            assert unit == status.limit.unit.name
            assert sent.duration_until_reset.seconds == status.reset_s


def test_headers_and_metadata_are_part_of_the_same_message() -> None:
    """They are written behind the rest, and read as one."""
    answer = Answer(
        Decision(True, (UNMATCHED, UNLIMITED)),
        (("RateLimit-Limit", "5"), ("retry-after", "12")),
        {"domain": "d", "n": 1, "list": [{"a": None}]},
    )
    assert MessageToDict(rls_pb2.RateLimitResponse.FromString(encode_answer(answer))) == {
        "overallCode": "OVER_LIMIT",
        "statuses": [{"code": "OK"}, {"code": "OK", "limitRemaining": UINT32_MAX}],
        "responseHeadersToAdd": [
            {"key": "RateLimit-Limit", "value": "5"},
            {"key": "retry-after", "value": "12"},
        ],
        "dynamicMetadata": {"domain": "d", "n": 1.0, "list": [{"a": None}]},
    }


@pytest.mark.parametrize("number", range(1, 8))
def test_an_override_is_read_with_its_unit(number: int) -> None:
    """WEEK too: the enum of overrides has none, but its number is on the wire of the answer."""
    request = rls_pb2.RateLimitRequest(domain="d")
    added = request.descriptors.add()
    added.limit.requests_per_unit = 3
    added.limit.unit = number  # type: ignore[assignment]  # the wire carries any number
    name = rls_pb2.RateLimitResponse.RateLimit.Unit.Name(number)
    (descriptor,) = decode_request(request.SerializeToString()).descriptors
    assert descriptor.override == Override(3, Unit[name])


@pytest.mark.parametrize("number", [0, 8, 99])
def test_an_override_without_a_known_unit_is_refused(number: int) -> None:
    """The reference server's whole process once crashed on one."""
    request = rls_pb2.RateLimitRequest(domain="d")
    request.descriptors.add().entries.add(key="user", value="bob")
    added = request.descriptors.add()
    added.limit.unit = number  # type: ignore[assignment]  # the wire carries any number
    expected = rf"descriptor 1: its limit override has no known unit \({number}\)"
    with pytest.raises(InvalidRequestError, match=expected):
        decode_request(request.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b"\x0a\x05ab",
        b"\x0a\x02\xff\xfe",  # a domain that is no UTF-8
        b"\x12\x06\x0a\x04\x0a\x02\xc3\x28",  # nor is this key
    ],
)
def test_bytes_that_are_no_request_are_refused(data: bytes) -> None:
    """Malformed protobuf and malformed UTF-8 alike."""
    with pytest.raises(InvalidRequestError, match="not a RateLimitRequest"):
        decode_request(data)


def test_a_response_is_read_under_the_names_of_the_wire() -> None:
    """As the command line prints it."""
    status = Status(True, Limit.per(5, 60_000, name="n"), 0, 12)
    assert decode_response(encode_answer(Answer(Decision(True, (status,))))) == {
        "overall_code": "OVER_LIMIT",
        "statuses": [
            {
                "code": "OVER_LIMIT",
                "current_limit": {"requests_per_unit": 5, "unit": "MINUTE", "name": "n"},
                "duration_until_reset": "12s",
            }
        ],
    }
