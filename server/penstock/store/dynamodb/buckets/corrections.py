"""Writes that are not takes: resets, and the undo of a take after a sibling was refused."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from penstock.core.bucket import settle
from penstock.core.draft import Draft
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.errors import DynamoError, Fault
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.buckets.sender import BucketSender, Conflict, Landed
from penstock.store.dynamodb.buckets.settling import settle_write
from penstock.store.dynamodb.buckets.terms import make_terms, own_terms, terms_of
from penstock.store.dynamodb.buckets.writes import Consume, Move, Write, WritePath
from penstock.store.dynamodb.items.images import Image

LOG: Final = logging.getLogger(__name__)

ATTEMPTS: Final = 50
UNDO_TRIES: Final = 20
"""With the pauses in between, these take some seconds."""


async def rewrite(
    sender: BucketSender,
    key: Key,
    write: Write | None,
    next_write: Callable[[Image], Write],
    attempts: Iterator[int],
) -> Image | None:
    """Write. If the condition fails, write again, made from the image that DynamoDB returned.

    Returns None if there is no item. `attempts` counts the writes.
    """
    pause = pauses()
    for _ in range(ATTEMPTS):
        if write is None:
            image = (await sender.read([key]))[key]
        else:
            outcome = await sender.write([write], attempt=next(attempts))
            if isinstance(outcome, Landed):
                return outcome.image
            if isinstance(outcome, Conflict):
                await asyncio.sleep(next(pause))
                continue
            image = outcome.images[key]
        if image is None:
            return None
        write = next_write(image)
    text = f"too many writers on one item: gave up after {ATTEMPTS} tries"
    raise StoreError(text, kind=Fault.CONFLICT.value)


async def reset(
    sender: BucketSender, key: Key, limits: tuple[Limit, ...], now_ms: int
) -> Image | None:
    """Give every bucket its burst back. What was consumed stays on record."""

    def fill(image: Image) -> Write:
        terms = own_terms(image)
        if limits:
            terms = make_terms(limits, image.parent, never_expires=image.expires_s is None)
        _, before, _ = settle(image.item, terms.limits, now_ms)
        moved = [limit.burst - before[i] for i, limit in enumerate(terms.limits)]
        unchanged = [0] * len(moved)
        write = settle_write(WritePath.RESET, key, terms, image, now_ms, moved, unchanged)
        return write._replace(policy_ms=now_ms)

    return await rewrite(sender, key, None, fill, count(1))


async def undo(
    sender: BucketSender, draft: Draft, now_ms: int, attempts: Iterator[int]
) -> Image | None:
    """Give back what a take consumed, as if it had never been. Charges and refunds stay."""
    take = draft.take
    moved = [left - kept for left, kept in zip(draft.left, draft.left_if_denied, strict=True)]
    by_name = {limit.name: moved[i] for i, limit in enumerate(take.limits)}
    moves = tuple(
        Move(limit.name, -moved[i], moved[i], ceiling=limit.burst + min(moved[i], 0))
        for i, limit in enumerate(take.limits)
        if moved[i]
    )
    first = Consume(WritePath.COMPENSATE, take.key, terms_of(take), moves, None, now_ms)

    def give_back(image: Image) -> Write:
        """The bucket would overflow, or its terms have changed: work out the new balances."""
        terms = own_terms(image)
        _, before, _ = settle(image.item, terms.limits, now_ms)
        owed = [-by_name.get(limit.name, 0) for limit in terms.limits]
        back = [
            min(before[i] + owed[i], limit.burst) - before[i]
            for i, limit in enumerate(terms.limits)
        ]
        consumed = [-amount for amount in owed]
        return settle_write(WritePath.COMPENSATE, take.key, terms, image, now_ms, back, consumed)

    return await rewrite(sender, take.key, first, give_back, attempts)


async def undo_with_retries(
    sender: BucketSender, draft: Draft, now_ms: int, lock: asyncio.Lock
) -> Image | None:
    """Undo a take, with retries. If all retries fail, count it in a metric, and log it."""
    pause, attempts = pauses(most_s=1.0), count(1)
    for left in reversed(range(UNDO_TRIES)):
        try:
            async with lock:
                return await undo(sender, draft, now_ms, attempts)
        except StoreError as exc:
            # An undo that may have landed must not be retried: it could land twice.
            unknown = isinstance(exc, DynamoError) and exc.fault is Fault.UNKNOWN
            if unknown or not exc.transient or not left:
                sender.metrics.not_undone.add()
                LOG.error("a bucket keeps what a denied request took from it: %s", exc)
                break
        await asyncio.sleep(next(pause))
    return None
