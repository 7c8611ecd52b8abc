"""Makes text from outside safe to show: in logs, errors, metrics, traces, and on terminals.

The law of this file: characters that a terminal would act on are escaped, and long text is cut.
Letters of every script stay as they are, with the joiners and marks that they need.
"""

import re
from typing import Final

TERMINAL_UNSAFE: Final = (
    "\x00-\x1f\x7f-\x9f"  # control characters: line ends, escape sequences, also those of 8 bits
    "\u2028\u2029"  # line ends of Unicode
    "\u202a-\u202e\u2066-\u2069"  # turn the direction of all that follows, beyond the text's end
    "\ud800-\udfff"  # halves of surrogate pairs, which have no UTF-8
)
"""Characters that a terminal would act on, as the inside of a `[…]` of a regular expression."""

MAX_SHOWN: Final = 300
"""Characters. The name of a stored entity has at most 256, so it is never cut."""

MAX_LINE: Final = 2_000
MAX_LINES: Final = 2_000
"""Bounds for our own texts of several lines, such as tracebacks, and errors in rules files."""

_TERMINAL_UNSAFE: Final = re.compile(f"[{TERMINAL_UNSAFE}]")


def is_plain(text: str) -> bool:
    """Whether a text is safe to show as it is."""
    return text.isprintable() or _TERMINAL_UNSAFE.search(text) is None


def escape(text: str) -> str:
    r"""Escape the characters that a terminal would act on, as Python does: ESC becomes `\x1b`."""
    if text.isprintable():
        return text
    return _TERMINAL_UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def escape_name(text: str) -> str:
    """Escape the same characters as names in a store do: ESC becomes `%1b`."""
    if is_plain(text):
        return text
    return _TERMINAL_UNSAFE.sub(lambda found: f"%{ord(found[0]):02x}", text)


def unprintable(what: str, text: str) -> str:
    """The error for a name with such characters: how a store has the name."""
    stored = cut(escape_name(text), MAX_LINE)
    return f"{what} '{show(text)}' has characters that can't be printed: write '{stored}' instead"


def escape_json(text: str) -> str:
    """Escape a JSON document. Line ends stay, and the document keeps its meaning."""
    return _TERMINAL_UNSAFE.sub(
        lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text
    )


def cut(text: str, most: int) -> str:
    """The first `most` characters of a text. If it is longer, its length follows."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def show(text: str, most: int = MAX_SHOWN) -> str:
    """One line: the text cut, and escaped."""
    return escape(cut(text, most))


def show_lines(text: str) -> str:
    """Show a text of several lines. All lines but the first are indented.

    So nobody takes a line of this text for the beginning of another message.
    """
    lines = text.split("\n", MAX_LINES)
    more = ["… (there is more)"] if len(lines) > MAX_LINES else []
    return "\n    ".join([*[show(line, MAX_LINE) for line in lines[:MAX_LINES]], *more])
