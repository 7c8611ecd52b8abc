"""The most that any window of a history admits, in the time of a sort."""

from collections.abc import Collection

from penstock.core.bucket import credit
from penstock.core.limits import Limit


class Windows:
    """The admitted amounts of all windows that begin when a call is sent, and end now.

    A window holds the calls that were sent after its beginning and answered before its end. The
    server decided on these calls within the window, whenever exactly that was. Calls are admitted
    here in the order of their answers.

    A window may admit its credit, which is a difference of two floors. So the floor at the
    beginning is added to the amounts, and the floor at the end is subtracted at the end.

    The windows are a binary tree in one list. A leaf is a beginning. A node holds the sum of its
    leaves, and the best window that begins at one of these leaves and ends with the last of them.
    """

    def __init__(self, limit: Limit, beginnings: Collection[int]) -> None:
        self._limit = limit
        self._leaf = {sent_ms: number for number, sent_ms in enumerate(sorted(beginnings))}
        self._leaves = 1 << max(len(beginnings) - 1, 0).bit_length()
        self._sums = [0] * (2 * self._leaves)
        self._best: list[int | None] = [None] * (2 * self._leaves)

    def admit(self, sent_ms: int, amount: int) -> None:
        node = self._leaves + self._leaf[sent_ms]
        self._sums[node] += amount
        self._best[node] = self._sums[node] + credit(self._limit, 0, sent_ms)
        while node > 1:
            node //= 2
            earlier, later = self._best[2 * node], self._best[2 * node + 1]
            self._sums[node] = self._sums[2 * node] + self._sums[2 * node + 1]
            if earlier is not None:
                earlier += self._sums[2 * node + 1]
            self._best[node] = max(one for one in (earlier, later) if one is not None)

    def most_until(self, end_ms: int) -> int:
        """What the worst window that ends here admits beyond its credit."""
        best = self._best[1]
        return 0 if best is None else best - credit(self._limit, 0, end_ms)
