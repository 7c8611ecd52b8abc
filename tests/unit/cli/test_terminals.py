"""What commands print on a real pseudo-terminal, and in a pipe."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from penstock.cli import main
from penstock.cli.columns import fit_widths
from penstock.core.foreign_text import is_plain

from tests.support.terminals import Terminal, without_sequences
from tests.unit.cli.conftest import Type

Shown = Callable[..., str]

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MARKUP = "[red]x[/red] :smile: [link=http://x]y[/link] [/]"
HOSTILE = "a\x1b[2Jb"


@pytest.fixture
def shown(type_in: Type, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """Runs a command at a terminal, with these variables: what the terminal gets."""
    del type_in  # makes the store
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()

    def run(*arguments: str, columns: int = 80, **variables: str) -> str:
        terminal.resize(columns, 24)
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            for stream in ("stdout", "stderr"):
                patch.setattr(sys, stream, os.fdopen(os.dup(terminal.theirs), "w", buffering=1))
            try:
                main(list(arguments))
            except SystemExit:  # of argparse
                pass
            finally:
                sys.stdout.close()
                sys.stderr.close()
        return terminal.read_all().replace("\r\n", "\n")

    yield run
    terminal.close()


@pytest.fixture
def stored(type_in: Type) -> Type:
    type_in("limits", "set", "--resource", "gpt-4", "rpm=100/minute", "tpm=10/minute")
    type_in("entity", "create", "bob", "--metadata", f"about={'words ' * 20}")
    type_in("entity", "create", MARKUP, "--metadata", f"{MARKUP}={MARKUP}")
    Path("policy.yaml").write_text("entities: {new: {}}\n")
    return type_in


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


COMMANDS = [
    ("entity", "list"),
    ("limits", "show", "--resource", "gpt-4"),
    ("bucket", "show", "bob", "gpt-4"),
    ("policy", "diff", "-f", "policy.yaml"),
    ("audit", "bob"),
    ("entity", "show", "bob"),
    ("entity", "show"),
    ("--help",),
]


@pytest.mark.parametrize("command", COMMANDS[:-2], ids=" ".join)
def test_a_terminal_gets_the_same_text_with_colours(
    shown: Shown, stored: Type, command: tuple[str, ...]
) -> None:
    """A pipe gets the text alone."""
    plain = stored(*command).out
    assert "\x1b" not in plain
    painted = shown(*command, columns=300)
    assert COLOUR.search(painted)
    assert lines_of(COLOUR.sub("", painted)) == lines_of(plain)


def test_what_is_good_and_what_is_bad_have_their_colours(shown: Shown, stored: Type) -> None:
    """Additions and full buckets are green, errors red, headers bold."""
    assert "\x1b[32m+ entity new\x1b[0m" in shown("policy", "diff", "-f", "policy.yaml")
    assert "\x1b[32m████████████\x1b[0m" in shown("bucket", "show", "bob", "gpt-4")
    assert "\x1b[31mpenstock: error:\x1b[0m" in shown("entity", "create", "bob")
    assert "\x1b[1mNAME" in shown("entity", "list")
    assert "\x1b[1mexamples:\x1b[0m" in shown("--help")
    stored("entity", "delete", "bob", "--yes")


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}]
)
def test_colours_can_be_turned_off(shown: Shown, stored: Type, variables: dict[str, str]) -> None:
    """By NO_COLOR, even if FORCE_COLOR is there, and on a dumb terminal."""
    del stored
    for command in COMMANDS:
        assert "\x1b" not in shown(*command, **variables)


def test_colours_can_be_forced_into_a_pipe(stored: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for `… | less -R`. An empty variable is as good as none. Each row is one line."""
    monkeypatch.setenv("TERM", "xterm-256color")
    plain = stored("entity", "list").out
    monkeypatch.setenv("FORCE_COLOR", "")
    assert stored("entity", "list").out == plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = stored("entity", "list").out
    assert painted.startswith("\x1b[1mNAME")
    assert lines_of(COLOUR.sub("", painted)) == lines_of(plain)


@pytest.mark.parametrize("columns", [20, 40, 79])
def test_tables_fit_the_terminal(shown: Shown, stored: Type, columns: int) -> None:
    """Whatever its width, and nothing is lost: long cells go on below."""
    del stored
    for command in (("entity", "list"), ("limits", "list"), ("entity", "show", "bob")):
        lines = COLOUR.sub("", shown(*command, columns=columns)).splitlines()
        assert max(map(len, lines)) <= columns
        if command == ("entity", "list"):
            letters = re.sub("[^words]", "", "".join(lines))
            assert len(letters) >= 20 * len("words"), "nothing is cut off"
    assert max(map(len, shown("entity", "list", COLUMNS="30", NO_COLOR="1").splitlines())) <= 30


def test_a_value_is_neither_markup_nor_a_control_sequence(shown: Shown, stored: Type) -> None:
    """It is shown as it is stored, and control characters are escaped."""
    for command in (("entity", "list"), ("entity", "show", MARKUP), ("audit", MARKUP)):
        painted = shown(*command, columns=300)
        assert MARKUP in COLOUR.sub("", painted)
        assert all(map(is_plain, COLOUR.sub("", painted).splitlines()))
    for command in (("entity", "show", HOSTILE), ("audit", HOSTILE), ("limits", "set", HOSTILE)):
        painted = shown(*command, columns=300)
        assert r"a\x1b[2Jb" in painted
        assert all(map(is_plain, COLOUR.sub("", painted).splitlines()))
    stored("entity", "delete", MARKUP, "--yes")


def test_no_other_sequence_than_colours_is_printed(shown: Shown, stored: Type) -> None:
    """Neither the cursor moves, nor is there a link or a title."""
    del stored
    for command in COMMANDS:
        painted = shown(*command)
        assert COLOUR.sub("", painted) == without_sequences(painted)


@pytest.mark.parametrize(
    ("widths", "room", "fitted"),
    [
        ([3, 12, 14], 33, [3, 12, 14]),
        ([3, 12, 14], 32, [3, 12, 13]),
        ([40, 12, 3], 27, [8, 12, 3]),
        ([40, 12, 3], 26, [10, 9, 3]),
        ([40, 30], 42, [20, 20]),
        ([9, 9], 5, [1, 2]),
        ([9, 9, 9], 3, [1, 1, 1]),
    ],
)
def test_narrow_columns_stay_whole(widths: list[int], room: int, fitted: list[int]) -> None:
    """As long as the others have eight columns. All fit, if there is one for each."""
    assert fit_widths(widths, room) == fitted
