"""Patterns with `*`, found without trying them one by one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.wildcards import Wildcards, matches

TEXTS = st.text("ab*", max_size=6)
PATTERNS = st.text("ab*", min_size=1, max_size=6).filter(lambda text: "*" in text)


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("foo*", "foo1", True),
        ("foo*", "bar", False),
        ("foo*", "foo", True),
        ("bar*b", "barb", True),
        ("bar*b", "barab", True),
        ("bar*b", "xbarb", False),
        ("bar*b", "bar", False),
        ("foo*bar*baz", "foobarbaz", True),
        ("foo*bar*baz", "foo-bar-baz", True),
        ("foo*bar*baz", "foobaz", False),
        ("*", "", True),
        ("**", "anything", True),
        ("a*a", "a", False),
    ],
)
def test_a_star_matches_any_run_of_characters(pattern: str, value: str, expected: bool) -> None:
    """Also an empty run, any number of times, anywhere."""
    assert matches(pattern, value) == expected


@given(PATTERNS, TEXTS)
def test_matching_agrees_with_a_regular_expression(pattern: str, value: str) -> None:
    """The linear matcher finds what a regular expression would."""
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert matches(pattern, value) == bool(re.fullmatch(expression, value))


@given(st.lists(PATTERNS, max_size=8, unique=True), TEXTS)
def test_the_first_pattern_in_order_wins(patterns: list[str], value: str) -> None:
    """The index finds what trying one after the other finds."""
    expected = next((pattern for pattern in patterns if matches(pattern, value)), None)
    assert Wildcards((pattern, pattern) for pattern in patterns).first(value) == expected


def test_a_value_of_many_stars_takes_no_time() -> None:
    """A pattern made to be slow is not: the matcher never goes back."""
    assert not matches("*a" * 2_000 + "b", "a" * 100_000)
