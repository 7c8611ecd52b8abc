"""The columns of a table in plain text. No I/O here."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from penstock.cli.encodings import spelled
from penstock.cli.styled import Part, Table, text_of
from penstock.core.foreign_text import show

MAX_CELL: Final = 1_000
"""Characters of a cell. Every name fits. Metadata may be longer: JSON shows all of it."""

NARROW_COLUMN: Final = 16
LEAST_COLUMN: Final = 8
"""What a column that is broken should have, so that there are not too many lines."""

_TAKES_NO_COLUMN: Final = {"Mn", "Me", "Cf"}
"""Kinds of characters: accents, joiners, marks of direction."""

_ASCII: Final = re.compile("[\\x00-\\x7f]+")


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[Part]], indent: str = ""
) -> list[str]:
    return align(Table(header, rows, indent))[0]


def align(table: Table, least: Sequence[int] = ()) -> tuple[list[str], list[int]]:
    """The lines of a table, and the widths of its columns, which are two blanks apart.

    No column is narrower than in `least`.
    """
    # Escape and spell the cells before they are measured.
    rows = [[spelled(show(text_of(cell), MAX_CELL)) for cell in row] for row in table.rows]
    if table.header:
        rows.insert(0, list(table.header))
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    widths = [max(pair) for pair in zip(widths, least or widths, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell + " " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append((table.indent + "  ".join(cells)).rstrip())
    return lines, widths


def fit_widths(widths: Sequence[int], room: int) -> list[int]:
    """The widths of columns that together with the blanks between them fit into this room.

    Narrow columns stay whole as long as the others have enough, because names, numbers and bars
    are hard to read if they are broken. The rest is shared.
    """
    fitted = [0] * len(widths)
    left = room - 2 * (len(widths) - 1)
    narrow_first = sorted(range(len(widths)), key=lambda number: widths[number])
    for done, number in enumerate(narrow_first, start=1):
        others = len(widths) - done
        width = widths[number]
        if width > NARROW_COLUMN or left - width < LEAST_COLUMN * others:
            width = max(1, min(width, left // (others + 1)))
        fitted[number] = width
        left -= width
    return fitted


def text_width(text: str) -> int:
    """How many columns a text takes: a Chinese character takes two, a combining one none."""
    if text.isascii():
        return len(text)
    others = _ASCII.sub("", text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in others)
    none = sum(unicodedata.category(char) in _TAKES_NO_COLUMN for char in others)
    return len(text) + wide - none
