"""Writes that are not takes: resets, undos of refused calls, and give-backs of what is held."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Final, TypeVar

from penstock.core.bucket import settle
from penstock.core.draft import Draft
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.errors import StoreError
from penstock.store.dynamodb.aws.errors import DynamoError, Fault
from penstock.store.dynamodb.aws.retry import pauses
from penstock.store.dynamodb.buckets.hold import Hold, undone_takes
from penstock.store.dynamodb.buckets.loans import Back, back_to, with_held
from penstock.store.dynamodb.buckets.sender import BucketSender, Conflict, Landed
from penstock.store.dynamodb.buckets.settling import settle_write
from penstock.store.dynamodb.buckets.terms import Terms, make_terms, own_terms, terms_of
from penstock.store.dynamodb.buckets.writes import Consume, Move, Write, WritePath
from penstock.store.dynamodb.items.images import Image

LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")

ATTEMPTS: Final = 50
UNDO_TRIES: Final = 20
"""With the pauses in between, these take some seconds."""


async def rewrite(
    sender: BucketSender,
    key: Key,
    write: Write | None,
    next_write: Callable[[Image], Write | None],
    attempts: Iterator[int],
) -> Image | None:
    """Write. If the condition fails, write again, made from the image that DynamoDB returned.

    Returns None if there is no item, or nothing to write. `attempts` counts the writes.
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
        if write is None:
            return None
    text = f"too many writers on one item: gave up after {ATTEMPTS} tries"
    raise StoreError(text, kind=Fault.CONFLICT.value)


async def reset(
    sender: BucketSender, key: Key, limits: tuple[Limit, ...], now_ms: int
) -> Image | None:
    """Give every bucket its burst back. What was consumed stays on record."""

    def fill(image: Image) -> Write | None:
        if image.is_expired(now_ms):
            return None
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
    take, taken_ms = draft.take, draft.refilled_ms
    kept = zip(draft.left_if_denied, draft.left, strict=True)
    amounts = [low - left for low, left in kept]
    back = back_to(take.limits, amounts, taken_ms, taken_ms)
    takes = undone_takes(draft)
    first = add_back(WritePath.COMPENSATE, take.key, terms_of(take), back, now_ms, takes)

    def give_back(image: Image) -> Write:
        rf = image.item.refilled_ms
        left = back_to(take.limits, amounts, taken_ms, rf)
        # The item may follow other limits by now. Its own windows count, too.
        limits = [bucket.limit for bucket in image.item.buckets]
        tokens = [left.tokens.get(limit.name, 0) for limit in limits]
        kept_tokens = back_to(limits, tokens, taken_ms, rf).tokens
        return settle_back(first, image, left._replace(tokens=kept_tokens))

    return await rewrite(sender, take.key, first, give_back, attempts)


async def give_back_held(
    sender: BucketSender, hold: Hold, now_ms: int, attempts: Iterator[int]
) -> Image | None:
    """Give back what was taken ahead and not used."""
    back = hold.back(hold.terms.fingerprint, hold.refilled_ms)
    first = add_back(WritePath.GIVE_BACK, hold.key, hold.terms, back, now_ms, hold.unrecorded)

    def give_back(image: Image) -> Write:
        return settle_back(first, image, hold.back(image.fingerprint, image.item.refilled_ms))

    return await rewrite(sender, hold.key, first, give_back, attempts)


def add_back(
    path: WritePath, key: Key, terms: Terms, back: Back, now_ms: int, takes: int
) -> Consume:
    """The write that gives back tokens, if the bucket has room for them, and counts takes."""
    moves = tuple(
        Move(limit.name, amount, -amount, ceiling=limit.burst - max(amount, 0))
        for limit in terms.limits
        if (amount := back.tokens[limit.name])
    )
    return Consume(path, key, terms, moves, None, now_ms, takes, back.until_ms)


def settle_back(first: Consume, image: Image, back: Back) -> Write:
    """The bucket would overflow, its terms have changed, or some tokens have lapsed: work out the
    new balances."""
    terms, now_ms = own_terms(image), first.now_ms
    _, before, _ = settle(image.item, terms.limits, now_ms)
    # As if the tokens had never been taken: what they would have repaid is no debt that a boundary
    # forgets.
    _, after, _ = settle(with_held(image, back).item, terms.limits, now_ms)
    moved = [after[i] - balance for i, balance in enumerate(before)]
    consumed = [-back.consumed.get(limit.name, 0) for limit in terms.limits]
    write = settle_write(first.path, first.key, terms, image, now_ms, moved, consumed)
    return write._replace(takes=first.takes)


async def undo_with_retries(
    sender: BucketSender, draft: Draft, now_ms: int, lock: asyncio.Lock
) -> Image | None:
    """Undo a take, with retries. If all retries fail, count it in a metric, and log it."""
    attempts = count(1)

    async def try_once() -> Image | None:
        async with lock:
            return await undo(sender, draft, now_ms, attempts)

    try:
        return await with_retries(try_once)
    except StoreError as exc:
        sender.metrics.not_undone.add()
        LOG.error("a bucket keeps what a denied request took from it: %s", exc)
        return None


async def with_retries(try_once: Callable[[], Awaitable[T]], tries: int = UNDO_TRIES) -> T:
    """Repeat a write that gives back, until it lands, or nobody knows whether it has landed."""
    pause = pauses(most_s=1.0)
    while True:
        tries -= 1
        try:
            return await try_once()
        except StoreError as exc:
            # A write that may have landed must not be retried: it could land twice.
            unknown = isinstance(exc, DynamoError) and exc.fault is Fault.UNKNOWN
            if unknown or not exc.transient or not tries:
                raise
        await asyncio.sleep(next(pause))
