"""What somebody may have meant by a word that is none of those that there are."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`; did you mean …?`, to put behind a message; empty if nothing is close."""
    by_folded = {one.casefold(): one for one in words}
    close = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.7)
    return f"; did you mean {by_folded[close[0]]}?" if close else ""
