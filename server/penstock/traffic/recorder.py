"""Records the requests that a server answers, for `penstock simulate`.

The law of this file: an answer never waits for the recording. The path of an answer adds to a queue
and no more. A part of the server writes the queue to files, in slices between answers, and on
another thread where a disk may be slow. What the queue has no room for is lost and counted.
"""

import asyncio
import gzip
import logging
from collections.abc import Callable, Sequence
from typing import Final

from penstock.core.request import Request
from penstock.slices import Slices, run
from penstock.telemetry.metrics import Metrics
from penstock.traffic.json_lines import Hide, write_line, write_request
from penstock.traffic.segments import Segments

LOG: Final = logging.getLogger(__name__)

EVERY_S: Final = 0.25
"""Between two writes. In this time 40,000 calls a second fill the queue to a half."""

MAX_QUEUE_BYTES: Final = 4 * 2**20
"""Bytes that the queued requests had on the wire, with RECORD_BYTES for each. A request takes up to
30 times its bytes in memory, if its entries are empty. So the queue has at most some 120 MB, and 10
MB with ordinary requests."""

RECORD_BYTES: Final = 100
"""What a queued request takes beside its own bytes."""

REQUESTS_A_SLICE: Final = 50
"""It takes 4 to 6 µs to write an ordinary request as JSON, unless it came before."""

KEPT: Final = 16_384
KEPT_CHARACTERS: Final = 1_024
"""Bounds of the cache of texts: as many as the server has prepared requests. A server uses the same
object for the same request again, so the object's identity is the key."""

COMPRESSION: Final = 1
"""The fastest level. It makes a tenth of the text; the next levels are not much better."""

QUEUE: Final = "queue"
DISK: Final = "disk"


class Recorder:
    def __init__(
        self,
        segments: Segments,
        metrics: Metrics,
        clock_ms: Callable[[], int],
        hide: Hide | None = None,
    ) -> None:
        self._segments = segments
        self._recorded = metrics.recorded
        self._lost = metrics.recording_lost
        self._clock_ms = clock_ms
        self._hide = hide
        self._queue: list[tuple[int, Request]] = []
        self._queue_bytes = 0
        self._kept: dict[int, tuple[Request, str]] = {}
        """The end of the line for a request. An entry keeps its request, and so the identity."""
        self._writing: asyncio.Task[None] | None = None

    def note(self, request: Request, size: int) -> None:
        """Record a request that had `size` bytes on the wire."""
        self._queue_bytes += size + RECORD_BYTES
        if self._queue_bytes > MAX_QUEUE_BYTES:
            self._queue_bytes -= size + RECORD_BYTES
            self._lost.of(QUEUE).value += 1
        else:
            self._queue.append((self._clock_ms(), request))

    async def run(self) -> None:
        """Write what is in the queue, again and again, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what is in the queue now. If the caller is cancelled, the writing goes on."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Write the rest."""
        await self.flush()
        await self.flush()  # the first may have begun before the last requests came
        self._segments.close()

    async def _write(self) -> None:
        batch, batch_bytes = self._queue, self._queue_bytes
        if not batch:
            return
        self._queue = []
        try:
            text = await run(self._text(batch))
            await asyncio.to_thread(self._compress_and_write, text)
        except OSError as exc:
            self._lost.of(DISK).value += len(batch)
            LOG.warning("the recording lost requests: %s", exc.strerror or exc)
        else:
            self._recorded.value += len(batch)
        finally:
            # Only now: until here the batch takes memory, too.
            self._queue_bytes -= batch_bytes

    def _text(self, batch: Sequence[tuple[int, Request]]) -> Slices[bytes]:
        lines = []
        for number, (time_ms, request) in enumerate(batch, start=1):
            lines.append(write_line(time_ms, self._rest(request)))
            if number % REQUESTS_A_SLICE == 0:
                yield
        return "".join(lines).encode()

    def _rest(self, request: Request) -> str:
        kept = self._kept.get(id(request))
        if kept is not None:
            return kept[1]
        rest = write_request(request, self._hide)
        if len(rest) <= KEPT_CHARACTERS:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[id(request)] = request, rest
        return rest

    def _compress_and_write(self, text: bytes) -> None:
        """Both parts let other threads run meanwhile."""
        self._segments.write(gzip.compress(text, COMPRESSION, mtime=0))
