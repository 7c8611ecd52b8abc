"""The rule of all or none, and what each mode does with a bucket."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import CLOCKS_APART_MS, Bucket, Item
from penstock.core.draft import CLOCKS_AGREE_MS, Draft
from penstock.core.limits import MILLI, NO_BOUND, Limit
from penstock.core.take import Denies, Draw, Drawn, Key, Mode, Take, Taken, must_land_part
from penstock.core.taking import take_all

from tests.unit.core.strategies import EPOCH_MS, amounts, limits, steps_ms

FIVE = Limit.per(5, 60_000)
KEY = Key("user=bob", "$domain:d")
OTHER = Key("user=eve", "$domain:d")
MODES = st.sampled_from(list(Mode))
DENIES = st.sampled_from(list(Denies))
DEBTS = st.sampled_from([None, NO_BOUND, 1, 2 * MILLI, 30 * MILLI])


def take(*draws: Draw, key: Key = KEY, limits: tuple[Limit, ...] = (FIVE,)) -> Take:
    return Take(key, limits, draws)


def holding(tokens: int, limit: Limit = FIVE) -> Item:
    return Item(EPOCH_MS, (Bucket(limit, tokens * MILLI, 0),))


def one(item: Item | None, *draws: Draw) -> Taken:
    return take_all({KEY: item}.get, [take(*draws)], EPOCH_MS)[0]


@pytest.mark.parametrize(
    ("held", "mode", "tokens", "fits", "left"),
    [
        (5, Mode.TAKE, 5, True, 0),
        (4, Mode.TAKE, 5, False, 4),
        (0, Mode.TAKE, 0, True, 0),
        (-1, Mode.TAKE, 0, False, -1),
        (4, Mode.CHARGE, 3, True, 1),
        (2, Mode.CHARGE, 6, False, -4),
        (2, Mode.CHARGE, 2**63, False, -5),
        (-7, Mode.CHARGE, 1, False, -7),
        (4, Mode.COUNT, 3, True, 1),
        (2, Mode.COUNT, 6, False, -4),
        (-1, Mode.COUNT, 0, False, -1),
        (4, Mode.TAKE_OR_CHARGE, 4, True, 0),
        (2, Mode.TAKE_OR_CHARGE, 6, False, -4),
        (0, Mode.TAKE_OR_CHARGE, 2**63, False, -5),
        (2, Mode.REFUND, 2, True, 4),
        (2, Mode.REFUND, 9, True, 5),
        (-3, Mode.REFUND, 1, True, -2),
    ],
)
def test_each_mode_does_what_it_says(
    held: int, mode: Mode, tokens: int, fits: bool, left: int
) -> None:
    """A take is whole or nothing, a charge stops at one burst of debt."""
    taken = one(holding(held), Draw(0, tokens * MILLI, mode, Denies.NEVER))
    assert taken.drawn == (Drawn(fits, left * MILLI),)
    assert taken.consumed == ((held - left) * MILLI,)
    if left == held:
        assert taken.item is None
    else:
        spent = (held - left) * MILLI
        takes = int(left < held)
        assert taken.item == Item(EPOCH_MS, (Bucket(FIVE, left * MILLI, spent),), takes=takes)


def test_a_new_item_starts_full() -> None:
    """The first take of all finds the burst."""
    taken = one(None, Draw(0, 2 * MILLI))
    assert taken.item == Item(EPOCH_MS, (Bucket(FIVE, 3 * MILLI, 2 * MILLI),), takes=1)


@pytest.mark.parametrize(
    ("beside", "amount", "left"),
    [(Mode.TAKE, 2, 0), (Mode.TAKE, 3, -1), (Mode.REFUND, 2, 4)],
)
def test_what_may_be_either_counts_what_its_descriptor_takes_beside(
    beside: Mode, amount: int, left: int
) -> None:
    """Of five: if both fit, both are taken; else it is charged after the other is taken."""
    draws = Draw(0, 3 * MILLI, beside), Draw(0, amount * MILLI, Mode.TAKE_OR_CHARGE)
    taken = one(holding(5 if beside is not Mode.REFUND else 3), *draws)
    assert taken.item is not None
    assert taken.item.buckets[0].tokens == left * MILLI


def test_all_that_may_be_either_in_a_descriptor_is_alike() -> None:
    """One amount of it that does not fit makes a report of it, for every limit."""
    two = Limit.per(2, 1_000, name="two")
    draws = (Draw(0, 4 * MILLI, Mode.TAKE_OR_CHARGE), Draw(1, 4 * MILLI, Mode.TAKE_OR_CHARGE))
    (taken,) = take_all(lambda _: None, [Take(KEY, (FIVE, two), draws)], EPOCH_MS)
    assert [drawn.fits for drawn in taken.drawn] == [True, False]
    assert taken.item is not None
    assert [bucket.tokens for bucket in taken.item.buckets] == [1 * MILLI, -2 * MILLI]


def test_each_draw_reports_what_it_left() -> None:
    """In order, first the takes, then what is charged and refunded."""
    draws = (
        Draw(0, 2 * MILLI, descriptor=0),
        Draw(0, 4 * MILLI, Mode.CHARGE, descriptor=1),
        Draw(0, MILLI, descriptor=2),
        Draw(0, MILLI, Mode.REFUND, descriptor=3),
    )
    taken = one(holding(5), *draws)
    assert [drawn.balance // MILLI for drawn in taken.drawn] == [3, -2, 2, -1]
    assert [amount // MILLI for amount in taken.consumed] == [2, 4, 1, -1]


def test_two_draws_on_one_bucket_have_to_fit_together() -> None:
    """Three and three do not fit into five, and nothing is taken."""
    taken = one(None, Draw(0, 3 * MILLI), Draw(0, 3 * MILLI))
    assert [drawn.fits for drawn in taken.drawn] == [True, False]
    assert [drawn.balance for drawn in taken.drawn] == [5 * MILLI, 5 * MILLI]
    assert taken.item is None


def test_a_denied_take_leaves_every_item_untouched() -> None:
    """One refusal anywhere, and no item of the call changes."""
    items = {KEY: holding(5), OTHER: holding(1)}
    takes = [take(Draw(0, MILLI)), take(Draw(0, 2 * MILLI), key=OTHER)]
    taken = take_all(items.get, takes, EPOCH_MS)
    assert [outcome.item for outcome in taken] == [None, None]
    assert taken[0].drawn[0] == Drawn(True, 5 * MILLI)
    assert taken[1].drawn[0] == Drawn(False, MILLI)


@pytest.mark.parametrize(
    ("mode", "amount", "fits", "left"),
    [
        (Mode.CHARGE, 2, True, 1),
        (Mode.CHARGE, 7, False, -4),
        (Mode.REFUND, 1, True, 4),
        (Mode.TAKE_OR_CHARGE, 7, False, -4),
    ],
)
@pytest.mark.parametrize("refused", ["beside", "elsewhere"])
def test_what_is_owed_lands_in_a_call_that_is_denied(
    mode: Mode, amount: int, fits: bool, left: int, refused: str
) -> None:
    """It tells what already happened. The takes beside it find what it left, and take nothing."""
    asked = 9 if refused == "beside" else 1
    takes = [take(Draw(0, asked * MILLI), Draw(0, amount * MILLI, mode, descriptor=1))]
    takes += [take(Draw(0, 9 * MILLI), key=OTHER)] if refused == "elsewhere" else []
    taken, *_ = take_all({KEY: holding(3)}.get, takes, EPOCH_MS)
    bucket = Bucket(FIVE, left * MILLI, (3 - left) * MILLI)
    assert taken.item == Item(EPOCH_MS, (bucket,), takes=int(left < 3))
    assert taken.drawn == (Drawn(asked == 1, left * MILLI), Drawn(fits, left * MILLI))


def test_what_fits_is_no_report_while_that_is_not_known() -> None:
    """It is a cost, so a call that is denied leaves it alone."""
    fitting = Draw(0, MILLI, Mode.TAKE_OR_CHARGE)
    takes = [take(fitting), take(Draw(0, 9 * MILLI), key=OTHER)]
    assert take_all({KEY: holding(3)}.get, takes, EPOCH_MS)[0].item is None


def test_a_charge_that_does_not_fit_denies_nothing() -> None:
    """It reports what already happened, so the take beside it is admitted."""
    taken = one(holding(3), Draw(0, MILLI), Draw(0, 9 * MILLI, Mode.CHARGE, Denies.ALONE))
    assert [drawn.fits for drawn in taken.drawn] == [True, False]
    assert taken.item is not None
    assert taken.item.buckets[0].tokens == -5 * MILLI


@pytest.mark.parametrize(
    ("first", "second", "admitted"), [(1, 1, True), (1, 9, True), (9, 1, True), (9, 9, False)]
)
def test_quotas_deny_only_together(first: int, second: int, admitted: bool) -> None:
    """As long as one of them passes, those that fit are taken and the others left alone."""
    takes = [
        take(Draw(0, first * MILLI, Mode.TAKE, Denies.TOGETHER)),
        take(Draw(0, second * MILLI, Mode.TAKE, Denies.TOGETHER), key=OTHER),
    ]
    taken = take_all({KEY: holding(5), OTHER: holding(5)}.get, takes, EPOCH_MS)
    assert any(outcome.item for outcome in taken) == admitted
    assert (taken[0].item is not None) == (first == 1)


@pytest.mark.parametrize(
    ("mode", "amount", "admitted"),
    [(Mode.CHARGE, 1, True), (Mode.CHARGE, 9, False), (Mode.REFUND, 1, True)],
)
def test_a_report_on_a_quota_counts_as_a_quota(mode: Mode, amount: int, admitted: bool) -> None:
    """A quota that is charged within its means passes for the one that is refused."""
    takes = [
        take(Draw(0, 9 * MILLI, Mode.TAKE, Denies.TOGETHER)),
        take(Draw(0, amount * MILLI, mode, Denies.TOGETHER), key=OTHER),
        take(Draw(0, MILLI), key=Key("user=carol", "$domain:d")),
    ]
    taken = take_all({KEY: holding(5), OTHER: holding(3)}.get, takes, EPOCH_MS)
    assert (taken[2].item is not None) == admitted


@pytest.mark.parametrize("denies", [Denies.NEVER, Denies.TOGETHER])
def test_what_one_descriptor_asks_for_is_taken_whole_or_not_at_all(denies: Denies) -> None:
    """Also where it denies nobody: of two limits, the one that fits is left alone, too."""
    rpm, tpm = Limit.per(5, 60_000, name="rpm"), Limit.per(100, 60_000, name="tpm")
    asked = Take(
        KEY,
        (rpm, tpm),
        (
            Draw(0, MILLI, Mode.TAKE, denies, 0),
            Draw(1, 101 * MILLI, Mode.TAKE, denies, 0),
            Draw(0, 2 * MILLI, Mode.TAKE, Denies.NEVER, 1),
        ),
    )
    (taken,) = take_all({KEY: None}.get, [asked], EPOCH_MS)
    assert [drawn.fits for drawn in taken.drawn] == [True, False, True]
    if denies is Denies.TOGETHER:
        assert taken.item is None
    else:
        assert taken.item is not None
        assert [bucket.tokens for bucket in taken.item.buckets] == [3 * MILLI, 100 * MILLI]


@pytest.mark.parametrize(
    ("mode", "must_land"),
    [
        (Mode.TAKE, False),
        (Mode.CHARGE, True),
        (Mode.COUNT, True),
        (Mode.TAKE_OR_CHARGE, True),
        (Mode.REFUND, True),
    ],
)
def test_reports_must_land(mode: Mode, must_land: bool) -> None:
    """What already happened is due even if nobody waits for the answer."""
    assert take(Draw(0, 1, Mode.TAKE), Draw(0, 1, mode)).must_land == must_land


ANY_STEP = steps_ms | st.integers(-2 * CLOCKS_APART_MS, 0)
"""Some clocks go back, by more than an hour, too."""


@given(limits(), st.integers(-50, 50), amounts, ANY_STEP, DENIES, st.booleans())
def test_the_plain_take_is_the_general_one(
    limit: Limit, tokens: int, amount: int, step: int, denies: Denies, exists: bool
) -> None:
    """The short way for one limit and one amount decides and writes as the long way does."""
    bucket = Bucket(limit, min(tokens * MILLI, limit.burst), 7)
    items = {KEY: Item(EPOCH_MS, (bucket,)) if exists else None}
    plain = Take(KEY, (limit,), (Draw(0, amount, Mode.TAKE, denies),))
    assert plain.is_plain
    # A second draw that changes nothing and never denies takes it off the short way.
    nothing = Draw(0, 0, Mode.REFUND, Denies.NEVER)
    general = replace(plain, draws=(*plain.draws, nothing))
    assert not general.is_plain
    (short,) = take_all(items.get, [plain], EPOCH_MS + step)
    (long,) = take_all(items.get, [general], EPOCH_MS + step)
    assert short.drawn == long.drawn[:1]
    assert short.consumed == long.consumed[:1]
    assert short.item == long.item
    assert short.refilled_ms == long.refilled_ms


@given(
    st.lists(st.tuples(limits(), st.integers(-50, 50), amounts), min_size=2, max_size=3),
    ANY_STEP,
    st.integers(-2 * CLOCKS_AGREE_MS, 2 * CLOCKS_AGREE_MS),
    DENIES,
    st.data(),
)
def test_the_take_from_several_limits_is_the_general_one(
    each: list[tuple[Limit, int, int]], step: int, read: int, denies: Denies, data: st.DataObject
) -> None:
    """The short way for several limits decides and writes as the long way does."""
    own = tuple(limit._replace(name=str(number)) for number, (limit, *_) in enumerate(each))
    buckets = [
        Bucket(limit, min(tokens * MILLI, limit.burst), 7)
        for limit, (_, tokens, _) in zip(own, each, strict=True)
    ]
    item = Item(EPOCH_MS, tuple(buckets), EPOCH_MS + read, 3)
    order = data.draw(st.permutations(range(len(each))))[: data.draw(st.integers(1, len(each)))]
    draws = [Draw(number, each[number][2], Mode.TAKE, denies) for number in order]
    several = Take(KEY, own, tuple(draws), policy_ms=EPOCH_MS)
    assert several.is_spread
    # A second descriptor that changes nothing and never denies takes it off the short way.
    nothing = Draw(0, 0, Mode.REFUND, Denies.NEVER, descriptor=1)
    general = replace(several, draws=(*several.draws, nothing))
    assert not general.is_spread
    (short,) = take_all({KEY: item}.get, [several], EPOCH_MS + step)
    (long,) = take_all({KEY: item}.get, [general], EPOCH_MS + step)
    assert short.drawn == long.drawn[:-1]
    assert short.item == long.item
    assert short.consumed == long.consumed[:-1]
    assert short.refilled_ms == long.refilled_ms


@pytest.mark.parametrize(
    "draws",
    [(Draw(0, MILLI),), (Draw(0, MILLI), Draw(0, MILLI)), (Draw(0, MILLI), Draw(1, MILLI))],
)
@pytest.mark.parametrize("ahead", [CLOCKS_APART_MS, CLOCKS_APART_MS + 1])
def test_a_refused_take_brings_an_rf_back_that_is_far_ahead(
    draws: tuple[Draw, ...], ahead: int
) -> None:
    """A bucket that only ever refuses would stand still for as long as a clock was wrong."""
    limits = (FIVE, FIVE._replace(name="other"))[: 1 + max(draw.limit for draw in draws)]
    buckets = tuple([Bucket(limit, 0, 7) for limit in limits])
    empty = Item(EPOCH_MS + ahead, buckets)
    (taken,) = take_all({KEY: empty}.get, [take(*draws, limits=limits)], EPOCH_MS)
    is_far = ahead > CLOCKS_APART_MS
    assert taken.item == (Item(EPOCH_MS, buckets) if is_far else None)
    assert taken.refilled_ms == (EPOCH_MS if is_far else EPOCH_MS + ahead)


@given(
    st.lists(limits(), min_size=1, max_size=3),
    st.lists(st.tuples(MODES, DENIES, amounts, st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(st.integers(-60, 60), min_size=3, max_size=3),
    st.lists(DEBTS, min_size=3, max_size=3),
    steps_ms,
)
def test_whatever_is_asked_the_laws_hold(
    policy: list[Limit],
    asked: list[tuple[Mode, Denies, int, int]],
    held: list[int],
    debts: list[int | None],
    step: int,
) -> None:
    """No take goes below zero, no charge below the most debt; the record is what left the bucket.

    What a charge could not put on record is told, to the last thousandth.
    """
    named = tuple(limit._replace(name=str(number)) for number, limit in enumerate(policy))
    buckets = [
        Bucket(limit, min(tokens * MILLI, limit.burst), 11)
        for limit, tokens in zip(named, held, strict=False)
    ]
    item = Item(EPOCH_MS, tuple(buckets))
    draws = tuple(
        Draw(number % len(named), amount, mode, denies, descriptor, debts[number % len(named)])
        for descriptor, (mode, denies, amount, number) in enumerate(asked)
    )
    now = EPOCH_MS + step
    (taken,) = take_all({KEY: item}.get, [Take(KEY, named, draws)], now)
    if all(draw.mode in (Mode.CHARGE, Mode.COUNT) for draw in draws):
        found = [bucket.balance(EPOCH_MS, now) for bucket in buckets]
        left = found if taken.item is None else [bucket.tokens for bucket in taken.item.buckets]
        assert sum(found) - sum(left) + taken.dropped == sum(draw.amount for draw in draws)
    denied = any(
        not drawn.fits and draw.denies is Denies.ALONE and draw.mode is Mode.TAKE
        for draw, drawn in zip(draws, taken.drawn, strict=True)
    )
    if denied:
        owed = tuple(draw for draw in draws if draw.mode in (Mode.CHARGE, Mode.COUNT, Mode.REFUND))
        if all(draw.mode is not Mode.TAKE_OR_CHARGE for draw in draws):
            assert taken.item == take_all({KEY: item}.get, [Take(KEY, named, owed)], now)[0].item
    consumed = dict.fromkeys(range(len(named)), 0)
    for draw, amount in zip(draws, taken.consumed, strict=True):
        consumed[draw.limit] += amount
    if taken.item is None:
        assert not any(consumed.values())
        return
    charges = (Mode.CHARGE, Mode.COUNT, Mode.TAKE_OR_CHARGE)
    charged = {draw.limit for draw in draws if draw.mode in charges}
    for number, (before, after) in enumerate(zip(buckets, taken.item.buckets, strict=True)):
        balance = before.balance(EPOCH_MS, now)
        deepest = Draw(number, 0, max_debt=debts[number]).deepest_debt(before.limit)
        floor = -deepest if number in charged else 0
        assert min(balance, floor) <= after.tokens <= before.limit.burst
        assert after.consumed - before.consumed == balance - after.tokens == consumed[number]


@given(
    st.lists(st.tuples(MODES, amounts, st.integers(0, 1)), min_size=1, max_size=6),
    st.lists(st.integers(-5, 5), min_size=2, max_size=2),
)
def test_what_is_owed_can_be_written_apart(
    asked: list[tuple[Mode, int, int]], held: list[int]
) -> None:
    """A denied take whose charges and refunds are a write of their own comes to the same."""
    limits = (FIVE._replace(name="a"), FIVE._replace(name="b"))
    buckets = [Bucket(limit, n * MILLI, 0) for limit, n in zip(limits, held, strict=True)]
    item = Item(EPOCH_MS, tuple(buckets))
    draws = [Draw(i, amount, mode, descriptor=n) for n, (mode, amount, i) in enumerate(asked)]
    draft = Draft(item, Take(KEY, limits, tuple(draws)), EPOCH_MS)
    at_once = draft.taken(denied=True)
    owed = Draft(item, must_land_part(draft.take, draft.modes), EPOCH_MS)
    assert draft.taken_apart(owed)._replace(item=owed.item()) == at_once
    assert draft.left_if_denied == owed.left


@pytest.mark.parametrize(
    ("held", "mode", "has_takes"),
    [
        (5, Mode.TAKE, True),
        (5, Mode.TAKE_OR_CHARGE, True),
        (0, Mode.TAKE_OR_CHARGE, False),
        (5, Mode.CHARGE, False),
        (5, Mode.COUNT, False),
        (5, Mode.REFUND, False),
    ],
)
def test_a_draft_knows_whether_it_only_reports(held: int, mode: Mode, has_takes: bool) -> None:
    """Charges and refunds tell what already happened; all else asks for something."""
    draft = Draft(holding(held), take(Draw(0, MILLI, mode)), EPOCH_MS)
    assert draft.has_takes is has_takes


SLOW, FAST = Limit.per(5, 86_400_000), Limit.per(5, 1_000)


@pytest.mark.parametrize("limits", [(FAST,), (FAST, Limit.per(9, 1_000, name="other"))])
def test_a_refused_take_brings_its_item_to_a_policy_that_has_changed(
    limits: tuple[Limit, ...],
) -> None:
    """At its old rate it might refuse for a day. It consumes nothing all the same."""
    empty = Item(EPOCH_MS, (Bucket(SLOW, 0, 7),))
    asked = Take(KEY, limits, tuple(Draw(i, MILLI) for i in range(len(limits))))
    (taken,) = take_all({KEY: empty}.get, [asked], EPOCH_MS)
    assert not taken.drawn[0].fits
    assert taken.item is not None
    assert taken.item.buckets[0] == Bucket(FAST, 0, 7)
    assert [bucket.consumed for bucket in taken.item.buckets[1:]] == [0] * (len(limits) - 1)
    (again,) = take_all({KEY: taken.item}.get, [asked], EPOCH_MS)
    assert again.item is None


def test_a_check_brings_no_item_to_its_policy() -> None:
    """It only looks, as long as it is not refused."""
    full = Item(EPOCH_MS, (Bucket(SLOW, 5 * MILLI, 0),))
    (taken,) = take_all({KEY: full}.get, [Take(KEY, (FAST,), (Draw(0, 0),))], EPOCH_MS)
    assert taken.item is None


OLD, NEW = 100, 200
RPM, TPM = Limit.per(5, 1_000, name="rpm"), Limit.per(9, 1_000, name="tpm")
NEWER = Item(EPOCH_MS, (Bucket(RPM, 5 * MILLI, 0), Bucket(TPM, 9 * MILLI, 0)), NEW)


def test_limits_that_were_read_later_go_before() -> None:
    """A server that does not know of a cut yet goes by it, and leaves what it does not know."""
    generous = Limit.per(100, 1_000, name="rpm")
    asked = Take(KEY, (generous,), (Draw(0, 6 * MILLI),), None, OLD)
    (taken,) = take_all({KEY: NEWER}.get, [asked], EPOCH_MS)
    assert taken == Taken((Drawn(False, 5 * MILLI),), None, EPOCH_MS, consumed=(0,))
    asked = Take(KEY, (generous,), (Draw(0, 2 * MILLI),), None, OLD)
    (taken,) = take_all({KEY: NEWER}.get, [asked], EPOCH_MS)
    assert taken.drawn == (Drawn(True, 3 * MILLI),)
    assert taken.item == Item(
        EPOCH_MS, (Bucket(RPM, 3 * MILLI, 2 * MILLI), Bucket(TPM, 9 * MILLI, 0)), NEW, takes=1
    )


def test_limits_that_are_gone_are_not_brought_back() -> None:
    """What is asked of them fits, and is not on record anywhere."""
    gone = Limit.per(7, 1_000, name="gone")
    draws = (Draw(0, MILLI), Draw(1, MILLI))
    (taken,) = take_all({KEY: NEWER}.get, [Take(KEY, (gone, RPM), draws, None, OLD)], EPOCH_MS)
    assert [drawn.fits for drawn in taken.drawn] == [True, True]
    assert taken.item is not None
    assert [bucket.limit.name for bucket in taken.item.buckets] == ["rpm", "tpm"]


def test_who_read_the_limits_last_brings_the_item_to_them() -> None:
    """Whatever they say."""
    (taken,) = take_all(
        {KEY: NEWER}.get, [Take(KEY, (TPM,), (Draw(0, MILLI),), None, NEW + 1)], EPOCH_MS
    )
    assert taken.item == Item(EPOCH_MS, (Bucket(TPM, 8 * MILLI, MILLI),), NEW + 1, takes=1)


@pytest.mark.parametrize("limits", [(RPM,), (RPM, TPM)])
def test_the_same_limits_read_earlier_make_an_item_no_older(limits: tuple[Limit, ...]) -> None:
    """Or a third server, which read others in between, would be right."""
    item = Item(EPOCH_MS, tuple(Bucket(limit, limit.burst, 0) for limit in limits), NEW)
    (taken,) = take_all({KEY: item}.get, [Take(KEY, limits, (Draw(0, 1),), None, OLD)], EPOCH_MS)
    assert taken.item is not None
    assert taken.item.policy_ms == NEW


@pytest.mark.parametrize("read_ms", [OLD, NEW, NEW + 1, EPOCH_MS + CLOCKS_AGREE_MS + 1])
def test_a_lone_limit_under_another_name_is_the_same_limit(read_ms: int) -> None:
    """Whoever read the newer name: the balance is one, and no limit starts full anew."""
    item = Item(EPOCH_MS, (Bucket(RPM, 2 * MILLI, 3 * MILLI),), read_ms)
    named = RPM._replace(name="requests")
    asked = Take(KEY, (named,), (Draw(0, MILLI),), None, NEW)
    is_newer = NEW < read_ms < EPOCH_MS
    for left in (1, 0):
        (taken,) = take_all({KEY: item}.get, [asked], EPOCH_MS)
        assert taken.drawn == (Drawn(True, left * MILLI),)
        assert taken.item is not None
        item = taken.item
        (bucket,) = item.buckets
        assert bucket.limit.name == ("rpm" if is_newer else "requests")
        assert bucket.consumed == (5 - left) * MILLI
    assert not take_all({KEY: item}.get, [asked], EPOCH_MS)[0].drawn[0].fits


AHEAD = EPOCH_MS + CLOCKS_AGREE_MS + 1
"""When the limits of an item were read, by a clock that was ahead."""


@pytest.mark.parametrize("read_ms", [AHEAD - 1, AHEAD])
def test_limits_that_a_clock_ahead_read_hold_off_no_change(read_ms: int) -> None:
    """They seem newer than any that are read until then. Within some seconds they may be."""
    item = Item(EPOCH_MS, (Bucket(RPM, 5 * MILLI, 0),), read_ms)
    raised = Limit.per(5, 100, name="rpm")
    asked = Take(KEY, (raised,), (Draw(0, MILLI),), None, EPOCH_MS - 9)
    (taken,) = take_all({KEY: item}.get, [asked], EPOCH_MS)
    applies = read_ms == AHEAD
    assert taken.item == Item(
        EPOCH_MS,
        (Bucket(raised if applies else RPM, 4 * MILLI, MILLI),),
        EPOCH_MS if applies else read_ms,
        takes=1,
    )


def test_a_limit_that_a_clock_ahead_added_is_neither_dropped_nor_filled_again() -> None:
    """The server with that clock may be alive, and would start it full at each of its takes."""
    used = Item(EPOCH_MS, (Bucket(RPM, 5 * MILLI, 0), Bucket(TPM, 2 * MILLI, 7 * MILLI)), AHEAD)
    ours = Take(KEY, (RPM,), (Draw(0, MILLI),), None, OLD)
    theirs = Take(KEY, (RPM, TPM), (Draw(1, MILLI),), None, AHEAD)
    item: Item | None = used
    for asked in (ours, ours, theirs, ours):
        (taken,) = take_all({KEY: item}.get, [asked], EPOCH_MS)
        item = taken.item
    assert item is not None
    assert item.buckets == (Bucket(RPM, 2 * MILLI, 3 * MILLI), Bucket(TPM, MILLI, 8 * MILLI))


@pytest.mark.parametrize("draws", [(Draw(0, MILLI),), (Draw(0, MILLI), Draw(0, MILLI))])
def test_the_time_of_reading_comes_back_with_the_next_write(draws: tuple[Draw, ...]) -> None:
    """Under the same limits, too: a change that comes later is then known as later."""
    item = Item(EPOCH_MS, (Bucket(FIVE, 5 * MILLI, 0),), AHEAD)
    (taken,) = take_all({KEY: item}.get, [Take(KEY, (FIVE,), draws, None, NEW)], EPOCH_MS)
    assert taken.item is not None
    assert taken.item.policy_ms == NEW


@pytest.mark.parametrize(
    ("held", "max_debt", "charged", "left", "dropped"),
    [
        (2, None, 6, -4, 0),
        (2, None, 9, -5, 2),
        (2, 1, 9, -1, 6),
        (2, 100, 102, -100, 0),
        (-99, 100, 9, -100, 8),
        (-7, 3, 2, -7, 2),
        (2, NO_BOUND, 2**64, 2 - 2**64, 0),
    ],
)
def test_a_charge_goes_as_deep_as_it_may_and_tells_the_rest(
    held: int, max_debt: int | None, charged: int, left: int, dropped: int
) -> None:
    """One burst if nothing is said. A debt that is too deep already stays."""
    bound = max_debt and max_debt * MILLI
    taken = one(holding(held), Draw(0, charged * MILLI, Mode.CHARGE, max_debt=bound))
    assert taken.drawn == (Drawn(held >= charged, left * MILLI),)
    assert taken.dropped == dropped * MILLI
    assert taken.consumed == ((charged - dropped) * MILLI,)


def test_a_charge_that_a_denied_take_leaves_alone_tells_the_rest_too() -> None:
    """Takes and charges of one call are apart: the charge lands, the take does not."""
    taken = one(holding(2), Draw(0, 3 * MILLI), Draw(0, 9 * MILLI, Mode.CHARGE, descriptor=1))
    assert taken.drawn == (Drawn(False, -5 * MILLI), Drawn(False, -5 * MILLI))
    assert taken.dropped == 2 * MILLI


def test_a_limit_of_zero_keeps_one_token_of_a_charge() -> None:
    """However deep a debt may be: one token tells that it was charged, the rest is told."""
    zero = Limit.per(0, 60_000)
    charge = Draw(0, 7 * MILLI, Mode.CHARGE, max_debt=NO_BOUND)
    (taken,) = take_all({KEY: None}.get, [take(charge, limits=(zero,))], EPOCH_MS)
    assert taken.drawn == (Drawn(False, -MILLI),)
    assert taken.dropped == 6 * MILLI
