"""The header blocks of a connection: decoded in order, or known from before.

The law of this file: every block that came is decoded in order, even for a stream that nobody
serves, because each block may change the table that later blocks refer to. Only a block that was
decoded before, and did not change the table, may be looked up instead: while the table is the
same, the same bytes mean the same headers. Any change of the table empties the cache.
"""

from typing import Final, NamedTuple

from hpack.table import HeaderTable

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ErrorCode, StreamFault
from penstock.transport.http2.fields import FieldDecoder, Fields
from penstock.transport.http2.heads import Head, check_trailers, request_head

DECODED_AT_MOST: Final = 4
"""How many times larger than the bound a list may be, so that we still decode it. Then the table
stays right, and the peer loses a stream instead of the connection."""


class Blocks:
    """The decoding side of one connection: the peer's table, and the blocks seen before."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._decoder = FieldDecoder(bounds.max_header_list_bytes * DECODED_AT_MOST)
        self._seen: dict[bytes, Head] = {}
        self._seen_bytes = 0

    @property
    def max_block_bytes(self) -> int:
        """No list that we would decode has a larger block."""
        return self._bounds.max_header_list_bytes * DECODED_AT_MOST

    def request(self, block: bytes) -> Head:
        """The head of a request."""
        head = self._seen.get(block)
        if head is None:
            changed, size, fields = self._decode(block)
            head = request_head(fields)
            if not changed:
                self._remember(block, head, size)
        return head

    def trailers(self, block: bytes) -> None:
        """Check trailers. The application does not get them."""
        check_trailers(self._decode(block)[2])

    def skip(self, block: bytes) -> None:
        """Follow the table, for a stream that nobody serves."""
        if block not in self._seen:
            try:
                self._decode(block)
            except StreamFault:
                return

    def _decode(self, block: bytes) -> tuple[bool, int, Fields]:
        """Whether the table changed, the size of the list, and the list."""
        table = self._decoder.table
        before = _Mark.of(table)
        fields, size = self._decoder.decode(block)
        changed = not before.fits(table)
        if changed:
            self._forget()
        if size > self._bounds.max_header_list_bytes:
            raise StreamFault(ErrorCode.ENHANCE_YOUR_CALM, "header list too large")
        return changed, size, fields

    def _remember(self, block: bytes, head: Head, size: int) -> None:
        size += len(block)
        if size > self._bounds.cached_block_bytes:
            return
        self._seen_bytes += size
        if (
            len(self._seen) >= self._bounds.cached_blocks
            or self._seen_bytes > self._bounds.cached_block_bytes
        ):
            self._forget()
            self._seen_bytes = size
        self._seen[block] = head

    def _forget(self) -> None:
        self._seen.clear()
        self._seen_bytes = 0


class _Mark(NamedTuple):
    """What tells whether a table changed.

    An entry enters at the front and leaves at the back. So if the first entry is the same object
    and the number of entries is the same, no entry has entered or left.
    """

    size: int
    entries: int
    first: tuple[bytes, bytes] | None

    @classmethod
    def of(cls, table: HeaderTable) -> "_Mark":
        entries = table.dynamic_entries
        return cls(table.maxsize, len(entries), entries[0] if entries else None)

    def fits(self, table: HeaderTable) -> bool:
        now = _Mark.of(table)
        return now.first is self.first and now.entries == self.entries and now.size == self.size
