"""What a good rules file comes to."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.print_rules import rule_lines
from penstock.config.problems import Problems, RulesError
from penstock.config.rules import LoadedRules, RulesSource
from penstock.config.rules_file import read_rules_file
from penstock.core.limits import Limit
from penstock.core.rules import Node, OnExceed, Rule

HEAD = "domain: d\ndescriptors:\n"
EXAMPLE = Path(__file__).parents[3] / "deploy/config/example.yaml"


def load(folder: Path, text: str) -> LoadedRules:
    file = folder / "rules.yaml"
    file.write_text(text)
    return RulesSource(file).load()


def nodes_of(folder: Path, text: str) -> tuple[Node, ...]:
    loaded = load(folder, text)
    assert loaded.warnings == ()
    return loaded.rules["d"].children.nodes


def rule_of(folder: Path, text: str) -> Rule:
    """The rule of the first descriptor."""
    rule = nodes_of(folder, text)[0].rule
    assert rule is not None
    return rule


def limit_of(folder: Path, text: str) -> Limit:
    """The limit that a descriptor with this `rate_limit` has."""
    rule = rule_of(folder, f"{HEAD}  - key: k\n    rate_limit: {{{text}}}\n")
    assert len(rule.limits) == 1
    return rule.limits[0]


FULL = """\
domain: d
descriptors:
  - key: k
    value: v*
    share_threshold: true
    detailed_metric: true
    value_to_metric: true
    shadow_mode: true
    quota_mode: true
    metadata: {team: core, nested: {list: [1, 2.5, true, null]}}
    rate_limit:
      unit: minute
      requests_per_unit: 7
      name: mine
      replaces: [{name: theirs}, {name: others}]
    descriptors:
      - key: below
        rate_limit: {unlimited: true, replaces: [{name: mine}]}
"""


def test_every_field_of_the_reference_format_is_read(tmp_path: Path) -> None:
    """Each field lands where the core looks for it, below and above."""
    (node,) = nodes_of(tmp_path, FULL)
    assert (node.key, node.value) == ("k", "v*")
    assert (node.share_threshold, node.detailed_metric, node.value_to_metric) == (True, True, True)
    assert node.rule == Rule(
        path="d.k_v*",
        limits=(Limit.per(7, 60_000, name="mine"),),
        replaces=frozenset({"theirs", "others"}),
        shadow_mode=True,
        quota_mode=True,
        metadata={"team": "core", "nested": {"list": [1, 2.5, True, None]}},
    )
    assert node.children is not None
    (below,) = node.children.nodes
    assert below.rule == Rule(path="d.k_v*.below", limits=(), replaces=frozenset({"mine"}))


def test_flags_are_off_unless_written(tmp_path: Path) -> None:
    """A bare descriptor has no flag, no rule and nothing below."""
    assert nodes_of(tmp_path, HEAD + "  - key: k\n") == (Node("k"),)


@pytest.mark.parametrize(
    "flag", ["shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold"]
)
@pytest.mark.parametrize(
    ("written", "meant"),
    [("true", True), ("Yes", True), ("off", False), ("y", True), ("Y", True), ("n", False)],
)
def test_flags_are_read_one_by_one(tmp_path: Path, flag: str, written: str, meant: bool) -> None:
    """One flag sets one thing, in any of YAML's spellings."""
    text = f"{HEAD}  - {{key: k, value: '*', {flag}: {written}, rate_limit: {{unit: day}}}}\n"
    (node,) = nodes_of(tmp_path, text)
    holders = [node.rule, node]
    found = {name: getattr(one, name) for one in holders for name in (flag,) if hasattr(one, name)}
    assert found == {flag: meant}
    on = [name for name in ("share_threshold", "detailed_metric", "value_to_metric")
          if getattr(node, name)]  # fmt: skip
    on += [name for name in ("shadow_mode", "quota_mode") if getattr(node.rule, name)]
    assert on == ([flag] if meant else [])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("404", "404"), ("true", "true"), ('"yes"', "yes"), ("yes", "yes"), ("1.50", "1.50"),
        ("0x10", "0x10"), ("2020-01-01", "2020-01-01"), ("''", ""), ("null", ""), ("~", ""),
        ("'null'", "null"), ("' a '", " a "), ("日本", "日本"), ("!!int 5", "5"),
    ],
)  # fmt: skip
def test_values_are_texts_as_they_were_written(tmp_path: Path, written: str, value: str) -> None:
    """A descriptor's value is text on the wire, so YAML's guesses do not count."""
    (node,) = nodes_of(tmp_path, f"{HEAD}  - key: k\n    value: {written}\n")
    assert node.value == value


def test_keys_and_domains_may_look_like_numbers(tmp_path: Path) -> None:
    """The same goes for a key and for the domain."""
    rules = load(tmp_path, "domain: 404\ndescriptors: [{key: 1}]\n").rules
    assert [node.key for node in rules["404"].children.nodes] == ["1"]


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("unit", "period_ms"),
    [
        ("second", 1_000), ("minute", 60_000), ("hour", 3_600_000), ("day", DAY_MS),
        ("week", 7 * DAY_MS), ("month", 30 * DAY_MS), ("year", 365 * DAY_MS),
        ("SECOND", 1_000), ("Minute", 60_000), ("hOUR", 3_600_000),
    ],
)  # fmt: skip
def test_units_are_read_in_any_case(tmp_path: Path, unit: str, period_ms: int) -> None:
    """A month has 30 days, a year 365."""
    assert limit_of(tmp_path, f"unit: {unit}, requests_per_unit: 3") == Limit.per(3, period_ms)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("unit: day, requests_per_unit: 0", Limit.per(0, DAY_MS)),
        ("unit: day", Limit.per(0, DAY_MS)),
        ("unit: day, requests_per_unit: 4294967295", Limit.per(2**32 - 1, DAY_MS)),
        ("unit: day, requests_per_unit: 0x10", Limit.per(16, DAY_MS)),
        ("unit: day, requests_per_unit: 1_000", Limit.per(1000, DAY_MS)),
        ("unit: day, requests_per_unit: 0o17", Limit.per(15, DAY_MS)),
        ("unit: day, requests_per_unit: 2, burst: 1", Limit.per(2, DAY_MS, burst=1)),
        ("unit: day, requests_per_unit: 2, burst: 9", Limit.per(2, DAY_MS, burst=9)),
        ("unit: year, requests_per_unit: 1, burst: 1000",
         Limit.per(1, 365 * DAY_MS, burst=1000)),
        ("period: 90s, requests_per_unit: 2", Limit.per(2, 90_000)),
        ("period: 1h30m, requests_per_unit: 2", Limit.per(2, 5_400_000)),
        ("period: 365000d, requests_per_unit: 1", Limit.per(1, 365_000 * DAY_MS)),
        ("unit: day, unlimited: false, name: n", Limit.per(0, DAY_MS, name="n")),
    ],
)  # fmt: skip
def test_limits_come_to(tmp_path: Path, text: str, limit: Limit) -> None:
    """Rates, bursts and periods, up to their bounds."""
    assert limit_of(tmp_path, text) == limit


def test_rate_limits_are_several_on_one_descriptor(tmp_path: Path) -> None:
    """Each has its name, its own on_exceed, and adds to what is replaced."""
    rule = rule_of(tmp_path, HEAD + (
        "  - key: k\n    rate_limits:\n"
        "      - {name: a, unit: second, requests_per_unit: 1, on_exceed: debt, max_debt: 4}\n"
        "      - {name: b, period: 90s, requests_per_unit: 5, on_exceed: reject,"
        " replaces: [{name: x}]}\n"
        "      - {name: c, unit: day, requests_per_unit: 9, replaces: [{name: y}]}\n"
    ))  # fmt: skip
    assert [limit.name for limit in rule.limits] == ["a", "b", "c"]
    assert rule.on_exceed == {"a": OnExceed.DEBT, "b": OnExceed.REJECT}
    assert rule.max_debt == {"a": 4_000}
    assert rule.replaces == {"x", "y"}


@pytest.mark.parametrize(
    ("written", "meant"), [("debt", {"": OnExceed.DEBT}), ("reject", {"": OnExceed.REJECT})]
)
def test_on_exceed_is_kept_only_where_it_is_written(
    tmp_path: Path, written: str, meant: dict[str, OnExceed]
) -> None:
    """A rule that says nothing leaves the choice to the request."""
    said = f"{HEAD}  - key: k\n    rate_limit: {{unit: day, on_exceed: {written}}}\n"
    assert rule_of(tmp_path, said).on_exceed == meant
    silent = f"{HEAD}  - key: k\n    rate_limit: {{unit: day, on_exceed: }}\n"
    assert rule_of(tmp_path, silent).on_exceed == {}


def test_a_descriptor_without_a_limit_has_no_rule(tmp_path: Path) -> None:
    """An empty rate_limit is none at all."""
    assert nodes_of(tmp_path, HEAD + "  - key: k\n    rate_limit:\n")[0].rule is None


def test_known_keys_in_the_wrong_place_load_with_a_warning(tmp_path: Path) -> None:
    """The reference server ignores them, so they are no error, but someone should know."""
    loaded = load(tmp_path, "domain: d\nunit: day\ndescriptors:\n  - key: k\n    burst: 5\n")
    file = tmp_path / "rules.yaml"
    assert [str(warning) for warning in loaded.warnings] == [
        f"{file}:2: 'unit' has no meaning in this place, and is ignored",
        f"{file}:5: 'burst' has no meaning in this place, and is ignored",
    ]
    assert loaded.rules["d"].children.nodes == (Node("k"),)


@pytest.mark.parametrize("key", ["*", "te*"])
def test_a_wildcard_in_a_key_warns(tmp_path: Path, key: str) -> None:
    """The reference server matches other keys by it. Here they would pass without a limit."""
    loaded = load(tmp_path, f"{HEAD}  - value: x\n    key: '{key}'\n")
    said = f"key '{key}' matches only itself: '*' is a wildcard only in a value"
    assert [(warning.line, warning.text) for warning in loaded.warnings] == [(4, said)]
    assert loaded.rules["d"].children.nodes == (Node(key, "x"),)


def test_a_key_set_twice_warns_and_the_last_one_counts(tmp_path: Path) -> None:
    """The warning stands at the second place."""
    loaded = load(tmp_path, HEAD + "  - key: a\n    value: x\n    key: b\n")
    assert [(w.line, w.text) for w in loaded.warnings] == [
        (5, "'key' is set twice; the last value counts")
    ]
    assert loaded.rules["d"].children.nodes == (Node("b", "x"),)


ANCHORS = """\
domain: d
descriptors:
  - &base
    key: a
    value: x
    rate_limit: &rate {unit: day, requests_per_unit: 1}
  - &other
    <<: *base
    value: y
  - key: b
    rate_limit:
      <<: *rate
      requests_per_unit: 2
  - key: c
    descriptors: [*base, *other]
  - <<: [{value: first}, {value: second, key: d}]
"""


def test_anchors_aliases_and_merge_keys_are_written_out(tmp_path: Path) -> None:
    """What is written beside `<<` goes first, then the first of several; nothing is a warning."""
    first, second, third, fourth, fifth = nodes_of(tmp_path, ANCHORS)
    assert [(n.key, n.value) for n in (first, second, fifth)] == [
        ("a", "x"), ("a", "y"), ("d", "first"),
    ]  # fmt: skip
    assert second.rule == Rule("d.a_y", (Limit.per(1, DAY_MS),))
    assert third.rule == Rule("d.b", (Limit.per(2, DAY_MS),))
    assert fourth.children is not None
    assert [n.rule.path for n in fourth.children.nodes if n.rule] == ["d.c.a_x", "d.c.a_y"]


@pytest.mark.parametrize(
    ("written", "meant", "warned"),
    [
        ("{<<: *base, value: y}", "y", False),
        ("{value: y, <<: *base}", "x", True),
        ("{<<: *base, value: y, <<: {value: z}}", "z", True),
        ("{value: y, <<: [{value: 1}, *base]}", "1", True),
        ("{<<: *base, <<: {value: z}}", "z", False),
        ("{key: c, <<: {value: z}}", "z", False),
        ("{? !!str [value] : y, <<: *base}", "x", False),
    ],
)
def test_a_merge_key_replaces_what_stands_before_it(written: str, meant: str, warned: bool) -> None:
    """As in the reference server, which YAML itself does otherwise: so a warning says it."""
    text = f"{HEAD}  - &base {{key: a, value: x}}\n  - key: b\n    descriptors: [{written}]\n"
    problems = Problems()
    read = read_rules_file("rules.yaml", text, problems)
    assert read is not None
    inner = read.descriptors[1].node.children
    assert inner is not None
    assert [node.value for node in inner.nodes] == [meant]
    replaced = [warning for warning in problems.warnings if "put '<<' first" in warning.text]
    assert [warning.line for warning in replaced[:1]] == ([5] if warned else [])


@pytest.mark.parametrize(
    ("rest", "line"),
    [
        ("---\n", 3),
        ("---\ndomain: e\n", 3),
        ("---\n---\n---\n", 3),
        ("...\n---\ndomain: e\n", 4),
        ("# a remark\n--- [not, {closed\n", 4),
        ("---\n" + "[" * 1_000 + "\n", 3),
        ("---\n" + "&a [*b]\n", 3),
        ("...\ndomain: e\n", 4),
        ("... e\n", 3),
        ("...\n'not closed\n", 4),
    ],
)
def test_the_first_document_of_a_file_counts(tmp_path: Path, rest: str, line: int) -> None:
    """Whatever is in the others, nobody reads it. A warning says so, with its line."""
    loaded = load(tmp_path, f"domain: d\ndescriptors: [{{key: k}}]\n{rest}")
    assert list(loaded.rules) == ["d"]
    assert loaded.rules["d"].children.nodes == (Node("k"),)
    said = "a second document begins here; only the first document of a file is read"
    assert [(warning.line, warning.text) for warning in loaded.warnings] == [(line, said)]


@pytest.mark.parametrize(
    "text", ["---\ndomain: d\n", "---\ndomain: d\n...\n", "%YAML 1.1\n---\n{domain: d}\n"]
)
def test_one_document_may_be_marked_as_one(tmp_path: Path, text: str) -> None:
    """A beginning and an end are no second document."""
    assert nodes_of(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("{1: a}", {"1": "a"}),
        ("{1.5: a, -3: b}", {"1.5": "a", "-3": "b"}),
        ("{2020-01-01: 2021-12-31}", {"2020-01-01": "2021-12-31"}),
        ("{a: 2020-99-99}", {"a": "2020-99-99"}),
        ("{a: 2001-12-14t21:59:43.10-05:00}", {"a": "2001-12-14t21:59:43.10-05:00"}),
        ("{a: {b: [{2: 2020-01-01}]}}", {"a": {"b": [{"2": "2020-01-01"}]}}),
        ("{true: a, ~: b, y: c}", {"true": "a", "~": "b", "y": "c"}),
        ("{a: y, b: N, c: 'y', d: yes}", {"a": True, "b": False, "c": "y", "d": True}),
        ("{a: 1, b: 2.5}", {"a": 1, "b": 2.5}),
        ("{a: <<, b: =, =: c}", {"a": "<<", "b": "=", "=": "c"}),
        ("{a: !thing b, c: !thing [1], d: !thing {e: y}}", {"a": "b", "c": [1], "d": {"e": True}}),
        ("{a: !!binary eA==}", {"a": "x"}),
        ("{a: !!str y, b: !!str 1e3, c: !!bool y}", {"a": "y", "b": "1e3", "c": True}),
    ],
)
def test_metadata_has_keys_and_dates_as_texts(tmp_path: Path, written: str, meant: object) -> None:
    """As they were written. Numbers stay numbers where they are values."""
    text = f"{HEAD}  - key: k\n    metadata: {written}\n    rate_limit: {{unit: day}}\n"
    assert rule_of(tmp_path, text).metadata == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("404", 404), ("-3", -3), ("+1", 1), ("-0", 0), ("00", 0), ("1_000", 1000), ("0x10", 16),
        ("-0x10", -16), ("017", 15), ("0o17", 15), ("0b11", 3), ("0x_1", 1), ("0b2", "0b2"),
        ("08", 8.0), ("1.50", 1.5), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E+3", 1000.0),
        ("1.e3", 1000.0), (".1e3", 100.0), ("1e-3", 0.001), ("1_0.5", 10.5), ("1:30", "1:30"),
        ("190:20:30", "190:20:30"), ("_1", "_1"), ("-", "-"), ("+", "+"), (".", "."),
        ("0x", "0x"), ("1e", "1e"), ("1.2.3", "1.2.3"),
        ("true", True), ("True", True), ("tRue", "tRue"), ("yes", True), ("y", True), ("Y", True),
        ("on", True), ("On", True), ("oN", "oN"), ("no", False), ("n", False), ("N", False),
        ("OFF", False), ("false", False), ("'on'", "on"), ("t", "t"),
        ("~", None), ("null", None), ("Null", None), ("nULL", "nULL"), ("''", ""), ("nil", "nil"),
        ("2020-01-01", "2020-01-01"), ("2020-01-01 10:00:00", "2020-01-01 10:00:00"),
        ("!!timestamp 2020-01-01", "2020-01-01"),
    ],
)  # fmt: skip
def test_plain_scalars_have_the_values_of_the_reference_server(
    tmp_path: Path, written: str, meant: object
) -> None:
    """The expected values are those that go-yaml 2.4.0 gave for the same texts."""
    text = f"{HEAD}  - key: k\n    metadata: {{a: {written}}}\n    rate_limit: {{unit: day}}\n"
    found = rule_of(tmp_path, text).metadata["a"]
    assert (found, type(found)) == (meant, type(meant))


@pytest.mark.parametrize(
    "text", ["domain: d\n", "domain: d\ndescriptors:\n", "\ufeffdomain: d\r\n"]
)
def test_a_domain_may_have_no_descriptors(tmp_path: Path, text: str) -> None:
    """Such a domain is known, and limits nothing."""
    assert nodes_of(tmp_path, text) == ()


PRINTED = """\
domain: z
descriptors:
  - {key: k, rate_limit: {unlimited: true}, shadow_mode: true}
---
domain: d
descriptors:
  - key: k1
    value: v1
    rate_limit: {unit: minute, requests_per_unit: 10}
    descriptors:
      - key: k2
        quota_mode: true
        rate_limit: {period: 90s, requests_per_unit: 3, burst: 6, name: n, on_exceed: debt,
          max_debt: 30}
  - key: bare
  - {key: w, value: "a*", share_threshold: true, detailed_metric: true, value_to_metric: true,
     rate_limits: [{name: a, unit: day}, {name: b, unit: week, requests_per_unit: 2}]}
"""


def test_effective_rules_are_printed_a_line_each(tmp_path: Path) -> None:
    """In the reference server's form, with what is ours behind it; domains in order of name."""
    for number, text in enumerate(PRINTED.split("---\n")):
        (tmp_path / f"{number}.yaml").write_text(text)
    off = "shadow_mode: false, quota_mode: false"
    flags = "share_threshold: true, detailed_metric: true, value_to_metric: true"
    assert list(rule_lines(RulesSource(tmp_path).load().rules)) == [
        f"d.k1_v1: unit=MINUTE requests_per_unit=10, {off}",
        "d.k1_v1.k2: unit=UNKNOWN requests_per_unit=3, shadow_mode: false, quota_mode: true, "
        "period: 1m30s, burst: 6, name: n, on_exceed: debt, max_debt: 30",
        f"d.w_a*: unit=DAY requests_per_unit=0, {off}, name: a, {flags}",
        f"d.w_a*: unit=WEEK requests_per_unit=2, {off}, name: b, {flags}",
        "z.k: unit=UNKNOWN requests_per_unit=0, shadow_mode: true, quota_mode: false, "
        "unlimited: true",
    ]


def errors_of(text: str) -> list[str]:
    """Read a text as a rules file; whatever it raises is a fault."""
    problems = Problems()
    read_rules_file("f", text, problems)
    return str(RulesError(problems.errors)).splitlines()


YAML_PIECES = st.sampled_from(
    [
        "domain", "descriptors", "key", "value", "rate_limit", "rate_limits", "unit", "period",
        "metadata", "replaces", "name", "burst", ": ", ":\n", "\n", "  ", "- ", "{", "}", "[", "]",
        ", ", "&a ", "*a", "<<", "? ", "|\n", "!!int ", "!!bool ", "!!null ", "!x ", "'", '"', "#",
        "0b_", "1:3", ".nan", "2020-99-99", "day", "true", "~", "---\n", "%", "\t", "\x00",
        "\ud800",
    ]
)  # fmt: skip


@given(st.text() | st.lists(YAML_PIECES, max_size=40).map("".join))
def test_no_text_raises_anything_but_rules_errors(text: str) -> None:
    """Whatever stands in a file, it is used or told about."""
    assert all(error.startswith("f:") for error in errors_of(text))


@given(st.data())
def test_no_mutation_of_a_good_file_raises_anything_but_rules_errors(data: st.DataObject) -> None:
    """Cuts and insertions anywhere in a good file are told about too."""
    text = data.draw(st.sampled_from([FULL, ANCHORS, EXAMPLE.read_text()]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 12))
        text = text[:start] + data.draw(YAML_PIECES | st.text(max_size=3)) + text[end:]
    assert all(error.startswith("f:") for error in errors_of(text))
