"""The `entities` of a rules file: what they come to, and what is wrong with them."""

from pathlib import Path

import pytest
from penstock.config.print_rules import rule_lines
from penstock.config.problems import RulesError
from penstock.config.rules import LoadedRules, RulesSource
from penstock.core.mapping import HITS, Amount, Target

GOOD = """\
domain: llm
entities:
  - keys: [api_key, model]
    entity: "{api_key}"
    resource: "{domain}/{model}"
    consume: {rpm: 1, tpm: hits}
  - keys: [tenant]
    entity: "tenant-{tenant}"
    resource: all
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
"""


def load(folder: Path, text: str) -> LoadedRules:
    file = folder / "rules.yaml"
    file.write_text(text)
    return RulesSource(file).load()


def test_descriptors_stand_for_stored_entities(tmp_path: Path) -> None:
    """By their keys, beside rules in the same file."""
    loaded = load(tmp_path, GOOD)
    assert loaded.warnings == ()
    mappings = loaded.rules["llm"].mappings
    assert mappings.target((("api_key", "k1"), ("model", "gpt-4"))) == Target(
        "k1", "llm/gpt-4", (("rpm", Amount(1_000)), ("tpm", HITS)), ("api_key", "model")
    )
    assert mappings.target((("tenant", "a"),)) == Target("tenant-a", "all", None, ("tenant",))
    assert loaded.rules["llm"].match((("user", "bob"),)) is not None


def test_the_rules_in_force_show_them(tmp_path: Path) -> None:
    """A line each, behind the rules of the domain."""
    assert list(rule_lines(load(tmp_path, GOOD).rules))[1:] == [
        "llm [api_key, model]: entity={api_key} resource={domain}/{model} "
        "consume={rpm: 1, tpm: hits}",
        "llm [tenant]: entity=tenant-{tenant} resource=all",
    ]


@pytest.mark.parametrize(
    ("written", "amount", "shown"),
    [
        ("0", Amount(), "0"),
        ("0.25", Amount(250), "0.25"),
        ("'3'", Amount(3_000), "3"),
        ("10000000000", Amount(10**13), "10000000000"),
        ("hits", HITS, "hits"),
        ("hits * 1", HITS, "hits"),
        ("hits*2.50", Amount(per_hit=2_500), "hits * 2.5"),
        ("hits * 0.001", Amount(per_hit=1), "hits * 0.001"),
    ],
)
def test_an_amount_is_fixed_or_a_multiple_of_the_hits(
    tmp_path: Path, written: str, amount: Amount, shown: str
) -> None:
    """With up to three decimals, which are never rounded."""
    text = GOOD.replace("{rpm: 1, tpm: hits}", f"{{usd: {written}}}")
    rules = load(tmp_path, text).rules
    target = rules["llm"].mappings.target((("api_key", "k"), ("model", "m")))
    assert target is not None
    assert target.consume == (("usd", amount),)
    assert f"consume={{usd: {shown}}}" in list(rule_lines(rules))[1]


def test_limits_may_be_called_like_numbers_and_booleans(tmp_path: Path) -> None:
    """What `consume` names is a name, whatever YAML takes it for."""
    text = GOOD.replace("{rpm: 1, tpm: hits}", "{on: 1, 404: hits, y: 2, 1.5: 3}")
    target = load(tmp_path, text).rules["llm"].mappings.target((("api_key", "k"), ("model", "m")))
    assert target is not None
    assert target.consume == (
        ("on", Amount(1_000)),
        ("404", HITS),
        ("y", Amount(2_000)),
        ("1.5", Amount(3_000)),
    )


@pytest.mark.parametrize(
    ("section", "line", "text"),
    [
        (
            "- {keys: [a], entity: '{b}', resource: r}",
            3,
            "entity has {b}, but {b} is neither one of",
        ),
        ("- {keys: [a], entity: '{a}', resource: '{}'}", 3, "resource has {}, but {} is neither"),
        ("- {entity: e, resource: r}", 3, "keys must be a list of keys"),
        ("- {keys: [], entity: e, resource: r}", 3, "keys must be a list of keys"),
        ("- {keys: a, entity: e, resource: r}", 3, "keys must be a list of keys"),
        ("- {keys: [{a: b}], entity: e, resource: r}", 3, "a key of entities must be a text"),
        ("- {keys: [a], resource: r}", 3, "entity is missing, such as entity: '{key}'"),
        ("- {keys: [a], entity: e}", 3, "resource is missing"),
        ("- {keys: [a], entity: e, resource: r, consume: {}}", 3, "at least one limit"),
        (
            "- {keys: [a], entity: e, resource: r, consume: {x: -1}}",
            3,
            "consume of x: '-1' is not an amount: write a number such as 1 or 0.25, hits, or",
        ),
        *[
            (f"- {{keys: [a], entity: e, resource: r, consume: {{x: {amount}}}}}", 3, text)
            for amount, text in [
                ("{a: 1}", "consume of x: '' is not an amount"),
                ("hit", "consume of x: 'hit' is not an amount"),
                ("hits * -1", "'hits * -1' is not an amount"),
                ("2.5 * hits", "'2.5 * hits' is not an amount: write a number"),
                ("hits * 0.000", "'hits * 0.000' is always 0: write 0 for a check"),
                ("hits * 0.0025", "'0.0025' is finer than 0.001: count in a smaller unit, such as"),
                ("1e-3", "'1e-3' is not an amount"),
                (
                    "1000000000000000.001",
                    "too large: an amount is at most 1,000,000,000,000,000",
                ),
                ("9" * 5_000, f"'{'9' * 40}' is too large"),
            ]
        ],
        ("- {keys: [a], entity: e, resource: r, consume: [x]}", 3, "consume must be a map"),
        (
            "- {keys: [a], entity: e, resource: r, consume: {x: 1, ? [x] : 1}}",
            3,
            "a key of consume must be a text",
        ),
        ("- {keys: [a], entity: e, resource: r, limit: 5}", 3, "unknown key 'limit'"),
        ("- 5", 3, "list of type other than map"),
        (
            "- {keys: [a, b], entity: e, resource: r}\n  - {keys: [a, b], entity: f, resource: r}",
            4,
            "duplicate keys in entities: a, b",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, section: str, line: int, text: str
) -> None:
    """A typo in a template would otherwise stop enforcement without a word."""
    with pytest.raises(RulesError) as caught:
        load(tmp_path, f"domain: llm\nentities:\n  {section}\n")
    (problem,) = caught.value.errors
    assert problem.line == line
    assert text in problem.text


def test_files_of_one_domain_may_not_map_the_same_keys(tmp_path: Path) -> None:
    """When domains may span several files."""
    section = "domain: d\nentities:\n  - {keys: [a], entity: e, resource: r}\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(section)
    with pytest.raises(RulesError, match="duplicate keys in entities: a"):
        RulesSource(tmp_path, merge_domains=True).load()
