"""Streams that are terminals: which get colours, and how wide they are.

`NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` mean what they mean for other programs. `rich` paints the
colours. Only a terminal needs it, so a command in a pipe does not import it.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from penstock.cli.columns import MAX_CELL, align, fit_widths
from penstock.cli.encodings import spelled
from penstock.cli.styled import Line, Style, Styled, Table, parts_of
from penstock.core.foreign_text import show

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

STYLES: Final[dict[Style, str]] = {
    "header": "bold",
    "name": "bold",
    "good": "green",
    "near": "yellow",
    "bad": "red",
    "less": "dim",
    "added": "green",
    "changed": "yellow",
    "deleted": "red",
}

DEFAULT_COLUMNS: Final = 80
"""For terminals that do not tell their width, such as serial lines."""

UNBOUNDED: Final = 100_000
"""Columns of an output that is not a terminal."""


def is_terminal(stream: TextIO | None) -> bool:
    # The stream is None if the shell closed it.
    return stream is not None and stream.isatty()


def has_colours(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """An empty variable counts as not set."""
    if stream is None or environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and environ.get("TERM") not in {None, "", "dumb"}


def columns_of(stream: TextIO) -> int:
    """The width of a terminal."""
    with suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", ""))) > 0:
            return columns
    with suppress(OSError):
        if (columns := os.get_terminal_size(stream.fileno()).columns) > 0:
            return columns
    return DEFAULT_COLUMNS


def open_console(stream: TextIO) -> "Console":
    """A console that prints texts as they are: nothing in them is markup, an emoji or a link."""
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=True,
        color_system="auto" if has_colours(stream) else None,
        no_color=False,
        markup=False,
        emoji=False,
        highlight=False,
        width=columns_of(stream) if is_terminal(stream) else UNBOUNDED,
    )


def print_painted(table: Table, least: Sequence[int], stream: TextIO) -> list[int]:
    """Print a table that fits the terminal; returns the widths of its columns.

    The columns are not narrower than in `least`, as far as the terminal is wide enough.
    """
    from rich.padding import Padding

    console = open_console(stream)
    _, widths = align(table, least)
    indent = len(table.indent)
    grid = paint_table(table, fit_widths(widths, console.width - indent), breaks=True)
    console.print(Padding(grid, (0, 0, 0, indent), expand=False))
    return widths


def paint_table(table: Table, widths: Sequence[int], *, breaks: bool) -> "Grid":
    """A table for a console. What is too long is broken into lines, or else cut."""
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(table.header))
    for number, width in enumerate(widths):
        title = Styled(table.header[number], "header") if table.header else ""
        grid.add_column(
            paint(title, MAX_CELL),
            overflow="fold" if breaks else "ellipsis",
            no_wrap=not breaks,
            width=width,
        )
    for row in table.rows:
        grid.add_row(*[paint(cell, MAX_CELL) for cell in row])
    return grid


def paint(line: Line, most: int) -> "Text":
    """A line for a console: escaped, and cut after `most` characters."""
    from rich.text import Text

    text = Text()
    for part in parts_of(line):
        style = STYLES[part.style] if isinstance(part, Styled) else ""
        shown = show(part.text if isinstance(part, Styled) else part, most)
        text.append(spelled(shown), style)
    return text
