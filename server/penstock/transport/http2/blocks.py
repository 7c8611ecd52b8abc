"""Header blocks (HPACK, RFC 7541): decoded with the peer's table, encoded without a table.

The law of this file: every block that came is decoded in order, even for a stream that nobody
serves, because each block may change the table that later blocks refer to. Only a block that was
decoded before, and did not change the table, may be looked up instead: while the table is the
same, the same bytes mean the same headers. Any change of the table empties the cache.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hpack import Decoder, HPACKError, OversizedHeaderListError
from hpack.hpack import encode_integer
from hpack.table import HeaderTable

from penstock.transport.http2.bounds import Bounds
from penstock.transport.http2.codes import ConnectionFault, ErrorCode, StreamFault
from penstock.transport.http2.heads import Head, check_trailers, request_head

FIELD_OVERHEAD: Final = 32
"""What RFC 7541 section 4.1 adds to the length of a name and its value."""

DECODED_AT_MOST: Final = 4
"""How many times larger than the bound a list may be, so that we still decode it. Then the table
stays right, and the peer loses a stream instead of the connection."""

_SIZE_UPDATES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){3}").match
"""Three changes of the table's size in a row. Two are all that an encoder needs (RFC 7541 4.2), and
thousands would be work for nothing."""

Fields = Sequence[tuple[bytes, bytes]]


class Blocks:
    """The decoding side of one connection: the peer's table, and the blocks seen before."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._decoder = Decoder(bounds.max_header_list_bytes * DECODED_AT_MOST)
        self._seen: dict[bytes, Head] = {}
        self._seen_bytes = 0

    @property
    def max_block_bytes(self) -> int:
        """A block is never larger than a list that we would decode, by more than this."""
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
        table = self._decoder.header_table
        before = _Mark.of(table)
        if _SIZE_UPDATES(block):
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "too many changes of table size")
        try:
            fields: Fields = list(self._decoder.decode(block, raw=True))
        except OversizedHeaderListError as exc:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header list too large") from exc
        except HPACKError as exc:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "broken header block") from exc
        changed = not before.fits(table)
        if changed:
            self._forget()
        size = sum(len(name) + len(value) + FIELD_OVERHEAD for name, value in fields)
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


def encode_block(headers: Iterable[tuple[str, str]]) -> bytes:
    """A block that any peer decodes at any time: it uses no dynamic table, and changes none."""
    block = bytearray()
    table = HeaderTable()
    for name, value in headers:
        raw_name, raw_value = name.encode("ascii"), value.encode("latin-1")
        match = table.search(raw_name, raw_value)
        if match is not None and match[2] is not None:
            block += _prefixed(match[0], 7, 0x80)
            continue
        block += _prefixed(match[0] if match else 0, 4, 0x00)
        if match is None:
            block += _prefixed(len(raw_name), 7, 0x00) + raw_name
        block += _prefixed(len(raw_value), 7, 0x00) + raw_value
    return bytes(block)


def _prefixed(integer: int, bits: int, pattern: int) -> bytes:
    encoded = encode_integer(integer, bits)
    encoded[0] |= pattern
    return bytes(encoded)
