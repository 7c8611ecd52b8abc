"""One header block to fields and back (HPACK, RFC 7541).

The law of this file: the `hpack` package decodes, and keeps the peer's table. A field that is one
byte long is an index into that table, and most fields are. Those are looked up here, because the
decoder takes ten times as long for them. Blocks of ours are encoded without a table.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hpack import Decoder, HPACKError
from hpack.hpack import decode_integer, encode_integer
from hpack.table import HeaderTable

from penstock.transport.http2.codes import ConnectionFault, ErrorCode

FIELD_OVERHEAD: Final = 32
"""What RFC 7541 section 4.1 adds to the length of a name and its value."""

_SIZE_UPDATES = re.compile(rb"(?:[\x20-\x3e]|\x3f[\x80-\xff]*[\x00-\x7f]){0,2}").match
"""Changes of the table's size, at the start of a block. An encoder needs two at most (RFC 7541
section 4.2), and thousands would be work for nothing."""

Fields = Sequence[tuple[bytes, bytes]]


class FieldDecoder:
    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._decoder = Decoder(max_list_bytes)

    @property
    def table(self) -> HeaderTable:
        return self._decoder.header_table

    def decode(self, block: bytes) -> tuple[Fields, int]:
        """The fields of a block, and the size of their list."""
        try:
            return self._decode(block)
        except HPACKError as exc:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "broken header block") from exc

    def _decode(self, block: bytes) -> tuple[Fields, int]:
        look_up = self._decoder.header_table.get_by_index
        fields: list[tuple[bytes, bytes]] = []
        size, position, end = 0, self._change_size(block), len(block)
        while position < end:
            first = block[position]
            if 0x80 < first < 0xFF:
                field = look_up(first & 0x7F)
                position += 1
            elif 0x20 <= first < 0x40:
                reason = "a table changes its size where it may not"
                raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, reason)
            else:
                after = _end_of_field(block, position)
                (field,) = self._decoder.decode(block[position:after], raw=True)
                position = after
            size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            if size > self._max_list_bytes:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "header list too large")
            fields.append(field)
        return fields, size

    def _change_size(self, block: bytes) -> int:
        """Follow the changes of the table's size; returns where the fields begin."""
        updates = _SIZE_UPDATES(block)
        if updates is None or not updates[0]:
            return 0
        self._decoder.decode(updates[0], raw=True)
        return updates.end()


def _end_of_field(block: bytes, position: int) -> int:
    """Where the field that begins here ends. If that is behind the block, the decoder will see."""
    first = block[position]
    if first & 0x80:
        return position + _integer(block, position, 7)[1]
    name, size = _integer(block, position, 6 if first & 0x40 else 4)
    position += size
    if name == 0:
        position = _end_of_string(block, position)
    return _end_of_string(block, position)


def _end_of_string(block: bytes, position: int) -> int:
    length, size = _integer(block, position, 7)
    return position + size + length


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """An integer and its size. The package refuses integers of more than six bytes."""
    return decode_integer(block[position : position + 6], bits)


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
