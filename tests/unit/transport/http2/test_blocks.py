"""Header blocks that were seen before: looked up as long as that is right, and bounded."""

import random
from collections.abc import Callable, Iterable
from functools import partial

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st
from penstock.transport.http2 import Bounds, Head
from penstock.transport.http2.blocks import Blocks
from penstock.transport.http2.codes import ConnectionFault
from penstock.transport.http2.fields import FieldDecoder

from tests.unit.transport.http2.peer import REQUEST, block


def headers_of(head: Head) -> list[tuple[str, str]]:
    return list(head.headers)


def test_a_block_seen_before_gives_the_same_head() -> None:
    """Not an equal one: it was not decoded again."""
    blocks, encoder = Blocks(Bounds()), Encoder()
    blocks.request(encoder.encode(REQUEST))
    pure = encoder.encode(REQUEST)
    assert blocks.request(pure) is blocks.request(pure)


def test_a_change_of_the_table_forgets_the_blocks() -> None:
    """The same bytes mean other headers then."""
    blocks = Blocks(Bounds())
    first_of_table = block(*REQUEST) + b"\xbe"
    blocks.request(block(*REQUEST) + b"\x40\x01a\x011")
    assert headers_of(blocks.request(first_of_table))[-1] == ("a", "1")
    blocks.request(block(*REQUEST) + b"\x40\x01b\x012")
    assert headers_of(blocks.request(first_of_table))[-1] == ("b", "2")


def test_an_equal_entry_that_pushes_another_out_is_a_change() -> None:
    """The table is as long as before, and begins with an equal entry."""
    blocks = Blocks(Bounds())
    fill = b"\x40\x01a\x7f\xd1\x0e" + b"v" * 2000
    blocks.request(b"\x3f\xe1\x1f" + block(*REQUEST) + b"\x40\x01b\x012")
    blocks.request(block(*REQUEST) + fill)
    last = block(*REQUEST) + b"\xbf"
    assert headers_of(blocks.request(last))[-1] == ("b", "2")
    blocks.request(block(*REQUEST) + fill)
    assert headers_of(blocks.request(last))[-1][0] == "a"


def test_a_smaller_table_forgets_the_blocks() -> None:
    """What the table lost cannot be referred to any more."""
    blocks = Blocks(Bounds())
    blocks.request(block(*REQUEST) + b"\x40\x01a\x011")
    refers = block(*REQUEST) + b"\xbe"
    blocks.request(refers)
    blocks.skip(b"\x20" + block(*REQUEST))
    with pytest.raises(ConnectionFault):
        blocks.request(refers)


def test_a_table_that_shrank_for_a_moment_forgets_the_blocks() -> None:
    """It has its old size and its first entry again, but not the others."""
    blocks = Blocks(Bounds())
    blocks.request(block(*REQUEST) + b"\x40\x01a\x011\x40\x01b\x012")
    refers = block(*REQUEST) + b"\xbf"
    assert headers_of(blocks.request(refers))[-1] == ("a", "1")
    blocks.skip(b"\x3f\x09\x3f\xe1\x1f" + block(*REQUEST))
    with pytest.raises(ConnectionFault):
        blocks.request(refers)


def test_an_index_may_take_more_than_a_byte() -> None:
    """A table of many small entries goes beyond 126."""
    blocks = Blocks(Bounds())
    names = [f"{i:02}" for i in range(80)]
    added = b"".join(b"\x40\x02" + name.encode() + b"\x00" for name in names)
    blocks.request(block(*REQUEST) + added)
    refers = block(*REQUEST) + b"\xff\x00" + b"\xff\x03" + b"\xfe"
    found = [name for name, _ in headers_of(blocks.request(refers))[-3:]]
    assert found == [names[-66], names[-69], names[-65]]


@pytest.mark.parametrize(("most_blocks", "most_bytes"), [(8, 10**6), (10**6, 4_000), (8, 100)])
def test_what_is_remembered_is_bounded(most_blocks: int, most_bytes: int) -> None:
    """In blocks and in bytes, whatever a client sends."""
    blocks = Blocks(Bounds(cached_blocks=most_blocks, cached_block_bytes=most_bytes))
    for i in range(200):
        blocks.request(block(*REQUEST, (f"x-{i}", "v" * (i % 120))))
        kept = blocks._seen  # noqa: SLF001 - the bound is on what is kept inside
        assert len(kept) <= most_blocks
        assert sum(map(len, kept)) <= most_bytes


NAMES = st.sampled_from(["a", "b", "cookie", "x-trace", "grpc-timeout"])
LISTS = st.lists(st.tuples(NAMES, st.text("abc01=", max_size=40)), max_size=8)


@given(st.lists(LISTS, max_size=6), st.randoms(use_true_random=False))
def test_blocks_are_read_as_the_package_reads_them(
    lists: list[list[tuple[str, str]]], rng: random.Random
) -> None:
    """Whatever an encoder does with its table: repeated lists, new sizes, Huffman or not."""
    encoder, decoder, blocks = Encoder(), Decoder(), Blocks(Bounds())
    for fields in [*lists, *lists]:
        if rng.random() < 0.2:
            encoder.header_table_size = rng.choice([0, 100, 4096])
        sent = encoder.encode([*REQUEST, *fields], huffman=rng.random() < 0.5)
        expected = [(str(n), str(v)) for n, v in decoder.decode(sent) if str(n)[0] != ":"]
        assert headers_of(blocks.request(sent)) == expected


Decode = Callable[[bytes], Iterable[tuple[bytes, bytes]]]


def outcome(decode: Decode, data: bytes) -> tuple[list[tuple[bytes, bytes]], Exception | None]:
    try:
        return list(decode(data)), None
    except (ConnectionFault, HPACKError) as exc:
        return [], exc


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_read_as_the_package_reads_them(first: bytes, second: bytes) -> None:
    """Also what no encoder makes: the same fields, or a fault where the package raises."""
    ours, theirs = FieldDecoder(65_536), Decoder(65_536)
    for data in (first, second):
        expected, broken = outcome(partial(theirs.decode, raw=True), data)
        fields, fault = outcome(lambda sent: ours.decode(sent)[0], data)
        if broken is not None or fault is not None:
            assert isinstance(fault, ConnectionFault)
            assert broken is not None or "size" in fault.reason, "we allow two changes, they more"
            return
        assert fields == expected
        assert ours.table.dynamic_entries == theirs.header_table.dynamic_entries
