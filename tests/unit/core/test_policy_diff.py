"""The difference of two policies, and the order in which it is applied."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import Limit
from penstock.core.policy_diff import (
    EntityChange,
    LimitsChange,
    Policy,
    PolicyChange,
    count_unnamed,
    cycles,
    diff,
    overlay,
    parents_first,
)

RPM, TPM = Limit.per(100, 60_000, name="rpm"), Limit.per(10_000, 60_000, name="tpm")
ONE, OTHER = StoredLimits((RPM,), 3), StoredLimits((TPM,), 0)


def entities(**parents: str | None) -> dict[str, Entity]:
    return {name: Entity(name, parent, version=7) for name, parent in parents.items()}


def told(changes: list[PolicyChange]) -> list[str]:
    """Short: the sign, and what it is about."""
    lines = []
    for change in changes:
        sign = "+" if change.before is None else "-" if change.after is None else "~"
        if isinstance(change, EntityChange):
            entity = change.after or change.before
            assert entity is not None
            lines.append(f"{sign} {entity.name}")
        else:
            lines.append(f"{sign} [{change.scope}]")
    return lines


def test_a_policy_does_not_differ_from_itself() -> None:
    """Versions and the order of limits are no difference."""
    stored = Policy(entities(a=None, b="a"), {SYSTEM: StoredLimits((RPM, TPM), 4, "deny")})
    wanted = Policy(
        {name: replace(entity, version=0) for name, entity in stored.entities.items()},
        {SYSTEM: StoredLimits((TPM, RPM), 0, "deny")},
    )
    assert diff(stored, wanted, prune=True) == []


def test_new_parents_come_before_their_children() -> None:
    """Whatever their names are."""
    wanted = Policy(entities(a="c", b="a", c=None), {Scope("b"): OTHER})
    changes = diff(Policy(), wanted)
    assert told(changes) == ["+ c", "+ a", "+ b", "+ [entity b]"]
    assert isinstance(changes[0], EntityChange)
    assert changes[0].after == Entity("c", version=0)


def test_an_entity_is_changed_at_the_version_that_is_stored() -> None:
    """So that a change of somebody else is not undone."""
    wanted = Policy({"a": Entity("a", metadata={"team": "search"})})
    assert diff(Policy(entities(a=None)), wanted) == [
        EntityChange(Entity("a", version=7), Entity("a", metadata={"team": "search"}, version=7))
    ]


def test_parent_and_child_can_change_places() -> None:
    """The one that goes up is first."""
    assert told(diff(Policy(entities(a=None, b="a")), Policy(entities(a="b", b=None)))) == [
        "~ b",
        "~ a",
    ]


@pytest.mark.parametrize("after", [OTHER, StoredLimits((RPM,), 3, "deny")])
def test_limits_that_differ_are_changed(after: StoredLimits) -> None:
    """In any of their parts."""
    stored = Policy(limits={SYSTEM: ONE})
    assert diff(stored, Policy(limits={SYSTEM: after})) == [LimitsChange(SYSTEM, ONE, after)]


def test_what_is_not_named_stays_unless_pruned() -> None:
    """Children go before their parents, and after all that is new is there."""
    stored = Policy(
        entities(a=None, b="a", c="b"),
        {Scope("b"): ONE, Scope(None, "r"): ONE, SYSTEM: ONE},
    )
    wanted = Policy(entities(c=None), {Scope("c", "r"): OTHER})
    kept = ["~ c", "+ [entity c, resource r]"]
    assert told(diff(stored, wanted)) == kept
    assert told(diff(stored, wanted, prune=True)) == [
        *kept,
        "- [system]",
        "- [resource r]",
        "- [entity b]",
        "- b",
        "- a",
    ]
    assert count_unnamed(stored, wanted) == 5


def test_empty_limits_say_that_there_shall_be_none() -> None:
    """Also without pruning, and nothing where there are none."""
    none = StoredLimits((), 0)
    wanted = Policy(limits={SYSTEM: none, Scope("a"): none})
    assert told(diff(Policy(limits={SYSTEM: ONE}), wanted)) == ["- [system]"]


def test_limits_outlive_an_entity_that_is_pruned() -> None:
    """They go with it, so they are written again behind it."""
    stored = Policy(entities(a=None), {Scope("a"): ONE})
    wanted = Policy(limits={Scope("a"): ONE})
    assert told(diff(stored, wanted, prune=True)) == ["- a", "+ [entity a]"]
    assert told(diff(stored, wanted)) == []


def test_cycles_are_found_once_each() -> None:
    """With all that are in them, and none that only lead there."""
    parents = {"a": "b", "b": "a", "c": "a", "d": "d", "e": None, "f": "e", "g": "nobody"}
    assert cycles(parents) == [["a", "b"], ["d"]]


def test_a_cycle_does_not_keep_the_order_from_ending() -> None:
    """It is refused elsewhere."""
    assert sorted(parents_first(entities(a="b", b="a", c="c"))) == ["a", "b", "c"]


NAMES = "abcdef"


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Entity]:
    """Entities whose parents come first in some order of names."""
    order = draw(st.permutations(NAMES))[: draw(st.integers(0, len(NAMES)))]
    return {
        name: Entity(name, draw(st.sampled_from([None, *order[:number]])), version=1)
        for number, name in enumerate(order)
    }


@given(stored=trees(), wanted=trees())
def test_every_step_can_be_taken(stored: dict[str, Entity], wanted: dict[str, Entity]) -> None:
    """No parent is missing, nobody is its own ancestor, nobody with children goes."""
    now = {name: entity.parent for name, entity in stored.items()}
    for change in diff(Policy(stored), Policy(wanted), prune=True):
        assert isinstance(change, EntityChange)
        if change.after is not None:
            assert change.after.parent is None or change.after.parent in now
            now[change.after.name] = change.after.parent
            assert cycles(now) == []
        elif change.before is not None:
            assert change.before.name not in now.values()
            del now[change.before.name]
    assert now == {name: entity.parent for name, entity in wanted.items()}


def test_an_overlay_is_the_policy_after_the_changes() -> None:
    """What is not named stays, unless it is pruned. Empty limits delete those of their scope."""
    stored = Policy(entities(a=None, b="a"), {SYSTEM: ONE, Scope("a"): ONE, Scope("b"): ONE})
    wanted = Policy(entities(b=None, c="b"), {Scope("a"): StoredLimits((), 0), Scope("c"): OTHER})
    after = overlay(stored, wanted)
    assert after == Policy(
        entities(a=None, b=None, c="b"), {SYSTEM: ONE, Scope("b"): ONE, Scope("c"): OTHER}
    )
    assert told(diff(after, wanted)) == []
    assert overlay(stored, wanted, prune=True) == Policy(wanted.entities, {Scope("c"): OTHER})
