"""How much of the amounts that clients report was charged."""

import pytest
from penstock.core.bucket import Item
from penstock.core.charged import find_charged
from penstock.core.decide import decide
from penstock.core.decision import Decision, Status
from penstock.core.limits import MILLI, Limit
from penstock.core.match import match
from penstock.core.plan import Behaviour, Leg, Part, Plan
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule
from penstock.core.take import Key, Mode, Taken
from penstock.core.taking import take_all

NOW = 1_794_792_817_000
FIVE = Limit.per(5, 60_000, name="n")
OTHER = Limit.per(7, 60_000, name="other")


def node(key: str, on_exceed: OnExceed | None, *limits: Limit) -> Node:
    modes = {limit.name: on_exceed for limit in limits} if on_exceed else {}
    return Node(key, rule=Rule("", limits, on_exceed=modes))


DOMAIN = Domain(
    "d",
    Children(
        [
            node("debt", OnExceed.DEBT, FIVE),
            node("cost", OnExceed.REJECT, FIVE),
            node("both", OnExceed.DEBT, OTHER, FIVE),
            Node("replacing", rule=Rule("", (), replaces=frozenset({"n"}))),
        ]
    ),
)


def charged(*descriptors: Descriptor) -> list[int | None]:
    request = Request("d", descriptors)
    behaviour = Behaviour()
    matched = match(DOMAIN, request, behaviour)
    plan = make_plan(matched, request, behaviour, own_amounts=lambda _: Mode.TAKE)
    items: dict[Key, Item] = {}
    taken = take_all(items.get, plan.takes, NOW)
    return find_charged(request, plan, taken, decide(plan, taken, behaviour, NOW))


def on(key: str, hits: int | None, *, refund: bool = False) -> Descriptor:
    return Descriptor(((key, "v"),), hits, refund)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([on("debt", 3)], [3]),
        ([on("debt", 8)], [8]),
        ([on("debt", 25)], [10]),  # five that were left, and a debt of one burst
        ([on("cost", 5)], [5]),
        ([on("cost", 8)], [0]),
        ([on("both", 6)], [6]),
        ([on("debt", 25), on("cost", 6)], [10, 0]),  # a report lands beside a refused cost
        ([on("debt", 0)], [None]),
        ([on("debt", None)], [None]),
        ([on("debt", 2, refund=True)], [None]),
        ([on("none", 3)], [None]),
        ([on("debt", 3), on("replacing", None)], [None, None]),
    ],
)
def test_what_was_charged(asked: list[Descriptor], expected: list[int | None]) -> None:
    """By the limit in the descriptor's status. None where there was nothing to charge."""
    assert charged(*asked) == expected


def charged_of(status: Status, *legs: Leg) -> int | None:
    """For 4 hits that took 6 tokens of one limit, and nothing of the other."""
    request = Request("d", (on("api_key", 4),))
    plan = Plan((), (Part(Rule("", (FIVE,)), legs, quota=False),), False)
    taken = [Taken((), None, NOW, consumed=(0, 6 * MILLI))]
    (told,) = find_charged(request, plan, taken, Decision(False, (status,)))
    return told


def test_an_amount_of_a_mapping_is_counted_in_the_clients_units() -> None:
    """A mapping may take a multiple of the hits, or nothing at all."""
    status = Status(limit=FIVE)
    assert charged_of(status, Leg(0, 1, (FIVE,), (8 * MILLI,))) == 3
    assert charged_of(status, Leg(0, 0, (FIVE,), (0,))) == 4


def test_the_limit_of_the_status_counts() -> None:
    """It may be a parent's, or none."""
    child, parent = Leg(0, 0, (OTHER,), (MILLI,)), Leg(0, 1, (FIVE,), (6 * MILLI,))
    assert charged_of(Status(limit=FIVE), child, parent) == 4
    assert charged_of(Status(), child, parent) is None
