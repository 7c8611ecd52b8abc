"""The files of the page: HTML, CSS and JavaScript, as they are in this package."""

from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def read_files() -> dict[str, tuple[bytes, str]]:
    """By their path on the debug port: the content, and its type."""
    found = {
        f"/console/{path.name}": (path.read_bytes(), TYPES[path.suffix])
        for path in sorted(STATIC.iterdir())
        if path.suffix in TYPES
    }
    return {"/console": found.pop("/console/console.html"), **found}
