"""What is wrong in rules files: every finding, with its file and line."""

from dataclasses import dataclass

from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class Problems:
    """Collects findings, so that one reading of the files tells all of them."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []


class RulesError(ConfigError):
    """The rules can't be used; the message has a line for each error."""

    def __init__(self, errors: list[Problem]) -> None:
        # An alias is read wherever it stands, so one fault may be found many times.
        self.errors = sorted(set(errors))
        super().__init__("\n".join(str(error) for error in self.errors))
