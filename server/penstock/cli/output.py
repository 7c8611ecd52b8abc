"""What commands print: lines and tables for people, JSON and CSV for scripts.

The law of this file: a terminal never acts on a stored name, whoever chose the name. Everything
that commands print goes through this file.
"""

import csv
import json
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

from penstock.cli.columns import MAX_CELL, align, text_width
from penstock.cli.encodings import writes_unicode
from penstock.cli.styled import Line, Part, Styled, Table, text_of
from penstock.cli.terminal import has_colours, is_terminal, open_console, paint, print_painted
from penstock.core.foreign_text import escape_json, show

MAX_PRINTED: Final = 10_000
"""Characters of a line."""


def print_line(line: Line) -> None:
    _print(line, sys.stdout)


def print_lines(lines: Iterable[Line | Table]) -> None:
    for line in lines:
        if isinstance(line, Table):
            print_table(line)
        else:
            print_line(line)


def print_note(line: Line) -> None:
    """Print to stderr what is not part of the answer: `… | wc -l` counts answers only."""
    _print(line, sys.stderr)


def print_error(text: str) -> None:
    print_note([Styled("penstock: error:", "bad"), f" {text}"])


def _print(line: Line, stream: Any) -> None:
    if isinstance(line, str) or not has_colours(stream):
        print(show(text_of(line), MAX_PRINTED), file=stream)
    else:
        # The terminal itself breaks lines. A copied line then stays one line.
        open_console(stream).print(paint(line, MAX_PRINTED), soft_wrap=True)


def print_table(table: Table) -> None:
    """On a terminal, the table fits its width. Elsewhere, each row is one line."""
    TablePrinter(table.header, table.indent).print(table.rows)


class TablePrinter:
    """Prints a table part by part, so that a long table need not be in memory."""

    def __init__(self, header: Sequence[str], indent: str = "") -> None:
        self._header = header
        self._indent = indent
        self._widths = [text_width(title) for title in header]

    def print(self, rows: Sequence[Sequence[Part]]) -> None:
        """The columns are as wide as those of the parts before, or wider."""
        table = Table(self._header, rows, self._indent)
        self._header = ()
        if is_terminal(sys.stdout) or has_colours(sys.stdout):
            self._widths = print_painted(table, self._widths, sys.stdout)
            return
        lines, self._widths = align(table, self._widths)
        for line in lines:
            print(line)


def print_json(value: Any) -> None:
    print(_json(value, indent=2))


def print_json_line(value: Any) -> None:
    """For commands that print a value for each of several answers."""
    print(_json(value))


async def print_json_list(values: AsyncIterator[Any]) -> None:
    """Print a list of any length while it is read. It looks as `print_json` prints it."""
    count = 0
    async for value in values:
        print("[" if count == 0 else ",")
        print("  " + _json(value, indent=2).replace("\n", "\n  "), end="")
        count += 1
    print("\n]" if count else "[]")


def _json(value: Any, indent: int | None = None) -> str:
    # The escapes for other encodings are not valid JSON, so JSON has to be ASCII there.
    return escape_json(json.dumps(value, indent=indent, ensure_ascii=not writes_unicode()))


def print_csv(rows: Iterable[Sequence[str]]) -> None:
    """Print comma-separated values, with quotes where they are needed (RFC 4180)."""
    # Not the line ends of RFC 4180: other tools of a shell expect those of the shell.
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows([[show(cell, MAX_CELL) for cell in row] for row in rows])
