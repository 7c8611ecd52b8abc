"""Rules files: of the examples that users get, and such as change while a server reads them."""

import re
from pathlib import Path


def by_the_year(rules: Path, folder: Path) -> Path:
    """Copy a rules file into a folder, with years instead of minutes and hours.

    A token of 5 a minute comes back after 12 s, and a busy machine may need longer for a few
    requests.
    """
    text, count = re.subn(r"unit: (minute|hour)", "unit: year", rules.read_text())
    assert count
    copy = folder / f"by-the-year-{rules.name}"
    copy.write_text(text)
    return copy


def replace_rules(file: Path, text: str) -> None:
    """Change rules in one step. A server that looks at the wrong moment would read half of them."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.rename(file)
