"""From requests to takes, and from what was taken to decisions."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item
from penstock.core.decide import decide
from penstock.core.decision import UNLIMITED, UNMATCHED, Decision, Status
from penstock.core.limits import MILLI, UINT32_MAX, Limit, Unit, Window
from penstock.core.match import match
from penstock.core.plan import Behaviour
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule
from penstock.core.take import Key, Mode
from penstock.core.taking import take_all

NOW = 1_794_792_817_000
MINUTE = 60_000


def rule(
    tokens: int = 5,
    *,
    name: str = "",
    replaces: str = "",
    shadow: bool = False,
    quota: bool = False,
    on_exceed: OnExceed | None = None,
) -> Rule:
    return Rule(
        "",
        (Limit.per(tokens, MINUTE, name=name),),
        replaces=frozenset({replaces} if replaces else ()),
        shadow_mode=shadow,
        quota_mode=quota,
        on_exceed={name: on_exceed} if on_exceed else {},
    )


NODES = [
    Node("five", rule=rule()),
    Node("two", rule=rule(2)),
    Node("zero", rule=rule(0)),
    Node("window", rule=Rule("", (Limit.per(2, MINUTE, window=Window()),))),
    Node("shadow", rule=rule(1, shadow=True)),
    Node("quota1", rule=rule(1, quota=True)),
    Node("quota2", rule=rule(2, quota=True)),
    Node("shadowquota", rule=rule(0, quota=True, shadow=True)),
    Node("unlimited", rule=Rule("", ())),
    Node("named", rule=rule(3, name="n")),
    Node("replacing", rule=rule(4, name="r", replaces="n")),
    Node("free", rule=Rule("", (), replaces=frozenset({"n"}))),
    Node("debt", rule=rule(5, on_exceed=OnExceed.DEBT)),
    Node("reject", rule=rule(5, on_exceed=OnExceed.REJECT)),
    Node(
        "several",
        rule=Rule(
            "",
            (
                Limit.per(10, 1_000, name="fast"),
                Limit.per(15, 3_600_000, name="slow"),
                Limit.per(100, MINUTE, name="n"),
            ),
        ),
    ),
]
DOMAIN = Domain("d", Children(NODES))


class World:
    """A domain with items that remember, at a moment that stands still unless a test moves it."""

    def __init__(self, behaviour: Behaviour | None = None, own: Mode = Mode.TAKE) -> None:
        """`own` is what an amount of a descriptor's own is, where its rule does not say it."""
        self.items: dict[Key, Item] = {}
        self.own = own
        self.now_ms = NOW
        self.behaviour = behaviour or Behaviour()

    def ask(self, *descriptors: Descriptor | str, hits: int = 0, domain: bool = True) -> Decision:
        asked = [one if isinstance(one, Descriptor) else on(one) for one in descriptors]
        request = Request("d", tuple(asked), hits)
        matched = match(DOMAIN if domain else None, request, self.behaviour)
        plan = make_plan(matched, request, self.behaviour, own_amounts=lambda _: self.own)
        taken = take_all(self.items.get, plan.takes, self.now_ms)
        for take, outcome in zip(plan.takes, taken, strict=True):
            if outcome.item is not None:
                self.items[take.key] = outcome.item
        return decide(plan, taken, self.behaviour, self.now_ms)

    def consumed(self) -> int:
        buckets: Sequence[Bucket] = [b for item in self.items.values() for b in item.buckets]
        return sum(bucket.consumed for bucket in buckets) // MILLI


def on(key: str, hits: int | None = None, *, refund: bool = False) -> Descriptor:
    return Descriptor(((key, "v"),), hits, refund)


def test_an_unknown_domain_is_ok_and_takes_nothing() -> None:
    """It comes before overrides too."""
    override = Descriptor((("five", "v"),), override=Override(0, Unit.SECOND))
    assert World().ask(override, "five", domain=False) == Decision(False, (UNMATCHED, UNMATCHED))


def test_the_amount_is_the_descriptors_else_the_requests_else_one() -> None:
    """A descriptor's own amount may be 0; the request's 0 means 1."""
    world = World()
    assert world.ask("five").statuses[0].remaining == 4
    assert world.ask("five", hits=2).statuses[0].remaining == 2
    assert world.ask(on("five", 0), hits=2).statuses[0].remaining == 2
    assert world.ask(on("five", 1), hits=9).statuses[0].remaining == 1


def test_a_check_passes_until_there_is_debt() -> None:
    """Exactly exhausted passes; past zero it fails, with the time until the debt is paid."""
    world = World(own=Mode.CHARGE)
    world.ask(on("two", 2))
    assert not world.ask(on("two", 0)).over
    world.ask(on("two", 1))
    decision = world.ask(on("two", 0))
    assert decision.over
    assert decision.statuses[0].reset_s == 30


def test_the_reset_of_a_window_is_its_end() -> None:
    """Whatever is left, and also if nothing was taken: as the reference server has it."""
    world = World()
    answers = [world.ask(on("window", hits)).statuses[0] for hits in (0, 1, 1, 1, 3)]
    assert [status.over for status in answers] == [False, False, False, True, True]
    assert {status.reset_s for status in answers} == {60 - NOW // 1000 % 60}


def test_a_report_is_charged_past_zero() -> None:
    """Down to one burst of debt, and over is what did not fit."""
    world = World(own=Mode.CHARGE)
    decision = world.ask(on("five", 7))
    assert decision.over
    assert decision.statuses[0].remaining == 0
    assert world.consumed() == 7
    world.ask(on("five", 2**63))
    assert world.consumed() == 10


@pytest.mark.parametrize(
    ("key", "hits", "asked", "consumed"),
    [("debt", None, 7, 7), ("debt", 7, 0, 7), ("reject", 7, 0, 0), ("five", None, 7, 0)],
)
@pytest.mark.parametrize("own", [Mode.TAKE, Mode.CHARGE, Mode.TAKE_OR_CHARGE])
def test_a_rule_says_what_becomes_of_the_excess(
    key: str, hits: int | None, asked: int, consumed: int, own: Mode
) -> None:
    """Debt charges, reject does not, whether it is metered or not; and so for no amount at all."""
    world = World(own=own)
    assert world.ask(on(key, hits), hits=asked).over
    assert world.consumed() == consumed


@pytest.mark.parametrize(
    ("own", "fits", "excess"),
    [(Mode.TAKE, 3, 3), (Mode.CHARGE, 3, 10), (Mode.TAKE_OR_CHARGE, 3, 10)],
)
def test_a_descriptors_own_amount_is_a_cost_or_a_report(own: Mode, fits: int, excess: int) -> None:
    """A cost that does not fit is refused and consumes nothing; a report is charged in full."""
    world = World(own=own)
    assert not world.ask(on("five", 3)).over
    assert world.consumed() == fits
    assert world.ask(on("five", 7)).over
    assert world.consumed() == excess


def test_an_amount_that_may_be_either_is_a_cost_while_it_fits() -> None:
    """So a denied request consumes nothing of it."""
    world = World(own=Mode.TAKE_OR_CHARGE)
    assert world.ask(on("five", 3), "zero").over
    assert world.consumed() == 0


def test_what_is_asked_with_nothing_is_noted() -> None:
    """The rule, or the keys of an override; not a refund, and not what no limit applies to."""
    override = Descriptor((("a", "v"), ("b", "w")), 0, override=Override(1, Unit.DAY))
    asked = (on("five", 0), override, on("two", 0, refund=True), on("unlimited", 0), on("five", 1))
    request = Request("d", asked)
    plan = make_plan(match(DOMAIN, request), request, Behaviour())
    assert plan.checks == (("rule", "d", ""), ("override", "d", "a", "b"))


def test_a_refund_is_always_ok_and_stops_at_the_burst() -> None:
    """What is given back is there again, and no more than that."""
    world = World()
    world.ask("five", hits=3)
    assert world.ask(on("five", 2, refund=True)).statuses[0].remaining == 4
    assert world.ask(on("five", 9, refund=True)) == Decision(
        False,
        (Status(limit=Limit.per(5, MINUTE), remaining=5),),
    )


def test_a_denied_request_consumes_nothing_of_any_descriptor() -> None:
    """Any refusal makes the whole over, in any order, and leaves the others as they were."""
    world = World()
    assert world.ask("five", "zero").over
    assert world.ask("zero", "five").over
    assert world.consumed() == 0
    assert world.ask("five", "zero").statuses[0].remaining == 5


def test_descriptors_on_one_item_become_one_take() -> None:
    """Both amounts have to fit, and each descriptor has its status."""
    request = Request("d", (on("five"), on("five")), 3)
    plan = make_plan(match(DOMAIN, request), request, Behaviour())
    assert [len(take.draws) for take in plan.takes] == [2]
    world = World()
    decision = world.ask("five", "five", hits=3)
    assert [status.over for status in decision.statuses] == [False, True]
    assert world.consumed() == 0


@pytest.mark.parametrize(
    ("held", "asked", "waits_s"),
    [(5, (3, 3), (None, 60)), (5, (1, 4, 1), (None, None, 60)), (3, (2, 2), (None, 12))],
)
def test_descriptors_that_share_a_bucket_wait_until_all_of_them_fit(
    held: int, asked: tuple[int, ...], waits_s: tuple[int | None, ...]
) -> None:
    """Each by itself may fit at once; what never fits together waits a period."""
    world = World()
    world.ask(on("five", 5 - held))
    statuses = world.ask(*[on("five", amount) for amount in asked]).statuses
    assert tuple(status.reset_s if status.over else None for status in statuses) == waits_s


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["two", "five"])), min_size=1),
    st.integers(0, 5),
)
def test_a_denied_request_passes_when_it_is_told_to_come_back(
    asked: list[tuple[int, str]], used: int
) -> None:
    """And nobody is told to come back at once."""
    world = World()
    if used:
        world.ask("five", hits=used)
    descriptors = [on(key, hits) for hits, key in asked]
    decision = world.ask(*descriptors)
    if not decision.over:
        return
    waits = [status.reset_s for status in decision.statuses if status.over]
    assert min(waits) > 0
    needed = {key: sum(hits for hits, other in asked if other == key) for _, key in asked}
    if needed.get("five", 0) <= 5 and needed.get("two", 0) <= 2:
        world.now_ms += max(waits) * 1_000
        assert not world.ask(*descriptors).over


def test_an_override_goes_before_the_rule_and_has_a_bucket_of_its_own() -> None:
    """Its rate is in the answer, and the rule's bucket is not touched."""
    world = World()
    descriptor = Descriptor((("five", "v"),), override=Override(7, Unit.HOUR))
    status = world.ask(descriptor).statuses[0]
    assert status.limit == Limit.per(7, 3_600_000)
    assert status.remaining == 6
    assert world.ask("five").statuses[0].remaining == 4


def test_of_two_overrides_for_the_same_entries_the_first_holds() -> None:
    """They share a bucket, and both take from it."""
    seven, nine = (
        Descriptor((("five", "v"),), override=Override(rate, Unit.HOUR)) for rate in (7, 9)
    )
    decision = World().ask(seven, nine)
    assert [status.limit for status in decision.statuses] == [Limit.per(7, 3_600_000)] * 2
    assert [status.remaining for status in decision.statuses] == [6, 5]


def test_an_override_applies_where_no_rule_does() -> None:
    """In a known domain, whatever the entries."""
    descriptor = Descriptor((("nowhere", "v"),), override=Override(1, Unit.DAY))
    assert World().ask(descriptor).statuses[0].remaining == 0


def test_unlimited_is_said_so_and_takes_nothing() -> None:
    """The most there is left, and no limit."""
    world = World()
    assert world.ask("unlimited", "nothing") == Decision(False, (UNLIMITED, UNMATCHED))
    assert UNLIMITED.remaining == UINT32_MAX
    assert not world.items


@pytest.mark.parametrize("other", ["replacing", "free"])
@pytest.mark.parametrize("first", [True, False])
def test_a_replaced_limit_is_neither_reported_nor_consumed(other: str, first: bool) -> None:
    """Whichever comes first, and also where the replacing rule is unlimited."""
    world = World()
    keys = (other, "named") if first else ("named", other)
    decision = world.ask(*keys)
    assert decision.statuses[keys.index("named")] == UNMATCHED
    assert world.consumed() == (1 if other == "replacing" else 0)


def test_one_of_several_limits_can_be_replaced() -> None:
    """The others of the descriptor still count."""
    world = World()
    world.ask("free", "several")
    assert world.consumed() == 2


def test_a_shadow_rule_over_its_limit_is_ok_and_stops_nobody() -> None:
    """Its status is OK with nothing left; the rule beside it is counted."""
    world = World()
    world.ask("shadow")
    decision = world.ask("shadow", "five")
    assert not decision.over
    assert [status.over for status in decision.statuses] == [False, False]
    assert [status.shadowed for status in decision.statuses] == [True, False]
    assert not decision.shadowed
    assert decision.statuses[0].remaining == 0
    assert world.consumed() == 2


def test_a_shadow_rule_does_not_save_an_ordinary_one() -> None:
    """Shadow and normal both over is over."""
    assert World().ask("shadow", "zero", hits=2).over


def test_global_shadow_mode_keeps_the_statuses() -> None:
    """The whole is OK, the statuses tell what would have been."""
    shadowed = World(Behaviour(shadow_mode=True))
    decision = shadowed.ask("zero")
    assert not decision.over
    assert decision.shadowed
    assert decision.statuses[0].over
    assert not decision.statuses[0].shadowed
    assert not shadowed.ask("five").shadowed
    assert not World().ask("zero").shadowed


def test_a_key_prefix_keeps_the_buckets_of_rules_apart() -> None:
    """Those of overrides, too."""
    override = Descriptor((("five", "v"),), override=Override(3, Unit.HOUR))
    world = World(Behaviour(key_prefix="blue"))
    for _ in range(3):
        assert not world.ask("five", override).over
    world.behaviour = Behaviour(key_prefix="green")
    assert [status.remaining for status in world.ask("five", override).statuses] == [4, 2]


def test_quotas_deny_only_when_all_are_over() -> None:
    """Quotas of 1 and 2: two requests pass, the third does not, and that one takes nothing."""
    world = World()
    verdicts = [world.ask("quota1", "quota2").over for _ in range(3)]
    assert verdicts == [False, False, True]
    assert world.consumed() == 3


def test_an_ordinary_limit_denies_beside_quotas_that_pass() -> None:
    """Any ordinary refusal is enough."""
    world = World()
    assert world.ask("quota1", "zero").over
    assert world.consumed() == 0


def test_a_quota_in_shadow_mode_counts_as_passing() -> None:
    """Its status is always OK, so not all quotas are over."""
    world = World()
    assert not world.ask("quota1", "shadowquota", hits=2).over


def test_global_quota_mode_makes_every_limit_a_quota() -> None:
    """All have to be over; a descriptor that no limit applies to counts as passing."""
    world = World(Behaviour(quota_mode=True))
    assert not world.ask("zero", "five").over
    assert world.ask("zero").over
    assert not world.ask("zero", "nothing").over
    assert world.ask("zero", "unlimited").over
    world = World(Behaviour(quota_mode=True))
    assert not world.ask("named", "replacing", hits=9).over


def test_of_several_limits_the_refused_one_that_takes_longest_is_reported() -> None:
    """Else the one with the smallest share left."""
    world = World()
    first = world.ask("several").statuses[0]
    assert first.limit is not None
    assert (first.limit.name, first.remaining) == ("fast", 9)
    over = world.ask("several", hits=16).statuses[0]
    assert over.over
    assert over.limit is not None
    assert over.limit.name == "slow"


def test_a_quota_of_several_limits_passes_only_as_a_whole() -> None:
    """One of its limits refuses: it is over, and takes from none of them."""
    world = World(Behaviour(quota_mode=True))
    assert world.ask("several", hits=12).over
    assert world.consumed() == 0
    assert not world.ask("several", "named", hits=3).over
    assert world.consumed() == 12


def test_a_limit_of_zero_is_always_over_and_a_check_passes() -> None:
    """It never refills, so the wait is one period."""
    world = World()
    status = world.ask("zero").statuses[0]
    assert (status.over, status.remaining, status.reset_s) == (True, 0, 60)
    assert not world.ask(on("zero", 0)).over


def test_a_limit_of_zero_refuses_checks_for_a_period_once_it_is_charged() -> None:
    """Counted from the last charge. So the first call of a budget of 0 passes, and no second."""
    world = World(own=Mode.CHARGE)
    assert not world.ask(on("zero", 0)).over
    assert world.ask(on("zero", 40)).over
    world.now_ms += 20_000
    status = world.ask(on("zero", 0)).statuses[0]
    assert (status.over, status.remaining, status.reset_s) == (True, 0, 40)
    assert world.ask(on("zero", 1)).over
    world.now_ms += 59_999
    assert world.ask(on("zero", 0)).over
    world.now_ms += 1
    assert not world.ask(on("zero", 0)).over
    assert world.ask("zero").over


def test_waits_are_rounded_up_to_a_second() -> None:
    """A client that comes back when told is let in."""
    world = World()
    status = world.ask("five").statuses[0]
    assert status.reset_s == 12
    world.ask("five", hits=4)
    over = world.ask("five").statuses[0]
    assert over.reset_s == 12
    assert over.remaining == 0


def test_what_remains_fits_the_wire() -> None:
    """The burst may be more than a uint32 of tokens can say."""
    big = Node("big", rule=Rule("", (Limit.per(1, 1_000, burst=2**33),)))
    request = Request("d", (on("big"),))
    plan = make_plan(match(Domain("d", Children([big])), request), request, Behaviour())
    items: dict[Key, Item] = {}
    taken = take_all(items.get, plan.takes, NOW)
    assert decide(plan, taken, Behaviour(), NOW).statuses[0].remaining == UINT32_MAX


@pytest.mark.parametrize(
    ("descriptor", "reports"),
    [
        (on("five"), False),
        (on("five", 0), False),
        (on("five", 2), True),
        (on("five", 0, refund=True), True),
    ],
)
def test_a_request_tells_whether_it_may_report(descriptor: Descriptor, reports: bool) -> None:
    """Any amount of a descriptor's own may be a report, and a refund is one."""
    assert Request("d", (on("two"), descriptor)).reports is reports
