"""Request headers: which lists of fields are a request (RFC 9113 section 8), and which are not.

The law of this file: a list that two readers could understand in two ways is no request. That is
how requests are smuggled: doubled, misplaced, unknown or missing pseudo-headers, names in upper
case, line breaks in values, headers of HTTP/1 connections, two lengths, two hosts. All of these are
`StreamFault(PROTOCOL_ERROR)`. The stream is lost, the connection is not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.transport.http2.codes import ErrorCode, StreamFault

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+\-.]*").fullmatch
_AUTHORITY = re.compile(rb"[!-?A-~]*").fullmatch  # visible ASCII, and no user ("@")
_PATH = re.compile(rb"/[!-~\x80-\xff]*").fullmatch
_VALUE = re.compile(rb"(?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?").fullmatch
_LENGTH = re.compile(rb"[0-9]{1,18}").fullmatch

_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path"})
_OF_HTTP1: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_AT_MOST_ONCE: Final = frozenset({b"host", b"content-length"})


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The headers of a request. Requests that sent the same block share one head.

    Two heads are equal only if they are the same object, so a head is a cheap key. The path stays
    bytes, because it may be any bytes. Values are decoded as Latin-1, which keeps every byte.
    """

    method: str
    scheme: str
    authority: str
    path: bytes
    headers: tuple[tuple[str, str], ...]
    content_length: int | None


def request_head(fields: Iterable[tuple[bytes, bytes]]) -> Head:
    pseudo: dict[bytes, bytes] = {}
    regular: list[tuple[str, str]] = []
    once: dict[bytes, bytes] = {}
    for name, value in fields:
        if name[:1] == b":":
            if regular:
                raise _malformed("pseudo-header after a header")
            if name not in _PSEUDO or name in pseudo:
                raise _malformed("unknown or repeated pseudo-header")
            pseudo[name] = value
            continue
        regular.append(_checked(name, value))
        if name in _AT_MOST_ONCE:
            if name in once:
                raise _malformed("repeated host or content-length")
            once[name] = value
    return _head(pseudo, once, tuple(regular))


def check_trailers(fields: Iterable[tuple[bytes, bytes]]) -> None:
    for name, value in fields:
        _checked(name, value)


def _checked(name: bytes, value: bytes) -> tuple[str, str]:
    if not _NAME(name) or not _VALUE(value):
        raise _malformed("forbidden character in a header")
    if name in _OF_HTTP1 or (name == b"te" and value != b"trailers"):
        raise _malformed("header of an HTTP/1 connection")
    return name.decode("ascii"), value.decode("latin-1")


def _head(
    pseudo: dict[bytes, bytes], once: dict[bytes, bytes], headers: tuple[tuple[str, str], ...]
) -> Head:
    method = pseudo.get(b":method", b"")
    scheme, path = pseudo.get(b":scheme", b""), pseudo.get(b":path", b"")
    host = once.get(b"host")
    authority = pseudo.get(b":authority", host or b"")
    length = once.get(b"content-length")
    if not _METHOD(method) or not _AUTHORITY(authority):
        raise _malformed("bad :method or :authority")
    if method == b"CONNECT":
        # CONNECT names an authority and nothing else (RFC 9113 8.5).
        if b":scheme" in pseudo or b":path" in pseudo or not pseudo.get(b":authority"):
            raise _malformed("CONNECT with a :path or without an :authority")
    elif not _SCHEME(scheme) or not (_PATH(path) or (path == b"*" and method == b"OPTIONS")):
        raise _malformed("bad :scheme or :path")
    if host is not None and host.lower() != authority.lower():
        raise _malformed("host differs from :authority")
    if length is not None and not _LENGTH(length):
        raise _malformed("content-length is not a number")
    return Head(
        method.decode("ascii"),
        scheme.decode("ascii"),
        authority.decode("ascii"),
        path,
        headers,
        None if length is None else int(length),
    )


def _malformed(why: str) -> StreamFault:
    return StreamFault(ErrorCode.PROTOCOL_ERROR, why)
