"""A lease: what one block has on record."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.client.amounts import Tokens, read_amounts
from penstock.client.parts import Parts
from penstock.core.amounts import to_tokens
from penstock.core.lease import LeaseAsk, Recorded
from penstock.errors import StoreError
from penstock.service.errands import Errands
from penstock.service.leases import LeasePort

LOG: Final = logging.getLogger(__name__)

OnUnavailable: TypeAlias = Literal["raise", "allow"]


@dataclass(frozen=True, slots=True)
class Backing:
    """What is behind a gate and its leases while the gate is open."""

    port: LeasePort
    errands: Errands
    on_unavailable: OnUnavailable

    def pass_blindly(self, what: str, error: StoreError) -> None:
        """Go on without the store if that is allowed, else raise the error."""
        if self.on_unavailable == "raise":
            raise error
        LOG.warning("%s, because the store fails: %s", what, error)


class Lease:
    """What one block has on record. `Gate.acquire` makes it."""

    def __init__(self, backing: Backing, ask: LeaseAsk, taken: Recorded) -> None:
        self._backing = backing
        self._ask = ask
        self._parts = {name: Parts() for name in ask.amounts}
        for name, amount in taken.amounts.items():
            self._parts[name].add(amount, taken.at_ms)
        self._settling = asyncio.Lock()

    @property
    def consumed(self) -> Mapping[str, int | float]:
        """What is on record, by the limit's name: what the lease took, and its adjustments."""
        return {name: to_tokens(parts.amount) for name, parts in self._parts.items()}

    async def adjust(self, amounts: Mapping[str, Tokens] | None = None, /, **named: Tokens) -> None:
        """Settle what was really used: charge more, or give back with a negative amount.

        More may put a limit in debt, which is no error. At most what the lease has on record is
        given back, and nothing of what was taken in a window that has ended. StoreError if the
        store fails, unless the gate allows that. An adjustment whose caller is cancelled is made
        all the same.
        """
        deltas = read_amounts(amounts, named)
        await self._backing.errands.do(self._adjust(deltas))

    async def give_back(self) -> None:
        """Give back all that is on record. If a block raises, its lease does so by itself.

        If that fails, the log tells, and nothing is raised.
        """
        await self._backing.errands.do(self._give_back())

    async def _adjust(self, deltas: Mapping[str, int]) -> None:
        try:
            await self._settle(deltas)
        except StoreError as exc:
            self._backing.pass_blindly("an adjustment is not on record", exc)

    async def _give_back(self) -> None:
        try:
            await self._settle(None)
        except Exception as exc:  # noqa: BLE001 - a block that raises has an exception of its own
            LOG.warning("a lease could not be given back: %s", exc)

    async def _settle(self, deltas: Mapping[str, int] | None) -> None:
        """Put changes on record; None: give back everything. One after the other, in order."""
        async with self._settling:
            held = self._parts
            if deltas is None:
                deltas = {name: -parts.amount for name, parts in held.items()}
            changes, taken_ms = dict[str, int](), dict[str, int]()
            for name, delta in deltas.items():
                parts = held.setdefault(name, Parts())
                change = max(delta, -parts.amount)
                if change:
                    changes[name] = change
                if change < 0:
                    # If the store fails, nobody knows whether this landed. A lease must never give
                    # the same tokens back twice, so they count as given back from now on.
                    taken_ms[name] = parts.remove(-change)
            if changes:
                ask = self._ask._replace(amounts=changes, taken_ms=taken_ms)
                recorded = await self._backing.port.settle(ask)
                for name, amount in recorded.amounts.items():
                    if amount > 0:
                        held[name].add(amount, recorded.at_ms)
