"""Output for terminals that do not have UTF-8.

Characters that the encoding lacks are escaped, as Python does for stderr. Our own signs, such as
bars and arrows, have a spelling in ASCII. JSON and YAML use their own escapes.
"""

import codecs
import io
import sys
from typing import Final

ASCII_SIGNS: Final = {
    "█": "#", "░": ".", "→": "->", "…": "...", "µ": "u",
    "▁": ".", "▂": ":", "▃": "-", "▄": "=", "▅": "+", "▆": "*", "▇": "%",
}  # fmt: skip

_HANDLER: Final = "penstock.ascii"


def use_any_encoding() -> None:
    """Make stdout and stderr accept every character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def writes_unicode() -> bool:
    """Whether stdout can print every character without an escape."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return codecs.lookup(encoding).name.startswith("utf")


def spelled(text: str) -> str:
    """A text as stdout will show it. What is aligned in columns has to be measured so."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text if writes_unicode() else text.encode(encoding, _HANDLER).decode(encoding)


def _spell(exc: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(exc, UnicodeEncodeError):
        raise exc
    spelled = ""
    for char in exc.object[exc.start : exc.end]:
        escaped = char.encode("ascii", "backslashreplace").decode()
        spelled += ASCII_SIGNS.get(char, escaped)
    return spelled, exc.end


codecs.register_error(_HANDLER, _spell)
