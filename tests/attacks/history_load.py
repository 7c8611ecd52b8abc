"""What the clients of a history ask for: the rules, the entities, and calls at random.

Most limits gain nothing while a history lasts, so that their balance is known to the token. Refunds
bring them back from zero again and again: servers that differ would differ there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.keys import rule_key
from penstock.core.limits import MILLI, Limit, Unit
from penstock.core.request import Descriptor, Request
from penstock.store.dynamodb.aws.location import CALL_S
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.policy_port import Change
from penstock.store.port import Store

from tests.attacks.history import BucketId, Law, Mode, Move, Same

DOMAIN = "history"
RULES = """\
domain: history
descriptors:
  - {key: fast, rate_limit: {unit: second, requests_per_unit: 5, burst: 50}}
  - {key: spend, rate_limit: {unit: year, requests_per_unit: 1, burst: 20}}
  - key: both
    rate_limits:
      - {name: few, unit: second, requests_per_unit: 5, burst: 30}
      - {name: many, unit: year, requests_per_unit: 1000, burst: 1000000}
  - {key: metered, rate_limit: {unit: year, requests_per_unit: 1, burst: 150, on_exceed: debt}}
  - {key: deep, rate_limit: {unit: year, requests_per_unit: 1000, burst: 1000000, on_exceed: debt}}
  - {key: left, rate_limit: {unit: year, requests_per_unit: 1000, burst: 1000000}}
  - {key: right, rate_limit: {unit: second, requests_per_unit: 5, burst: 30}}
"""

YEAR, SECOND = Unit.YEAR.value, Unit.SECOND.value
FAST = Limit.per(5, SECOND, burst=50)
SPEND = Limit.per(1, YEAR, burst=20)
FEW = Limit.per(5, SECOND, name="few", burst=30)
MANY = Limit.per(1_000, YEAR, name="many", burst=1_000_000)
METERED = Limit.per(1, YEAR, burst=150)
DEEP = Limit.per(1_000, YEAR, burst=1_000_000)
LEFT = Limit.per(1_000, YEAR, burst=1_000_000)
RIGHT = Limit.per(5, SECOND, burst=30)

RESOURCE = "model"
USER = Limit.per(1, YEAR, name="tokens", burst=25)
TEAM = Limit.per(1, YEAR, name="tokens", burst=35)
HUGE = Limit.per(1_000, YEAR, name="tokens", burst=1_000_000)

CHAINS = {
    # who cascades to whom: two users of a team refuse now and then, and so does the team
    "user-0": ("user-0", "team", "org"),
    "user-1": ("user-1", "team", "org"),
    # what is charged: never to its last token, so that the levels stay equal
    "meter-0": ("meter-0", "meter-team", "meter-org"),
    "meter-1": ("meter-1", "meter-team", "meter-org"),
    # what is only asked beside a rule
    "guest": ("guest", "guests"),
}
STORED = {
    "user-0": USER, "user-1": USER, "team": TEAM, "org": HUGE,
    "meter-0": HUGE, "meter-1": HUGE, "meter-team": HUGE, "meter-org": HUGE,
    "guest": HUGE, "guests": HUGE,
}  # fmt: skip


def _rule(key: str, value: str, limit: str = "") -> BucketId:
    return BucketId(*rule_key(DOMAIN, ((key, value),)), limit)


def _stored(entity: str) -> BucketId:
    return BucketId(entity, RESOURCE, "tokens")


SPENT = ("0", "1", "2")
PAIR = (_rule("left", "0"), _rule("right", "0"), _stored("guest"), _stored("guests"))


def laws(is_dynamodb: bool) -> dict[BucketId, Law]:
    limits = {
        _rule("fast", "0"): FAST,
        _rule("fast", "1"): FAST,
        _rule("both", "0", "few"): FEW,
        _rule("both", "0", "many"): MANY,
        _rule("metered", "0"): METERED,
        _rule("deep", "0"): DEEP,
        _rule("left", "0"): LEFT,
        _rule("right", "0"): RIGHT,
        **{_rule("spend", value): SPEND for value in SPENT},
        **{_stored(entity): limit for entity, limit in STORED.items()},
    }
    return {
        bucket: Law(limit, limit.burst, _tolerance(limit) if is_dynamodb else 0)
        for bucket, limit in limits.items()
    }


def _tolerance(limit: Limit) -> int:
    """On DynamoDB: the credit of the time that may be unsettled, and of a call in flight."""
    unsettled_ms = make_terms((limit,)).tolerance_ms + int(CALL_S * 1000)
    return unsettled_ms * limit.refill // limit.period_ms + 1


def same(is_dynamodb: bool) -> list[Same]:
    """What is written together, whatever happens.

    On DynamoDB, a request with several items that do not cascade is several writes, and the takes
    of a call that nobody answered may have landed in part.
    """
    users, meters = (_stored("user-0"), _stored("user-1")), (_stored("meter-0"), _stored("meter-1"))
    always = [
        Same(users, (_stored("team"),)),
        Same(users, (_stored("org"),)),
        Same(meters, (_stored("meter-team"),)),
        Same(meters, (_stored("meter-org"),)),
        Same((_rule("both", "0", "few"),), (_rule("both", "0", "many"),)),
    ]
    pair = [Same(PAIR[:1], (other,)) for other in PAIR[1:]]
    return always if is_dynamodb else always + pair


async def store_entities(store: Store, now_ms: int) -> None:
    change = Change("the test", now_ms)
    for chain in CHAINS.values():
        for entity, parent in reversed(list(zip(chain, (*chain[1:], None), strict=True))):
            if await store.policy.read_entity(entity) is None:
                wanted = Entity(entity, parent, cascade=parent is not None)
                await store.policy.write_entity(wanted, change)
    for entity, limit in STORED.items():
        await store.policy.write_limits(Scope(entity), StoredLimits((limit,), 0), change)


class Refundable(NamedTuple):
    """An amount that was answered OK."""

    descriptor: Descriptor
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    request: Request
    moves: tuple[Move, ...]
    refundable: Refundable | None = None
    """What may be refunded once the answer is OK."""


class Load:
    """Calls at random, and the amounts that may still be refunded."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._refundable: list[Refundable] = []

    def next(self) -> Ask:
        rng = self._rng
        kinds = (
            self._take_fast, self._spend, self._take_both, self._charge, self._charge_cascade,
            self._take_pair, self._take_cascade, self._look, self._refund,
        )  # fmt: skip
        (kind,) = rng.choices(kinds, weights=(20, 12, 10, 10, 10, 12, 16, 4, 14))
        return kind()

    def may_refund(self, refundable: Refundable) -> None:
        self._refundable.append(refundable)

    def _take_fast(self) -> Ask:
        value, amount = self._rng.choice("01"), self._rng.randint(1, 5)
        return _take([_entries("fast", value)], amount, [_rule("fast", value)])

    def _spend(self) -> Ask:
        value, amount = self._rng.choice(SPENT), self._rng.randint(1, 4)
        ask = _take([_entries("spend", value)], amount, [_rule("spend", value)])
        return _refundable(ask, amount)

    def _take_both(self) -> Ask:
        buckets = [_rule("both", "0", "few"), _rule("both", "0", "many")]
        return _take([_entries("both", "0")], self._rng.randint(1, 3), buckets)

    def _take_pair(self) -> Ask:
        """Two rules and a cascade, in one request."""
        entries = [_entries("left", "0"), _entries("right", "0"), _entity("guest")]
        return _take(entries, self._rng.randint(1, 3), PAIR)

    def _take_cascade(self) -> Ask:
        entity, amount = self._rng.choice(("user-0", "user-1")), self._rng.randint(1, 4)
        ask = _take([_entity(entity)], amount, [_stored(level) for level in CHAINS[entity]])
        return _refundable(ask, amount)

    def _charge(self) -> Ask:
        key, amount = self._rng.choice(("metered", "deep")), self._rng.randint(1, 30)
        return _charge(_entries(key, "0"), amount, [_rule(key, "0")])

    def _charge_cascade(self) -> Ask:
        entity, amount = self._rng.choice(("meter-0", "meter-1")), self._rng.randint(1, 30)
        return _charge(_entity(entity), amount, [_stored(level) for level in CHAINS[entity]])

    def _look(self) -> Ask:
        """A check, which consumes nothing."""
        entity = self._rng.choice(("user-0", "meter-0", "meter-1"))
        return Ask(Request(DOMAIN, (Descriptor(_entity(entity), 0),)), ())

    def _refund(self) -> Ask:
        if not self._refundable:
            return self._spend()
        number = self._rng.randrange(len(self._refundable))
        descriptor, moves = self._refundable.pop(number)
        return Ask(Request(DOMAIN, (descriptor,)), moves)


Entries = tuple[tuple[str, str], ...]


def _entries(key: str, value: str) -> Entries:
    return ((key, value),)


def _entity(name: str) -> Entries:
    return (("entity", name), ("resource", RESOURCE))


def _take(entries: Sequence[Entries], amount: int, buckets: Sequence[BucketId]) -> Ask:
    """The amount is the request's: one of the descriptor's own is a report of what was used."""
    descriptors = tuple(Descriptor(one) for one in entries)
    moves = tuple(Move(bucket, amount * MILLI) for bucket in buckets)
    return Ask(Request(DOMAIN, descriptors, amount), moves)


def _charge(entries: Entries, amount: int, buckets: Sequence[BucketId]) -> Ask:
    moves = tuple(Move(bucket, amount * MILLI, Mode.CHARGE) for bucket in buckets)
    return Ask(Request(DOMAIN, (Descriptor(entries, amount),)), moves)


def _refundable(ask: Ask, amount: int) -> Ask:
    (descriptor,) = ask.request.descriptors
    refund = Descriptor(descriptor.entries, amount, refund=True)
    moves = tuple(move._replace(mode=Mode.REFUND) for move in ask.moves)
    return Ask(ask.request, ask.moves, Refundable(refund, moves))
