"""Texts that somebody else chose: what of them is shown, and what is escaped or cut."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.foreign_text import (
    MAX_LINE,
    MAX_LINES,
    MAX_SHOWN,
    cut,
    escape,
    escape_json,
    is_plain,
    show,
    show_lines,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\rc\td\0e", r"a\nb\rc\td\x00e"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b2J\x85\x7f", r"\x9b2J\x85\x7f"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\u202egnp.exe\u2066\u2069", r"\u202egnp.exe\u2066\u2069"),
        ("\ud800\udfff", r"\ud800\udfff"),
    ],
)
def test_what_a_terminal_acts_on_is_escaped(text: str, shown: str) -> None:
    """Line ends, escape sequences of 7 and of 8 bits, turned directions, and what has no UTF-8."""
    assert escape(text) == show(text) == shown
    assert not is_plain(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "Grüße, 東京, Ελλάδα",
        "👩‍👩‍👧 and 🏴‍☠️",  # joined by U+200D
        "می‌خواهم",  # ZWNJ keeps the letters of Persian apart
        "\u200fعربي\u200e",  # marks of direction, which end with the letter beside them
        "a\u00a0b\u3000c\u00ad",
        "e\u0301",
        r"back\slash 'quotes' \n",
    ],
)
def test_letters_of_every_script_stay_as_they_are(text: str) -> None:
    """With the joiners and marks that they need."""
    assert is_plain(text)
    assert escape(text) == show(text) == text


@given(ANY_TEXT)
def test_whatever_it_is_it_becomes_one_line_that_does_nothing(text: str) -> None:
    """And a text that does nothing is the same before and after."""
    shown = escape(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Zl", "Zp", "Cs"}
    assert shown.splitlines() == ([shown] if shown else [])
    assert is_plain(shown)
    assert shown.encode().decode() == shown
    assert is_plain(text) == (shown == text)


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    """Up to the bound it is whole."""
    whole = "x" * MAX_SHOWN
    assert show(whole) == whole
    assert show(whole + "y") == f"{whole}… ({MAX_SHOWN + 1} characters)"
    assert show("\x1b" * 1_000_000, 2) == r"\x1b\x1b… (1,000,000 characters)"
    assert cut("a\nb\nc", 3) == "a\nb… (5 characters)"


def test_lines_of_a_text_stay_lines_and_none_begins_a_new_one() -> None:
    """A traceback can be read, and no text in it passes for a line of the log."""
    text = "1999 ERROR what\n1999 INFO \x1b[2Jforged\r\n  File x"
    assert show_lines(text) == "1999 ERROR what\n    1999 INFO \\x1b[2Jforged\\r\n      File x"


def test_many_lines_and_long_ones_are_cut() -> None:
    """Each by itself."""
    first, *rest = show_lines("x" * 10_000 + "\n" * 100_000).split("\n")
    assert first == f"{'x' * MAX_LINE}… (10,000 characters)"
    assert len(rest) == MAX_LINES
    assert rest[-1] == "    … (there is more)"


@given(st.recursive(ANY_TEXT, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner)))
def test_json_is_what_it_was_and_a_terminal_does_not_act_on_it(value: object) -> None:
    """However it is indented."""
    for indent in (None, 2):
        text = escape_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert json.loads(text) == value
        assert all(map(is_plain, text.split("\n")))
