"""The forms of JSON that docs/cli.md describes, and whether a value has such a form."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.markdown import ROOT, rows

PAGE = ROOT / "docs" / "cli.md"
_FORM = re.compile(r"^\| `([a-z ]+)` \| type \| meaning \|$", re.MULTILINE)
_PLAIN = {"text": str, "int": int, "bool": bool}


def documented_commands(page: Path = PAGE) -> dict[str, str]:
    """The form of each command's JSON."""
    return {
        name.strip("`").removeprefix("penstock "): form
        for name, form in rows(page, "command", "JSON")
    }


def documented_forms(page: Path = PAGE) -> dict[str, dict[str, str]]:
    """The types of the fields of each form."""
    names = _FORM.findall(page.read_text())
    assert len(names) == len(set(names))
    return {
        name: {field.strip("`"): kind for field, kind, _ in rows(page, f"`{name}`", "type")}
        for name in names
    }


class Forms:
    def __init__(self) -> None:
        self.commands = documented_commands()
        self.forms = documented_forms()
        self.used: set[str] = set()

    def check(self, command: str, value: Any) -> None:
        """Fail with every difference between a command's JSON and its form."""
        problems = list(self._problems(self.commands[command], value, command))
        assert not problems, problems

    def _problems(self, kind: str, value: Any, where: str) -> Iterator[str]:
        if " or " in kind:
            found = [list(self._problems(one, value, where)) for one in kind.split(" or ")]
            if all(found):
                yield from min(found, key=len)
        elif kind.startswith(("list of ", "map of ")):
            yield from self._inner_problems(kind, value, where)
        elif kind in self.forms:
            yield from self._field_problems(kind, value, where)
        elif not _is_plain(kind, value):
            yield f"{where}: {value!r} is not {kind}"

    def _inner_problems(self, kind: str, value: Any, where: str) -> Iterator[str]:
        outer, _, inner = kind.partition(" of ")
        inside = value.values() if outer == "map" and isinstance(value, dict) else value
        if (outer == "list" and not isinstance(value, list)) or isinstance(inside, str | None):
            yield f"{where}: {value!r} is not a {outer}"
            return
        for one in inside:
            yield from self._problems(inner, one, f"{where}[]")

    def _field_problems(self, form: str, value: Any, where: str) -> Iterator[str]:
        if type(value) is not dict or value.keys() != self.forms[form].keys():
            yield f"{where}: {value!r} is not {form}"
            return
        self.used.add(form)
        for name, kind in self.forms[form].items():
            yield from self._problems(kind, value[name], f"{where}.{name}")


def _is_plain(kind: str, value: Any) -> bool:
    if kind == "null":
        return value is None
    if kind.startswith("/api/"):  # described and tested with the API
        return isinstance(value, dict) and "at_ms" in value
    if kind == "pair":
        return isinstance(value, list) and [type(one) for one in value] == [str, str]
    if kind == "number":  # whole where it can be
        return type(value) is int or (type(value) is float and not value.is_integer())
    return type(value) is _PLAIN[kind]
