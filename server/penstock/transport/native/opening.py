"""From the headers of a request to the call that it opens, or to the reason why it is refused.

It depends on the headers alone, so a connection keeps what came of those that it saw before.
"""

from dataclasses import dataclass
from typing import Final

from penstock.transport.failures import Code
from penstock.transport.http2 import Head
from penstock.transport.methods import Method, Methods
from penstock.transport.native.encodings import ENCODINGS, IDENTITY, Decompress
from penstock.transport.native.metadata import Metadata, read_metadata
from penstock.transport.native.status import TIME_IS_UP, failed, http_error
from penstock.transport.native.timeouts import read_timeout_s

CONTENT_TYPE: Final = "application/grpc"

# The gRPC protocol asks for 415. HTTP has 405 for a method that is not allowed, and wants to be
# told which is (RFC 9110, section 15.5.6).
NOT_GRPC: Final = http_error(415)
NOT_POST: Final = http_error(405, [("allow", "POST")])

THIS_PORT: Final = (
    b"This is the gRPC port of Penstock, a rate-limit server. It only takes calls of gRPC.\n"
    b"Penstock has other ports for HTTP requests, and for metrics and the console.\n"
)
"""For a person with a browser."""

ACCEPTED: Final = (("grpc-accept-encoding", ",".join(ENCODINGS)),)


@dataclass(frozen=True, slots=True, eq=False)
class Opening:
    """A call, as far as its headers tell."""

    method: Method | None
    """None for a call that is refused."""
    refusal: bytes = b""
    """The block of headers that is the answer then."""
    text: bytes = b""
    """What follows the headers of a refusal, for whoever does not speak gRPC."""
    timeout_s: float | None = None
    """How long the client waits, from its headers on."""
    decompress: Decompress | None = None
    metadata: Metadata = ()


def open_call(head: Head, methods: Methods) -> Opening:
    if head.method != "POST":
        # An answer to HEAD has no text (RFC 9110, section 9.3.2).
        return Opening(None, NOT_POST, b"" if head.method == "HEAD" else THIS_PORT)
    fields = dict(head.headers)
    if not _is_grpc(fields.get("content-type", "")):
        return Opening(None, NOT_GRPC, THIS_PORT)
    method = _find(head.path, methods)
    if method is None:
        return _refuse(Code.UNIMPLEMENTED, "Method not found!")
    encoding = fields.get("grpc-encoding", IDENTITY)
    if encoding not in ENCODINGS:
        text = "the server does not know the compression of this call (grpc-encoding)"
        return Opening(None, failed(Code.UNIMPLEMENTED, text, ACCEPTED))
    timeout = fields.get("grpc-timeout")
    try:
        timeout_s = None if timeout is None else read_timeout_s(timeout)
    except (ValueError, TypeError):
        # gRPC's C library answers so, in these words.
        return _refuse(Code.INTERNAL, "Error parsing 'grpc-timeout' metadata")
    if timeout_s == 0:
        return _refuse(*TIME_IS_UP)
    try:
        metadata = read_metadata(head.headers)
    except ValueError as exc:
        return _refuse(Code.INTERNAL, str(exc))
    return Opening(
        method,
        timeout_s=timeout_s,
        decompress=ENCODINGS[str(encoding)],
        metadata=metadata,
    )


def _refuse(code: Code, text: str) -> Opening:
    return Opening(None, failed(code, text))


def _is_grpc(content_type: str | bytes) -> bool:
    """`application/grpc`, also with a codec or parameters behind it; not `application/grpc-web`."""
    if not isinstance(content_type, str):
        return False
    kind = content_type.lower()
    return kind == CONTENT_TYPE or kind.startswith((f"{CONTENT_TYPE}+", f"{CONTENT_TYPE};"))


def _find(path: bytes, methods: Methods) -> Method | None:
    """A path that is not ASCII is none of a method, and does no harm."""
    try:
        return methods.get(path.decode("ascii"))
    except UnicodeDecodeError:
        return None
