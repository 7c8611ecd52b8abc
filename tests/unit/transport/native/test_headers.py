"""Headers of gRPC: deadlines, metadata, statuses, and the names of peers."""

import base64

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.transport.failures import Code
from penstock.transport.native.metadata import read_metadata
from penstock.transport.native.peers import peer_name
from penstock.transport.native.status import (
    MAX_TEXT_BYTES,
    failed,
    failed_tail,
    http_error,
    ok_tail,
    percent_encode,
)
from penstock.transport.native.timeouts import read_timeout_s


def decoded(block: bytes) -> list[tuple[str, str]]:
    return [(str(name), str(value)) for name, value in hpack.Decoder().decode(block)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1H", 3600),
        ("2M", 120),
        ("30S", 30),
        ("20m", 0.02),
        ("99999999u", 99.999999),
        ("1n", 1e-9),
        ("0S", 0),
        ("007S", 7),
    ],
)
def test_a_timeout_has_a_unit(text: str, seconds: float) -> None:
    """Hours, minutes, seconds, and thousandths down to nanoseconds."""
    assert read_timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "S", "1", "1s", "1h", "-1S", "+1S", "1.5S", "123456789S", "1 S", "1S ", "\u0661S", "1SS"],
)
def test_what_is_no_timeout_is_refused(text: str) -> None:
    """More than 8 digits, signs, other units, and digits of other scripts among it."""
    with pytest.raises(ValueError, match="not a grpc-timeout"):
        read_timeout_s(text)


@given(st.binary(max_size=30), st.booleans())
def test_binary_metadata_is_decoded_with_padding_or_without(data: bytes, padded: bool) -> None:
    """Senders may leave the padding out, by the gRPC protocol."""
    text = base64.b64encode(data).decode()
    sent = text if padded else text.rstrip("=")
    assert read_metadata([("a-bin", sent), ("b", "c")]) == (("a-bin", data), ("b", "c"))


def test_binary_metadata_that_was_joined_is_taken_apart() -> None:
    """Proxies may join headers of one name."""
    assert read_metadata([("a-bin", "YQ==, Yg")]) == (("a-bin", b"a"), ("a-bin", b"b"))


@pytest.mark.parametrize("text", ["!", "Y", "YQ==YQ==", "\xe9"])
def test_metadata_that_is_no_base64_is_refused(text: str) -> None:
    """In the words of gRPC's C library, with the name of the header."""
    with pytest.raises(ValueError, match="Error parsing 'a-bin' metadata: illegal base64 encoding"):
        read_metadata([("a-bin", text)])


@given(st.text(max_size=400))
def test_a_message_can_be_read_back_by_the_rules_of_the_protocol(text: str) -> None:
    """Percent-encoded where it has to be: what comes out is what went in."""
    encoded = percent_encode(text)
    assert all(" " <= char <= "~" for char in encoded)
    back, at = bytearray(), 0
    while at < len(encoded):
        if encoded[at] == "%":
            back.append(int(encoded[at + 1 : at + 3], 16))
            at += 3
        else:
            back += encoded[at].encode()
            at += 1
    assert back.decode() == text


def test_a_message_says_what_is_plain_in_plain_letters() -> None:
    """Only `%` and what is not printable ASCII are written otherwise."""
    assert percent_encode("a/b: 100% — \n") == "a/b: 100%25 %E2%80%94 %0A"


def test_a_long_message_is_cut_between_letters() -> None:
    """Clients take a few KiB of headers."""
    encoded = percent_encode("é" * 10_000)
    assert encoded == "%C3%A9" * (MAX_TEXT_BYTES // 2)
    assert percent_encode("x" + "é" * 10_000) == "x" + "%C3%A9" * (MAX_TEXT_BYTES // 2 - 1)


def test_half_of_a_surrogate_pair_does_no_harm() -> None:
    """It has no UTF-8."""
    assert percent_encode("a\ud800") == "a?"


def test_the_ends_of_calls_are_as_clients_expect_them() -> None:
    """Trailers alone, trailers behind an answer, and what is no gRPC."""
    head = [(":status", "200"), ("content-type", "application/grpc")]
    notes = (("penstock-charged", "0"),)
    assert decoded(failed(Code.NOT_FOUND, "")) == [*head, ("grpc-status", "5")]
    assert decoded(failed(Code.UNKNOWN, "é", notes)) == [
        *head,
        ("grpc-status", "2"),
        ("grpc-message", "%C3%A9"),
        *notes,
    ]
    tail = [("grpc-status", "13"), ("grpc-message", "x")]
    assert decoded(failed_tail(Code.INTERNAL, "x")) == tail
    assert decoded(ok_tail(notes)) == [("grpc-status", "0"), *notes]
    plain = ("content-type", "text/plain; charset=utf-8")
    refused = [(":status", "405"), plain, ("allow", "POST")]
    assert decoded(http_error(405, [("allow", "POST")])) == refused


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("127.0.0.1", 41234), "ipv4:127.0.0.1:41234"),
        (("::1", 41234, 0, 0), "ipv6:%5B::1%5D:41234"),
        (("::ffff:10.1.2.3", 5, 0, 0), "ipv4:10.1.2.3:5"),
        ("", "unix:"),
        (b"", "unix:"),
        (None, "unix:"),
    ],
)
def test_peers_are_named_as_grpc_names_them(address: object, name: str) -> None:
    """IPv4 over a socket of IPv6 is IPv4."""
    assert peer_name(address) == name
