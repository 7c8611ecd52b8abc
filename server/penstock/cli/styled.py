"""Text with styles, and tables, as commands build them. `output.py` prints them.

Nothing here knows a terminal. A style says what a part of a text is, not which colour it gets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Style = Literal["header", "name", "good", "near", "bad", "less", "added", "changed", "deleted"]


@dataclass(frozen=True, slots=True)
class Styled:
    """A part of a line that stands out on a terminal with colours."""

    text: str
    style: Style


Part = str | Styled
Line = Part | list[Part]


@dataclass(frozen=True, slots=True)
class Table:
    """Aligned columns. On a terminal, long cells go on in the next line."""

    header: Sequence[str]
    rows: Sequence[Sequence[Part]]
    indent: str = ""


def parts_of(line: Line) -> list[Part]:
    return line if isinstance(line, list) else [line]


def text_of(line: Line) -> str:
    """The text without styles."""
    return "".join(part if isinstance(part, str) else part.text for part in parts_of(line))


def named(name: str, rest: str) -> Line:
    """A line that begins with the name of what the line is about."""
    return [Styled(name, "name"), rest]


_SIGNS: dict[str, Style] = {"+": "added", "~": "changed", "-": "deleted"}


def change_line(line: str) -> Line:
    """A line of a comparison, in the style that its sign stands for."""
    style = _SIGNS.get(line.lstrip()[:1])
    return line if style is None else Styled(line, style)
