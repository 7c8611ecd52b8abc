"""Errors and warnings in rules files, with file and line.

They quote the file, so their texts are cut and escaped. Their number has a bound, because a small
file with many aliases can have a million errors.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from penstock.core.foreign_text import escape, show
from penstock.errors import ConfigError

MAX_PROBLEMS: Final = 1_000
"""Errors, and as many warnings. Nobody reads more before correcting these."""

MAX_TEXT: Final = 500
"""Characters of one text. Our texts are shorter, unless they quote something long."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        file = escape(self.file)
        return f"{file}:{self.line}: {self.text}" if self.line else f"{file}: {self.text}"


class Problems:
    """Collects errors and warnings, so that one reading of the files finds all of them."""

    def __init__(self) -> None:
        # An alias is read in every place, so one error may be found many times.
        self._errors: dict[Problem, None] = {}
        self._warnings: dict[Problem, None] = {}
        self.errors_found = 0
        """All errors, also repeated errors and errors beyond MAX_PROBLEMS."""

    def error(self, file: str, line: int, text: str) -> None:
        self.errors_found += 1
        _keep(self._errors, file, line, text)

    def warn(self, file: str, line: int, text: str) -> None:
        _keep(self._warnings, file, line, text)

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(self._errors)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(self._warnings)

    def raise_errors(self) -> None:
        """Raise RulesError if there are errors."""
        if self._errors:
            raise RulesError(self._errors)


def _keep(kept: dict[Problem, None], file: str, line: int, text: str) -> None:
    if len(kept) < MAX_PROBLEMS:
        kept[Problem(file, line, show(text, MAX_TEXT))] = None


class RulesError(ConfigError):
    """The rules can't be used. The message has an optional title, and a line for each error."""

    def __init__(self, errors: Iterable[Problem], title: str = "") -> None:
        self.errors = sorted(errors)
        self.lines = [title] if title else []
        self.lines += map(str, self.errors)
        if len(self.errors) >= MAX_PROBLEMS:
            self.lines.append(f"there may be more errors: only the first {MAX_PROBLEMS} are shown")
        super().__init__("\n".join(self.lines))

    def titled(self, title: str) -> Self:
        return type(self)(self.errors, title)
