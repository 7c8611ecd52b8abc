"""gRPC over HTTP/2 on asyncio: the transport that serves by default.

The life of a call. `listening.py` accepts a socket and gives it a `GrpcConnection`, over TLS with
the files of that moment (`tls.py`). What the event loop reads from many sockets in one turn is
gathered (`turns.py`). The connection (`connection.py`) hands the bytes that come to the sans-IO
protocol in `transport/http2`, and gets requests: a list of headers, and the data that came with it
in the same turn of the event loop.

`opening.py` tells what the headers stand for: a method, a deadline (`timeouts.py`), metadata
(`metadata.py`), a compression (`encodings.py`), or the refusal that is the whole answer. A
connection remembers this for lists of headers that it saw before. A refusal waits for the end of
its request (`refused.py`).

A call with one message and one answer (`unary.py`) starts its method once the message is whole
(`messages.py`). Where the method answers at once, as with buckets in memory, the answer is handed
to the protocol in the same turn, and no task is made. Otherwise the method gives a `Waiting`: a
callback on its future sends the answer, unless a timer for the caller's deadline comes first. A
client that is gone cancels the future, and what the call owes to a bucket lands all the same.

Calls that stay open (`streaming.py`) are tasks. A call without its message waits in
`unfinished.py`, for a bounded time and with a bounded number of others.

All that is answered in one turn of the loop leaves in one write. How a call ends is a block of
headers that is made once (`status.py`). A connection that is over closes its side, and reads for a
bounded time what the client still sends, so that the client gets the last answers. `server.py`
starts all this, drains it and stops it.
"""
