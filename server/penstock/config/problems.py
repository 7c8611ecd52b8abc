"""What is wrong in rules files: every finding, with its file and line.

A file's own words stand in findings, so these are cut and escaped, and there is a bound on how many
are kept: a small file with many aliases can have a million faults.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from penstock.core.foreign_text import escape, show
from penstock.errors import ConfigError

MAX_PROBLEMS: Final = 1_000
"""Errors, and as many warnings. Nobody reads more before mending these."""

MAX_TEXT: Final = 500
"""Characters of one. Ours are shorter, as long as what they name is."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        file = escape(self.file)
        return f"{file}:{self.line}: {self.text}" if self.line else f"{file}: {self.text}"


class Problems:
    """Collects findings, so that one reading of the files tells all of them."""

    def __init__(self) -> None:
        # An alias is read wherever it stands, so one fault may be found many times.
        self._errors: dict[Problem, None] = {}
        self._warnings: dict[Problem, None] = {}
        self.errors_found = 0
        """However often, and however many."""

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
        """RulesError if there is any."""
        if self._errors:
            raise RulesError(self._errors)


def _keep(kept: dict[Problem, None], file: str, line: int, text: str) -> None:
    if len(kept) < MAX_PROBLEMS:
        kept[Problem(file, line, show(text, MAX_TEXT))] = None


class RulesError(ConfigError):
    """The rules can't be used; the message has a line for each error, behind a title if there is
    one."""

    def __init__(self, errors: Iterable[Problem], title: str = "") -> None:
        self.errors = sorted(errors)
        self.lines = [title] if title else []
        self.lines += map(str, self.errors)
        if len(self.errors) >= MAX_PROBLEMS:
            self.lines.append(f"there may be more: only {MAX_PROBLEMS} errors are told at once")
        super().__init__("\n".join(self.lines))

    def titled(self, title: str) -> Self:
        return type(self)(self.errors, title)
