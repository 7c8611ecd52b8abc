"""The laws on the pure decisions: processes interleaved at random on items in memory.

No AWS, no clock: a process plans a write, others do theirs, and then it arrives. Its hints may be
out of date, its answer may get lost, and time moves between any two steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from penstock.core.bucket import CLOCKS_APART_MS, Bucket, Item, credit, settle
from penstock.core.draft import Draft
from penstock.core.limits import MILLI, NO_BOUND, Limit, Unit, Window
from penstock.core.take import Draw, Key, Mode, Take
from penstock.store.dynamodb.buckets.asks import Ask
from penstock.store.dynamodb.buckets.decider import Decider, Read, Step
from penstock.store.dynamodb.buckets.hints import Hint
from penstock.store.dynamodb.buckets.lone import is_lone
from penstock.store.dynamodb.buckets.sender import Landed
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.buckets.writes import Upsert
from penstock.store.dynamodb.items.images import Image

from tests.support.calendars import CALENDARS, before_boundary_ms
from tests.unit.store.dynamodb.model import Table

START = 1_794_792_817_591
CHILD, PARENT = Key("user", "r"), Key("project", "r")
FLIGHT_MS = 40
"""No write is longer under way: a real one is cut off after a second."""


@dataclass
class Run:
    """Several processes on one table, and a record of what they admitted."""

    random: Random
    limits: tuple[Limit, ...]
    cascades: bool = False
    loses_answers: bool = False
    refunds: bool = False
    ahead_ms: int = 0
    """How far clocks may be ahead of the time. Each is, by another stretch for each call."""
    charges: bool = False
    max_debt: int | None = None
    now_ms: int = START
    table: Table = field(default_factory=Table)
    shadow: dict[Key, Item] = field(default_factory=dict)
    """The same takes at the moments they are sent, settled each time: what buckets should be."""
    admitted: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """When each was sent, and its amounts, in the order in which they landed."""
    landed_ms: list[int] = field(default_factory=list)
    """When each of `admitted` landed."""
    unknown: list[tuple[int, ...]] = field(default_factory=list)
    denied: int = 0
    charged: Counter[bool] = field(default_factory=Counter)
    """Charges that fit, and charges that did not."""
    upserted: Counter[str] = field(default_factory=Counter)
    """Upserts by what they found: no item, an item to consume from, or an item that refuses."""

    def __post_init__(self) -> None:
        """A calendar's boundary must come during the run."""
        if self.limits[0].window in CALENDARS:
            self.now_ms = before_boundary_ms(self.limits[0], START)

    def levels(self) -> tuple[Key, ...]:
        return (CHILD, PARENT) if self.cascades else (CHILD,)

    def ask(self) -> Ask:
        mode = Mode.REFUND if self.refunds and self.random.random() < 0.3 else Mode.TAKE
        if self.charges and self.random.random() < 0.2:
            mode = Mode.CHARGE
        amounts = [self.random.choice([1, 1, 2, 5]) for _ in self.limits]
        draws = tuple(
            Draw(i, amount * MILLI, mode, max_debt=self.max_debt)
            for i, amount in enumerate(amounts)
        )
        if not self.cascades:
            take = Take(CHILD, self.limits, draws)
            return Ask((take,), is_lone=is_lone(take))
        return Ask((Take(CHILD, self.limits, draws, PARENT), Take(PARENT, self.limits, draws)))

    def note(self, ask: Ask, sent_ms: int, *, certain: bool) -> None:
        """Write down what has landed, in the record and in the shadow.

        A write may arrive after a boundary. It takes from the window that it was sent in, or from
        the next one if another write has begun that meanwhile.
        """
        draws = ask.takes[0].draws
        sign = -1 if draws[0].mode is Mode.REFUND else 1
        amounts = tuple(sign * draw.amount for draw in draws)
        if certain:
            self.admitted.append((sent_ms, amounts))
            self.landed_ms.append(self.now_ms)
        else:
            self.unknown.append(amounts)
        for key in self.levels():
            rf, balances, consumed = settle(self.shadow.get(key), self.limits, sent_ms)
            buckets = [
                Bucket(limit, min(balances[i] - amounts[i], limit.burst), consumed[i] + amounts[i])
                for i, limit in enumerate(self.limits)
            ]
            self.shadow[key] = Item(rf, tuple(buckets))


class Process:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._hints: dict[Key, Hint] = {}
        self._old: list[dict[Key, Hint]] = []
        self._decider: Decider | None = None
        self._step: Step | None = None
        self._asks: list[Ask] = []
        self._ahead_ms = 0
        self.sent_ms = 0

    @property
    def is_busy(self) -> bool:
        return self._decider is not None

    def begin(self) -> None:
        random = self._run.random
        self._old.append(self._hints)
        self._ahead_ms = random.choice([0, random.randint(0, self._run.ahead_ms)])
        hints = random.choice([self._hints, self._hints, self._hints, random.choice(self._old), {}])
        self._asks = [self._run.ask() for _ in range(random.choice([1, 1, 1, 3]))]
        self._decider = Decider(self._asks, hints)
        self._plan(self._decider)

    def arrive(self) -> None:
        """Let what was planned some time ago happen now."""
        decider, step, run = self._decider, self._step, self._run
        assert decider is not None
        if isinstance(step, Read):
            decider.saw(step, {key: run.table.images.get(key) for key in step.keys})
        elif step is not None:
            sent, images = list(step.asks), dict(run.table.images)
            outcome = run.table.write(step.writes)
            if isinstance(step.writes[0], Upsert):
                found = "item" if step.writes[0].key in images else "nothing"
                run.upserted[found if isinstance(outcome, Landed) else "refused"] += 1
            if isinstance(outcome, Landed):
                lost = run.loses_answers and run.random.random() < 0.05
                for ask in sent:
                    run.note(ask, self.sent_ms, certain=not lost)
                if lost:
                    self._decider, self._hints = None, {}
                    return
                decider.landed(step, outcome.image)
                assert all(ask.verdict is not None and ask.verdict.admitted for ask in sent)
                if run.charges:
                    check_verdicts(run, sent, images, self.sent_ms)
            else:
                decider.lost(step, outcome.images)
        self._plan(decider)

    def _plan(self, decider: Decider) -> None:
        self.sent_ms = self._run.now_ms
        self._step = decider.next(self._run.now_ms + self._ahead_ms)
        if self._step is None:
            self._hints, self._decider = decider.hints, None
            verdicts = [ask.verdict for ask in self._asks]
            self._run.denied += sum(verdict is None or not verdict.admitted for verdict in verdicts)


PAUSES_MS = (5, 50, 500, 5_000)


def simulate(
    run: Run, processes: int, steps: int, pauses_ms: tuple[int, ...] = PAUSES_MS
) -> Iterator[None]:
    """Go through a run step by step, so that the caller can look at every moment of it."""
    crew = [Process(run) for _ in range(processes)]
    for _ in range(steps):
        busy = [process for process in crew if process.is_busy]
        overdue = [p for p in busy if run.now_ms - p.sent_ms > FLIGHT_MS - 10]
        process = run.random.choice(overdue or crew)
        if process.is_busy:
            process.arrive()
        else:
            process.begin()
        longest = 10 if any(p.is_busy for p in crew) else run.random.choice(pauses_ms)
        run.now_ms += run.random.randrange(longest)
        yield


def tolerance(run: Run, limit: Limit) -> int:
    """What may go unsettled: the credit over T, and over the time a write is under way.

    A limit that refills at boundaries is exact.
    """
    if limit.window is not None:
        return 0
    unsettled_ms = make_terms(run.limits).tolerance_ms + 2 * FLIGHT_MS
    return credit(limit, START, START + unsettled_ms) + 1


LIMITS = [
    (Limit.per(10, 1_000),),
    (Limit.per(20, 1_000, burst=30, window=Window()),),
    (
        Limit.per(30, 1_000, name="fast"),
        Limit.per(7, 60_000, name="slow", burst=20),
        Limit.per(25, 3_000, name="window", window=Window(carry_debt=False)),
    ),
    (
        Limit.per(100, 1_000, name="a"),
        Limit.per(50, 2_000, name="b", window=Window()),
        Limit.per(3_000, 3_600_000, name="c", burst=100),
    ),
    (
        Limit.per(25, Unit.MONTH.value, name="month", window=CALENDARS[0]),
        Limit.per(30, 1_000, name="steady"),
    ),
    (Limit.per(25, Unit.DAY.value, burst=40, window=CALENDARS[1]),),
]


@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@pytest.mark.parametrize("cascades", [False, True], ids=["alone", "cascade"])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(2, 300), loses_answers=st.booleans())
@example(seed=307, steps=48, loses_answers=True)  # the write that began a window lost its answer
def test_laws_hold_under_any_interleaving(
    limits: tuple[Limit, ...], cascades: bool, seed: int, steps: int, loses_answers: bool
) -> None:
    """Laws 1, 2, 3 and 5, over every window of every run."""
    run = Run(Random(seed), limits, cascades, loses_answers)
    for _ in simulate(run, processes=5, steps=steps):
        check_balances(run)
    check_totals(run)
    for i, limit in enumerate(limits):
        check_windows(run, i, limit)


def sorted_as(limits: tuple[Limit, ...], item: Item) -> list[Bucket]:
    by_name = {bucket.limit.name: bucket for bucket in item.buckets}
    return [by_name[limit.name] for limit in limits]


def check_balances(run: Run) -> None:
    """Laws 5, 3 and 1: what is there is what time and takes make it, no more and no less."""
    for key, image in run.table.images.items():
        _, expected, _ = settle(run.shadow.get(key), run.limits, run.now_ms)
        for i, bucket in enumerate(sorted_as(run.limits, image.item)):
            assert 0 <= bucket.tokens <= bucket.limit.burst
            actual = bucket.balance(image.item.refilled_ms, run.now_ms)
            assert abs(actual - expected[i]) <= tolerance(run, bucket.limit)


def check_totals(run: Run) -> None:
    """Law 2: the record says what was admitted, whatever the interleaving."""
    for key in run.levels():
        if key not in run.table.images:
            assert not run.admitted
            continue
        for i, bucket in enumerate(sorted_as(run.limits, run.table.images[key].item)):
            landed = [amounts[i] for _, amounts in run.admitted] + [a[i] for a in run.unknown]
            assert bucket.consumed == sum(landed)


def check_windows(run: Run, i: int, limit: Limit) -> None:
    """Law 1: no window admits more than burst and credit, and the tolerance.

    A write that was sent before a boundary may land after it, in the window that another write has
    begun. So of a limit with windows, the time counts at which a write landed.
    """
    times = run.landed_ms if limit.window else [sent_ms for sent_ms, _ in run.admitted]
    for first, (start_ms, _) in enumerate(run.admitted):
        total = latest_ms = 0
        for now_ms, (_, amounts) in zip(times[first:], run.admitted[first:], strict=True):
            total, latest_ms = total + amounts[i], max(latest_ms, now_ms)
            most = limit.burst + credit(limit, start_ms, latest_ms + run.ahead_ms)
            assert total <= most + tolerance(run, limit)


@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@pytest.mark.parametrize("cascades", [False, True], ids=["alone", "cascade"])
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(2, 300),
    ahead_ms=st.sampled_from([1_000, 62_000, 180_000, CLOCKS_APART_MS]),
)
def test_laws_hold_while_clocks_differ_by_up_to_an_hour(
    limits: tuple[Limit, ...], cascades: bool, seed: int, steps: int, ahead_ms: int
) -> None:
    """Laws 1, 2 and 5: clocks that are ahead give the refill of that time early, once."""
    run = Run(Random(seed), limits, cascades, ahead_ms=ahead_ms)
    rf = dict.fromkeys(run.levels(), 0)
    # The last pause is long enough for items to expire.
    for _ in simulate(run, processes=5, steps=steps, pauses_ms=(*PAUSES_MS, 10_000_000)):
        for key, image in run.table.images.items():
            assert image.item.refilled_ms >= rf[key]
            rf[key] = image.item.refilled_ms
            assert all(0 <= b.tokens <= b.limit.burst for b in image.item.buckets)
    for i, limit in enumerate(limits):
        check_windows(run, i, limit)


@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(2, 300))
@example(seed=23846, steps=83)  # ten lost races, and then a refund to a bucket that is nearly full
def test_refunds_never_lift_a_bucket_above_its_burst(
    limits: tuple[Limit, ...], seed: int, steps: int
) -> None:
    """Nor do they get lost, whoever else writes."""
    run = Run(Random(seed), limits, refunds=True)
    for _ in simulate(run, processes=5, steps=steps):
        check_balances(run)


def check_verdicts(
    run: Run, sent: Sequence[Ask], images: Mapping[Key, Image], sent_ms: int
) -> None:
    """What callers were told is what the items said in the moment of the write.

    Credit that is younger than T may count or not: a write that only consumes does not settle.
    """
    since_ms = make_terms(run.limits).since_ms(sent_ms)
    items = {key: image.live(sent_ms) for key, image in images.items()}
    for ask in sent:
        assert ask.verdict is not None
        for take, taken in zip(ask.takes, ask.verdict.taken, strict=True):
            told = [drawn.fits for drawn in taken.drawn]
            item = items.get(take.key)
            true = Draft(item, take, sent_ms)
            settled_ms = max(item.refilled_ms if item else 0, since_ms)
            assert told in (true.fits, Draft(item, take, settled_ms).fits)
            items[take.key] = true.item() or item
            if take.draws[0].mode is Mode.CHARGE:
                run.charged[all(true.fits)] += 1


@pytest.mark.parametrize("limits", LIMITS, ids=range(len(LIMITS)))
@pytest.mark.parametrize("cascades", [False, True], ids=["alone", "cascade"])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(2, 300))
def test_verdicts_are_true_under_any_interleaving(
    limits: tuple[Limit, ...], cascades: bool, seed: int, steps: int
) -> None:
    """Takes, charges and refunds of five processes: a transaction tells no verdict of a hint."""
    run = Run(Random(seed), limits, cascades, refunds=True, charges=True)
    for _ in simulate(run, processes=5, steps=steps):
        pass


FORGETS = (Limit.per(12, 700, burst=18, window=Window(carry_debt=False)),)
OWES = (Limit.per(12, 700, burst=18, window=Window()),)


@pytest.mark.parametrize("limits", [FORGETS, OWES], ids=["forgotten", "carried"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(2, 300))
def test_a_debt_is_forgotten_at_a_boundary_or_carried_over_it(
    limits: tuple[Limit, ...], seed: int, steps: int
) -> None:
    """Whoever settles the item, and however deep others go meanwhile."""
    run = Run(Random(seed), limits, refunds=True, charges=True, max_debt=NO_BOUND)
    for _ in simulate(run, processes=5, steps=steps):
        for key, image in run.table.images.items():
            _, (expected,), _ = settle(run.shadow[key], limits, run.now_ms)
            (bucket,) = image.item.buckets
            assert bucket.balance(image.item.refilled_ms, run.now_ms) == expected


def test_charges_of_a_run_fit_and_do_not_fit() -> None:
    """A model in which every charge has the same verdict would prove nothing."""
    run = Run(Random(1), LIMITS[0], cascades=True, refunds=True, charges=True)
    for _ in simulate(run, processes=5, steps=2_000):
        pass
    assert min(run.charged[True], run.charged[False]) > 100


def test_the_runs_admit_and_deny() -> None:
    """A model in which nothing ever happens would keep every law."""
    run = Run(Random(1), LIMITS[0])
    for _ in simulate(run, processes=5, steps=2_000):
        pass
    assert len(run.admitted) > 100
    assert run.denied > 100


def test_the_runs_upsert_with_every_outcome() -> None:
    """An item is created by one write; one that is there is consumed from, or refuses."""
    found: Counter[str] = Counter()
    for seed in range(40):
        run = Run(Random(seed), LIMITS[0])
        for _ in simulate(run, processes=5, steps=60):
            pass
        found += run.upserted
    assert found["nothing"] == 40
    assert min(found["item"], found["refused"]) > 40
