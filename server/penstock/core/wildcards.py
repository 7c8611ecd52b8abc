"""Values with `*`: finds the first pattern in a list that matches.

The cost must not grow with the number of patterns. So patterns are looked up by the text before
their first `*`, or by the text after their last `*`. Only patterns that both begin and end with `*`
are tried one after the other.
"""

from bisect import insort
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def matches(pattern: str, value: str) -> bool:
    """Whether a pattern matches. `*` matches any characters, also none. Takes linear time."""
    head, *middle, tail = pattern.split("*")
    if len(value) < len(head) + len(tail) or not value.startswith(head) or not value.endswith(tail):
        return False
    at, end = len(head), len(value) - len(tail)
    for part in middle:
        found = value.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class Wildcards(Generic[T]):
    """Patterns in order, each with its target."""

    __slots__ = ("_by_head", "_by_tail", "_count", "_head_sizes", "_others", "_tail_sizes")

    def __init__(self, patterns: Iterable[tuple[str, T]] = ()) -> None:
        self._by_head: dict[str, list[tuple[int, str, T]]] = {}
        self._by_tail: dict[str, list[tuple[int, str, T]]] = {}
        self._others: list[tuple[int, str, T]] = []
        self._head_sizes: list[int] = []
        self._tail_sizes: list[int] = []
        self._count = 0
        for pattern, target in patterns:
            self.add(pattern, target)

    def add(self, pattern: str, target: T) -> None:
        """Add a pattern behind those that are there."""
        head, tail = pattern[: pattern.index("*")], pattern[pattern.rindex("*") + 1 :]
        entry = (self._count, pattern, target)
        self._count += 1
        if head:
            self._by_head.setdefault(head, []).append(entry)
            _add_size(self._head_sizes, len(head))
        elif tail:
            self._by_tail.setdefault(tail, []).append(entry)
            _add_size(self._tail_sizes, len(tail))
        else:
            self._others.append(entry)

    def first(self, value: str) -> T | None:
        """The target of the first pattern that matches."""
        candidates = list(self._others)
        for size in self._head_sizes:
            candidates += self._by_head.get(value[:size], ())
        for size in self._tail_sizes:
            candidates += self._by_tail.get(value[-size:], ())
        matching = (entry for entry in candidates if matches(entry[1], value))
        best = min(matching, key=lambda entry: entry[0], default=None)
        return None if best is None else best[2]


def _add_size(sizes: list[int], size: int) -> None:
    if size not in sizes:
        insort(sizes, size)
