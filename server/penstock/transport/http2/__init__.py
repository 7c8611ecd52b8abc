"""HTTP/2 for a server, without I/O: bytes in, events and bytes out (RFC 9113, RFC 7541)."""

from penstock.transport.http2.blocks import encode_block
from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode
from penstock.transport.http2.connection import Connection
from penstock.transport.http2.events import Event, Received, WasReset
from penstock.transport.http2.heads import Head

__all__ = [
    "Bounds",
    "Connection",
    "ConnectionFault",
    "ErrorCode",
    "Event",
    "Head",
    "Received",
    "WasReset",
    "encode_block",
]
