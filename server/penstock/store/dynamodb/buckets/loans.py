"""Writes of a process that holds tokens: from its own view of an item to the table's. Never awaits.

A decider sees an item as this process does: the item in the table, plus the tokens of the item that
this process holds. In the table, the same write gives back the held tokens, and takes new tokens
ahead. So the amounts and the bounds of the write change by these tokens, and the decision stays the
same.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.core.bounds import highest, lowest
from penstock.core.bucket import NEVER, Bucket
from penstock.core.limits import Limit
from penstock.store.dynamodb.buckets.terms import until_ms
from penstock.store.dynamodb.buckets.writes import Consume, Create, Move, Upsert, Write
from penstock.store.dynamodb.items.images import Image

Amounts = Mapping[str, int]
"""Millitokens by the name of the limit."""


class Back(NamedTuple):
    """What was taken and not used, and goes back with a write."""

    tokens: Amounts
    """What goes back to the balances. Tokens that have lapsed do not."""
    consumed: Amounts
    """What was not consumed after all. The record is corrected for lapsed tokens, too."""
    until_ms: int | None = None
    """If the item is settled at this time or later, some of the tokens have lapsed."""


def back_to(
    limits: Sequence[Limit], amounts: Sequence[int], taken_ms: int, refilled_ms: int
) -> Back:
    """What goes back of amounts that were taken at a time, to an item that has this `rf`.

    This is the one place for the rule that tokens of one window never become tokens of a later
    window. `taken_ms` is the `rf` of the item that they were taken from, once settled.
    """
    tokens, until = {}, NEVER
    for limit, amount in zip(limits, amounts, strict=True):
        lapse_ms = until_ms(limit, taken_ms)
        if refilled_ms < lapse_ms:
            tokens[limit.name] = amount
            if amount:
                until = min(until, lapse_ms)
    consumed = {limit.name: amount for limit, amount in zip(limits, amounts, strict=True)}
    return Back(tokens, consumed, None if until == NEVER else until)


def lend(write: Write, seen: Image | None, back: Back, ahead: Amounts, takes: int) -> Write:
    """The write for the table. `seen` is the item in this process's view, if it is known.

    `takes` is how many takes were answered from what goes back, and are not on record yet.
    """
    if isinstance(write, Create):
        return write  # the old item is gone, and its held tokens with it
    if isinstance(write, Upsert):
        write = write.consume  # tokens of the item are held, so there is an item
    tokens = {bucket.limit.name: bucket.tokens for bucket in seen.item.buckets} if seen else {}
    bursts = {limit.name: limit.burst for limit in write.terms.limits}
    moves = []
    for move in write.moves:
        name = move.limit
        given, taken = back.tokens.get(name, 0), ahead.get(name, 0)
        moved = _shift(move, given)
        if name in bursts:
            moved = moved._replace(consumed=move.consumed - back.consumed.get(name, 0) + taken)
            if move.new_balance is not None:
                moved = moved._replace(new_balance=move.new_balance - taken)
            else:
                moved = _take_ahead(moved._replace(tokens=move.tokens + given), taken)
        if isinstance(write, Consume) and given:
            held = None if name not in tokens else tokens[name] - given
            moved = _keep_below(moved, bursts[name], held)
        moves.append(moved)
    takes += write.takes
    if isinstance(write, Consume):
        until = write.until_ms
        if back.until_ms is not None:
            until = lowest(until, back.until_ms)
        return write._replace(moves=tuple(moves), takes=takes, until_ms=until)
    return write._replace(moves=tuple(moves), seen=without(write.seen, back), takes=takes)


def _shift(move: Move, given: int) -> Move:
    """Move the bounds: the table has so much less than this process's view of the item."""
    return move._replace(
        floor=None if move.floor is None else move.floor - given,
        ceiling=None if move.ceiling is None else move.ceiling - given,
    )


def _take_ahead(move: Move, taken: int) -> Move:
    """Leave at least as much in the bucket as is taken ahead."""
    moved = move._replace(tokens=move.tokens - taken)
    if not taken or (move.floor is not None and move.floor == move.ceiling):
        return moved
    return moved._replace(floor=highest(move.floor, taken - moved.tokens))


def _keep_below(move: Move, burst: int, tokens: int | None) -> Move:
    """A write that gives back more than it takes must not lift the bucket above its burst."""
    if move.tokens <= 0:
        return move
    given = move.tokens if tokens is None else max(min(move.tokens, burst - tokens), 0)
    return move._replace(tokens=given, ceiling=lowest(move.ceiling, burst - given))


def with_held(image: Image, held: Back) -> Image:
    """An item in the view of a process that holds these tokens of it."""
    return _changed(image, held, 1)


def without(image: Image, held: Back) -> Image:
    return _changed(image, held, -1)


def _changed(image: Image, held: Back, sign: int) -> Image:
    buckets = [
        Bucket(
            bucket.limit,
            bucket.tokens + sign * held.tokens.get(bucket.limit.name, 0),
            bucket.consumed - sign * held.consumed.get(bucket.limit.name, 0),
            bucket.forgiven,
        )
        for bucket in image.item.buckets
    ]
    return image._replace(item=image.item._replace(buckets=tuple(buckets)))


def used_by(write: Write) -> dict[str, int]:
    """What the callers of a write use, before the write is lent."""
    if isinstance(write, Create):
        return {bucket.limit.name: bucket.consumed for bucket in write.item.buckets}
    if isinstance(write, Upsert):
        write = write.consume
    return {move.limit: move.consumed for move in write.moves}
