"""Suggests a known word that is similar to an unknown word."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

SIMILAR: Final = 0.66
"""The least ratio of difflib. Three letters with two of them swapped have 0.667."""


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Text `; did you mean …?` for the end of a message; empty if no word is similar."""
    by_folded = {one.casefold(): one for one in words if one != word}
    close = get_close_matches(word.casefold(), by_folded, n=1, cutoff=SIMILAR)
    return f"; did you mean {by_folded[close[0]]}?" if close else ""
