"""How a text that somebody else chose is shown: in logs, errors, metrics, traces, on terminals.

The law of this file: what a terminal would act on is escaped, and what is long is cut. Letters of
every script stay as they are, with the joiners and marks that these need.
"""

import re
from typing import Final

TERMINAL_UNSAFE: Final = (
    "\x00-\x1f\x7f-\x9f"  # control characters: line ends, escape sequences, also those of 8 bits
    "\u2028\u2029"  # line ends of Unicode
    "\u202a-\u202e\u2066-\u2069"  # turn the direction of all that follows, beyond the text's end
    "\ud800-\udfff"  # halves of surrogate pairs, which have no UTF-8
)
"""Characters, for a class of a regular expression."""

MAX_SHOWN: Final = 300
"""Characters. A name of a stored entity, which has 256 at most, is shown whole."""

MAX_LINE: Final = 2_000
MAX_LINES: Final = 2_000
"""Of texts of our own with several lines, such as tracebacks, and errors of rules files."""

_TERMINAL_UNSAFE: Final = re.compile(f"[{TERMINAL_UNSAFE}]")


def is_plain(text: str) -> bool:
    """Whether a text can be shown as it is."""
    return text.isprintable() or _TERMINAL_UNSAFE.search(text) is None


def escape(text: str) -> str:
    r"""Write what a terminal would act on as Python does: an escape is `\x1b`."""
    if text.isprintable():
        return text
    return _TERMINAL_UNSAFE.sub(lambda found: repr(found[0])[1:-1], text)


def escape_json(text: str) -> str:
    """The same for a document in JSON, whose line ends stay, and which stays what it was."""
    return _TERMINAL_UNSAFE.sub(
        lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text
    )


def cut(text: str, most: int) -> str:
    """So many characters of a text, and then how many there were."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def show(text: str, most: int = MAX_SHOWN) -> str:
    """One line: the text cut, and escaped."""
    return escape(cut(text, most))


def show_lines(text: str) -> str:
    """The same for each line of a text. All but the first are indented.

    So no line of a text is taken for the beginning of another text.
    """
    lines = text.split("\n", MAX_LINES)
    more = ["… (there is more)"] if len(lines) > MAX_LINES else []
    return "\n    ".join([*[show(line, MAX_LINE) for line in lines[:MAX_LINES]], *more])
