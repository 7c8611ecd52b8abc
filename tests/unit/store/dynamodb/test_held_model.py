"""The laws with tokens taken ahead: processes that hold tokens, interleaved at random.

As in `test_model.py`, a process plans a write, others do theirs, and then the write arrives. Here a
process also answers from what it holds, gives it back when its time is over, and may crash with it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item, credit, settle
from penstock.core.limits import MILLI, NO_BOUND, Limit, Unit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.dynamodb.aws.location import ACCURACY
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.corrections import add_back, settle_back
from penstock.store.dynamodb.buckets.decider import Decider, Read, Send, Step
from penstock.store.dynamodb.buckets.held import AGAIN, Held, Loan
from penstock.store.dynamodb.buckets.hints import Hints
from penstock.store.dynamodb.buckets.hold import Hold, Reservation
from penstock.store.dynamodb.buckets.loans import back_to
from penstock.store.dynamodb.buckets.lone import is_lone
from penstock.store.dynamodb.buckets.sender import Landed
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import Write, WritePath

from tests.support.calendars import CALENDARS, before_boundary_ms
from tests.unit.store.dynamodb.model import Table

START = 1_794_792_817_591
CHILD, PARENT = Key("user", "r"), Key("project", "r")
FLIGHT_MS = 20
"""No write is longer under way."""

Amounts = tuple[int, ...]


@dataclass
class Run:
    """Several processes on one table, and a record of what they did."""

    random: Random
    limits: tuple[Limit, ...]
    cascades: bool = False
    crashes: bool = False
    charges: bool = False
    ahead_ms: int = 0
    """How far clocks may be ahead of the time. Each process has its own."""
    accuracy: float = ACCURACY
    now_ms: int = START
    policy_ms: int = 0
    table: Table = field(default_factory=Table)
    shadow: dict[Key, Item] = field(default_factory=dict)
    """The same takes at the moments they are sent or served, settled each time."""
    admitted: list[tuple[int, Amounts]] = field(default_factory=list)
    """When each was sent, and its amounts, in the order in which they landed."""
    landed_ms: list[int] = field(default_factory=list)
    """When each of `admitted` landed."""
    spent: dict[Key, list[int]] = field(default_factory=dict)
    """All that is nobody's any more: admitted, of unknown outcome, or lost in a crash."""
    served: int = 0
    denied: int = 0
    returned: int = 0
    lapsed: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        """A calendar's boundary must come during the run."""
        if self.limits[0].window in CALENDARS:
            self.now_ms = before_boundary_ms(self.limits[0], START)

    def levels(self) -> tuple[Key, ...]:
        return (CHILD, PARENT) if self.cascades else (CHILD,)

    def t_ms(self) -> int:
        return int(make_terms(self.limits).fill_ms * self.accuracy)

    def takes(self) -> tuple[Take, ...]:
        """Of every level, or now and then of the child alone, so that it is the first to refuse."""
        mode = Mode.CHARGE if self.charges and self.random.random() < 0.1 else Mode.TAKE
        amounts = [self.random.choice([1, 1, 1, 2, 0]) for _ in self.limits]
        if mode is Mode.CHARGE:
            amounts = [10 * amount for amount in amounts]
        draws = tuple(
            Draw(i, amount * MILLI, mode, max_debt=NO_BOUND) for i, amount in enumerate(amounts)
        )
        parents = [PARENT if self.cascades else None, None]
        takes = [
            Take(key, self.limits, draws, parent, self.policy_ms)
            for key, parent in zip(self.levels(), parents, strict=False)
        ]
        if self.cascades and self.random.random() < 0.2:
            return (replace(takes[0], parent=None),)
        return tuple(takes)

    def spend(self, key: Key, amounts: Sequence[int], at_ms: int) -> None:
        """Note that tokens are gone for good, which were taken or used at a time.

        Tokens that were taken in a window before the item's lapse: they are of no later window.
        """
        spent = self.spent.setdefault(key, [0] * len(self.limits))
        self.spent[key] = [a + b for a, b in zip(spent, amounts, strict=True)]
        rf, balances, consumed = settle(self.shadow.get(key), self.limits, at_ms)
        alive = back_to(self.limits, amounts, at_ms, rf).tokens
        buckets = [
            Bucket(limit, balances[i] - alive.get(limit.name, 0), consumed[i] + amounts[i])
            for i, limit in enumerate(self.limits)
        ]
        self.shadow[key] = Item(rf, tuple(buckets))

    def lose(self, holds: Sequence[Hold]) -> None:
        """Note that tokens that were held are nobody's."""
        for hold in holds:
            self.spend(hold.key, hold.left, hold.refilled_ms)
            self.lost += sum(hold.left)

    def admit(self, takes: Sequence[tuple[Take, int]], sent_ms: int) -> None:
        """Note takes, with the times of their tokens."""
        amounts = tuple(draw.amount for draw in takes[0][0].draws)
        self.admitted.append((sent_ms, amounts))
        self.landed_ms.append(self.now_ms)
        for take, at_ms in takes:
            self.spend(take.key, amounts, at_ms)


class Process:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._start()

    def _start(self) -> None:
        random = self._run.random
        self._hints = Hints()
        self.held = Held(self._hints, self._run.accuracy, self._began, self._give_back)
        self._due: list[tuple[int, Hold]] = []
        self._decider: Decider | None = None
        self._step: Step | None = None
        self.loan: Loan | None = None
        self._asks: list[Ask] = []
        self._reserved: dict[Ask, Reservation] = {}
        self._used: list[tuple[int, Key, Sequence[int]]] = []
        self._ahead_ms = random.choice([0, random.randint(0, self._run.ahead_ms)])
        self.sent_ms = 0

    @property
    def is_busy(self) -> bool:
        return self._decider is not None

    def _now_ms(self) -> int:
        return self._run.now_ms + self._ahead_ms

    def begin(self) -> None:
        run, random = self._run, self._run.random
        self._asks, self._reserved = [], {}
        for takes in [run.takes() for _ in range(random.choice([1, 1, 1, 3]))]:
            reserved = self.held.reserve_all(takes, self._now_ms())
            if reserved is not None:
                run.served += 1
                self._admit([(take, run.now_ms) for take in takes], run.now_ms)
                continue
            # Where the parent's part is held, only the child is written.
            parent = self.held.reserve(takes[-1], self._now_ms()) if len(takes) > 1 else None
            is_take = takes[0].draws[0].mode is Mode.TAKE
            if parent is not None and not is_take:
                self.held.put_back(parent)
                parent = None
            alone = len(takes) == 1 and is_lone(takes[0])
            ask = Ask(takes if parent is None else takes[:1], is_lone=alone)
            if parent is not None:
                self._reserved[ask] = parent
            self._asks.append(ask)
        if not self._asks:
            return
        keys = {take.key for ask in self._asks for take in ask.takes}
        hints = random.choice([self._hints.of(keys), self._hints.of(keys), {}])
        self._decider = Decider(self._asks, hints)
        self._plan(self._decider)

    def _admit(self, takes: Sequence[tuple[Take, int]], sent_ms: int) -> None:
        amounts = [draw.amount for draw in takes[0][0].draws]
        self._used += [(self._now_ms(), take.key, amounts) for take, _ in takes]
        self._run.admit(takes, sent_ms)

    def arrive(self) -> None:
        """Let what was planned some time ago happen now."""
        decider, step, run = self._decider, self._step, self._run
        assert decider is not None
        if isinstance(step, Read):
            images = {key: run.table.images.get(key) for key in step.keys}
            decider.saw(step, self.held.view(images))
        elif step is not None and not self._written(decider, step):
            return
        self._plan(decider)

    def _written(self, decider: Decider, step: Send) -> bool:
        """Let a write arrive. False if nobody will ever know whether it did."""
        run, loan, self.loan = self._run, self.loan, None
        assert loan is not None
        fate = run.random.random() if run.crashes else 1.0
        if fate < 0.02:  # the request is lost: what it would have given back is nobody's
            run.lose(loan.given_back)
            self._forget(step)
            return False
        outcome = run.table.write(loan.writes)
        if not isinstance(outcome, Landed):
            self.held.not_written(loan)
            decider.lost(step, self.held.view(outcome.images))
            return True
        self._check_ahead(loan)
        if fate < 0.04:  # the answer is lost: what was taken ahead is nobody's
            run.lose(loan.ahead)
            for ask in step.asks:
                for take in ask.takes:
                    run.spend(take.key, [draw.amount for draw in take.draws], self.sent_ms)
            self._forget(step)
            return False
        image = outcome.image
        self.held.landed(loan, image)
        if image is not None:
            image = self.held.view({step.writes[0].key: image})[step.writes[0].key]
        decider.landed(step, image)
        for ask in step.asks:
            self._admit(self._all(ask), self.sent_ms)
        return True

    def _all(self, ask: Ask) -> list[tuple[Take, int]]:
        """The takes of an ask and when they were sent, with the one whose part was held."""
        # A write that was sent in one window takes from the next, if the item is in it by then.
        items = {key: image.item for key, image in self._run.table.images.items()}
        takes = [
            (take, max(self.sent_ms, items[take.key].refilled_ms - self._ahead_ms))
            for take in ask.takes
        ]
        if (reserved := self._reserved.pop(ask, None)) is not None:
            takes.append((reserved.draft.take, reserved.now_ms - self._ahead_ms))
        return takes

    def _forget(self, step: Send) -> None:
        """After a failure, the callers of the write count as consumed, and the others failed."""
        for ask in step.asks:
            self._consume_reserved(ask)
        for reservation in self._reserved.values():
            self.held.put_back(reservation)
        self._decider, self._reserved = None, {}
        self._hints.forget(self._run.levels())

    def _consume_reserved(self, ask: Ask) -> None:
        if (reserved := self._reserved.pop(ask, None)) is not None:
            part = reserved.part
            self._used.append((reserved.now_ms, part.key, part.left))
            self._run.spend(part.key, part.left, part.refilled_ms)

    def _check_ahead(self, loan: Loan) -> None:
        """As much as was used in the last T, and as much again is left."""
        run = self._run
        for hold in loan.ahead:
            item = run.table.images[hold.key].item
            by_name = {bucket.limit.name: bucket for bucket in item.buckets}
            for i, limit in enumerate(hold.limits):
                assert 0 <= hold.left[i] <= by_name[limit.name].tokens
                used = sum(
                    amounts[i]
                    for at_ms, key, amounts in self._used
                    if key == hold.key and at_ms > hold.taken_ms - run.t_ms()
                )
                parts = [r.part for r in self._reserved.values() if r.part.key == hold.key]
                assert hold.left[i] <= used + sum(part.left[i] for part in parts)

    def _plan(self, decider: Decider) -> None:
        self.sent_ms = self._run.now_ms
        self._step = decider.next(self._now_ms())
        if isinstance(self._step, Send):
            self.loan = self.held.lend(self._step, decider.hints)
        if self._step is None:
            self._hints.keep(decider.hints)
            self._decider = None
            self._run.denied += len(self._reserved)
            for reservation in self._reserved.values():  # the child refused
                self.held.put_back(reservation)
            self._reserved = {}

    def crash(self) -> None:
        """All that is held is lost. A write that is under way does not arrive."""
        run = self._run
        holds = [hold for key in self.held.keys if (hold := self.held.pop(key)) is not None]
        holds += [] if self.loan is None else self.loan.given_back
        run.lose(holds)
        for reservation in self._reserved.values():
            part = reservation.part
            run.spend(part.key, part.left, part.refilled_ms)
        self._start()

    def _began(self, hold: Hold) -> None:
        # The timer begins when the write has landed, so it is late by the time in flight.
        self._due.append((self._run.now_ms + self._run.t_ms(), hold))

    def expire(self) -> None:
        """Give back what was held for T."""
        due = [hold for at_ms, hold in self._due if at_ms <= self._run.now_ms]
        self._due = [(at_ms, hold) for at_ms, hold in self._due if at_ms > self._run.now_ms]
        for hold in due:
            if self.held.of(hold.key) is hold:
                self.held.pop(hold.key)
                self._give_back(hold)

    def _give_back(self, hold: Hold) -> None:
        table, back = self._run.table, hold.back(hold.terms.fingerprint, hold.refilled_ms)
        now_ms, takes = self._now_ms(), hold.unrecorded
        first = add_back(WritePath.GIVE_BACK, hold.key, hold.terms, back, now_ms, takes)
        write: Write = first
        while not isinstance(outcome := table.write((write,)), Landed):
            image = outcome.images[hold.key]
            assert image is not None
            back = hold.back(image.fingerprint, image.item.refilled_ms)
            write = settle_back(first, image, back)
        self._run.returned += sum(back.tokens.values())
        self._run.lapsed += sum(hold.left) - sum(back.tokens.values())

    def nobodys(self, key: Key) -> list[int]:
        """What this process holds, also in a write that is under way or for a child's write."""
        amounts = [hold.left for hold in self._holds(key)]
        return [sum(column) for column in zip(*amounts, [0] * len(self._run.limits), strict=True)]

    def alive(self, key: Key, rf: int) -> Counter[str]:
        """What could go back to an item with this `rf`, by limit."""
        alive: Counter[str] = Counter()
        for hold in self._holds(key):
            alive.update(back_to(hold.limits, hold.left, hold.refilled_ms, rf).tokens)
        return alive

    def _holds(self, key: Key) -> list[Hold]:
        held = self.held.of(key)
        given_back = [] if self.loan is None else self.loan.given_back
        parts = [reservation.part for reservation in self._reserved.values()]
        return [one for one in (held, *given_back, *parts) if one is not None and one.key == key]


def simulate(run: Run, processes: int, steps: int) -> Iterator[list[Process]]:
    """Go through a run step by step, so that the caller can look at every moment of it."""
    crew = [Process(run) for _ in range(processes)]
    for _ in range(steps):
        busy = [process for process in crew if process.is_busy]
        overdue = [p for p in busy if run.now_ms - p.sent_ms > FLIGHT_MS - 5]
        process = run.random.choice(overdue or crew)
        if run.crashes and run.random.random() < 0.01:
            process.crash()
        elif process.is_busy:
            process.arrive()
        else:
            process.begin()
        pauses_ms = [3] if any(p.is_busy for p in crew) else [5, 5, 5, 50, 500, 3_000]
        run.now_ms += run.random.randrange(run.random.choice(pauses_ms))
        for each in crew:
            each.expire()
        yield crew


def tolerance(run: Run, limit: Limit) -> int:
    """The credit over T, over T again for what is held, and over the time of writes under way.

    A limit that refills at boundaries is exact.
    """
    if limit.window is not None:
        return 0
    t_ms = make_terms(run.limits).tolerance_ms
    return credit(limit, START, START + t_ms + run.t_ms() + 3 * FLIGHT_MS) + 1


def check_record(run: Run, crew: Sequence[Process]) -> None:
    """Law 2 at every moment: what is on record was admitted, is held by somebody, or was lost."""
    for key, image in run.table.images.items():
        held = [process.nobodys(key) for process in crew]
        spent = run.spent.get(key, [0] * len(run.limits))
        by_name = {bucket.limit.name: bucket for bucket in image.item.buckets}
        for i, limit in enumerate(run.limits):
            bucket = by_name[limit.name]
            assert bucket.consumed == spent[i] + sum(amounts[i] for amounts in held)
            assert bucket.tokens <= bucket.limit.burst
            assert run.charges or bucket.tokens >= 0


def check_balances(run: Run, crew: Sequence[Process]) -> None:
    """Laws 1 and 3: what is there and what is held is what time and takes make it."""
    for key, image in run.table.images.items():
        _, expected, _ = settle(run.shadow.get(key), run.limits, run.now_ms)
        held = [process.nobodys(key) for process in crew]
        by_name = {bucket.limit.name: bucket for bucket in image.item.buckets}
        rf = image.item.refilled_ms
        alive = sum([process.alive(key, rf) for process in crew], Counter())
        for i, limit in enumerate(run.limits):
            bucket = by_name[limit.name]
            if limit.window is None:
                actual = bucket.balance(rf, run.now_ms) + sum(amounts[i] for amounts in held)
                assert abs(actual - expected[i]) <= tolerance(run, limit)
                continue
            returned = bucket._replace(tokens=bucket.tokens + alive[limit.name])
            actual = returned.balance(rf, run.now_ms)
            # What is not used by a boundary lapses if it is held, and is kept if it is not.
            assert actual <= expected[i]
            assert actual == expected[i] or limit.burst > limit.refill


def check_windows(run: Run) -> None:
    """Law 1: no window admits more than burst and credit, and the tolerance.

    A write that was sent before a boundary may land after it, in the window that another write has
    begun. So of a limit with windows, the time counts at which a write landed.
    """
    for i, limit in enumerate(run.limits):
        times = run.landed_ms if limit.window else [sent_ms for sent_ms, _ in run.admitted]
        for first, (start_ms, _) in enumerate(run.admitted):
            total = latest_ms = 0
            for now_ms, (_, amounts) in zip(times[first:], run.admitted[first:], strict=True):
                total, latest_ms = total + amounts[i], max(latest_ms, now_ms)
                most = limit.burst + credit(limit, start_ms, latest_ms + run.ahead_ms)
                assert total <= most + tolerance(run, limit)


LIMITS = [
    (Limit.per(100, 60_000),),
    (Limit.per(400, 2_000, window=Window()),),
    (Limit.per(12_000, 60_000),),
    (Limit.per(200, 60_000, name="rpm"), Limit.per(5_000, 3_600_000, name="rph", burst=300)),
    (
        Limit.per(20, 500, name="window", burst=600, window=Window()),
        Limit.per(5_000, 60_000, name="steady", burst=900),
        Limit.per(800, 12_000, name="forgets", window=Window(carry_debt=False)),
    ),
    (Limit.per(400, Unit.WEEK.value, window=CALENDARS[2]),),
]


@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@pytest.mark.parametrize("cascades", [False, True], ids=["alone", "cascade"])
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(20, 250),
    crashes=st.booleans(),
    accuracy=st.sampled_from([ACCURACY, 0.1, 0.3]),
)
# A transaction that takes ahead is sent before a boundary, and lands after it.
@example(seed=0, steps=64, crashes=False, accuracy=0.1)
def test_laws_hold_with_tokens_held(
    limits: tuple[Limit, ...], cascades: bool, seed: int, steps: int, crashes: bool, accuracy: float
) -> None:
    """Laws 1, 2, 3 and 5, also if a process crashes, or an answer is lost, with tokens held."""
    run = Run(Random(seed), limits, cascades, crashes, accuracy=accuracy)
    for crew in simulate(run, processes=4, steps=steps):
        check_record(run, crew)
        check_balances(run, crew)
    check_windows(run)


@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@pytest.mark.parametrize("cascades", [False, True], ids=["alone", "cascade"])
@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(20, 250),
    ahead_ms=st.sampled_from([100, 5_000, 62_000, 3_600_000]),
)
def test_laws_hold_with_tokens_held_while_clocks_differ(
    limits: tuple[Limit, ...], cascades: bool, seed: int, steps: int, ahead_ms: int
) -> None:
    """Laws 1, 2 and 5: clocks that are ahead give the refill of that time early, once."""
    run = Run(Random(seed), limits, cascades, ahead_ms=ahead_ms)
    for crew in simulate(run, processes=4, steps=steps):
        check_record(run, crew)
    check_windows(run)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(20, 250), crashes=st.booleans())
def test_charges_are_on_record_with_tokens_held(seed: int, steps: int, crashes: bool) -> None:
    """Charges that fit come from what is held. Others go to the table, with what is held."""
    run = Run(Random(seed), LIMITS[2], crashes=crashes, charges=True)
    for crew in simulate(run, processes=4, steps=steps):
        check_record(run, crew)


BURSTS = (100, 30, 400)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32), steps=st.integers(20, 250), changes=st.lists(st.integers(0, 249))
)
def test_what_was_used_stays_used_when_a_policy_changes_with_tokens_held(
    seed: int, steps: int, changes: list[int]
) -> None:
    """The record is exact, and no more passes than the largest burst, and the credit."""
    run, random = Run(Random(seed), LIMITS[0], crashes=True), Random(seed)
    for step, crew in enumerate(simulate(run, processes=4, steps=steps)):
        check_record(run, crew)
        if step in changes:
            run.limits = (Limit.per(random.choice(BURSTS), 60_000),)
            run.policy_ms = run.now_ms
    run.limits = (Limit.per(max(BURSTS), 60_000),)
    check_windows(run)


@pytest.mark.parametrize("limits", [LIMITS[2], LIMITS[1]], ids=["steady", "window"])
@pytest.mark.parametrize("cascades", [False, True], ids=["alone", "cascade"])
def test_the_runs_hold_and_give_back_and_lose(limits: tuple[Limit, ...], cascades: bool) -> None:
    """A model in which nothing is ever held would keep every law."""
    accuracy = ACCURACY if limits is LIMITS[2] else 0.3
    run = Run(Random(1), limits, cascades, crashes=True, accuracy=accuracy)
    held = 0
    for crew in simulate(run, processes=4, steps=5_000):
        held = max(held, sum(process.held.tokens for process in crew))
    assert held > AGAIN * MILLI
    assert run.served > 300
    assert min(run.returned, run.lost) > 20 * MILLI
    assert (run.lapsed > 0) == (limits is LIMITS[1])


def test_children_refuse_while_their_parent_is_held() -> None:
    """Otherwise nothing would ever be put back."""
    run = Run(Random(1), LIMITS[3], cascades=True)
    for _ in simulate(run, processes=4, steps=3_000):
        pass
    assert run.denied > 10


def test_an_item_that_is_not_used_again_and_again_is_exact() -> None:
    """Nothing is held of an item that is used now and then."""
    run = Run(Random(1), LIMITS[0])
    (process,) = [Process(run)]
    for _ in range(50):
        process.begin()
        while process.is_busy:
            process.arrive()
        assert process.held.tokens == 0
        run.now_ms += 500
