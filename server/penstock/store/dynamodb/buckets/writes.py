"""The writes to a composite item, as values: what must hold, and what they change.

The law of this file: no write overwrites another. A write adds to balances. Its condition fails if
other writes have made the decision wrong meanwhile.

Nothing here awaits. `expressions.py` translates these writes for DynamoDB. A test checks that both
files agree.
"""

from enum import Enum
from typing import NamedTuple

from penstock.core.bucket import Bucket, Item, is_renamed, settled_ms
from penstock.core.limits import Limit
from penstock.core.take import Key
from penstock.store.dynamodb.buckets.terms import Terms
from penstock.store.dynamodb.items.images import Image


class WritePath(Enum):
    """Why a write is made. Metrics count the writes of each path."""

    UPSERT = "upsert"
    SPECULATIVE = "speculative"
    CREATE = "create"
    NORMAL = "normal"
    RETRY = "retry"
    ADJUST = "adjust"
    CASCADE = "cascade"
    COMPENSATE = "compensate"
    GIVE_BACK = "give_back"
    RESET = "reset"


class Move(NamedTuple):
    """What a write adds to one bucket. The bucket's balance must be between floor and ceiling."""

    limit: str
    tokens: int
    consumed: int
    floor: int | None = None
    ceiling: int | None = None
    new_balance: int | None = None
    """Set the balance to this, instead of adding `tokens`. For a bucket that is full again, or
    whose debt was forgotten: it does not matter what the balance was."""


class Consume(NamedTuple):
    """Changes balances and leaves `rf` as it is. Any number of writers can do this at a time.

    Condition: the item was settled under the same terms, not before `since_ms`, but before
    `until_ms`, and has not expired.
    """

    path: WritePath
    key: Key
    terms: Terms
    moves: tuple[Move, ...]
    since_ms: int | None
    now_ms: int
    takes: int = 0
    """How many takes this write is for. For the undo of a take: -1."""
    until_ms: int | None = None
    """An item that was settled at this time or later must be settled anew: tokens that the write
    gives back have lapsed, or `rf` is far ahead."""

    @property
    def is_exact(self) -> bool:
        """Whether the item is as `applied` says, if the write lands. Others may have consumed, so
        this is not known."""
        return False

    @property
    def expires_s(self) -> int | None:
        return self.terms.expires_s(self.now_ms)

    def applied(self, image: Image) -> Image:
        """The item afterwards."""
        return Image(
            image.item._replace(
                buckets=tuple(_moved(image.item, self.moves)), takes=image.item.takes + self.takes
            ),
            self.expires_s,
            image.fingerprint,
            image.parent,
        )

    def undone(self, after: Image) -> Item:
        """The item just before this write, from the item just after."""
        return Item(after.item.refilled_ms, tuple(_moved(after.item, self.moves, back=True)))


class Settle(NamedTuple):
    """Credits every bucket up to now, applies the terms, and changes balances.

    Condition: `rf` and the terms are as seen. So only one writer credits a given stretch of time.
    """

    path: WritePath
    key: Key
    terms: Terms
    seen: Image
    moves: tuple[Move, ...]
    added: tuple[Bucket, ...]
    """Buckets of limits that the item does not have yet."""
    now_ms: int
    policy_ms: int = 0
    forgiven: tuple[tuple[str, int], ...] = ()
    """The new `forgiven` of buckets, by limit. Only where `forgiven` changes."""
    takes: int = 0
    """How many takes this write is for. For the undo of a take: -1."""

    @property
    def is_exact(self) -> bool:
        """Whether the item is as `applied` says, if the write lands."""
        return all(
            move.new_balance is not None or (move.floor is not None and move.floor == move.ceiling)
            for move in self.moves
        )

    @property
    def refilled_ms(self) -> int:
        """The new `rf`. A clock that is behind does not move `rf` back: the time would be credited
        twice.

        Only two writes move `rf` back: a reset, and the repair of an `rf` that is far ahead. Both
        are safe beside other writers, because every write that credits time has the condition that
        `rf` is as its writer has seen it.
        """
        if self.path is WritePath.RESET:
            return self.now_ms
        return settled_ms(self.seen.item.refilled_ms, self.now_ms)

    @property
    def expires_s(self) -> int | None:
        terms, seen = self.terms, self.seen
        if seen.fingerprint == terms.fingerprint and seen.item.refilled_ms <= self.now_ms:
            # Nearly always nothing is owed. Then the time that fills a burst is enough.
            for bucket in _moved(seen.item, self.moves):
                if bucket.tokens < 0 or bucket.forgiven:
                    break
            else:
                return terms.expires_s(self.now_ms)
        # If the burst was cut, a debt may be deeper than the burst is now.
        return terms.expires_s(self.now_ms, self._settled(seen.item).full_at_ms())

    @property
    def changed(self) -> tuple[Limit, ...]:
        """Limits whose parameters differ from those in the item."""
        known = {bucket.limit.name: bucket.limit for bucket in self.seen.item.buckets}
        return tuple(limit for limit in self.terms.limits if known.get(limit.name, limit) != limit)

    @property
    def removed(self) -> tuple[str, ...]:
        """Limits that are in the item, but not in the terms."""
        wanted = {limit.name for limit in self.terms.limits}
        names = [bucket.limit.name for bucket in self.seen.item.buckets]
        return tuple(name for name in names if name not in wanted)

    def applied(self, image: Image) -> Image:
        terms, item = self.terms, self._settled(image.item)
        if image.fingerprint == terms.fingerprint:
            return image._replace(item=item, expires_s=self.expires_s)
        item = item._replace(policy_ms=self.policy_ms)
        return Image(item, self.expires_s, terms.fingerprint, terms.parent)

    def undone(self, after: Image) -> Item:
        refilled_ms, seen = self.seen.item[:2]
        limits = tuple(bucket.limit for bucket in seen)
        buckets = _under(limits, _moved(after.item, self.moves, back=True))
        if is_renamed(self.seen.item, self.terms.limits):
            buckets = list(seen)  # the condition requires the bucket as seen
        forgiven = {bucket.limit.name: bucket.forgiven for bucket in seen}
        # The old balance of a bucket that was set is not known. The seen balance will do: settled
        # up to now, it is the same.
        full = {move.limit for move in self.moves if move.new_balance is not None}
        tokens = {bucket.limit.name: bucket.tokens for bucket in seen}
        return Item(
            refilled_ms,
            tuple(
                bucket._replace(
                    tokens=tokens[name] if name in full else bucket.tokens,
                    forgiven=forgiven[name],
                )
                for bucket in buckets
                for name in [bucket.limit.name]
            ),
        )

    def _settled(self, item: Item) -> Item:
        forgiven = dict(self.forgiven)
        kept = [
            bucket._replace(forgiven=forgiven.get(bucket.limit.name, bucket.forgiven))
            for bucket in _under(self.terms.limits, _moved(item, self.moves))
        ]
        buckets = sorted([*kept, *self.added], key=lambda bucket: bucket.limit.name)
        takes = item.takes + self.takes
        return item._replace(refilled_ms=self.refilled_ms, buckets=tuple(buckets), takes=takes)


class Create(NamedTuple):
    """Puts a new item. Condition: there is no item, or the item has expired."""

    path: WritePath
    key: Key
    terms: Terms
    item: Item
    now_ms: int

    @property
    def is_exact(self) -> bool:
        """The item is exactly what was put, because there was no item before."""
        return True

    @property
    def image(self) -> Image:
        buckets = sorted(self.item.buckets, key=lambda bucket: bucket.limit.name)
        return Image(
            self.item._replace(buckets=tuple(buckets)),
            # The first charge may be deeper than a burst.
            self.terms.expires_s(self.now_ms, self.item.full_at_ms()),
            self.terms.fingerprint,
            self.terms.parent,
        )

    def undone(self, _after: Image) -> None:
        return None


class Upsert(NamedTuple):
    """Consumes from the item or, if there is no item, creates it. For a key that was never seen.

    Condition: there is no item, or the condition of `consume` holds. An expired item fails this
    condition: its old balances must not survive, and only a put replaces them.
    """

    consume: Consume
    create: Create

    @property
    def path(self) -> WritePath:
        return WritePath.UPSERT

    @property
    def key(self) -> Key:
        return self.create.key

    @property
    def terms(self) -> Terms:
        return self.create.terms

    @property
    def is_exact(self) -> bool:
        """If the item exists, others may have consumed from it."""
        return False

    def applied(self, image: Image | None) -> Image:
        created = self.create.image
        if image is None:
            return created
        consumed = self.consume.applied(image)
        return consumed._replace(expires_s=created.expires_s, parent=created.parent)

    def undone(self, after: Image) -> Item:
        """The item just before this write. If there was no item, the result is a full item that was
        settled at the time of the write: callers get the same verdicts and balances from both."""
        return self.consume.undone(after)


Write = Consume | Settle | Create | Upsert


def _moved(item: Item, moves: tuple[Move, ...], *, back: bool = False) -> list[Bucket]:
    by_name = {move.limit: move for move in moves}
    sign = -1 if back else 1
    buckets = []
    for bucket in item.buckets:
        move = by_name.get(bucket.limit.name)
        if move is not None:
            tokens = bucket.tokens + sign * move.tokens
            if move.new_balance is not None:
                tokens = move.new_balance
            consumed = bucket.consumed + sign * move.consumed
            bucket = Bucket(bucket.limit, tokens, consumed, bucket.forgiven)
        buckets.append(bucket)
    return buckets


def _under(limits: tuple[Limit, ...], buckets: list[Bucket]) -> list[Bucket]:
    """The buckets with the parameters of these limits. Buckets of other limits are left out."""
    by_name = {limit.name: limit for limit in limits}
    return [
        bucket._replace(limit=by_name[bucket.limit.name])
        for bucket in buckets
        if bucket.limit.name in by_name
    ]
