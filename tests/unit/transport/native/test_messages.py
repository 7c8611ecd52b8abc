"""Messages with their five bytes in front, compressed or not, as they are cut from a stream."""

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.transport.failures import CallError, Code
from penstock.transport.native.encodings import ENCODINGS
from penstock.transport.native.messages import MessageReader, frame_message, read_lone_message

MOST = 1_000

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),  # else tests would be named by the time
    "deflate": zlib.compress,
}


def compressed(message: bytes, encoding: str) -> bytes:
    return b"\x01" + frame_message(COMPRESS[encoding](message))[1:]


def read_all(reader: MessageReader) -> list[bytes]:
    return list(iter(reader.read, None))


def reader(encoding: str = "identity") -> MessageReader:
    return MessageReader(MOST, ENCODINGS[encoding])


@given(st.lists(st.binary(max_size=MOST), max_size=5), st.data())
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    messages: list[bytes], data: st.DataObject
) -> None:
    """In pieces of any size, and several in one piece."""
    stream = b"".join(map(frame_message, messages))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    cutting, found = reader(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        cutting.feed(stream[begin:end])
        found += read_all(cutting)
    assert found == messages
    assert cutting.held == 0


@given(st.binary(max_size=40))
def test_a_lone_message_is_what_the_reader_finds(data: bytes) -> None:
    """The short way finds nothing that the long way would not, and no more than one message."""
    message = read_lone_message(data, 20)
    if message is not None:
        cutting = MessageReader(20, None)
        cutting.feed(data)
        assert (read_all(cutting), cutting.held) == ([message], 0)


@pytest.mark.parametrize("size", [0, 1, MOST])
def test_a_whole_message_goes_the_short_way(size: int) -> None:
    """Up to the longest that may be."""
    assert read_lone_message(frame_message(b"x" * size), MOST) == b"x" * size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\0",
        frame_message(b"x" * (MOST + 1)),
        frame_message(b"x") + b"y",
        frame_message(b"xy")[:-1],
        compressed(b"x", "gzip"),
        frame_message(b"x") * 2,
    ],
)
def test_anything_else_goes_the_long_way(data: bytes) -> None:
    """Too long, cut short, compressed, or more than one."""
    assert read_lone_message(data, MOST) is None


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("size", [0, 1, MOST])
def test_compressed_messages_are_read(encoding: str, size: int) -> None:
    """Up to the longest that may be; and plain ones beside them."""
    cutting = reader(encoding)
    cutting.feed(compressed(b"x" * size, encoding) + frame_message(b"plain"))
    assert read_all(cutting) == [b"x" * size, b"plain"]


def failure(cutting: MessageReader, data: bytes) -> tuple[Code, str]:
    cutting.feed(data)
    with pytest.raises(CallError) as caught:
        cutting.read()
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize("encoding", COMPRESS)
def test_no_more_is_decompressed_than_a_message_may_have(encoding: str) -> None:
    """A bomb is told by its first bytes too many."""
    bomb = COMPRESS[encoding](b"\0" * 900_000)
    assert len(bomb) <= MOST
    found = failure(reader(encoding), compressed(b"\0" * 900_000, encoding))
    assert found == (Code.RESOURCE_EXHAUSTED, "Decompressed message larger than max")


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda _: b"x"]
)
def test_what_cannot_be_decompressed_is_refused(
    encoding: str, damage: Callable[[bytes], bytes]
) -> None:
    """Cut short, with something behind it, or no such thing at all."""
    data = damage(COMPRESS[encoding](b"some text, some text"))
    found = failure(reader(encoding), b"\x01" + frame_message(data)[1:])
    assert found == (Code.INTERNAL, "Decompression failed due to zlib error")


def test_a_message_that_is_too_long_is_refused_by_its_length() -> None:
    """Before it has come."""
    found = failure(reader(), frame_message(b"x" * (MOST + 1))[:5])
    text = "SERVER: Received message larger than max (1001 vs. 1000)"
    assert found == (Code.RESOURCE_EXHAUSTED, text)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        (b"\x01", "Compression bit set but no encoding configured"),
        (b"\x02", "a message has the flag 2, which gRPC does not know"),
    ],
)
def test_a_flag_that_means_nothing_here_is_refused(flag: bytes, text: str) -> None:
    """Compressed, but the headers did not say how; and a flag of a later gRPC."""
    assert failure(reader(), flag + frame_message(b"x")[1:]) == (Code.INTERNAL, text)
