"""Checks a history: what servers answered, against what their store holds afterwards.

The law of this file: it never awaits and reads no clock. A history comes in, and the violations go
out as a list of sentences. Amounts are millitokens, moments are milliseconds since the epoch.

A call without an answer may have consumed or not. So `tc` is known up to the amounts of those
calls, and everything else is exact.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.core.bucket import Bucket, Item, credit
from penstock.core.limits import Limit
from penstock.core.take import Key

from tests.attacks.history_windows import Windows


class BucketId(NamedTuple):
    entity: str
    resource: str
    limit: str = ""

    @property
    def key(self) -> Key:
        return Key(self.entity, self.resource)

    def __str__(self) -> str:
        return f"{self.entity} {self.resource} {self.limit}".strip()


class Mode(Enum):
    """What a call does with its amount."""

    TAKE = "take"
    CHARGE = "charge"  # lands whatever the verdict is
    REFUND = "refund"  # of an amount that was answered OK before, and is not refunded yet


class Outcome(Enum):
    OK = "OK"
    OVER_LIMIT = "OVER_LIMIT"
    UNKNOWN = "unknown"  # no answer, or an error: the call may have consumed, or not


class Move(NamedTuple):
    bucket: BucketId
    amount: int
    mode: Mode = Mode.TAKE


@dataclass(frozen=True, slots=True)
class Call:
    """Moves that a client asked for together. The server decided between the two moments."""

    moves: tuple[Move, ...]
    outcome: Outcome
    sent_ms: int
    answered_ms: int


@dataclass(frozen=True, slots=True)
class Law:
    """What is promised for a bucket."""

    limit: Limit
    max_debt: int = 0
    tolerance: int = 0
    """What a window may admit beyond burst and credit."""


@dataclass(frozen=True, slots=True)
class Same:
    """Buckets that are only ever written together: the sums of both sides are equal."""

    left: tuple[BucketId, ...]
    right: tuple[BucketId, ...]


@dataclass(frozen=True, slots=True)
class History:
    started_ms: int
    """Before the first call."""
    ended_ms: int
    """After the last write."""
    calls: Sequence[Call]
    laws: Mapping[BucketId, Law]
    same: Sequence[Same] = ()


def find_violations(history: History, items: Mapping[Key, Item | None]) -> list[str]:
    """Say what in the stored items contradicts the answers; nothing if all is well."""
    moves = _moves_by_bucket(history.calls)
    found = [f"{bucket} was asked, and has no law" for bucket in moves.keys() - history.laws.keys()]
    for bucket, law in history.laws.items():
        asked, item = moves.get(bucket, []), items.get(bucket.key)
        stored = _find_bucket(law.limit, item)
        if stored is None:
            found.append(f"{bucket}: the item has no such limit, or another one: {item}")
            continue
        refilled_ms = history.started_ms if item is None else item.refilled_ms
        checks = (
            *_check_consumed(asked, law, stored.consumed, history),
            *_check_balance(asked, law, stored, refilled_ms, history),
            *_check_windows(asked, law),
        )
        found += [f"{bucket}: {check}" for check in checks]
    return found + list(_check_same(history, items))


class _Asked(NamedTuple):
    call: Call
    amount: int
    mode: Mode


def _moves_by_bucket(calls: Sequence[Call]) -> dict[BucketId, list[_Asked]]:
    moves: dict[BucketId, list[_Asked]] = {}
    for call in calls:
        for bucket, amount, mode in call.moves:
            moves.setdefault(bucket, []).append(_Asked(call, amount, mode))
    return moves


def _find_bucket(limit: Limit, item: Item | None) -> Bucket | None:
    if item is None:
        return Bucket(limit, limit.burst, 0)
    return next((one for one in item.buckets if one.limit == limit), None)


def _sum(asked: Sequence[_Asked], mode: Mode, *outcomes: Outcome) -> int:
    return sum(one.amount for one in asked if one.mode is mode and one.call.outcome in outcomes)


def _check_consumed(
    asked: Sequence[_Asked], law: Law, consumed: int, history: History
) -> Iterator[str]:
    """Nothing answered is lost, and nothing is counted that nobody asked for."""
    answered = (Outcome.OK, Outcome.OVER_LIMIT)
    taken = _sum(asked, Mode.TAKE, Outcome.OK)
    charged = _sum(asked, Mode.CHARGE, *answered)
    refunded = _sum(asked, Mode.REFUND, *answered)
    doubtful = _sum(asked, Mode.TAKE, Outcome.UNKNOWN) + _sum(asked, Mode.CHARGE, Outcome.UNKNOWN)
    least = taken + charged
    if charged:
        # A charge is cut where it would go deeper than the debt allowed. There, tc is at least
        # what fits: the burst and the debt.
        least = min(least, law.limit.burst + law.max_debt)
    least -= refunded + _sum(asked, Mode.REFUND, Outcome.UNKNOWN)
    # A refund is cut at the burst. Nobody refunds more than was taken, so credit alone can have
    # filled the bucket that far.
    cut = min(credit(law.limit, history.started_ms, history.ended_ms), refunded)
    most = taken + charged + doubtful - refunded + cut
    if consumed < least:
        yield f"lost {least - consumed}: tc is {consumed}, answers come to {least}"
    if consumed > most:
        yield f"tc is {consumed}, {consumed - most} more than all that was asked for"


def _check_balance(
    asked: Sequence[_Asked], law: Law, stored: Bucket, refilled_ms: int, history: History
) -> Iterator[str]:
    """The balance is the burst, less what was consumed, plus credit that was not cut off."""
    least = law.limit.burst - stored.consumed
    most = least + credit(law.limit, history.started_ms, refilled_ms)
    if stored.tokens > min(most, law.limit.burst):
        yield f"{stored.tokens} tokens are stored, at most {most} can be left"
    if stored.tokens < least:
        yield f"{stored.tokens} tokens are stored, at least {least} must be left"
    if refilled_ms > history.ended_ms:
        yield f"refilled up to {refilled_ms}, which is after the end at {history.ended_ms}"
    is_charged = any(one.mode is Mode.CHARGE for one in asked)
    if stored.tokens < (-law.max_debt if is_charged else 0):
        yield f"{stored.tokens} tokens are stored: too deep in debt"


def _check_windows(asked: Sequence[_Asked], law: Law) -> Iterator[str]:
    """In any window, at most the burst and the credit of the window are admitted."""
    admitted = [one for one in asked if one.mode is Mode.TAKE and one.call.outcome is Outcome.OK]
    refunds = sum(one.amount for one in asked if one.mode is Mode.REFUND)
    limit = law.limit
    # A refund makes room for as much again, in windows that nobody can tell afterwards.
    allowed = limit.burst + refunds + law.tolerance
    windows = Windows(limit, {one.call.sent_ms for one in admitted})
    worst = 0
    for one in sorted(admitted, key=lambda one: one.call.answered_ms):
        windows.admit(one.call.sent_ms, one.amount)
        worst = max(worst, windows.most_until(one.call.answered_ms) - allowed)
    if worst > 0:
        yield f"admitted {worst} more in a window than burst and credit give"


def _check_same(history: History, items: Mapping[Key, Item | None]) -> Iterator[str]:
    """All or none: what is written together has the same sums."""

    def consumed(buckets: Sequence[BucketId]) -> int:
        found = [_find_bucket(history.laws[one].limit, items.get(one.key)) for one in buckets]
        return sum(one.consumed for one in found if one is not None)

    refunded = {
        move.bucket for call in history.calls for move in call.moves if move.mode is Mode.REFUND
    }
    for left, right in ((same.left, same.right) for same in history.same):
        apart = abs(consumed(left) - consumed(right))
        # A refund may have been cut at the burst of one side, by the credit of that side.
        slack = [
            credit(history.laws[one].limit, history.started_ms, history.ended_ms)
            for one in refunded.intersection((*left, *right))
        ]
        if apart > sum(slack):
            names = " + ".join(map(str, left)), " + ".join(map(str, right))
            yield f"{names[0]} and {names[1]} are written together, and differ by {apart}"
