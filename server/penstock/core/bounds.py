"""The bounds of a decision: on which balances it would come out the same.

A store that decides on a balance which may have changed meanwhile makes these bounds the condition
of its write. Balances are those from before the decision's first draw.
"""


class Bounds:
    """For each limit of a take: how low and how high its balance may be.

    Within the floors and ceilings, every draw moves the same amount, and whatever may deny the call
    gets the same verdict. A charge is written whether it fits or not, so its verdict has bounds of
    its own.
    """

    __slots__ = ("before_ms", "ceilings", "fit_ceilings", "fit_floors", "floors", "is_exact")

    def __init__(self, limits: int) -> None:
        self.is_exact = False
        """The balances must be exactly as they were, because bounds are not enough. This is so if
        an amount was cut to the balance, or was refused while other amounts were taken."""
        self.floors: list[int | None] = [None] * limits
        self.ceilings: list[int | None] = [None] * limits
        self.fit_floors: list[int | None] = [None] * limits
        self.fit_ceilings: list[int | None] = [None] * limits
        """With these two, the charges get the same verdicts, too."""
        self.before_ms: int | None = None
        """If the item is settled at this time or later, tokens that go back have lapsed."""

    def hold_above(self, limit: int, floor: int) -> None:
        self.floors[limit] = highest(self.floors[limit], floor)

    def hold_below(self, limit: int, ceiling: int) -> None:
        self.ceilings[limit] = lowest(self.ceilings[limit], ceiling)

    def hold_before(self, boundary_ms: int) -> None:
        self.before_ms = lowest(self.before_ms, boundary_ms)

    def hold_verdict(self, limit: int, needed: int, *, fits: bool) -> None:
        """Bound the verdict of a charge, which fits if the balance is `needed` or more."""
        if fits:
            self.fit_floors[limit] = highest(self.fit_floors[limit], needed)
        else:
            self.fit_ceilings[limit] = lowest(self.fit_ceilings[limit], needed - 1)


def highest(bound: int | None, other: int) -> int:
    return other if bound is None or other > bound else bound


def lowest(bound: int | None, other: int) -> int:
    return other if bound is None or other < bound else bound
