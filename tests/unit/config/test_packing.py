"""Rules that one process hands to another are the same rules there."""

import marshal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from penstock.config.packing import Unpacking, pack
from penstock.core.limits import Limit, Window
from penstock.core.mapping import CHECK, HITS, Amount, EntityMapping, Mappings, Template
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule, Rules

TEXT = st.text("ab*\ud800é", max_size=3)
COUNT = st.integers(1, 9)
WINDOWS = st.builds(
    Window, st.sampled_from(["fixed", "calendar"]), TEXT, st.just("sunday"), st.booleans()
)
LIMITS = st.builds(
    Limit.per,
    COUNT,
    st.sampled_from([1_000, 60_000]),
    name=TEXT,
    burst=COUNT,
    window=st.none() | WINDOWS,
)
METADATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
RULES = st.builds(
    Rule,
    TEXT,
    st.lists(LIMITS, max_size=2).map(tuple),
    st.frozensets(TEXT, max_size=2),
    st.booleans(),
    st.booleans(),
    st.dictionaries(TEXT, st.sampled_from(OnExceed), max_size=2),
    st.dictionaries(TEXT, METADATA, max_size=2),
    st.dictionaries(TEXT, st.integers(1, 9), max_size=2),
)


def level(below: st.SearchStrategy[Children | None]) -> st.SearchStrategy[Children]:
    node = st.builds(Node, TEXT, TEXT, st.none() | RULES, *[st.booleans()] * 3, below)
    unique = st.lists(node, min_size=1, max_size=3, unique_by=lambda one: (one.key, one.value))
    return unique.map(Children)


LEAVES = level(st.none())
DEEPER = level(st.none() | LEAVES)
LEVELS = st.just(Children()) | level(st.none() | DEEPER | level(DEEPER))
MAPPINGS = st.builds(
    EntityMapping,
    st.lists(TEXT, min_size=1, max_size=2).map(tuple),
    st.builds(Template, TEXT),
    st.builds(Template, TEXT),
    st.none()
    | st.lists(st.tuples(TEXT, st.sampled_from([CHECK, HITS, Amount(5, 2_500)])), max_size=2).map(
        tuple
    ),
)


@st.composite
def all_rules(draw: st.DrawFn) -> Rules:
    made = {}
    for name in draw(st.lists(TEXT, max_size=3, unique=True)):
        by_keys = {one.keys: one for one in draw(st.lists(MAPPINGS, max_size=2))}
        made[name] = Domain(name, draw(LEVELS), Mappings(name, by_keys))
    return made


def plain(rules: Rules) -> list[Any]:
    """All that there is to compare: a level of the tree is only equal to itself."""

    def nodes(children: Children | None) -> Any:
        if children is None:
            return None
        return [
            (one.key, one.value, one.rule, one.share_threshold, one.detailed_metric,
             one.value_to_metric, nodes(one.children))
            for one in children.nodes
        ]  # fmt: skip

    return [(name, one.name, nodes(one.children), one.mappings) for name, one in rules.items()]


@given(all_rules(), st.integers(1, 5))
def test_what_is_unpacked_is_what_was_packed(rules: Rules, at_a_time: int) -> None:
    """In the same order, however few rows come at a time."""
    rows = list(pack(rules))
    unpacking = Unpacking()
    for begin in range(0, len(rows), at_a_time):
        some = marshal.dumps(rows[begin : begin + at_a_time])
        unpacking.add(marshal.loads(some))  # noqa: S302 - made in the line above
    assert plain(unpacking.rules()) == plain(rules)


def test_equal_limits_are_kept_once() -> None:
    """Thousands of rules have the same few."""
    same = [Node("k", str(n), Rule(f"d.k_{n}", (Limit.per(5, 1_000),))) for n in range(3)]
    unpacking = Unpacking()
    unpacking.add(pack({"d": Domain("d", Children(same))}))
    rules = [node.rule for node in unpacking.rules()["d"].children.nodes]
    assert len({id(rule.limits) for rule in rules if rule is not None}) == 1
