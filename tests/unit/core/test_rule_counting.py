"""How rules count that say nothing else: steadily, in fixed windows, or as the reference server."""

import pytest
from penstock.core.bucket import Item
from penstock.core.decide import decide
from penstock.core.decision import Decision, Status
from penstock.core.entities import Level
from penstock.core.limits import Limit, Unit, Window
from penstock.core.mapping import Target
from penstock.core.match import Matched, match
from penstock.core.plan import Behaviour
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule
from penstock.core.take import Key, Mode
from penstock.core.taking import take_all

MINUTE = 60_000
NOW = 1_794_792_780_000
"""The beginning of a minute."""

FORGETS = Window(carry_debt=False)
FIVE = Limit.per(5, MINUTE, window=FORGETS)
REFERENCE = Behaviour(counting=RuleCounting.REFERENCE)


def domain(*limits: Limit, on_exceed: OnExceed | None = None) -> Domain:
    exceed = {limit.name: on_exceed for limit in limits if on_exceed is not None}
    return Domain("d", Children([Node("k", rule=Rule("d.k", limits, on_exceed=exceed))]))


def on(hits: int | None = None, override: Override | None = None) -> Descriptor:
    return Descriptor((("k", "v"),), hits, override=override)


class World:
    """Rules, and items that remember."""

    def __init__(self, rules: Domain, behaviour: Behaviour = REFERENCE) -> None:
        self.rules, self.behaviour, self.now_ms = rules, behaviour, NOW
        self.items: dict[Key, Item] = {}

    def ask(self, *descriptors: Descriptor, hits: int = 0) -> Decision:
        request = Request("d", descriptors, hits)
        plan = make_plan(match(self.rules, request, self.behaviour), request, self.behaviour)
        taken = take_all(self.items.get, plan.takes, self.now_ms)
        for take, outcome in zip(plan.takes, taken, strict=True):
            if outcome.item is not None:
                self.items[take.key] = outcome.item
        return decide(plan, taken, self.behaviour, self.now_ms)


@pytest.mark.parametrize(
    ("counting", "window"),
    [
        (RuleCounting.STEADY, None),
        (RuleCounting.FIXED, Window()),
        (RuleCounting.REFERENCE, FORGETS),
    ],
)
def test_an_override_has_the_window_of_the_setting(
    counting: RuleCounting, window: Window | None
) -> None:
    """No rule says how a rate counts that a request brings."""
    status = (
        World(domain(), Behaviour(counting=counting)).ask(on(override=Override(7, Unit.HOUR)))
    ).statuses[0]
    assert status.limit == Limit.per(7, 3_600_000, window=window)


def test_denied_requests_count_until_the_window_ends() -> None:
    """What was within the limit is told apart: 3 of the second 4 were over."""
    world = World(domain(FIVE))
    assert world.ask(on(), hits=4).statuses[0] == Status(False, FIVE, 1, 60)
    assert world.ask(on(), hits=4) == Decision(True, (Status(True, FIVE, 0, 60, False, 1),))
    assert world.ask(on(), hits=4) == Decision(True, (Status(True, FIVE, 0, 60),))
    assert world.ask(on(0)).over
    world.now_ms += MINUTE - 1
    assert world.ask(on()).statuses[0] == Status(True, FIVE, 0, 1)
    world.now_ms += 1
    assert world.ask(on()).statuses[0] == Status(False, FIVE, 4, 60)


def test_a_check_sees_what_was_counted_before_it() -> None:
    """The reference server counts descriptors in their order."""
    first, second = World(domain(FIVE)).ask(on(6), on(0)).statuses
    assert (first.over, second.over) == (True, True)
    first, second = World(domain(FIVE)).ask(on(0), on(6)).statuses
    assert (first.over, second.over) == (False, True)


@pytest.mark.parametrize(
    ("limit", "on_exceed", "hits", "mode"),
    [
        (FIVE, None, None, Mode.COUNT),
        (FIVE, None, 0, Mode.COUNT),
        (FIVE, None, 3, Mode.CHARGE),
        (FIVE, OnExceed.DEBT, None, Mode.CHARGE),
        (FIVE, OnExceed.REJECT, None, Mode.TAKE),
        (Limit.per(5, MINUTE), None, None, Mode.TAKE),
        (Limit.per(5, MINUTE, window=Window()), None, None, Mode.TAKE),
    ],
)
def test_a_rules_own_words_go_before_the_setting(
    limit: Limit, on_exceed: OnExceed | None, hits: int | None, mode: Mode
) -> None:
    """Limits that keep their debt count no denied request, and reports stay reports."""
    request = Request("d", (on(hits),))
    matched = match(domain(limit, on_exceed=on_exceed), request, REFERENCE)
    plan = make_plan(matched, request, REFERENCE, own_amounts=lambda _: Mode.CHARGE)
    assert plan.takes[0].draws[0].mode is mode


def test_a_refused_amount_that_is_not_counted_has_nothing_within_the_limit() -> None:
    """It took nothing."""
    world = World(domain(FIVE, on_exceed=OnExceed.REJECT))
    assert world.ask(on(), hits=9).statuses[0].fitted == 0


def test_stored_limits_do_not_count_denied_requests() -> None:
    """The reference server has none."""
    key = Key("e", "r")
    request = Request("d", (Descriptor(()),))
    chain = (Level(key, (FIVE._replace(name="rpm"),), read_ms=0, is_own=True),)
    matched = Matched(domain(), (Target("e", "r", None),))
    plan = make_plan(matched, request, REFERENCE, {key: chain})
    assert plan.takes[0].draws[0].mode is Mode.TAKE


def test_a_limit_of_0_counts_in_full_within_a_window() -> None:
    """So a refund of less than was counted leaves it over its limit."""
    none = Limit.per(0, MINUTE, window=FORGETS)
    world = World(domain(none))
    assert not world.ask(on(0)).over
    assert world.ask(on(), hits=5).over
    world.ask(Descriptor((("k", "v"),), 3, refund=True))
    assert world.ask(on(0)).over
    world.ask(Descriptor((("k", "v"),), 2, refund=True))
    assert not world.ask(on(0)).over
