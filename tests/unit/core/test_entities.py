"""Stored limits: which level decides, what descriptors stand for, and what is taken from whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import Bucket, Item
from penstock.core.decide import decide
from penstock.core.decision import UNLIMITED, UNMATCHED, Status
from penstock.core.entities import (
    MAX_NAME,
    SYSTEM,
    Level,
    Lookup,
    Resolved,
    Scope,
    StoredLimits,
    name_problem,
    own_scopes_of,
    resolve,
    scopes_of,
)
from penstock.core.limits import MILLI, NO_BOUND, Limit, Unit
from penstock.core.mapping import (
    CHECK,
    HITS,
    Amount,
    EntityMapping,
    Mappings,
    Target,
    Template,
    built_in_target,
)
from penstock.core.match import Matched, Ruled, match
from penstock.core.metering import Meter, OwnAmounts, cost
from penstock.core.plan import Behaviour, Plan
from penstock.core.planner import make_plan
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Denies, Draw, Key, Mode
from penstock.core.taking import take_all

NOW = 1_794_792_780_000
ONE = Amount(MILLI)
RPM, TPM = Limit.per(5, 60_000, name="rpm"), Limit.per(100, 60_000, name="tpm")
USER, PROJECT = Key("user-1", "gpt-4"), Key("project-1", "gpt-4")


@given(st.sets(st.sampled_from(scopes_of("e", "r"))))
def test_the_most_special_level_that_has_limits_decides(present: set[Scope]) -> None:
    """Entity and resource, then the entity, then the resource, then the system."""
    stored = {
        scope: StoredLimits((Limit.per(n + 1, 1_000, name="rpm"),), 1)
        for n, scope in enumerate(scopes_of("e", "r"))
        if scope in present
    }
    found = resolve(Lookup(None, stored), "e", "r")
    first = next((scope for scope in scopes_of("e", "r") if scope in present), None)
    assert found == (Resolved() if first is None else Resolved(stored[first].limits, first))


def test_a_level_without_limits_is_passed_over() -> None:
    """As the system's, where only the answer for outages is stored."""
    empty = StoredLimits((), 1, "deny")
    assert resolve(Lookup(None, {SYSTEM: empty}), "e", "r") == Resolved()


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (SYSTEM, "system"),
        (Scope(None, "gpt-4"), "resource gpt-4"),
        (Scope("bob"), "entity bob"),
        (Scope("bob", "gpt-4"), "entity bob, resource gpt-4"),
    ],
)
def test_a_scope_says_what_it_is(scope: Scope, text: str) -> None:
    """In words that error messages can use."""
    assert str(scope) == text


@pytest.mark.parametrize(
    ("kind", "name", "part"),
    [
        ("entity", "", "has no name"),
        ("entity", "x" * (MAX_NAME + 1), "longer than 256"),
        ("resource", "$domain:d", "begins with $"),
        ("entity", "a\nb\x9b", "can't be printed: write 'a%0ab%9b' instead"),
        ("resource", "_default_", "leave the resource out"),
    ],
)
def test_names_that_can_not_be_are_told(kind: str, name: str, part: str) -> None:
    """With the name, and what is wrong with it."""
    assert part in (name_problem(kind, name) or "")


@pytest.mark.parametrize("name", ["bob", "a#b", "ü 🚰", "_default_"])
def test_other_names_are_fine(name: str) -> None:
    """An entity may even be called as the default resource is."""
    assert name_problem("entity", name) is None


MAPPINGS = Mappings(
    "llm",
    {
        ("api_key", "model"): EntityMapping(
            ("api_key", "model"),
            Template("{api_key}"),
            Template("{domain}:{model}"),
            (("rpm", ONE), ("tpm", HITS)),
        )
    },
)


ENTITY = ("entity", "resource")
"""What tells a built-in mapping from others."""


@pytest.mark.parametrize(
    ("entries", "target"),
    [
        (
            (("api_key", "k1"), ("model", "gpt-4")),
            Target("k1", "llm:gpt-4", (("rpm", ONE), ("tpm", HITS)), ("api_key", "model")),
        ),
        ((("model", "gpt-4"), ("api_key", "k1")), None),
        ((("api_key", "k1"),), None),
        ((("api_key", "k1"), ("model", "m"), ("more", "x")), None),
    ],
)
def test_a_mapping_needs_exactly_its_keys_in_order(
    entries: tuple[tuple[str, str], ...], target: Target | None
) -> None:
    """And fills its templates with their values."""
    assert MAPPINGS.target(entries) == target


def test_a_template_tells_what_nothing_will_fill() -> None:
    """So that a typo is an error when the file is read."""
    assert Template("{a}-{b}{domain}{}").unknown(["a"]) == ["b", ""]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("$domain:d", "%$domain:d"),
        ("", "%"),
        ("_default_", "%_default_"),
        ("a\x1b[2Jb", "a%1b[2Jb"),
        ("bob", "bob"),
    ],
)
def test_no_value_of_a_client_becomes_a_name_of_ours(value: str, name: str) -> None:
    """Rules keep their buckets under resources that begin with a dollar."""
    entries = (("entity", value), ("resource", value))
    target = built_in_target(entries)
    assert target is not None
    assert (target.entity, target.resource) == (name, name)


def test_long_values_are_hashed_and_stay_apart() -> None:
    """Clients choose them."""
    one, other = (
        built_in_target((("entity", "x" * 5_000 + end), ("resource", "r"))) for end in "ab"
    )
    assert one is not None
    assert other is not None
    assert one.entity != other.entity
    assert len(one.entity) <= MAX_NAME


@pytest.mark.parametrize(
    ("entries", "target"),
    [
        ((("entity", "bob"), ("resource", "gpt-4")), Target("bob", "gpt-4", meter=ENTITY)),
        (
            (("entity", "bob"), ("resource", "gpt-4"), ("limit", "tpm")),
            Target("bob", "gpt-4", (("tpm", HITS),), (*ENTITY, "limit", "tpm")),
        ),
        ((("resource", "gpt-4"), ("entity", "bob")), None),
        ((("entity", "bob"),), None),
    ],
)
def test_some_keys_need_no_mapping(
    entries: tuple[tuple[str, str], ...], target: Target | None
) -> None:
    """Entity and resource, and the one limit to take from."""
    assert built_in_target(entries) == target


RULE = Rule("llm.entity", (Limit.per(1, 1_000),))
PLAIN = Domain("llm", Children([]), MAPPINGS)
BUILT_IN = (("entity", "user-1"), ("resource", "gpt-4"))


def test_targets_are_found_by_mappings_then_rules_then_built_in_keys() -> None:
    """Rules whose keys happen to have these names go on working."""
    request = Request("llm", (Descriptor(BUILT_IN), Descriptor((("api_key", "a"), ("model", "m")))))
    assert match(PLAIN, request).found == (
        Target("user-1", "gpt-4", meter=ENTITY),
        Target("a", "llm:m", (("rpm", ONE), ("tpm", HITS)), ("api_key", "model")),
    )
    inner = Children([Node("resource", rule=RULE)])
    ruled = Domain("llm", Children([Node("entity", children=inner)]), MAPPINGS)
    found = match(ruled, request).found[0]
    assert isinstance(found, Ruled)
    assert found.rule is RULE
    assert match(None, request).found == (None, None)


def test_stored_keys_are_told_once_each() -> None:
    """Two descriptors on one item need one lookup, and rules need none."""
    limit = ("limit", "rpm")
    asked = [Descriptor(BUILT_IN), Descriptor((*BUILT_IN, limit)), Descriptor((("other", "v"),))]
    assert match(PLAIN, Request("llm", tuple(asked))).stored_keys == (USER,)


def test_an_override_is_no_entity() -> None:
    """The request says itself what applies."""
    descriptor = Descriptor(BUILT_IN, override=Override(5, Unit.MINUTE))
    (found,) = match(PLAIN, Request("llm", (descriptor,))).found
    assert isinstance(found, Ruled)


def metered(_: Meter) -> Mode:
    """A client has asked with an amount of 0 before."""
    return Mode.CHARGE


def planned(
    *descriptors: Descriptor,
    chain: tuple[Level, ...],
    consume: object = None,
    own_amounts: OwnAmounts = metered,
    domain: Domain = PLAIN,
) -> Plan:
    target = Target("user-1", "gpt-4", consume, ENTITY)  # type: ignore[arg-type]
    request = Request("llm", descriptors)
    matched = Matched(domain, (target,) * len(descriptors))
    return make_plan(matched, request, Behaviour(), {USER: chain}, own_amounts=own_amounts)


CHAIN = (Level(USER, (RPM, TPM)), Level(PROJECT, (TPM,)))


def test_every_level_of_a_cascade_is_taken_from() -> None:
    """By default the amount of the descriptor from every limit."""
    plan = planned(Descriptor(BUILT_IN, hits=None), chain=CHAIN)
    user, project = plan.takes
    assert (user.key, user.parent, user.limits) == (USER, PROJECT, (RPM, TPM))
    assert (project.key, project.parent, project.limits) == (PROJECT, None, (TPM,))
    assert user.draws == (Draw(0, MILLI), Draw(1, MILLI))
    assert project.draws == (Draw(0, MILLI),)


def test_consume_says_how_much_of_what() -> None:
    """A fixed amount, or the descriptor's; a level without the limit is left out."""
    plan = planned(Descriptor(BUILT_IN), chain=CHAIN, consume=(("rpm", Amount(2_000)),))
    (user,) = plan.takes
    assert user.draws == (Draw(0, 2 * MILLI),)
    assert user.parent is None
    plan = planned(Descriptor(BUILT_IN, hits=7), chain=CHAIN, consume=(("tpm", HITS),))
    assert [take.draws for take in plan.takes] == [
        (Draw(1, 7 * MILLI, Mode.CHARGE, max_debt=NO_BOUND),),
        (Draw(0, 7 * MILLI, Mode.CHARGE, max_debt=NO_BOUND),),
    ]


def test_a_check_beside_a_fixed_amount_is_an_ordinary_take() -> None:
    """Only an amount that the descriptor brings is a report of what was used."""
    consume = (("rpm", ONE), ("tpm", HITS))
    (take,) = planned(Descriptor(BUILT_IN, hits=0), chain=CHAIN[:1], consume=consume).takes
    assert take.draws == (Draw(0, MILLI), Draw(1, 0))
    (take,) = planned(Descriptor(BUILT_IN, hits=9), chain=CHAIN[:1], consume=consume).takes
    assert [draw.mode for draw in take.draws] == [Mode.CHARGE, Mode.CHARGE]


def test_an_amount_that_nobody_checks_first_is_a_cost() -> None:
    """Charging those that are refused would starve a client that stays above its rate."""
    plan = planned(Descriptor(BUILT_IN, hits=7), chain=CHAIN[1:], own_amounts=cost)
    assert plan.takes[0].draws == (Draw(0, 7 * MILLI),)
    assert plan.checks == ()


def test_a_mapping_that_is_asked_with_nothing_is_noted() -> None:
    """Unless nothing is stored that it could ask for, or it gives back."""
    meter = ("entities", "llm", *ENTITY)
    assert planned(Descriptor(BUILT_IN, hits=0), chain=CHAIN).checks == (meter,)
    assert planned(Descriptor(BUILT_IN, hits=0), chain=()).checks == ()
    assert planned(Descriptor(BUILT_IN, hits=0, refund=True), chain=CHAIN).checks == ()


def test_a_limit_that_another_mapping_takes_nothing_of_is_metered() -> None:
    """One mapping checks it before a request, another one reports what was used."""
    checks = EntityMapping(("a",), Template("{a}"), Template("r"), (("rpm", ONE), ("tpm", CHECK)))
    domain = Domain("llm", Children([]), Mappings("llm", {("a",): checks}))
    for hits, mode in ((7, Mode.CHARGE), (None, Mode.TAKE)):
        asked = Descriptor(BUILT_IN, hits)
        plan = planned(asked, chain=CHAIN[:1], own_amounts=cost, domain=domain)
        assert [draw.mode for draw in plan.takes[0].draws] == [Mode.TAKE, mode]


def test_descriptors_on_one_item_become_one_take() -> None:
    """`rpm` by 1 and `tpm` by 500 is a single write."""
    request = Request("llm", (Descriptor(BUILT_IN), Descriptor(BUILT_IN, hits=500)))
    targets = [Target("user-1", "gpt-4", ((name, HITS),)) for name in ("rpm", "tpm")]
    matched = Matched(PLAIN, tuple(targets))
    chains = {USER: (Level(USER, (RPM, TPM)),)}
    (take,) = make_plan(matched, request, Behaviour(), chains, own_amounts=metered).takes
    assert take.draws == (
        Draw(0, MILLI, descriptor=0),
        Draw(1, 500 * MILLI, Mode.CHARGE, descriptor=1, max_debt=NO_BOUND),
    )


def test_a_limit_that_nobody_has_is_told_and_not_taken() -> None:
    """The rest is, and without any limit at all there is nothing to tell."""
    plan = planned(Descriptor(BUILT_IN), chain=CHAIN, consume=(("rpm", ONE), ("typo", ONE)))
    assert plan.missing == ("gpt-4/typo",)
    assert len(plan.takes) == 1
    plan = planned(Descriptor(BUILT_IN), chain=CHAIN, consume=(("typo", ONE),))
    assert (plan.takes, plan.parts) == ((), (UNMATCHED,))
    plan = planned(Descriptor(BUILT_IN), chain=(), consume=(("typo", ONE),))
    assert (plan.missing, plan.parts) == ((), (UNMATCHED,))


def test_a_hit_may_be_worth_a_part_of_a_token() -> None:
    """So that a cost in money is exact: 3 hits of a quarter each, and a fixed 1.5."""
    consume = (("rpm", Amount(1_500)), ("tpm", Amount(per_hit=250)))
    (take,) = planned(Descriptor(BUILT_IN, hits=3), chain=CHAIN[:1], consume=consume).takes
    assert [draw.amount for draw in take.draws] == [1_500, 750]


FREE_RPM, FREE_TPM = Limit.unlimited("rpm"), Limit.unlimited("tpm")


def test_a_level_is_made_of_the_limits_that_count() -> None:
    """What is unlimited is known by its name only; the debts are by name, too."""
    deep = TPM._replace(max_debt=7)
    level = Level.of(USER, (FREE_RPM, deep), 5, is_own=True)
    assert level == Level(USER, (TPM,), 5, True, {"tpm": 7}, frozenset({"rpm"}))
    assert Level.of(USER, (RPM,)) == Level(USER, (RPM,))


@pytest.mark.parametrize(
    ("chain", "consume", "drawn", "part"),
    [
        # Nothing is drawn where a limit is unlimited, and the levels above still count.
        ([(FREE_RPM, TPM), (RPM, TPM)], None, [["tpm"], ["rpm", "tpm"]], None),
        ([(FREE_RPM, TPM), (RPM, TPM)], ["rpm"], [["rpm"]], None),
        ([(RPM, TPM), (FREE_RPM, FREE_TPM)], None, [["rpm", "tpm"]], None),
        # A descriptor whose limits are all unlimited.
        ([(FREE_RPM, FREE_TPM)], None, [], UNLIMITED),
        ([(FREE_RPM, TPM)], ["rpm"], [], UNLIMITED),
        ([(FREE_RPM,), (FREE_RPM,)], ["rpm"], [], UNLIMITED),
        # Another limit than those that it takes from.
        ([(FREE_RPM, TPM)], ["typo"], [], UNMATCHED),
    ],
)
def test_an_unlimited_limit_draws_nothing_at_its_level(
    chain: list[tuple[Limit, ...]],
    consume: list[str] | None,
    drawn: list[list[str]],
    part: Status | None,
) -> None:
    """And nobody misses it."""
    levels = [Level.of(key, limits) for key, limits in zip((USER, PROJECT), chain, strict=False)]
    named = None if consume is None else tuple([(name, ONE) for name in consume])
    plan = planned(Descriptor(BUILT_IN), chain=tuple(levels), consume=named)
    names = [[take.limits[draw.limit].name for draw in take.draws] for take in plan.takes]
    assert names == drawn
    assert plan.missing == (("gpt-4/typo",) if consume == ["typo"] else ())
    if part is not None:
        assert plan.parts == (part,)


def test_what_is_left_is_shown_as_the_wire_allows() -> None:
    """And counted in full."""
    large = Limit.per(10**10, 60_000, name="tpm")
    plan = planned(Descriptor(BUILT_IN, hits=3 * 10**9), chain=(Level(USER, (large,)),))
    (taken,) = take_all(lambda _: None, plan.takes, NOW)
    assert taken.drawn[0].balance == 7 * 10**9 * MILLI
    (status,) = decide(plan, [taken], Behaviour(), NOW).statuses
    assert (status.remaining, status.over) == (2**32 - 1, False)


def test_the_status_names_the_level_and_limit_that_refused() -> None:
    """The parent has nothing left of one limit, the child has enough of both."""
    plan = planned(Descriptor(BUILT_IN), chain=CHAIN)
    items = {PROJECT: Item(NOW, (Bucket(TPM, 0, 100 * MILLI),))}
    decision = decide(plan, take_all(items.get, plan.takes, NOW), Behaviour(), NOW)
    assert decision.over
    (status,) = decision.statuses
    assert status.limit is not None
    assert status.limit.name == "project-1/gpt-4/tpm"
    assert status.limit.requests_per_unit == 100


def test_what_is_left_is_that_of_the_level_with_the_least() -> None:
    """Of all limits at all levels."""
    plan = planned(Descriptor(BUILT_IN), chain=CHAIN)
    decision = decide(plan, take_all(lambda _: None, plan.takes, NOW), Behaviour(), NOW)
    (status,) = decision.statuses
    assert (status.remaining, status.limit and status.limit.name) == (4, "user-1/gpt-4/rpm")


def test_a_quota_of_an_entity_denies_only_with_all_others() -> None:
    """As quotas of rules do, where the server treats every limit as one."""
    matched = Matched(PLAIN, (Target("user-1", "gpt-4"),))
    request = Request("llm", (Descriptor(BUILT_IN),))
    chains = {USER: (Level(USER, (RPM,)),)}
    plan = make_plan(matched, request, Behaviour(quota_mode=True), chains)
    assert plan.takes[0].draws[0].denies is Denies.TOGETHER
    assert not plan.quota_passes


def test_the_own_scopes_of_an_entity_are_its_first_two() -> None:
    """The others are the same for all entities, so they are read once for all."""
    assert own_scopes_of("bob", "gpt-4") == (Scope("bob", "gpt-4"), Scope("bob"))
    assert scopes_of("bob", "gpt-4")[2:] == (Scope(None, "gpt-4"), SYSTEM)
