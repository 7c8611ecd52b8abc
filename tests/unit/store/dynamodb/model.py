"""DynamoDB as far as our writes need it: items in memory, conditions, and what they return."""

from penstock.core.take import Key
from penstock.store.dynamodb.buckets.sender import Landed, Lost
from penstock.store.dynamodb.buckets.writes import Consume, Create, Move, Settle, Upsert, Write
from penstock.store.dynamodb.items.images import Image


def holds(write: Write, image: Image | None) -> bool:
    """Whether the condition of a write is true of an item."""
    if isinstance(write, Create):
        return image is None or image.is_expired(write.now_ms)
    if isinstance(write, Upsert):
        return image is None or holds(write.consume, image)
    if image is None:
        return False
    tokens = {bucket.limit.name: bucket.tokens for bucket in image.item.buckets}
    bounded = all(_within(move, tokens.get(move.limit)) for move in write.moves)
    if isinstance(write, Settle):
        is_new = all(bucket.limit.name not in tokens for bucket in write.added)
        is_as_seen = (image.item.refilled_ms, image.fingerprint) == (
            write.seen.item.refilled_ms,
            write.seen.fingerprint,
        )
        return bounded and is_new and is_as_seen
    return bounded and _is_fresh(write, image)


def _is_fresh(write: Consume, image: Image) -> bool:
    if image.fingerprint != write.terms.fingerprint:
        return False
    if write.expires_s is not None and (image.expires_s is None or image.is_expired(write.now_ms)):
        return False
    rf = image.item.refilled_ms
    is_before = write.until_ms is None or rf < write.until_ms
    return is_before and (write.since_ms is None or rf >= write.since_ms)


def _within(move: Move, tokens: int | None) -> bool:
    if move.floor is None and move.ceiling is None:
        return True
    return (
        tokens is not None
        and (move.floor is None or tokens >= move.floor)
        and (move.ceiling is None or tokens <= move.ceiling)
    )


class Table:
    """Items by key. Each call is atomic, as DynamoDB's are."""

    def __init__(self) -> None:
        self.images: dict[Key, Image] = {}

    def write(self, writes: tuple[Write, ...]) -> Landed | Lost:
        lost = {
            write.key: self.images.get(write.key)
            for write in writes
            if not holds(write, self.images.get(write.key))
        }
        if lost:
            return Lost(lost)
        for write in writes:
            if isinstance(write, Create):
                self.images[write.key] = write.image
            elif isinstance(write, Upsert):
                self.images[write.key] = write.applied(self.images.get(write.key))
            else:
                self.images[write.key] = write.applied(self.images[write.key])
        return Landed(self.images[writes[0].key] if len(writes) == 1 else None)
