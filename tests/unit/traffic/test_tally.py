"""What is counted: outcomes, whom they met, by which limit, when, and how two policies differ."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.limits import Limit, Unit, Window
from penstock.core.plan import Behaviour
from penstock.core.policy_diff import Policy
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule, Rules
from penstock.errors import ConfigError
from penstock.traffic import timeline
from penstock.traffic.comparison import compare
from penstock.traffic.reading import Timed
from penstock.traffic.side import Side
from penstock.traffic.simulation import simulate
from penstock.traffic.tally import Hit, Outcome, Who
from penstock.traffic.timeline import LENGTHS_MS, Timeline

NOW = 1_794_792_780_000
ONE = (Limit.per(1, 60_000),)
MANY_AND_ONE = (Limit.per(9, 60_000, name="many"), Limit.per(1, 60_000, name="one"))
DEBT_AND_REJECT = {"many": OnExceed.DEBT, "one": OnExceed.REJECT}
RULES: Rules = {
    "d": Domain(
        "d",
        Children(
            [
                Node("user", rule=Rule("d.user", ONE)),
                Node("tried", rule=Rule("d.tried", ONE, shadow_mode=True)),
                Node("metered", rule=Rule("d.metered", ONE, on_exceed={"": OnExceed.DEBT})),
                Node("quota", rule=Rule("d.quota", ONE, quota_mode=True)),
                Node("named", rule=Rule("d.named", (Limit.per(1, 60_000, name="few"),))),
                Node("free", rule=Rule("d.free", ())),
                Node("both", rule=Rule("d.both", MANY_AND_ONE, on_exceed=DEBT_AND_REJECT)),
            ]
        ),
    )
}


def on(*keys: str, hits: int | None = None, value: str = "v") -> Request:
    return Request("d", tuple(Descriptor(((key, value),), hits) for key in keys))


def play(
    *asked: Request,
    behaviour: Behaviour | None = None,
    policy: Policy | None = None,
    rules: Rules = RULES,
) -> tuple[Side, list[Hit]]:
    """Play requests that are a second apart."""
    side, seen = Side("proposed", rules, policy or Policy()), list[Hit]()
    stream = [
        Timed(NOW + 1_000 * number, repr(request).encode(), request)
        for number, request in enumerate(asked)
    ]

    def note(_: int, __: Side, hits: Sequence[Hit]) -> None:
        seen.extend(hits)

    asyncio.run(simulate(stream, [side], behaviour or Behaviour(), on_hits=note))
    return side, seen


def outcomes(side: Side) -> list[int]:
    """OK, denied, overdrawn, shadowed."""
    return side.tally.outcomes


def test_a_denial_has_its_limit_its_times_and_its_wait() -> None:
    """The first and the last denial, and the longest time to wait."""
    side, seen = play(*[on("user")] * 4)
    assert outcomes(side) == [1, 3, 0, 0]
    who = Who("d", (("user", "v"),))
    assert seen == [Hit(who, "d.user", Outcome.DENIED, wait) for wait in (59, 58, 57)]
    limited = side.tally.limited[who, "d.user", Outcome.DENIED]
    assert (limited.count, limited.longest_wait_s) == (3, 59)
    assert (limited.first_ms, limited.last_ms) == (NOW + 1_000, NOW + 3_000)
    assert side.hits["d", "user"][:2] == (4, 3)


@pytest.mark.parametrize(
    ("asked", "expected", "label"),
    [
        ([on("tried")] * 3, [1, 0, 0, 2], "d.tried"),
        ([on("metered", hits=2)] * 2, [0, 0, 2, 0], "d.metered"),
        ([on("named")] * 2, [1, 1, 0, 0], "d.named/few"),
        ([on("both", hits=1)] * 2, [1, 1, 0, 0], "d.both/one"),
        ([on("quota"), on("quota", "free"), on("quota")], [1, 2, 0, 0], "d.quota"),
        ([on("user", "tried"), on("user", "tried")], [1, 1, 0, 0], "d.tried"),
    ],
)
def test_outcomes_are_told_apart(asked: list[Request], expected: list[int], label: str) -> None:
    """Shadow mode denies nobody, and a report comes after the use."""
    side, seen = play(*asked)
    assert outcomes(side) == expected
    assert label in {hit.limit for hit in seen}


def test_a_quota_that_is_over_beside_one_that_passes_is_no_hit() -> None:
    """The request passes, so nobody was limited."""
    asked = Request("d", (Descriptor((("quota", "a"),)), Descriptor((("quota", "b"),))))
    side, seen = play(on("quota", value="a"), asked)
    assert (outcomes(side), seen) == ([2, 0, 0, 0], [])


def test_requests_that_count_although_denied_are_denied() -> None:
    """A report is told apart from them, as without the setting."""
    forgets = Limit.per(1, 60_000, window=Window(carry_debt=False))
    counted = [
        Node("user", rule=Rule("d.user", (forgets,))),
        Node("metered", rule=Rule("d.metered", (forgets,), on_exceed={"": OnExceed.DEBT})),
    ]
    rules = {"d": Domain("d", Children(counted))}
    behaviour = Behaviour(counting=RuleCounting.REFERENCE)
    asked = *[on("user")] * 3, *[on("metered")] * 2
    side, _ = play(*asked, behaviour=behaviour, rules=rules)
    assert outcomes(side) == [2, 2, 1, 0]


def test_a_server_in_shadow_mode_denies_nobody() -> None:
    """And the simulation still shows who would have been denied."""
    side, seen = play(*[on("user")] * 2, behaviour=Behaviour(shadow_mode=True))
    assert outcomes(side) == [1, 0, 0, 1]
    assert [hit.outcome for hit in seen] == [Outcome.SHADOWED]


def test_a_parents_limit_is_named_and_the_child_is_limited() -> None:
    """Who asked is limited, and the name of the limit says whose it is."""
    entities = {"p": Entity("p"), "c": Entity("c", "p", cascade=True)}
    policy = Policy(entities, {Scope("p"): StoredLimits((Limit.per(1, 60_000, name="rpm"),), 0)})
    asked = Request("d", (Descriptor((("entity", "c"), ("resource", "r"))),))
    side, seen = play(asked, asked, policy=policy)
    assert outcomes(side) == [1, 1, 0, 0]
    assert [(hit.who.entries[0], hit.limit) for hit in seen] == [(("entity", "c"), "p/r/rpm")]


def test_a_limit_in_the_request_has_a_name_too() -> None:
    """It is in no file."""
    override = Override(1, Unit.MINUTE)
    asked = Request("d", (Descriptor((("any", "v"),), override=override),))
    _, seen = play(asked, asked)
    assert [hit.limit for hit in seen] == ["d: limit in the request"]


def test_requests_without_a_limit_are_counted() -> None:
    """They show that a trace and rules do not fit each other."""
    side, _ = play(on("free"), on("unknown"), Request("other", on("user").descriptors), on("user"))
    assert (outcomes(side), side.tally.unlimited) == ([4, 0, 0, 0], 3)


def test_a_trace_without_requests_is_an_error() -> None:
    """A report of nothing would look like good news."""
    with pytest.raises(ConfigError, match="the trace has no requests"):
        play()


def test_policies_are_compared_by_whom_they_deny() -> None:
    """Those that were denied most come first."""
    before, _ = play(*[on("user", value="a")] * 2, *[on("user", value="b")] * 3)
    after, _ = play(
        *[on("user", value="b")] * 2, *[on("user", value="c")] * 2, *[on("user", value="d")] * 3,
        *[on("tried")] * 3,
    )  # fmt: skip
    found = compare(before.tally, after.tally)
    assert [who.entries[0][1] for who in found.newly_limited] == ["d", "c"]
    assert list(found.newly_limited.values()) == [2, 1]
    assert [who.entries[0][1] for who in found.no_longer_limited] == ["a"]
    assert found.still_limited == 1


def test_slices_of_time_are_few_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the trace is, and wherever its pauses are."""
    monkeypatch.setattr(timeline, "MAX_SLICES", 20)
    random, line, now = Random(1), Timeline(2), NOW
    total = [0, 0]
    for _ in range(2_000):
        now += random.choice([0, 1, 50, 10_000, 3_000_000])
        kind = random.randrange(2)
        total[kind] += 1
        line.add(now, kind)
    length_ms, slices = line.slices(24)
    assert length_ms in LENGTHS_MS
    assert 1 < len(slices) <= 24
    assert [sum(one.counts[kind] for one in slices) for kind in (0, 1)] == total
    steps = {after.start_ms - one.start_ms for one, after in pairwise(slices)}
    assert steps == {length_ms}
    assert slices[0].start_ms <= NOW + 3_000_000
    assert slices[-1].start_ms <= now < slices[-1].start_ms + length_ms


def test_each_length_of_a_slice_is_a_multiple_of_the_one_before() -> None:
    """So slices can become one without being cut."""
    for shorter, longer in pairwise(LENGTHS_MS):
        assert longer % shorter == 0
    assert Timeline(1).slices(5) == (LENGTHS_MS[0], ())
