"""What the headers of a request open: a call, or a refusal that is the whole answer."""

import hpack
import pytest
from penstock.transport.http2 import Head
from penstock.transport.methods import Methods, Unary
from penstock.transport.native.encodings import ENCODINGS
from penstock.transport.native.opening import Opening, open_call

ECHO = Unary(lambda message, _: message)
METHODS: Methods = {"/a.B/Echo": ECHO}
PLAIN = {"content-type": "text/plain; charset=utf-8"}
GRPC = ("content-type", "application/grpc")


def head(*headers: tuple[str, str], method: str = "POST", path: bytes = b"/a.B/Echo") -> Head:
    return Head(method, "http", "penstock", path, headers, None)


def refusal(opening: Opening) -> dict[str, str]:
    assert opening.method is None
    return {str(name): str(value) for name, value in hpack.Decoder().decode(opening.refusal)}


def test_a_call_is_opened_with_all_that_its_headers_tell() -> None:
    """The method, the deadline, the compression, and metadata with its bytes."""
    headers = (GRPC, ("grpc-timeout", "20m"), ("grpc-encoding", "gzip"), ("a-bin", "YQ"))
    opening = open_call(head(*headers), METHODS)
    assert opening.method is ECHO
    assert opening.timeout_s == pytest.approx(0.02)
    assert opening.decompress is ENCODINGS["gzip"]
    assert opening.metadata == (*headers[:3], ("a-bin", b"a"))
    assert opening.refusal == b""


@pytest.mark.parametrize(
    "kind",
    ["application/grpc", "application/grpc+proto", "Application/GRPC", "application/grpc;a=b"],
)
def test_grpc_may_name_a_codec(kind: str) -> None:
    """By the gRPC protocol; HTTP does not care for the case."""
    assert open_call(head(("content-type", kind)), METHODS).method is ECHO


@pytest.mark.parametrize("kind", ["", "application/grpc-web", "application/grpcx", "text/html"])
def test_what_is_no_grpc_is_an_error_of_http(kind: str) -> None:
    """415, by the gRPC protocol, also without a content-type."""
    headers = [("content-type", kind)] if kind else []
    opening = open_call(head(*headers), METHODS)
    assert refusal(opening) == {":status": "415", **PLAIN}
    assert b"the gRPC port" in opening.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS", "CONNECT", "post"])
def test_other_methods_of_http_are_told_which_one_is_allowed(method: str) -> None:
    """405, by RFC 9110. The text says what this port is, except to HEAD."""
    opening = open_call(head(GRPC, method=method), METHODS)
    assert refusal(opening) == {":status": "405", "allow": "POST", **PLAIN}
    assert (b"the gRPC port" in opening.text) == (method != "HEAD")


@pytest.mark.parametrize(
    "path", [b"/a.B/Other", b"/a.B/Echo/", b"/", b"*", b"/\xff\xfe", "/é".encode(), b""]
)
def test_an_unknown_path_is_unimplemented(path: bytes) -> None:
    """Whatever bytes it has."""
    answer = refusal(open_call(head(GRPC, path=path), METHODS))
    assert (answer["grpc-status"], answer["grpc-message"]) == ("12", "Method not found!")


def test_an_unknown_compression_is_told_which_ones_there_are() -> None:
    """By the gRPC protocol."""
    answer = refusal(open_call(head(GRPC, ("grpc-encoding", "br")), METHODS))
    assert answer["grpc-status"] == "12"
    assert answer["grpc-accept-encoding"] == "identity,deflate,gzip"


@pytest.mark.parametrize(
    ("header", "status", "text"),
    [
        (("grpc-timeout", "soon"), "13", "Error parsing 'grpc-timeout' metadata"),
        (("grpc-timeout", "0n"), "4", "Deadline Exceeded"),
        (("a-bin", "!"), "13", "Error parsing 'a-bin' metadata: illegal base64 encoding"),
    ],
)
def test_headers_that_cannot_be_read_are_refused(
    header: tuple[str, str], status: str, text: str
) -> None:
    """As gRPC's C library does."""
    answer = refusal(open_call(head(GRPC, header), METHODS))
    assert (answer["grpc-status"], answer["grpc-message"]) == (status, text)
