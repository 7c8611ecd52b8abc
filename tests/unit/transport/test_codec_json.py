"""Requests in JSON to bytes, and answers to JSON; and that both ways in decide the same."""

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, MessageToJson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from penstock._proto import rls_pb2
from penstock.core.decision import UNLIMITED, UNMATCHED, Decision
from penstock.core.limits import UINT32_MAX
from penstock.core.request import Descriptor, Override
from penstock.errors import InvalidRequestError, RequestError
from penstock.service.answer import Answer
from penstock.transport.codec import (
    answer_to_json,
    decode_request,
    encode_answer,
    json_to_request,
)

from tests.unit.transport.http_serving import service, serving

texts = st.text(max_size=5)
entries = st.lists(
    st.tuples(st.sampled_from(["five", "many", "shadow"]) | texts, texts), max_size=2
)


@st.composite
def messages(draw: st.DrawFn) -> rls_pb2.RateLimitRequest:
    """Requests of every kind, most of which can be decided."""
    domain = draw(st.sampled_from(["d", "d", "d", "other", ""]))
    message = rls_pb2.RateLimitRequest(domain=domain, hits_addend=draw(st.integers(0, 6)))
    for pairs in draw(st.lists(entries, max_size=3)):
        added = message.descriptors.add(is_negative_hits=draw(st.booleans()))
        for key, value in pairs:
            added.entries.add(key=key, value=value)
        hits = draw(st.none() | st.sampled_from([0, 1, 4, 2**53 + 1, 2**64 - 1]))
        if hits is not None:
            added.hits_addend.value = hits
        if draw(st.booleans()):
            added.limit.requests_per_unit = draw(st.sampled_from([0, 2, UINT32_MAX]))
            added.limit.unit = draw(st.integers(0, 7))  # type: ignore[assignment]
    return message


@given(messages(), st.booleans(), st.booleans())
def test_a_request_in_json_is_the_request_in_bytes(
    message: rls_pb2.RateLimitRequest, snake_case: bool, spelt_out: bool
) -> None:
    """Under either spelling of the names, with and without what has its default."""
    text = MessageToJson(
        message,
        preserving_proto_field_name=snake_case,
        always_print_fields_with_no_presence=spelt_out,
    )
    assert json_to_request(text.encode()) == message.SerializeToString()


def test_json_may_be_written_as_a_person_would() -> None:
    """Numbers or strings, names or numbers of units, null for nothing."""
    text = """{"domain": "d", "hitsAddend": "2", "descriptors": [
        {"entries": [{"key": "k", "value": "v"}, {"key": "bare"}], "hits_addend": 0},
        {"limit": {"requests_per_unit": 3, "unit": "MINUTE"}, "isNegativeHits": true},
        {"limit": null, "hitsAddend": null}
    ]}"""
    request = decode_request(json_to_request(text.encode()))
    first, second, third = request.descriptors
    assert (request.domain, request.hits) == ("d", 2)
    assert first == Descriptor((("k", "v"), ("bare", "")), 0)
    assert isinstance(second.override, Override)
    assert (second.override.requests_per_unit, second.override.unit.name) == (3, "MINUTE")
    assert second.refund
    assert third == Descriptor(())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "Expecting value"),
        (b"}", "Expecting value"),
        (b'{"domain": "d"', "Expecting ',' delimiter"),
        (b"null", "it must be an object"),
        (b"[]", "it must be an object"),
        (b'"domain"', "it must be an object"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        ('{"domain": "d"}'.encode("utf-16"), "can't decode byte 0xff"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"domain": 5}', "Failed to parse domain field"),
        (b'{"domain": "a", "domain": "b"}', "a key is there twice"),
        (b'{"Domain": "d"}', 'has no field named "Domain"'),
        (b'{"[x.y]": 1}', "does not have extensions"),
        (b'{"descriptors": {}}', "must be in []"),
        (b'{"descriptors": [[]]}', "what is in descriptors must be objects"),
        (b'{"descriptors": [""]}', "what is in descriptors must be objects"),
        (b'{"descriptors": [null]}', "what is in descriptors must be objects"),
        (b'{"descriptors": [{"entries": [[]]}]}', "what is in entries must be objects"),
        (b'{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}', "Invalid enum value FORTNIGHT"),
        (b'{"descriptors": [{"isNegativeHits": 1}]}', "Expected true or false"),
        (b'{"hitsAddend": true}', "Bool value True"),
        (b'{"hitsAddend": 1.5}', "Couldn't parse integer"),
        (b'{"hitsAddend": -1}', "Value out of range"),
        (b'{"hitsAddend": 4294967296}', "Value out of range"),
        (b'{"hitsAddend": Infinity}', "Couldn't parse integer"),
        (b'{"hitsAddend": 1' + b"0" * 4_000 + b"}", "Failed to parse hitsAddend"),
        (b'{"hitsAddend": 1' + b"0" * 5_000 + b"}", "4300 digits"),
        (b'{"descriptors": [{"hitsAddend": "18446744073709551616"}]}', "Value out of range"),
        (b'{"\\ud800": 1}', "surrogates not allowed"),
        (b'{"domain": "\\udfff"}', "surrogates not allowed"),
        (b'{"descriptors": [{"limit": {"unit": "\\ud800"}}]}', "surrogates not allowed"),
        (b"[" * 60_000, "recursion"),
        (b'{"descriptors": [' * 4_000, "recursion"),
    ],
)
def test_json_that_is_no_request_is_refused(text: bytes, complaint: str) -> None:
    """With what is wrong in it, which is never long."""
    with pytest.raises(InvalidRequestError, match="not a RateLimitRequest in JSON") as caught:
        json_to_request(text)
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 400


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["domain", "descriptors", "entries", "key", "value", "limit", "unit", "hitsAddend",
             "hits_addend", "requestsPerUnit", "isNegativeHits"]
        )
        | st.text(st.characters(), max_size=3),
        inner,
        max_size=4,
    ),
)  # fmt: skip


@given(json_values)
@settings(max_examples=500)
def test_any_json_is_a_request_or_refused(value: Any) -> None:
    """Nothing else is raised: it would be a fault of this server."""
    try:
        data = json_to_request(json.dumps(value).encode())
    except InvalidRequestError:
        return
    rls_pb2.RateLimitRequest.FromString(data)


@given(st.binary(max_size=50))
def test_any_bytes_are_a_request_or_refused(text: bytes) -> None:
    """As above, for what is no JSON."""
    try:
        json_to_request(text)
    except InvalidRequestError:
        return
    assert isinstance(json.loads(text), dict)


def test_an_answer_is_compact_json_with_its_code() -> None:
    """Under the names that the reference server's answers have."""
    answer = Answer(
        Decision(True, (UNMATCHED, UNLIMITED)), (("retry-after", "12"),), {"n": ["a", None]}
    )
    assert answer_to_json(encode_answer(answer)) == (
        "OVER_LIMIT",
        '{"overallCode":"OVER_LIMIT",'
        '"statuses":[{"code":"OK"},{"code":"OK","limitRemaining":4294967295}],'
        '"responseHeadersToAdd":[{"key":"retry-after","value":"12"}],'
        '"dynamicMetadata":{"n":["a",null]}}',
    )
    assert answer_to_json(encode_answer(Answer(Decision(False, ()))))[0] == "OK"
    assert answer_to_json(b"") == ("UNKNOWN", "{}")


@given(st.lists(messages(), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_json_decides_as_bytes_do(asked: list[rls_pb2.RateLimitRequest]) -> None:
    """The same requests, one after the other, each way under a fresh store."""
    direct, _, _ = service()
    async with serving() as served:
        for message in asked:
            status, text = await served.post(MessageToJson(message))
            try:
                data = await direct.should_rate_limit(message.SerializeToString(), 5.0)
            except RequestError as exc:
                expected: tuple[int, Any] = (400, f"{exc}\n")
            else:
                answer = rls_pb2.RateLimitResponse.FromString(data)
                expected = ({1: 200, 2: 429}[answer.overall_code], MessageToDict(answer))
            assert (status, text if status == 400 else json.loads(text)) == expected
