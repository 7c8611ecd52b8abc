"""Tokens that this process has taken ahead, to answer takes without a call. Never awaits.

The laws of this file: a write took each held token from the table, at most T ago. Each held token
is used once, or goes back. So no token is made, and a bucket gives at most the credit over one more
T too much.

A process takes ahead as much as it used of the item in the last T. At least the same amount stays
in the bucket. T is a hundredth of the time that fills the burst, or another part of this time
(`accuracy`). Tokens of a limit that refills at boundaries are used until the next boundary, at
most. What is left of them then goes back only to an item that is still in the same window.

Hints show an item as this process sees it: the table's item, and what this process holds of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.bounds import lowest
from penstock.core.bucket import NEVER, credit, settled_ms
from penstock.core.draft import Draft, is_take
from penstock.core.limits import Limit
from penstock.core.take import Drawn, Key, Mode, Take, Taken
from penstock.store.dynamodb.buckets.asks import Verdict
from penstock.store.dynamodb.buckets.decider import Send
from penstock.store.dynamodb.buckets.hints import KEPT, Hint, Hints
from penstock.store.dynamodb.buckets.hold import Hold, Reservation, ShownHint, undone_takes
from penstock.store.dynamodb.buckets.loans import Amounts, Back, back_to, lend, used_by, with_held
from penstock.store.dynamodb.buckets.recent_use import SLOTS, RecentUse
from penstock.store.dynamodb.buckets.terms import Terms
from penstock.store.dynamodb.buckets.writes import Consume, Create, Settle, Write
from penstock.store.dynamodb.items.images import Image

AGAIN: Final = 4
"""Take ahead for at least so many uses, and only after so many uses. Otherwise an item that is used
twice would cost three writes: the second write would take ahead, and the third write give back."""

MOST_MS: Final = 10_000
"""The longest T. One write every ten seconds costs next to nothing. Without this bound, the T of a
monthly limit would be hours, and other servers would miss the held tokens for hours."""

USABLE: Final = 0.9
"""The part of T in which tokens are used. In the rest of T they go back with the next write, if
there is one. So an item in use needs no writes that only give back."""


class Loan(NamedTuple):
    """Writes for the table, and what they give back and take ahead."""

    writes: tuple[Write, ...]
    given_back: tuple[Hold, ...]
    ahead: tuple[Hold, ...]
    send: Send


class _Use(NamedTuple):
    """How an item is used, and under which terms."""

    limits: tuple[Limit, ...]
    fingerprint: str
    recent: RecentUse


class Held:
    def __init__(
        self,
        hints: Hints,
        accuracy: float,
        began: Callable[[Hold], None],
        evicted: Callable[[Hold], None],
        kept: int = KEPT,
    ) -> None:
        """`began` is told of each hold, so that it ends in time. `evicted` gives a hold back."""
        self._hints = hints
        self._accuracy = accuracy
        self._began = began
        self._evicted = evicted
        self._kept = kept
        self._holds: dict[Key, Hold] = {}
        self._uses: dict[Key, _Use] = {}
        self.served = 0
        """Calls that were answered from what is held, without a call to DynamoDB."""

    def t_ms(self, terms: Terms) -> int:
        """How long tokens of an item may be held. Items that never refill are exact: no T."""
        return 0 if terms.fill_ms >= NEVER else min(int(terms.fill_ms * self._accuracy), MOST_MS)

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(self._holds)

    @property
    def tokens(self) -> int:
        """All that is held, in millitokens."""
        return sum([sum(hold.left) for hold in self._holds.values()])

    def of(self, key: Key) -> Hold | None:
        return self._holds.get(key)

    def pop(self, key: Key) -> Hold | None:
        """End a hold. What is left of it is the caller's to give back."""
        return self._holds.pop(key, None)

    # Answers.

    def serve(self, takes: Sequence[Take], now_ms: int) -> list[Taken] | None:
        """Answer a call from what is held; None if that is not possible."""
        if len(takes) == 1 and takes[0].is_plain:
            taken = self._serve_plain(takes[0], now_ms)
            return None if taken is None else [taken]
        reserved = self.reserve_all(takes, now_ms)
        return None if reserved is None else [one.draft.taken(denied=False) for one in reserved]

    def _serve_plain(self, take: Take, now_ms: int) -> Taken | None:
        """A shortcut for the commonest take. It gives the same result as `reserve`.

        The hint follows later, in one step for many answers: this halves the time of an answer.
        """
        key, amount = take.key, take.draws[0].amount
        hold = self._holds.get(key)
        if hold is None:
            return None
        left, shown = hold.left[0], hold.shown
        if not amount <= left > 0 or not hold.serves(take, now_ms):
            self._show_use(hold)
            return None
        if shown is None or self._hints.get(key) is not shown.hint:
            shown = hold.shown = self._show(hold)
            hold.unshown = 0
            if shown is None:
                return None
        _, balance, burst, refill, period_ms, rf, credited = shown
        balance -= hold.unshown
        if now_ms > rf:
            balance += now_ms * refill // period_ms - credited
            rf = now_ms
        elif rf > now_ms:
            rf = settled_ms(rf, now_ms)
        balance = (balance if balance < burst else burst) - amount
        if balance < 0:
            self._show_use(hold)
            return None
        if amount:
            hold.left[0] = left - amount
            hold.unrecorded += 1
            hold.unshown += amount
            hold.recent.add_one(amount, now_ms)
        self.served += 1
        return Taken((Drawn(True, balance),), None, rf, consumed=(amount,))

    def _show(self, hold: Hold) -> ShownHint | None:
        """What the hint of a hold shows, if it is an item with one limit, and under its terms."""
        hint = self._hints.get(hold.key)
        if hint is None or (image := hint.image) is None or len(image.item.buckets) > 1:
            return None
        if image.fingerprint != hold.terms.fingerprint or not hold.is_of(image.item):
            return None
        rf, ((limit, tokens, _, _),), *_ = image.item
        refill = limit.refill
        if limit.window is not None:
            if credit(limit, rf, hold.refilled_ms):
                return None  # the hint is older than the hold
            refill = 0  # a hold is used within one window
        return ShownHint(
            hint, tokens, limit.burst, refill, limit.period_ms, rf, rf * refill // limit.period_ms
        )

    def _show_use(self, hold: Hold) -> None:
        """Let the hint show what quick answers have used."""
        if hold.unshown and hold.shown is not None:
            used, hold.unshown = hold.unshown, 0
            if self._hints.get(hold.key) is hold.shown.hint:
                self._show_less(hold, [used])

    def reserve_all(self, takes: Sequence[Take], now_ms: int) -> list[Reservation] | None:
        """Use what is held for a whole call, or for nothing of it."""
        reserved: list[Reservation] = []
        for take in takes:
            one = self.reserve(take, now_ms)
            if one is None:
                for other in reserved:
                    self.put_back(other)
                return None
            reserved.append(one)
        self.served += 1
        return reserved

    def reserve(self, take: Take, now_ms: int) -> Reservation | None:
        """Use what is held for a take; None if the take does not fit into it."""
        hold = self._holds.get(take.key)
        if hold is None:
            return None
        self._show_use(hold)
        image = self._image(take.key)
        if image is None or not hold.serves(take, now_ms):
            return None
        if image.fingerprint != hold.terms.fingerprint or not hold.is_of(image.item):
            return None
        draft = Draft(image.item, take, now_ms)
        if not all(draft.fits) or Mode.REFUND in draft.modes:
            return None
        amounts = [before - left for before, left in zip(draft.before, draft.left, strict=True)]
        if any(amount > left for amount, left in zip(amounts, hold.left, strict=True)):
            return None
        if not all(hold.left[draw.limit] > 0 for draw in take.draws):
            return None
        hold.left = [left - amount for left, amount in zip(hold.left, amounts, strict=True)]
        takes = is_take(draft.before, draft.left)
        hold.unrecorded += takes
        self._note(hold, amounts, now_ms)
        return Reservation(draft, hold.part(amounts, hold.taken_ms, -takes), now_ms)

    def can_serve(self, take: Take, now_ms: int) -> bool:
        """Whether tokens for a take are held, most likely."""
        hold = self._holds.get(take.key)
        if hold is None or not hold.serves(take, now_ms):
            return False
        return all(hold.left[draw.limit] >= max(draw.amount, 1) for draw in take.draws)

    def put_back(self, reservation: Reservation) -> None:
        """Undo a reservation completely."""
        part = reservation.part
        self._note(part, [-amount for amount in part.left], reservation.now_ms)
        self._hold(part)

    def undo(self, reservation: Reservation) -> None:
        """Put back what a denied call took. Its charges stay."""
        draft, part, _ = reservation
        kept = zip(draft.left_if_denied, draft.left, strict=True)
        amounts = [low - left for low, left in kept]
        back = part.part(amounts, part.taken_ms, undone_takes(draft))
        self.put_back(reservation._replace(part=back))

    def absorb(self, draft: Draft, taken_ms: int) -> bool:
        """Hold what a take of a refused call has consumed, if tokens of its item are held anyway.

        False: nothing of the item is held, so the take needs a write that undoes it.
        """
        take, kept = draft.take, draft.left_if_denied
        hold = self._holds.get(take.key)
        amounts = [low - left for low, left in zip(kept, draft.left, strict=True)]
        if hold is None or take.limits != hold.limits or min(amounts) < 0:
            return False
        back = hold.part(amounts, taken_ms, undone_takes(draft), draft.refilled_ms)
        self.put_back(Reservation(draft, back, taken_ms))
        return True

    def _note(self, hold: Hold, used: Sequence[int], now_ms: int) -> None:
        """Count what was used, and show it in the hint. Less than 0 is what was put back."""
        if not any(used):
            return
        hold.recent.add(used, now_ms, 1 if sum(used) > 0 else -1)
        if (current := self._holds.get(hold.key)) is not None:
            self._show_use(current)
        self._show_less(hold, used)

    def _show_less(self, hold: Hold, used: Sequence[int]) -> None:
        hint = self._hints.get(hold.key)
        if hint is not None and hint.image is not None:
            less = [-amount for amount in used]
            rf = hint.image.item.refilled_ms
            image = with_held(hint.image, back_to(hold.limits, less, hold.refilled_ms, rf))
            self._hints.replace(hold.key, hint._replace(image=image))

    def _image(self, key: Key) -> Image | None:
        hint = self._hints.get(key)
        return None if hint is None else hint.image

    # Writes.

    def view(self, images: Mapping[Key, Image | None]) -> dict[Key, Image | None]:
        """Items as this process sees them: with what it holds."""
        seen = dict(images)
        for key, image in images.items():
            hold = self._holds.get(key)
            if hold is not None and image is not None:
                image = with_held(image, hold.back(image.fingerprint, image.item.refilled_ms))
                takes = image.item.takes + hold.unrecorded
                seen[key] = image._replace(item=image.item._replace(takes=takes))
        return seen

    def lend(self, send: Send, hints: Mapping[Key, Hint]) -> Loan:
        """Make the writes for the table. They give back what is held, and take ahead anew.

        Afterwards call `landed` or `not_written`. If nobody knows whether the writes happened, call
        neither: then all tokens that the writes give back or take ahead count as consumed.
        """
        writes, given_back, ahead = [], [], []
        for write in send.writes:
            hold, image = self._holds.pop(write.key, None), None
            if (hint := hints.get(write.key)) is not None:
                image = hint.image
            more = self._take_ahead(write, image, send)
            back = Back({}, {})
            if hold is not None:
                given_back.append(hold)
                back = _back(hold, write, image)
            if more is not None:
                ahead.append(more)
            if hold is not None or more is not None:
                amounts = {} if more is None else more.amounts
                write = lend(write, image, back, amounts, hold.unrecorded if hold else 0)
            if more is not None and len(send.writes) > 1:
                write = _keep_window(write, more)
            writes.append(write)
        return Loan(tuple(writes), tuple(given_back), tuple(ahead), send)

    def landed(self, loan: Loan, image: Image | None) -> None:
        """The writes happened: hold what was taken ahead, and count what was used.

        `image` is the item after a single write; None after a transaction.
        """
        for hold in loan.ahead:
            if image is not None:
                # Another server, whose clock is ahead, may have moved `rf` on before the write.
                hold.set_windows(settled_ms(image.item.refilled_ms, hold.taken_ms))
            self._hold(hold)
        for write in loan.send.writes:
            self._count(write, loan.send)

    def not_written(self, loan: Loan) -> None:
        """The writes did not happen: what they would have given back is still held."""
        for hold in loan.given_back:
            self._hold(hold)

    def _hold(self, hold: Hold) -> None:
        """Begin a hold, or add it to the hold of the same item. The older one says how long.

        Tokens of different windows are not held together: the older ones are given back.
        """
        other = self._holds.get(hold.key)
        if other is not None and (other.limits != hold.limits or other.until_ms < hold.until_ms):
            self._evicted(other)
        elif other is not None and other.until_ms > hold.until_ms:
            self._evicted(hold)
            return
        elif other is not None:
            left = [a + b for a, b in zip(other.left, hold.left, strict=True)]
            unrecorded = other.unrecorded + hold.unrecorded
            if other.taken_ms <= hold.taken_ms:
                other.left, other.unrecorded = left, unrecorded
                return
            hold = hold.part(left, hold.taken_ms, unrecorded)
        self._holds[hold.key] = hold
        self._began(hold)

    def is_busy(self, take: Take, now_ms: int) -> bool:
        """Whether a write for this take would take more of its item ahead, as far as hints tell."""
        use, image = self._uses.get(take.key), self._image(take.key)
        if use is None or image is None or use.limits != take.limits:
            return False
        if image.is_expired(now_ms) or image.fingerprint != use.fingerprint:
            return False
        item = image.item
        left = {b.limit.name: b.balance(item.refilled_ms, now_ms) for b in item.buckets}
        return self._amounts_ahead(use, left, now_ms) is not None

    def _take_ahead(self, write: Write, image: Image | None, send: Send) -> Hold | None:
        """What to take ahead with a write; None: nothing."""
        use, terms, now_ms = self._uses.get(write.key), write.terms, send.now_ms
        if use is None or image is None or isinstance(write, Create):
            return None
        # Not while a policy is being changed.
        if not use.fingerprint == terms.fingerprint == image.fingerprint:
            return None
        # Most items are not used again so soon.
        if use.limits != terms.limits or use.recent.uses(now_ms) < AGAIN:
            return None
        if not _agree(send, write.key, terms.limits):
            return None
        after = {b.limit.name: b.tokens for b in write.applied(image).item.buckets}
        amounts = self._amounts_ahead(use, after, now_ms)
        if amounts is None:
            return None
        usable_ms = int(self.t_ms(terms) * USABLE)
        rf = settled_ms(image.item.refilled_ms, now_ms)
        return Hold(write.key, terms, amounts, now_ms, usable_ms, use.recent, rf)

    def _amounts_ahead(self, use: _Use, left: Amounts, now_ms: int) -> list[int] | None:
        """As much as was used in the last T, if as much again stays in each bucket; or less."""
        uses, used = use.recent.used(now_ms)
        most = uses
        for limit, amount in zip(use.limits, used, strict=True):
            if amount > 0:
                most = min(most, left[limit.name] * uses // (2 * amount))
        if most < AGAIN:
            return None
        return [max(amount, 0) * most // uses for amount in used]

    def _count(self, write: Write, send: Send) -> None:
        """Count what a write's callers used of an item."""
        key, terms = write.key, write.terms
        use = self._uses.pop(key, None)
        if use is None or use.limits != terms.limits or use.fingerprint != terms.fingerprint:
            window_ms = int(self.t_ms(terms) * USABLE)
            if window_ms < SLOTS:
                return
            use = _Use(terms.limits, terms.fingerprint, RecentUse(len(terms.limits), window_ms))
        self._uses[key] = use
        used = used_by(write)
        amounts = [max(used.get(limit.name, 0), 0) for limit in terms.limits]
        asks = [ask for ask in send.asks if any(take.key == key for take in ask.takes)]
        use.recent.add(amounts, send.now_ms, len(asks) if any(amounts) else 0)
        if len(self._uses) > self._kept:
            oldest = next(iter(self._uses))
            del self._uses[oldest]
            if (hold := self._holds.pop(oldest, None)) is not None:
                self._evicted(hold)


def _back(hold: Hold, write: Write, image: Image | None) -> Back:
    """What goes back with a write, which its condition lets land on such an item alone."""
    if isinstance(write, Settle):
        return hold.back(write.seen.fingerprint, write.seen.item.refilled_ms)
    refilled_ms = hold.refilled_ms if image is None else image.item.refilled_ms
    return hold.back(write.terms.fingerprint, refilled_ms)


def _keep_window(write: Write, ahead: Hold) -> Write:
    """Let a write of a transaction land only in the window that its tokens are to be held for.

    DynamoDB does not return the items after a transaction. So nobody could tell from which window
    the tokens are, if another write has begun the next window meanwhile.
    """
    if not isinstance(write, Consume) or ahead.until_ms == NEVER:
        return write
    return write._replace(until_ms=lowest(write.until_ms, ahead.until_ms))


def _agree(send: Send, key: Key, limits: tuple[Limit, ...]) -> bool:
    """Whether all callers bring these limits. If not, a policy is being changed."""
    takes = [take for ask in send.asks for take in ask.takes if take.key == key]
    return bool(takes) and all(take.limits == limits for take in takes)


def served_verdict(reserved: Sequence[Reservation]) -> Verdict:
    return Verdict(tuple([one.draft for one in reserved]), True, tuple(reserved))
