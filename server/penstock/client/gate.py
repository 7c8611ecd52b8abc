"""The gate that a program asks for leases."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from math import inf
from types import TracebackType
from typing import TypeAlias

from penstock.client.amounts import Tokens, check_not_negative, read_amounts
from penstock.client.lease import Backing, Lease, OnUnavailable
from penstock.config.rates import parse_limits
from penstock.core.amounts import format_tokens
from penstock.core.foreign_text import is_plain
from penstock.core.lease import DOMAIN, LeaseAsk, Recorded, Refused
from penstock.core.limits import MILLI
from penstock.core.mapping import safe_name
from penstock.core.take import Key
from penstock.errors import RateLimited, StoreError
from penstock.service.errands import Errands
from penstock.service.leases import LeasePort, take_or_give_back

OpenPort: TypeAlias = Callable[[], AbstractAsyncContextManager[LeasePort]]


class Gate:
    """Gives leases on stored limits. Use it as an async context manager.

    `penstock.open` and `penstock.connect` make it. It serves any number of tasks of one event loop.
    """

    def __init__(
        self,
        open_port: OpenPort,
        limits: Mapping[str, str] | None = None,
        on_unavailable: OnUnavailable = "raise",
        domain: str = DOMAIN,
    ) -> None:
        if on_unavailable not in ("raise", "allow"):
            raise ValueError(f"on_unavailable: {on_unavailable!r} is not 'raise' or 'allow'")
        if not domain or not is_plain(domain):
            raise ValueError(f"domain: {domain!r} is not the name of a domain")
        self._open_port = open_port
        self._domain = domain
        self._limits = _checked(limits or {})
        self._on_unavailable = on_unavailable
        self._opened: Backing | None = None
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> "Gate":
        if self._opened is not None:
            raise RuntimeError("this gate is open already")
        port = await self._resources.enter_async_context(self._open_port())
        self._opened = Backing(port, Errands(), self._on_unavailable)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for what cancelled tasks left to do, and close."""
        try:
            await self._backing.errands.finish()
        finally:
            self._opened = None
            await self._resources.aclose()

    @asynccontextmanager
    async def acquire(
        self,
        entity: str,
        resource: str,
        amounts: Mapping[str, Tokens] | None = None,
        *,
        limits: Mapping[str, str] | None = None,
        **named: Tokens,
    ) -> AsyncIterator[Lease]:
        """Take all amounts or nothing, and give a lease for the block.

        RateLimited if there are too few tokens. StoreError if the store fails, unless the gate
        allows that. If the block raises, the lease is given back. `limits` are in force if nothing
        is stored for the entity and resource.
        """
        asked = read_amounts(amounts, named)
        check_not_negative(asked)
        backing = self._backing
        ask = LeaseAsk(_key(entity, resource), asked, self._fallback(limits), self._domain)
        try:
            taken = await take_or_give_back(backing.port, ask, backing.errands)
        except StoreError as exc:
            backing.pass_blindly("a lease has nothing on record", exc)
            taken = Recorded({}, 0)
        if isinstance(taken, Refused):
            raise _rate_limited(ask, taken)
        lease = Lease(backing, ask, taken)
        try:
            yield lease
        except BaseException:
            await lease.give_back()
            raise

    async def available(
        self, entity: str, resource: str, *, limits: Mapping[str, str] | None = None
    ) -> dict[str, int | float]:
        """The whole tokens of each limit that `acquire` could take now; negative if in debt.

        An unlimited limit has `math.inf`.
        """
        ask = LeaseAsk(_key(entity, resource), {}, self._fallback(limits))
        balances = await self._backing.port.balances(ask)
        return {
            name: inf if amount is None else amount // MILLI for name, amount in balances.items()
        }

    @property
    def _backing(self) -> Backing:
        if self._opened is None:
            raise RuntimeError("this gate is not open: write `async with penstock.open(…) as gate`")
        return self._opened

    def _fallback(self, limits: Mapping[str, str] | None) -> Mapping[str, str]:
        return self._limits if limits is None else _checked(limits)


def _key(entity: str, resource: str) -> Key:
    return Key(safe_name(entity), safe_name(resource))


def _checked(limits: Mapping[str, str]) -> Mapping[str, str]:
    """ValueError for rates that can't be read, before anything is asked."""
    parse_limits(limits)
    return dict(limits)


def _rate_limited(ask: LeaseAsk, refused: Refused) -> RateLimited:
    entity, name, wait_ms, burst = refused
    resource, asked = ask.key.resource, ask.amounts[name]
    what, retry_after_s = f"{name} of {entity} on {resource}", wait_ms / 1000
    text = f"{what} has less than {format_tokens(asked)}"
    if asked == 0:
        text = f"{what} is in debt"
    elif asked > burst:
        text = f"{text}, and never more than {format_tokens(burst)}"
    text = f"{text}: try again in {retry_after_s:.10g} s"
    if burst == 0 and asked:  # who waits waits for nothing
        text = f"{what} is 0, so everything is refused"
    return RateLimited(text, entity, resource, name, retry_after_s)
