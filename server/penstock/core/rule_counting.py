"""How rules count, unless a rule says otherwise: an operator's choice for the whole server."""

from enum import Enum

from penstock.core.limits import Window


class RuleCounting(Enum):
    """Says how limits refill, and whether denied requests count."""

    STEADY = "steady"
    FIXED = "fixed"
    REFERENCE = "reference"
    """As the reference server: fixed windows that forget debts, and denied requests count."""

    @property
    def window(self) -> Window | None:
        """The window of a limit that names no window."""
        return None if self is RuleCounting.STEADY else Window(carry_debt=self.carry_debt)

    @property
    def carry_debt(self) -> bool:
        """Whether a window carries its debt over a boundary, if the rule does not say so."""
        return self is not RuleCounting.REFERENCE
