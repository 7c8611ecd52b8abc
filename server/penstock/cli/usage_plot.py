"""A table of usage with a bar in each row. Bars fill the width of the terminal. No I/O here.

The bars have a spelling in ASCII for terminals without UTF-8 (`encodings.py`).
"""

import shutil
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.cli.columns import table_lines, text_width
from penstock.cli.styled import Part, Styled, Table
from penstock.core.limits import MILLI
from penstock.core.usage import Used

BAR: Final = "█"
MIN_BAR: Final = 10
MAX_BAR: Final = 60


class Row(NamedTuple):
    name: str
    used: Used
    has_bar: bool = True


def plot_table(
    header: str, rows: Sequence[Row], limits: Sequence[str], by: str | None = None
) -> Table:
    """The bars show the limit `by`; None: the takes."""
    cells: list[list[Part]] = [
        [row.name, f"{row.used.takes:,}", *[_shown(row.used, limit) for limit in limits]]
        for row in rows
    ]
    headers = [header, "TAKES", *[_header(limit) for limit in limits]]
    width = max(map(text_width, table_lines(headers, cells, "  ")))
    room = min(max(shutil.get_terminal_size().columns - width - 3, MIN_BAR), MAX_BAR)
    amounts = [row.used.takes if by is None else row.used.amounts.get(by, 0) for row in rows]
    most = max((n for n, row in zip(amounts, rows, strict=True) if row.has_bar), default=0)
    for cell, row, amount in zip(cells, rows, amounts, strict=True):
        bar = BAR * _length(amount, most, room) if row.has_bar else ""
        cell.append(Styled(bar, "good"))
    return Table([*headers, ""], cells, "  ")


def tokens(amount: int) -> str:
    """Millitokens as tokens."""
    whole, rest = divmod(abs(amount), MILLI)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}" + (f".{rest:03}".rstrip("0") if rest else "")


def _shown(used: Used, limit: str) -> str:
    amount = used.amounts.get(limit, 0)
    return f"{amount // MILLI:,}" if amount % MILLI == 0 else tokens(amount)


def _header(limit: str) -> str:
    return limit or "(no name)"


def _length(amount: int, most: int, room: int) -> int:
    """Something that is not nothing has a bar of at least one sign."""
    if amount <= 0 or most <= 0:
        return 0
    return max(1, round(amount * room / most))
