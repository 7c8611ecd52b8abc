"""Policy files, read and written."""

import pytest
from penstock.config.policy_file import format_policy, read_policy
from penstock.config.problems import RulesError
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import Limit
from penstock.core.policy_diff import Policy

POLICY = """\
system:
  limits: {rpm: 1000/minute}
  on_unavailable: deny
resources:
  gpt-4:
    limits: {rpm: 100/minute, tpm: "10000/minute,burst=15000,max_debt=70"}
entities:
  project-1:
    metadata: {team: search, desk: 5}
    limits: {rpm: 500/minute}     # for all resources without their own
    resources:
      gpt-4: {limits: {tpm: 100000/minute}}
  user-123:
    parent: project-1
    cascade: true
  404: {}
  lone: {limits_only: true, limits: {rpm: 5/s}}
  plain:
"""


def minute(name: str, tokens: int, burst: int | None = None) -> Limit:
    return Limit.per(tokens, 60_000, name=name, burst=burst)


TPM = minute("tpm", 10_000, 15_000)._replace(max_debt=70_000)
EXPECTED = Policy(
    {
        "project-1": Entity("project-1", metadata={"team": "search", "desk": "5"}),
        "user-123": Entity("user-123", "project-1", True),
        "404": Entity("404"),
        "plain": Entity("plain"),
    },
    {
        SYSTEM: StoredLimits((minute("rpm", 1000),), 0, "deny"),
        Scope(None, "gpt-4"): StoredLimits((minute("rpm", 100), TPM), 0),
        Scope("project-1"): StoredLimits((minute("rpm", 500),), 0),
        Scope("project-1", "gpt-4"): StoredLimits((minute("tpm", 100_000),), 0),
        Scope("lone"): StoredLimits((Limit.per(5, 1000, name="rpm"),), 0),
    },
)


def errors(text: str, **parents: str | None) -> list[str]:
    """What is wrong, as `line: message`."""
    with pytest.raises(RulesError) as error:
        read_policy("p", text, parents)
    return [f"{problem.line}: {problem.text}" for problem in error.value.errors]


def test_all_that_a_policy_can_say() -> None:
    """Numbers are names and values too, and an entity may have nothing at all."""
    assert read_policy("p", POLICY, {}) == EXPECTED


@pytest.mark.parametrize("text", ["", "{}", "system:\nresources:\nentities: {}\n"])
def test_an_empty_file_says_nothing(text: str) -> None:
    """And is no error."""
    assert read_policy("p", text, {}) == Policy()


def test_what_is_written_is_read_back() -> None:
    """Names that look like something else too."""
    odd = {name: Entity(name, metadata={"": "1", "x": name}) for name in ("true", "1", "~", "a: b")}
    policy = Policy({**EXPECTED.entities, **odd}, EXPECTED.limits)
    assert read_policy("p", format_policy(policy), {}) == policy
    assert format_policy(Policy()) == "{}\n"


def test_anchors_and_merges_are_no_duplicates() -> None:
    """What a merge brings may be set again."""
    text = """\
resources:
  a: &a {limits: &l {rpm: 1/s, tpm: 2/s}}
  b: *a
  c: {limits: {<<: *l, rpm: 9/s}}
"""
    limits = read_policy("p", text, {}).limits[Scope(None, "c")].limits
    assert set(limits) == {
        Limit.per(9, 1000, name="rpm"), Limit.per(2, 1000, name="tpm"),
    }  # fmt: skip


def test_a_parent_may_be_stored_instead() -> None:
    """In the file or in the store."""
    assert read_policy("p", "entities: {a: {parent: b}}", {"b": None}).entities["a"].parent == "b"
    assert errors("entities: {a: {parent: b}}") == [
        "1: entity 'a': the parent 'b' is not in this file, and will not be in the store"
    ]


def test_nobody_is_their_own_ancestor() -> None:
    """In the file, or together with what is stored."""
    assert errors("entities:\n  x: {}\n  a: {parent: b}\n  b: {parent: a}\n  c: {parent: c}") == [
        "3: entities are their own ancestors: a → b → a",
        "5: entities are their own ancestors: c → c",
    ]
    assert errors("entities: {a: {parent: b}}", b="a") == [
        "1: entities are their own ancestors: a → b → a"
    ]


def test_a_chain_of_parents_has_an_end() -> None:
    """As stores have it."""
    chain = "\n".join(f"  e{n}: {{parent: e{n - 1}}}" for n in range(1, 17))
    assert errors(f"entities:\n  e0: {{}}\n{chain}") == [
        "18: entity 'e16' has a chain of parents longer than 16 levels"
    ]


def test_all_errors_are_told_at_once() -> None:
    """Each with its line."""
    text = """\
sistem: {}
system: {limits: [], on_unavailable: perhaps, cascade: true}
resources:
  $own: {limits: {rpm: 1/s}}
  _default_: {limits: {rpm: 1/s}}
  bare: {}
  one: {limits: {rpm: 1/fortnight, "a b": 1/s, tpm: 1/s,burst=5, x: , y: [1]}}
  ? [a]
  : {}
entities:
  1: {cascade: 5, metadata: {a: {}, b: }, parent: [p]}
  "1": {}
  lone: {limits_only: true, cascade: true, parent: ~}
  list: []
  ü: {limits_only: maybe}
"""
    found = errors(text)
    for line, message in [
        (1, "the file: unknown key 'sistem'; known are system, resources, entities"),
        (2, "limits must be a map"),
        (2, "on_unavailable: 'perhaps' is not one of error, allow, deny"),
        (2, "system: unknown key 'cascade'; known are limits, on_unavailable"),
        (4, "resource '$own' begins with $, which is reserved for Penstock"),
        (5, "resource '_default_' stands for all resources: leave the resource out instead"),
        (6, "resource 'bare' needs limits"),
        (7, "'burst=5': put a rate with a comma in quotes"),
        (7, "limit 'x' must be a text"),
        (7, "limit 'y' must be a text"),
        (8, "resources: a key must be a text"),
        (12, "'1' is there twice"),
        (13, "entity 'lone' is limits_only: it can have only limits"),
        (14, "entity 'list' must be a map"),
        (15, "limits_only must be true or false"),
    ]:
        assert f"{line}: {message}" in found
    assert any(error.startswith("7: limit 'rpm': '1/fortnight' is not a rate") for error in found)
    assert any(
        error.startswith("7: limit 'a b': 'a b' is not a name for a limit") for error in found
    )
    assert len(found) == 17


def test_entity_fields_of_the_wrong_kind() -> None:
    """Where no later entity of the same name hides them."""
    assert errors("entities:\n  a: {cascade: 5, metadata: {k: {}, l: }, parent: [p]}") == [
        "2: cascade must be true or false",
        "2: metadata 'k' must be a text",
        "2: metadata 'l' must be a text",
        "2: parent must be a text",
    ]


def test_too_many_limits() -> None:
    """They are one item."""
    limits = ", ".join(f"l{number}: 1/s" for number in range(11))
    assert errors(f"system: {{limits: {{{limits}}}}}") == ["1: 11 limits: at most 10 are allowed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "2: "),
        ("- a", "1: the file must be a map"),
        ("system: {limits: {a: 1/s}}\nsystem: {}", "2: 'system' is there twice"),
        ("a: &a [*a]", "1: an anchor contains itself"),
        ("system: {}\n---\n", "2: a second document: a policy file has only one"),
        (
            "resources:\n  a: &a {limits: {x: 1/s}}\n  b: {limits: {y: 2/s}, <<: *a}\n",
            "3: '<<' comes after 'limits' and has it, too: put '<<' first",
        ),
    ],
)
def test_what_is_no_map_of_a_kind(text: str, message: str) -> None:
    """The line is told here too."""
    (found,) = errors(text)
    assert found.startswith(message)
