"""The line of progress, on a real pseudo-terminal."""

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from penstock.cli.progress import ProgressLine

from tests.support.terminals import Terminal

OVER = "\r\x1b[K"


@contextmanager
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal as stderr."""
    monkeypatch.delenv("COLUMNS", raising=False)
    terminal = Terminal(columns=30)
    with os.fdopen(os.dup(terminal.theirs), "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield terminal
    terminal.close()


def test_the_line_is_written_over_and_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control characters in it are escaped."""
    with narrow_terminal(monkeypatch) as terminal:
        with ProgressLine("first", after_s=0) as progress:
            terminal.read_until(lambda text: "first … 0 s" in text, "the line")
            assert progress.show("x\x1b[2J")
            terminal.read_until(lambda text: r"x\x1b[2J … " in text, "the next line")
        terminal.read_all()
    assert terminal.written.endswith(OVER)
    lines = terminal.written.split(OVER)
    assert (lines[0], lines[-1]) == ("", "")
    assert all(re.fullmatch(r"\S+ … \d+ s", line) for line in lines if line)


def test_a_long_line_is_cut_where_the_terminal_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would fill the screen. A wide character takes two columns."""
    with narrow_terminal(monkeypatch) as terminal, ProgressLine("水" * 50, after_s=0):
        terminal.read_until(lambda text: " … 0 s" in text, "the line")
    assert f"{OVER}{'水' * 11} … 0 s" in terminal.written


def test_what_is_quick_has_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has a command that prints its answers to the same terminal."""
    with narrow_terminal(monkeypatch) as terminal:
        with ProgressLine("quick", after_s=600) as progress:
            assert progress.show("still quick")
        with ProgressLine("shown", after_s=0, is_quiet=True) as progress:
            assert not progress.show("shown")
        assert terminal.read_all() == ""


def test_a_pipe_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a script would be full of it."""
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with ProgressLine("hidden", after_s=0) as progress:
        assert not progress.show("hidden")
    assert stream.getvalue() == ""
