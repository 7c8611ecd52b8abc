"""Leases: take an amount of each limit at once, settle later, and give back if need be.

A lease says what its amounts are: a cost to take, or usage to put on record. So nothing has to be
guessed as for Envoy (`metering.py`), and a lease makes nothing metered for other clients.

A program that opens a store asks `Leases` directly. A program that connects to a server asks the
server's `Leases` over gRPC. Both see this port.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from penstock.core.amounts import to_tokens
from penstock.core.decide import decide, find_refusal
from penstock.core.decision import Decision, Status
from penstock.core.entities import Chain
from penstock.core.lease import DOMAIN, Balances, LeaseAsk, Recorded, Refused
from penstock.core.limits import Limit
from penstock.core.mapping import Amount, Mappings, Target
from penstock.core.match import Matched
from penstock.core.plan import Plan
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain
from penstock.core.take import Draw, Key, Mode, Take, Taken
from penstock.errors import InvalidRequestError, StoreError
from penstock.insight.insight import Insight
from penstock.insight.spots import Spot
from penstock.service.answer import Options
from penstock.service.counting import UNKNOWN_DOMAIN
from penstock.service.errands import Errands
from penstock.service.missing import MissingLimits
from penstock.service.peeking import ReadOnlyBuckets
from penstock.service.policies import Policies
from penstock.store.port import BucketStore
from penstock.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

ParseLimits = Callable[[Mapping[str, str]], tuple[Limit, ...]]
"""Makes limits from rates. ValueError if a rate, or the number of limits, is wrong."""


class LeasePort(Protocol):
    """Every method raises StoreError if the store, or the server, can't answer; RequestError for
    limits that can't be read."""

    async def take(self, ask: LeaseAsk) -> Recorded | Refused:
        """Take all amounts or nothing. An amount of 0 is refused in debt."""
        ...

    async def settle(self, ask: LeaseAsk) -> Recorded:
        """Charge positive amounts, also into debt. Give back negative amounts."""
        ...

    async def balances(self, ask: LeaseAsk) -> Balances:
        """What `take` could take now."""
        ...


async def take_or_give_back(port: LeasePort, ask: LeaseAsk, errands: Errands) -> Recorded | Refused:
    """Take for a caller that may be cancelled. If so, give back what was taken."""
    taking = errands.start(port.take(ask))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        errands.start(_give_back(port, ask, taking))
        raise


async def _give_back(
    port: LeasePort, ask: LeaseAsk, taking: "asyncio.Task[Recorded | Refused]"
) -> None:
    await asyncio.wait([taking])
    if taking.cancelled() or taking.exception() is not None:
        return  # Nobody knows whether the failed take consumed something.
    recorded = taking.result()
    if isinstance(recorded, Refused):
        return
    back = {name: -amount for name, amount in recorded.amounts.items() if amount}
    if back:
        taken_ms = dict.fromkeys(back, recorded.at_ms)
        try:
            await port.settle(ask._replace(amounts=back, taken_ms=taken_ms))
        except Exception as exc:  # noqa: BLE001 - nobody waits for this
            LOG.warning("a lease whose caller was cancelled can't be given back: %s", exc)


class Leases:
    def __init__(
        self,
        store: BucketStore,
        policies: Policies,
        clock_ms: Callable[[], int],
        parse_limits: ParseLimits,
        options: Options | None = None,
        metrics: Metrics | None = None,
        insight: Insight | None = None,
        has_domain: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`has_domain` tells whether there are rules for a domain."""
        self._insight = insight
        self._has_domain = has_domain
        self._store = store
        self._policies = policies
        self._clock_ms = clock_ms
        self._parse_limits = parse_limits
        self._options = options or Options()
        self._metrics = metrics or Metrics()
        self._missing = MissingLimits(self._metrics)

    async def take(self, ask: LeaseAsk) -> Recorded | Refused:
        try:
            plan, taken, now_ms = await self._carry_out(ask, _costs(ask))
        except StoreError as exc:
            return self.take_blindly(exc)
        decision = decide(plan, taken, self._options.behaviour, now_ms)
        domain = self._counted_domain(ask)
        self._metrics.decisions.of(domain, "over_limit" if decision.over else "ok").add()
        self._note(ask, domain, plan, decision, now_ms)
        if decision.shadowed:
            self._metrics.global_shadow_mode.add()
            return Recorded({}, now_ms)
        refusal = find_refusal(plan.takes, taken, now_ms) if decision.over else None
        if refusal is None:
            return Recorded(_drawn(plan.takes, ask.amounts), now_ms)
        (entity, _), limit, wait_ms = refusal
        return Refused(entity, limit.name, wait_ms, limit.burst)

    def _counted_domain(self, ask: LeaseAsk) -> str:
        """As for Envoy: text that a client made up never becomes a label."""
        known = ask.domain == DOMAIN or self._has_domain(ask.domain)
        return ask.domain if known else UNKNOWN_DOMAIN

    def _note(
        self, ask: LeaseAsk, domain: str, plan: Plan, decision: Decision, now_ms: int
    ) -> None:
        part = plan.parts[0]
        if self._insight is None or isinstance(part, Status):
            return
        rule = DOMAIN if domain == DOMAIN else f"{domain} {DOMAIN}"
        spots = (Spot(0, rule, ask.key, plan, part),)
        self._insight.note(spots)
        if decision.over or decision.shadowed:
            self._insight.note_denied(spots, decision, now_ms)

    def take_blindly(self, error: StoreError) -> Recorded:
        """Admit without taking, if a flag or the stored setting says so; else raise the error."""
        if self._policies.when_unavailable(self._options.on_unavailable) != "allow":
            raise error
        self._metrics.blind_answers.of("allow").add()
        LOG.warning("a lease is granted without the store: %s", error)
        return Recorded({}, self._clock_ms())

    async def settle(self, ask: LeaseAsk) -> Recorded:
        plan, taken, now_ms = await self._carry_out(ask, _reports(ask))
        drawn = _drawn(plan.takes, ask.amounts)
        returned = sum(-amount for amount in drawn.values() if amount < 0)
        self._metrics.refunds.add(to_tokens(returned))
        # Only the sum of what was dropped is known, for each level, and not for each limit. A lease
        # must never give back too much. So each limit counts the largest of these sums as its own.
        dropped = max([outcome.dropped for outcome in taken], default=0)
        amounts = {
            name: amount if amount < 0 else max(0, amount - dropped)
            for name, amount in drawn.items()
        }
        return Recorded(amounts, now_ms)

    async def balances(self, ask: LeaseAsk) -> Balances:
        chain = await self._chain(ask)
        looks = [
            Take(
                level.key,
                level.limits,
                tuple([Draw(number, 0) for number in range(len(level.limits))]),
                policy_ms=level.read_ms,
            )
            for level in chain
            if level.limits
        ]
        seen = await ReadOnlyBuckets(self._store).take(looks, self._clock_ms())
        found: dict[str, int] = {}
        for look, outcome in zip(looks, seen, strict=True):
            for limit, drawn in zip(look.limits, outcome.drawn, strict=True):
                found[limit.name] = min(drawn.balance, found.get(limit.name, drawn.balance))
        # A limit that is unlimited at one level of a cascade may have a balance at another level.
        return dict.fromkeys([name for level in chain for name in level.unlimited]) | found

    async def _carry_out(
        self, ask: LeaseAsk, asked: Iterable[tuple[Descriptor, Target]]
    ) -> tuple[Plan, Sequence[Taken], int]:
        descriptors, targets = zip(*asked, strict=True)
        chain = await self._chain(ask)
        plan = make_plan(
            Matched(_DOMAIN, targets),
            Request(DOMAIN, descriptors),
            self._options.behaviour,
            {ask.key: chain},
            own_amounts=lambda _: Mode.CHARGE,
        )
        self._missing.note(plan.missing)
        if ask.taken_ms:
            plan = replace(plan, takes=tuple([_dated(take, ask.taken_ms) for take in plan.takes]))
        now_ms = self._clock_ms()
        taken = await self._store.take(plan.takes, now_ms) if plan.takes else ()
        return plan, taken, now_ms

    async def _chain(self, ask: LeaseAsk) -> Chain:
        keys = (ask.key,)
        (chain,) = self._policies.known(keys) or await self._policies.read(keys)
        if ask.limits and (not chain or chain[0].key != ask.key):
            try:
                limits = self._parse_limits(ask.limits)
            except ValueError as exc:
                raise InvalidRequestError(str(exc)) from exc
            chain = (self._policies.stand_in(ask.key, limits), *chain)
        return chain


_DOMAIN: Final = Domain(DOMAIN, Children(()), Mappings(DOMAIN))


def _costs(ask: LeaseAsk) -> Iterable[tuple[Descriptor, Target]]:
    """One descriptor for all amounts, so that all of them are taken or none."""
    yield Descriptor(()), _target(ask.key, ask.amounts.items())


def _reports(ask: LeaseAsk) -> Iterable[tuple[Descriptor, Target]]:
    for refund, sign in ((False, 1), (True, -1)):
        amounts = [
            (name, sign * amount) for name, amount in ask.amounts.items() if sign * amount > 0
        ]
        if amounts:
            yield Descriptor((), hits=1, refund=refund), _target(ask.key, amounts)


def _target(key: Key, amounts: Iterable[tuple[str, int]]) -> Target:
    return Target(*key, tuple([(name, Amount(amount)) for name, amount in amounts]))


def _dated(take: Take, taken_ms: Mapping[str, int]) -> Take:
    """Tell the refunds of a take when their amounts were taken."""
    draws = [
        replace(draw, taken_ms=taken_ms.get(take.limits[draw.limit].name))
        if draw.mode is Mode.REFUND
        else draw
        for draw in take.draws
    ]
    return replace(take, draws=tuple(draws))


def _drawn(takes: Sequence[Take], amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts without those whose limit exists at no level."""
    names = {take.limits[draw.limit].name for take in takes for draw in take.draws}
    return {name: amount for name, amount in amounts.items() if name in names}
