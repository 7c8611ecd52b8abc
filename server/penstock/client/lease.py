"""A lease: what one block has on record."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.client.amounts import Tokens, read_amounts
from penstock.core.amounts import to_tokens
from penstock.core.lease import LeaseAsk
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

    def __init__(self, backing: Backing, ask: LeaseAsk, taken: Mapping[str, int]) -> None:
        self._backing = backing
        self._ask = ask
        self._consumed = dict.fromkeys(ask.amounts, 0) | dict(taken)
        self._settling = asyncio.Lock()

    @property
    def consumed(self) -> Mapping[str, int | float]:
        """What is on record, by the limit's name: what the lease took, and its adjustments."""
        return {name: to_tokens(amount) for name, amount in self._consumed.items()}

    async def adjust(self, amounts: Mapping[str, Tokens] | None = None, /, **named: Tokens) -> None:
        """Settle what was really used: charge more, or give back with a negative amount.

        More may put a limit in debt, which is no error. At most what the lease has on record is
        given back. StoreError if the store fails, unless the gate allows that. An adjustment whose
        caller is cancelled is made all the same.
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
            held = self._consumed
            if deltas is None:
                deltas = {name: -amount for name, amount in held.items()}
            wanted = {name: max(delta, -held.get(name, 0)) for name, delta in deltas.items()}
            for name, delta in wanted.items():
                # If the store fails, nobody knows whether this landed. A lease must never give the
                # same tokens back twice, so they count as given back from now on.
                held[name] = held.get(name, 0) + min(delta, 0)
            changes = {name: delta for name, delta in wanted.items() if delta}
            if changes:
                recorded = await self._backing.port.settle(self._ask._replace(amounts=changes))
                for name, amount in recorded.items():
                    held[name] += max(amount, 0)
