"""Traces are read in every format, line by line, and what is wrong is told with file and line."""

import gzip
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from penstock.core.limits import Unit
from penstock.core.request import Descriptor, Override, Request
from penstock.errors import ConfigError
from penstock.traffic import reading
from penstock.traffic.json_lines import write_line, write_request
from penstock.traffic.reading import Reader, Timed
from penstock.traffic.times import format_time_ms, parse_time_ms

NOW = 1_794_792_780_123
BOB = Request("d", (Descriptor((("user", "bob"),)),))
LINE = '{"time": 1794792780123, "domain": "d", "descriptors": [{"entries": [["user", "bob"]]}]}'


def read(*files: Path, domain: str = "") -> list[tuple[int, Request]]:
    found = Reader(domain).read([str(file) for file in files])
    return [(one.time_ms, one.request) for one in found]


def write(folder: Path, text: str | bytes, name: str = "trace") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def line_of(**changes: Any) -> str:
    """A good line with other fields. None removes a field."""
    fields = {**json.loads(LINE), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None})


@pytest.mark.parametrize(
    "text",
    [
        LINE,
        LINE + "\n\n",
        "\n  " + LINE,
        "\ufeff" + LINE,
        '{"domain": "d", "time": 1794792780123, "descriptors": [{"entries": [["user", "bob"]]}]}',
        line_of(time="2026-11-16T01:33:00.123Z"),
        line_of(time="2026-11-16T03:33:00.123+02:00"),
        line_of(time="2026-11-16 01:33:00.123"),
        line_of(descriptors=[{"entries": [{"key": "user", "value": "bob"}]}]),
        "time,domain,user\n1794792780123,d,bob\n",
        "\ufefftime,domain,user\r\n1794792780123,d,bob\r\n",
        'user,time,path,domain\n"bob",2026-11-16T01:33:00.123Z,,d',
    ],
)
def test_every_format_gives_the_same_request(tmp_path: Path, text: str) -> None:
    """JSON lines and CSV, plain and gzipped, with times in both forms."""
    plain = write(tmp_path, text)
    zipped = write(tmp_path, gzip.compress(text.encode()), "zipped")
    assert read(plain) == read(zipped) == [(NOW, BOB)]


def test_all_fields_of_a_request_survive(tmp_path: Path) -> None:
    """What the recorder writes, with hits, refunds, rates in the request and odd characters."""
    request = Request(
        "d\n",
        (
            Descriptor((("k", 'ü"\\\x00'), ("k", "")), 0),
            Descriptor((), 2**64 - 1, refund=True, override=Override(7, Unit.WEEK)),
        ),
        5,
    )
    file = write(tmp_path, write_line(NOW, write_request(request)))
    assert read(file) == [(NOW, request)]


def test_a_csv_row_has_amounts_and_no_entry_for_an_empty_cell(tmp_path: Path) -> None:
    """`hits` is the descriptor's own amount, `hits_addend` that of the request."""
    text = "time,entity,resource,limit,hits,hits_addend\n"
    file = write(tmp_path, f"{text}{NOW},e,r,,0,\n{NOW},e,r,tpm,,3\n")
    first = Descriptor((("entity", "e"), ("resource", "r")), 0)
    second = Descriptor((("entity", "e"), ("resource", "r"), ("limit", "tpm")))
    assert read(file, domain="d") == [
        (NOW, Request("d", (first,))),
        (NOW, Request("d", (second,), 3)),
    ]


def test_the_same_cells_under_another_header_are_another_request(tmp_path: Path) -> None:
    """And cells with commas or colons are never mixed up."""
    one = write(tmp_path, f'time,domain,a,b\n{NOW},d,x,"1:y,"\n', "one.csv")
    other = write(tmp_path, f'time,domain,c,b\n{NOW},d,x,"1:y,"\n{NOW},d,"x,4:1:y,",\n', "two.csv")
    entries = [request.descriptors[0].entries for _, request in read(one, other)]
    assert entries == [
        (("a", "x"), ("b", "1:y,")),
        (("c", "x"), ("b", "1:y,")),
        (("c", "x,4:1:y,"),),
    ]


BAD = [
    ("{", "not JSON"),
    ("[]", "a line must be an object"),
    (line_of(time=None), "time is missing"),
    (line_of(time=1.5), "time must be a text, or a whole number"),
    (line_of(time=True), "time must be a text, or a whole number"),
    (line_of(time=1_794_792_780), "time 1794792780 is before 1973 or after 9999"),
    (line_of(time="yesterday"), "'yesterday' is not a time"),
    (line_of(time="0001-01-01T00:00:00+01:00"), "is before 1973 or after 9999"),
    (line_of(time="9" * 30), "is before 1973 or after 9999"),
    (line_of(domain=7), "domain must be a text"),
    (line_of(domain=""), "domain is empty"),
    (line_of(domain="\ud800"), "domain is not UTF-8"),
    (line_of(descriptors={}), "descriptors must be a list"),
    (line_of(descriptors=[]), "there is no descriptor"),
    (line_of(descriptors=["x"]), "a descriptor must be an object"),
    (line_of(descriptors=[{"entries": {}}]), "entries must be a list"),
    (line_of(descriptors=[{"entries": [["a"]]}]), "an entry must be a pair"),
    (line_of(descriptors=[{"entries": [["a", 1]]}]), "a value must be a text"),
    (line_of(descriptors=[{"entries": [], "hits": -1}]), "hits must be a whole number from 0"),
    (line_of(descriptors=[{"entries": [], "hits": True}]), "hits must be a whole number from 0"),
    (line_of(descriptors=[{"entries": [], "refund": 1}]), "refund must be true or false"),
    (line_of(descriptors=[{"entries": [], "limit": 1}]), "limit must be an object"),
    (
        line_of(descriptors=[{"entries": [], "limit": {"unit": "UNKNOWN"}}]),
        "the unit of limit must be one of second, minute",
    ),
    (line_of(descriptors=[{"entries": []}] * 257), "257 descriptors in one request, at most 256"),
    (line_of(hits_addend=2**32), "hits_addend must be a whole number from 0 to 4294967295"),
    (line_of(hit=1), "the request: unknown field 'hit'; known are time, domain"),
    (LINE[:-1] + ', "time": 5}', "time is there twice"),
    ("[" * 100_000, "not JSON"),
    (LINE[:-1] + " " * 2**20 + "}", "the line is longer than 1048576 bytes"),
    (b'{"time":1794792780123,"domain":"\xff","descriptors":[]}', "not JSON"),
    (b'{"time":"\xff","domain":"d","descriptors":[]}', "codec can't decode"),
]


@pytest.mark.parametrize(("bad", "why"), BAD, ids=[why for _, why in BAD])
def test_a_bad_line_is_named_or_skipped(tmp_path: Path, bad: str | bytes, why: str) -> None:
    """With file, line and reason. The lines around it are read if it may be skipped."""
    raw = bad if isinstance(bad, bytes) else bad.encode()
    file = write(tmp_path, LINE.encode() + b"\n" + raw + b"\n" + LINE.encode())
    with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}:2: .*{re.escape(why)}"):
        read(file)
    skipping = Reader(skips_bad_lines=True)
    assert len(list(skipping.read([str(file)]))) == 2
    assert skipping.notes.bad_lines == 1
    assert why in skipping.notes.first_bad


BAD_ROWS = [
    (f"{NOW},bob", "2 cells, but the header has 4 columns"),
    ("then,bob,,1", "'then' is not a time"),
    (f"{NOW},,,1", "the row has no value for any key"),
    (f"{NOW},bob,,some", "hits must be a whole number from 0"),
    (f"{NOW},{'x' * 200_000},,", "field larger than field limit"),
    (f"{NOW},\udcff,,", "user is not UTF-8"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_ROWS, ids=[why for _, why in BAD_ROWS])
def test_a_bad_row_is_named_or_skipped(tmp_path: Path, bad: str, why: str) -> None:
    """The same for CSV."""
    good = f"{NOW},bob,,1"
    text = "\n".join(["time,user,path,hits", good, bad, good])
    file = write(tmp_path, text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}:3: .*{re.escape(why)}"):
        read(file, domain="d")
    skipping = Reader("d", skips_bad_lines=True)
    assert len(list(skipping.read([str(file)]))) == 2
    assert skipping.notes.bad_lines == 1


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("user,domain", "the header has no column 'time'"),
        ("time,user", "the header has no column 'domain': add one, or give --domain"),
        ("time,domain,user,user", "the header has the column 'user' twice"),
        ("time,domain", "the header needs a column for each key"),
        ("time,domain,", "the header needs a column for each key"),
    ],
)
def test_a_bad_header_is_an_error_even_if_lines_may_be_skipped(
    tmp_path: Path, header: str, why: str
) -> None:
    """Without a header, no row has a meaning."""
    file = write(tmp_path, f"{header}\n{NOW},d,x")
    with pytest.raises(ConfigError, match=re.escape(f"{file}:1: {why}")):
        list(Reader(skips_bad_lines=True).read([str(file)]))


def test_several_files_become_one_stream_by_time(tmp_path: Path) -> None:
    """As workers write them, side by side. A directory stands for its traces."""
    for name, times in (("a.jsonl", (1, 4, 5)), ("b.jsonl", (2, 3, 9))):
        lines = [write_line(NOW + at, write_request(BOB)) for at in times]
        write(tmp_path, "".join(lines), name)
    write(tmp_path, "not a trace", "README")
    assert [at - NOW for at, _ in read(tmp_path)] == [1, 2, 3, 4, 5, 9]


def test_a_gzip_file_may_grow_or_be_cut(tmp_path: Path) -> None:
    """Members follow each other. What was written before a crash is read, and the cut is noted."""
    member = gzip.compress(f"{LINE}\n".encode())
    assert len(read(write(tmp_path, member * 3, "whole.jsonl.gz"))) == 3
    for end in range(1, len(member)):
        file = write(tmp_path, member * 3 + member[:end], "cut.jsonl.gz")
        reader = Reader()
        assert len(list(reader.read([str(file)]))) in {3, 4}
        assert reader.notes.cut_files == [str(file)]
    write(tmp_path, member + b"no gzip here", "cut.jsonl.gz")
    with pytest.raises(ConfigError, match="the gzip file is damaged"):
        read(file)


def test_a_large_gzip_file_is_read_in_pieces(tmp_path: Path) -> None:
    """A small file may unzip to much. All of it comes out."""
    text = f"{LINE}\n" * 5_000
    file = write(tmp_path, gzip.compress(text.encode()) * 2)
    assert read(file) == [(NOW, BOB)] * 10_000


def test_the_standard_input_is_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other programs can write one."""
    given = io.TextIOWrapper(io.BufferedReader(io.BytesIO(LINE.encode())))
    monkeypatch.setattr(sys, "stdin", given)
    assert [one.request for one in Reader().read(["-"])] == [BOB]


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A file, or traces in a directory. An empty file is a trace without requests."""
    with pytest.raises(ConfigError, match="missing: cannot be read"):
        read(tmp_path / "missing")
    with pytest.raises(ConfigError, match="the directory has no traces"):
        read(tmp_path)
    assert read(write(tmp_path, "")) == []


def test_a_line_that_came_before_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the cache has a bound."""
    monkeypatch.setattr(reading, "KEPT", 2)
    lines = [
        write_line(NOW, write_request(Request("d", (Descriptor((("user", name),)),))))
        for name in ("a", "a", "b", "c", "a")
    ]
    found: list[Timed] = list(Reader().read([str(write(tmp_path, "".join(lines)))]))
    assert found[0].request is found[1].request
    assert found[0].request is not found[4].request
    assert found[0] == found[4]


def test_times_are_shown_as_they_are_read() -> None:
    """To the millisecond."""
    assert format_time_ms(NOW) == "2026-11-16T01:33:00.123Z"
    assert parse_time_ms(format_time_ms(NOW)) == parse_time_ms(str(NOW)) == NOW
