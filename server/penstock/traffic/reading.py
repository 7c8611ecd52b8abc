"""Reads traces: files of JSON lines or CSV rows, plain or gzipped, as one stream by time.

The format shows in the content: a gzip file begins with its magic number, JSON lines begin with a
brace, and everything else is CSV. Lines are read one by one, so a trace may have any size. A line
that can't be read is an error with file and line, or is counted and skipped.
"""

import csv
import heapq
import io
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, cast

from penstock.core.foreign_text import show
from penstock.core.request import Request
from penstock.errors import ConfigError
from penstock.traffic.csv_rows import Columns
from penstock.traffic.json_lines import read_request, split_line
from penstock.traffic.unzip import CHUNK, Unzipped

STDIN: Final = "-"
MAX_LINE: Final = 2**20
"""Bytes of a line. The largest request that a server accepts has 256 KiB by default."""

KEPT: Final = 16_384
"""The most requests in the cache, as many as a server keeps prepared."""

SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz")
"""The files that count in a directory."""

_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"


class Timed(NamedTuple):
    """A request of a trace."""

    time_ms: int
    key: bytes
    """The same for the same request. It is the key in the caches."""
    request: Request


class Notes:
    """What there is to say about a trace once it is read."""

    def __init__(self) -> None:
        self.bad_lines = 0
        self.first_bad = ""
        """The first line that could not be read, and why."""
        self.cut_files: list[str] = []
        """Gzip files that end in the middle, because their writer was killed or still writes."""


Change = Callable[[Request], Request]


class Reader:
    """Reads the files of one trace."""

    def __init__(
        self, domain: str = "", *, skips_bad_lines: bool = False, change: Change | None = None
    ) -> None:
        """`domain` is for CSV rows without a domain. `change` is applied to every request."""
        self.notes = Notes()
        self._domain = domain
        self._skips = skips_bad_lines
        self._change = change
        self._kept: dict[bytes, Request] = {}
        self._headers: dict[tuple[str, ...], int] = {}
        """A number for each header, because the same cells mean something else under another."""

    def read(self, names: Sequence[str]) -> Iterator[Timed]:
        """All requests of all files. If each file is in the order of time, so is the stream."""
        streams = [self._read_file(name) for name in find_files(names)]
        return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=attrgetter("time_ms"))

    def _read_file(self, name: str) -> Iterator[Timed]:
        try:
            with _open(name) as file:
                begin = file.peek(1).lstrip(_BOM + b" \t\r\n")[:1]
                if begin == b"{":
                    yield from self._read_json(name, file)
                elif begin:
                    yield from self._read_csv(name, file)
                if _is_cut(file):
                    self.notes.cut_files.append(name)
        except zlib.error as exc:
            raise ConfigError(f"{name}: the gzip file is damaged ({exc})") from exc
        except OSError as exc:
            raise ConfigError(f"{name}: cannot be read ({exc.strerror or exc})") from exc

    def _read_json(self, name: str, file: io.BufferedReader) -> Iterator[Timed]:
        kept = self._kept
        for number, line in enumerate(_lines(file), start=1):
            is_long = len(line) > MAX_LINE + 1
            line = line.strip()
            if not line:
                continue
            try:
                if is_long:
                    raise ValueError(f"the line is longer than {MAX_LINE} bytes")
                time_ms, key = split_line(line)
                request = kept.get(key) or self._keep(key, read_request(key))
            except ValueError as exc:
                self._note_bad(name, number, exc)
                continue
            yield Timed(time_ms, key, request)

    def _read_csv(self, name: str, file: io.BufferedReader) -> Iterator[Timed]:
        # Bytes that are not UTF-8 become surrogates here, which the check of texts refuses.
        rows = csv.reader(line.decode("utf-8-sig", "surrogateescape") for line in _lines(file))
        columns: Columns | None = None
        header = 0
        while True:
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error as exc:
                self._note_bad(name, rows.line_num, exc)
                continue
            if not cells:
                continue
            try:
                if columns is None:
                    columns = Columns(cells, self._domain)
                    header = self._headers.setdefault(tuple(cells), len(self._headers))
                    continue
                time_ms, others = columns.split(cells)
                # With the length before each cell, other cells never make the same key.
                texts = [f"{len(cell)}:{cell}" for cell in others]
                key = f"{header},{','.join(texts)}".encode(errors="surrogateescape")
                request = self._kept.get(key) or self._keep(key, columns.read(others))
            except ValueError as exc:
                if columns is None:  # without a header, no row has a meaning
                    raise ConfigError(f"{name}:{rows.line_num}: {exc}") from exc
                self._note_bad(name, rows.line_num, exc)
                continue
            yield Timed(time_ms, key, request)

    def _keep(self, key: bytes, request: Request) -> Request:
        if self._change is not None:
            request = self._change(request)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = request
        return request

    def _note_bad(self, name: str, line: int, error: Exception) -> None:
        text = f"{name}:{line}: {show(str(error))}"
        if not self._skips:
            raise ConfigError(f"{text} (--skip-bad-lines counts and skips such lines)")
        self.notes.bad_lines += 1
        self.notes.first_bad = self.notes.first_bad or text


def find_files(names: Sequence[str]) -> list[str]:
    """Replace each directory by its traces. ConfigError if there are none."""
    found: list[str] = []
    for name in names:
        path = Path(name)
        if name == STDIN or not path.is_dir():
            found.append(name)
            continue
        files = sorted(str(one) for one in path.iterdir() if one.name.endswith(SUFFIXES))
        if not files:
            ends = ", ".join(SUFFIXES)
            raise ConfigError(f"{name}: the directory has no traces (files that end in {ends})")
        found += files
    return found


@contextmanager
def _open(name: str) -> Iterator[io.BufferedReader]:
    with ExitStack() as opened:
        if name == STDIN:
            file = cast("io.BufferedReader", sys.stdin.buffer)
        else:
            file = opened.enter_context(Path(name).open("rb"))
        if file.peek(2)[:2] == _GZIP:
            file = opened.enter_context(io.BufferedReader(Unzipped(file), CHUNK))
        yield file


def _is_cut(file: io.BufferedReader) -> bool:
    return isinstance(file.raw, Unzipped) and file.raw.is_cut


def _lines(file: io.BufferedReader) -> Iterator[bytes]:
    """The lines. Of a line that is too long, the begin, which is still too long."""
    while line := file.readline(MAX_LINE + 2):
        if not line.endswith(b"\n") and _is_cut(file):
            return  # only the begin of the line is there
        yield line
        while len(line) == MAX_LINE + 2 and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE + 2)
