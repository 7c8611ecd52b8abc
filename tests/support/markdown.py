"""Reads pages of the docs: their fences and their tables."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def rows(page: Path, *header: str) -> Iterator[list[str]]:
    """The cells of a table that begins with these columns."""
    inside = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            yield cells
        elif tuple(cells[: len(header)]) == header:
            inside = True


def table(page: Path, first: str) -> dict[str, list[str]]:
    """The first table whose first column is called so: of each row the cells, by the first."""
    found: dict[str, list[str]] = {}
    for name, *cells in rows(page, first):
        found.setdefault(name, cells)
    return found
