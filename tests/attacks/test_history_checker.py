"""The check of histories finds what it is for. Each fault is planted in a history that has none."""

from dataclasses import replace
from random import Random

import pytest
from penstock.core.bucket import Bucket, Item, credit
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.core.take import Mode as DrawMode
from penstock.core.taking import take_all

from tests.attacks.history import (
    BucketId,
    Call,
    History,
    Law,
    Mode,
    Move,
    Outcome,
    Same,
    find_violations,
)
from tests.attacks.history_windows import Windows

START = 1_794_792_780_000
YEAR = 365 * 86_400_000
RATE = Limit.per(5, 1_000, burst=20)
STILL = Limit.per(1, YEAR, burst=50)
"""So slow that it gains nothing while a test lasts."""

CHILD, PARENT, METERED, FAST = (BucketId(name, "r") for name in ("child", "parent", "meter", "f"))
LAWS = {
    CHILD: Law(STILL),
    PARENT: Law(STILL),
    METERED: Law(STILL, max_debt=STILL.burst),
    FAST: Law(RATE),
}
MODES = {
    Mode.TAKE: DrawMode.TAKE,
    Mode.CHARGE: DrawMode.CHARGE,
    Mode.REFUND: DrawMode.REFUND,
}


class Model:
    """Servers without a fault: calls one after the other, decided by the core."""

    def __init__(self) -> None:
        self.items: dict[Key, Item | None] = {}
        self.calls: list[Call] = []
        self.now_ms = START

    def ask(self, *moves: Move, waits_ms: int = 10, loses_answer: bool = False) -> Outcome:
        sent_ms, self.now_ms = self.now_ms, self.now_ms + waits_ms
        takes = [
            Take(bucket.key, (LAWS[bucket].limit,), (Draw(0, amount * MILLI, MODES[mode]),))
            for bucket, amount, mode in moves
        ]
        taken = take_all(self.items.get, takes, self.now_ms)
        for take, one in zip(takes, taken, strict=True):
            if one.item is not None:
                self.items[take.key] = one.item
        fits = all(drawn.fits for one in taken for drawn in one.drawn)
        outcome = Outcome.OK if fits else Outcome.OVER_LIMIT
        if loses_answer:
            outcome = Outcome.UNKNOWN
        asked = tuple(move._replace(amount=move.amount * MILLI) for move in moves)
        self.calls.append(Call(asked, outcome, sent_ms, self.now_ms + waits_ms))
        self.now_ms += waits_ms
        return outcome

    def change(self, bucket: BucketId, tokens: int = 0, consumed: int = 0) -> None:
        """Plant a fault: move what is stored for a bucket."""
        item = self.items[bucket.key]
        assert item is not None
        (stored,) = item.buckets
        changed = Bucket(stored.limit, stored.tokens + tokens, stored.consumed + consumed)
        self.items[bucket.key] = item._replace(buckets=(changed,))

    def violations(self) -> list[str]:
        same = [Same((CHILD,), (PARENT,))]
        history = History(START, self.now_ms, self.calls, LAWS, same)
        return find_violations(history, self.items)


def cascade(amount: int, mode: Mode = Mode.TAKE) -> tuple[Move, Move]:
    return Move(CHILD, amount, mode), Move(PARENT, amount, mode)


@pytest.fixture
def model() -> Model:
    """A history with something of everything."""
    model = Model()
    rng = Random(1)
    owed: list[int] = []
    for _ in range(300):
        amount, lost = rng.randint(1, 4), rng.random() < 0.1
        match rng.randrange(4):
            case 0:
                model.ask(Move(FAST, amount), waits_ms=rng.randint(1, 100), loses_answer=lost)
            case 1:
                model.ask(Move(METERED, amount, Mode.CHARGE), loses_answer=lost)
            case 2:
                if model.ask(*cascade(amount), loses_answer=lost) is Outcome.OK:
                    owed.append(amount)
            case 3 if owed:
                model.ask(*cascade(owed.pop(), Mode.REFUND), loses_answer=lost)
    return model


def test_history_without_a_fault_has_no_violation(model: Model) -> None:
    """Whatever was refused, refunded, charged past zero, or never answered."""
    assert model.violations() == []
    outcomes = {call.outcome for call in model.calls}
    assert outcomes == set(Outcome)


@pytest.mark.parametrize("seed", range(20))
def test_servers_that_follow_the_laws_are_never_accused(seed: int) -> None:
    """Any mix of calls that the core decides."""
    rng = Random(seed)
    model = Model()
    for _ in range(rng.randint(1, 120)):
        bucket = rng.choice([FAST, METERED])
        mode = Mode.CHARGE if bucket is METERED else Mode.TAKE
        lost, waits_ms = rng.random() < 0.2, rng.choice([0, 1, 7, 400])
        model.ask(Move(bucket, rng.randint(1, 9), mode), waits_ms=waits_ms, loses_answer=lost)
    assert model.violations() == []


def test_lost_update_is_found(model: Model) -> None:
    """A write that overwrites another: an OK that is in no bucket."""
    lost = next(
        call for call in model.calls if call.outcome is Outcome.OK and call.moves[0].bucket == FAST
    )
    amount = lost.moves[0].amount
    doubtful = sum(
        call.moves[0].amount
        for call in model.calls
        if call.outcome is Outcome.UNKNOWN and call.moves[0].bucket == FAST
    )
    model.change(FAST, amount + doubtful, -amount - doubtful)
    assert any("lost" in violation for violation in model.violations())


def test_lost_charge_is_found(model: Model) -> None:
    """Also of one that was answered OVER_LIMIT, as it is owed."""
    model.ask(Move(METERED, 1, Mode.CHARGE))
    item = model.items[METERED.key]
    assert item is not None
    model.change(METERED, item.buckets[0].consumed, -item.buckets[0].consumed)
    assert any("lost" in violation for violation in model.violations())


def test_what_nobody_asked_for_is_found(model: Model) -> None:
    """A charge that landed twice, by a retry of an ADD."""
    model.change(FAST, -500 * MILLI, 500 * MILLI)
    assert any("more than all that was asked for" in one for one in model.violations())


def test_double_admission_is_found() -> None:
    """Two servers that each gave the last tokens away: both answers are OK, and on record."""
    model = Model()
    model.ask(Move(FAST, 20), waits_ms=0)
    answered = Call((Move(FAST, 20 * MILLI),), Outcome.OK, START, START)
    model.calls.append(answered)
    model.change(FAST, 0, 20 * MILLI)
    assert any("more in a window" in violation for violation in model.violations())


def test_burst_given_twice_in_the_middle_of_a_history_is_found() -> None:
    """The excess of one window, though the history as a whole has credit for all of it."""
    model = Model()
    model.ask(Move(FAST, 20))
    model.now_ms += 60_000
    model.ask(Move(FAST, 20))
    second = model.calls[-1]
    assert model.violations() == []
    model.calls.append(second)
    model.change(FAST, 0, 20 * MILLI)
    assert any("more in a window" in violation for violation in model.violations())


def test_half_of_a_cascade_is_found(model: Model) -> None:
    """A level that has what its parent has not, though no answer tells of it."""
    model.ask(*cascade(1), loses_answer=True)
    assert model.violations() == []
    model.change(PARENT, MILLI, -MILLI)
    (violation,) = [one for one in model.violations() if "together" in one]
    assert "differ by 1000" in violation


def test_tokens_that_were_made_are_found(model: Model) -> None:
    """A balance that no credit explains."""
    model.change(CHILD, 1)
    assert any("at most" in violation for violation in model.violations())


def test_tokens_that_vanished_are_found(model: Model) -> None:
    """A balance below what was consumed."""
    model.change(METERED, -1)
    assert any("at least" in violation for violation in model.violations())


def test_credit_of_a_time_to_come_is_found(model: Model) -> None:
    """An item that was refilled up to a moment after the end."""
    item = model.items[FAST.key]
    assert item is not None
    model.items[FAST.key] = item._replace(refilled_ms=model.now_ms + 1)
    assert any("after the end" in violation for violation in model.violations())


def test_take_that_went_into_debt_is_found() -> None:
    """Only a charge may do that."""
    model = Model()
    model.ask(*cascade(50))
    model.ask(*cascade(3), loses_answer=True)
    for bucket in (CHILD, PARENT):
        model.change(bucket, -3 * MILLI, 3 * MILLI)
    assert [one for one in model.violations() if "debt" in one]


def test_item_that_is_gone_is_found(model: Model) -> None:
    """A missing item is a full one that never gave anything."""
    del model.items[FAST.key]
    assert any("lost" in violation for violation in model.violations())


def test_bucket_without_a_law_is_told(model: Model) -> None:
    """So that no bucket goes unchecked by a slip of the test."""
    model.calls.append(replace(model.calls[0], moves=(Move(BucketId("new", "r"), 1),)))
    assert any("no law" in violation for violation in model.violations())


@pytest.mark.parametrize("seed", range(20))
def test_worst_window_is_that_of_all_windows(seed: int) -> None:
    """The tree finds what a look at every pair of moments finds."""
    rng = Random(seed)
    calls = []
    for _ in range(rng.randint(1, 40)):
        sent_ms = START + rng.randint(0, 3_000)
        calls.append((sent_ms + rng.randint(0, 800), sent_ms, rng.randint(1, 5) * MILLI))
    calls.sort()
    windows = Windows(RATE, {sent_ms for _, sent_ms, _ in calls})
    worst = []
    for answered_ms, sent_ms, amount in calls:
        windows.admit(sent_ms, amount)
        worst.append(windows.most_until(answered_ms))
    slow = max(
        sum(amount for answered, sent, amount in calls if sent >= begin and answered <= end)
        - credit(RATE, begin, end)
        for end, _, _ in calls
        for _, begin, _ in calls
        if begin <= end
    )
    assert max(worst) == slow
