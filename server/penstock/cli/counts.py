"""A flag that says how many lines to show."""

import re
from typing import Final

from penstock.errors import ConfigError

_COUNT: Final = re.compile("[0-9]{1,6}")


def read_count(flag: str, text: str) -> int:
    """Read a whole number above 0. ConfigError names the flag."""
    if not _COUNT.fullmatch(text) or int(text) == 0:
        raise ConfigError(f"{flag}: '{text}' is not a whole number from 1 to 999999")
    return int(text)
