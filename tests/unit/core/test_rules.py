"""The reference server's matching."""

import pytest
from penstock.core.limits import Limit
from penstock.core.rules import Children, Domain, Node, Rule, all_nodes

LIMIT = Limit.per(1, 1_000)


def node(
    key: str, value: str = "", *below: Node, limited: bool = True, share: bool = False
) -> Node:
    rule = Rule(f"{key}={value}", (LIMIT,)) if limited else None
    children = Children(below) if below else None
    return Node(key, value, rule, share_threshold=share, children=children)


DOMAIN = Domain(
    "d",
    Children(
        [
            node("k", "exact"),
            node("k", "ex*"),
            node("k", "e*"),
            node("k"),
            node("only", "value"),
            node("bare", "", node("deep", "down")),
            node("way", "", node("in", "", limited=False), limited=False),
            node("first", "v", node("second", "x"), limited=False),
            node("first", "", node("second", "y"), limited=False),
            node("shared", "s*", share=True),
            node("nest", "n*", node("leaf"), share=True, limited=False),
        ]
    ),
)


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        ([("k", "exact")], "k=exact"),
        ([("k", "exactly")], "k=ex*"),
        ([("k", "eggs")], "k=e*"),
        ([("k", "other")], "k="),
        ([("k", "")], "k="),
        ([("only", "value")], "only=value"),
        ([("only", "other")], None),
        ([("only", "")], None),
        ([("unknown", "x")], None),
        ([], None),
        ([("bare", "1")], "bare="),
        ([("bare", "1"), ("deep", "down")], "deep=down"),
        ([("bare", "1"), ("deep", "up")], None),
        ([("bare", "1"), ("deep", "down"), ("er", "")], None),
        ([("k", "exact"), ("k", "exact")], None),
        ([("way", "1")], None),
        ([("way", "1"), ("in", "2")], None),
        ([("first", "v"), ("second", "x")], "second=x"),
        ([("first", "w"), ("second", "y")], "second=y"),
        ([("first", "v"), ("second", "y")], None),
    ],
)
def test_the_rule_that_applies(entries: list[tuple[str, str]], rule: str | None) -> None:
    """Exact beats wildcard beats bare key, there is no way back, and the depth has to match."""
    match = DOMAIN.match(tuple(entries))
    assert (match[0].path if match else None) == rule


@pytest.mark.parametrize(
    ("entries", "counted"),
    [
        ([("k", "exactly")], [("k", "exactly")]),
        ([("k", "other")], [("k", "other")]),
        ([("shared", "s1")], [("shared", "s*")]),
        ([("nest", "n1"), ("leaf", "a")], [("nest", "n*"), ("leaf", "a")]),
    ],
)
def test_a_shared_threshold_counts_all_values_together(
    entries: list[tuple[str, str]], counted: list[tuple[str, str]]
) -> None:
    """Other rules count each value apart, wherever in the tree they stand."""
    match = DOMAIN.match(tuple(entries))
    assert match is not None
    assert match[1] == tuple(counted)


def test_the_composite_key_is_written_as_the_reference_writes_it() -> None:
    """Key and value, with an underscore between."""
    assert Node("k", "v").composite_key == "k_v"
    assert Node("k").composite_key == "k"


def test_every_node_of_every_domain_is_found() -> None:
    """Also those without a rule, and each one before the nodes below it."""
    other = Domain("other", Children([node("alone")]))
    keys = " ".join(node.key for node in all_nodes({"d": DOMAIN, "other": other}))
    first = "k k k k only bare deep way in first second first second shared nest leaf"
    assert keys == f"{first} alone"


def test_every_rule_is_told_with_what_leads_to_it() -> None:
    """In file order, a rule before those below it; what carries no rule only leads to others."""
    told = [[node.composite_key for node in nodes] for nodes in DOMAIN.rule_nodes()]
    assert told == [
        ["k_exact"],
        ["k_ex*"],
        ["k_e*"],
        ["k"],
        ["only_value"],
        ["bare"],
        ["bare", "deep_down"],
        ["first_v", "second_x"],
        ["first", "second_y"],
        ["shared_s*"],
        ["nest_n*", "leaf"],
    ]


SHOWING = Domain(
    "d",
    Children(
        [
            Node("plain", rule=Rule("", ())),
            Node("shown", value_to_metric=True, rule=Rule("", ())),
            Node("wild", "w*", value_to_metric=True, rule=Rule("", ())),
            Node("shared", "s*", value_to_metric=True, share_threshold=True, rule=Rule("", ())),
            Node(
                "top",
                children=Children(
                    [
                        Node("leaf", detailed_metric=True, rule=Rule("", ())),
                        Node("plain", rule=Rule("", ())),
                    ]
                ),
            ),
            Node(
                "group",
                "g*",
                share_threshold=True,
                children=Children([Node("leaf", detailed_metric=True, rule=Rule("", ()))]),
            ),
        ]
    ),
)


@pytest.mark.parametrize(
    ("entries", "shown"),
    [
        ([("plain", "v")], ["plain"]),
        ([("shown", "v")], ["shown_v"]),
        ([("shown", "")], ["shown"]),
        ([("wild", "w1")], ["wild_w1"]),
        ([("shared", "s1")], ["shared_s*"]),
        ([("top", "a"), ("leaf", "b")], ["top_a", "leaf_b"]),
        ([("top", "a"), ("plain", "b")], ["top", "plain"]),
        ([("group", "g1"), ("leaf", "b")], ["group_g*", "leaf_b"]),
    ],
)
def test_values_are_shown_where_a_rule_says_so(
    entries: list[tuple[str, str]], shown: list[str]
) -> None:
    """At its own level, or at all of them for a detailed rule; a shared value never."""
    assert SHOWING.rule_keys(tuple(entries))[1] == tuple(shown)
