"""HTTP/2 for a server, without I/O: bytes in, events and bytes out (RFC 9113, RFC 7541).

The life of a request through these files:

1. `connection` gets bytes and the time. `inbound` cuts the bytes into frames (`frames`) and takes
   each frame to whoever deals with it. Half a frame waits for the rest of it.
2. HEADERS: `blocks` knows the block from an earlier request, or `fields` decodes it and `heads`
   checks that it is a request. A new `Stream` is opened (`streams`).
3. DATA: counted against the windows of the stream and of the connection (`windows`), and kept with
   the stream.
4. At the end of the turn, `events` makes one `Received` of all that came for a stream.
5. The application calls `respond` with two blocks that `encode_block` made once, or sends an
   answer in steps. `outbound` writes the frames, as far as the client's windows admit them. The
   rest waits for WINDOW_UPDATE.
6. The stream is closed. What the application did not consume is given back to the connection's
   window.
7. The caller writes what `output()` returns, once for all answers of a turn.

Around this: `control` deals with frames that are not part of a request, and `settings` with what
the client may set. `floods` counts frames that ask for no work. `timers` and `lifetime` end a
connection that is silent, old, or to be drained. `bounds` has all the numbers. `codes` has the two
ways to fail: a `StreamFault` costs the client one request, a `ConnectionFault` the connection.

Which frame may come in which state is a table in `streams`.

The laws:

- Whatever bytes come, in whatever pieces: the answer is the one that the RFC asks for, and nothing
  is raised. The pieces do not change the answer.
- All that a client can make us keep has a bound.
- Nothing here awaits, logs, or reads a clock.
"""

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode
from penstock.transport.http2.connection import Connection
from penstock.transport.http2.events import Event, Received, WasReset
from penstock.transport.http2.fields import encode_block
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
