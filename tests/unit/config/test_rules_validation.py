"""What is wrong in a rules file is told with its file and line, in the reference server's words."""

from pathlib import Path

import pytest
from penstock.config.problems import RulesError
from penstock.config.rules import RulesSource

HEAD = "domain: d\ndescriptors:\n"


def errors_of(folder: Path, text: str) -> list[str]:
    """Load a file, and give its errors without the folder in front."""
    file = folder / "rules.yaml"
    file.write_text(text)
    with pytest.raises(RulesError) as caught:
        RulesSource(file).load()
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def limit(text: str) -> str:
    """A file whose one descriptor has this `rate_limit`, on line 4."""
    return f"{HEAD}  - key: k\n    rate_limit: {{{text}}}\n"


def limits(*elements: str) -> str:
    """A file whose one descriptor has these `rate_limits`, from line 5 on."""
    return f"{HEAD}  - key: k\n    rate_limits:\n" + "".join(f"      - {{{e}}}\n" for e in elements)


REFERENCE = [
    ("descriptors: []\n", 1, "config file cannot have empty domain"),
    ("# no words\n\ndomain: ''\n", 3, "config file cannot have empty domain"),
    ("", 1, "config file cannot have empty domain"),
    (HEAD + "  - value: v\n", 3, "descriptor has empty key"),
    (HEAD + "  - key: a\n    descriptors:\n      - key: ''\n", 5, "descriptor has empty key"),
    (HEAD + "  - key: a\n    value: x\n  - key: a\n    value: x\n", 5,
     "duplicate descriptor composite key 'd.a_x'"),
    (HEAD + "  - key: a\n  - key: a\n", 4, "duplicate descriptor composite key 'd.a'"),
    (HEAD + "  - key: a\n    descriptors:\n      - key: b\n        value: x\n"
     "      - {key: b, value: x}\n", 7, "duplicate descriptor composite key 'd.a.b_x'"),
    (limit("unit: foo, requests_per_unit: 1"), 4, "invalid rate limit unit 'foo'"),
    (limit("requests_per_unit: 1"), 4, "invalid rate limit unit ''"),
    (limit("unit: unknown, requests_per_unit: 1"), 4, "invalid rate limit unit 'unknown'"),
    (limit("unlimited: true, unit: day"), 4, "should not specify rate limit unit when unlimited"),
    (limit("unit: day, name: me, replaces: [{name: me}]"), 4,
     "replaces should not contain name of same descriptor"),
    (limit("unit: day, replaces: [{name: ''}]"), 4, "should not have an empty replaces entry"),
    (limit("unit: day, replaces: [{}]"), 4, "should not have an empty replaces entry"),
    ("domain: d\ndescriptors: [\n", 3,
     "error loading config file: did not find expected node content"),
    ("domain: d\n\tdescriptors: a\n", 2,
     "error loading config file: found a tab character that violates indentation"),
    (HEAD + "  - key: k\n    ratelimit: {unit: day}\n", 4, "config error, unknown key 'ratelimit'"),
    ("domain: d\ndescriptor: []\n", 2, "config error, unknown key 'descriptor'"),
    (HEAD + "  - key: k\n    0.25: a\n", 4, "config error, key is not of type string: 0.25"),
    ("domain: d\ntrue: a\n", 2, "config error, key is not of type string: true"),
    ("domain: d\n? [a]\n: b\n", 2, "config error, key is not of type string: a list or map"),
    (HEAD + "  - a\n", 3, "config error, yaml file contains list of type other than map: a"),
    (HEAD + "  - [b]\n", 3, "config error, yaml file contains list of type other than map: a list"),
    (HEAD + "  - key: k\n    value: v\n    share_threshold: true\n", 5,
     "share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'"),
    (HEAD + "  - key: k\n    metadata: [a]\n", 4, "error parsing metadata: it must be a map"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), REFERENCE)
def test_reference_errors_have_their_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    """Each text of the reference server stands behind the place of its cause, and alone."""
    assert errors_of(tmp_path, text) == [f"rules.yaml:{line}: {message}"]


NUMBER = "must be a whole number from 0 to 4294967295, not"
DURATION = "is not a duration: write a number with ms, s, m, h or d, such as 90s or 1h30m"

OURS = [
    (limit("unit: day, requests_per_unit: many"), 4,
     f"error loading config file: requests_per_unit {NUMBER} 'many'"),
    (limit("unit: day, requests_per_unit: -1"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '-1'"),
    (limit("unit: day, requests_per_unit: 4294967296"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '4294967296'"),
    (limit("unit: day, requests_per_unit: 1.5"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '1.5'"),
    (limit("unit: day, requests_per_unit: 1:30"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '1:30'"),
    (limit("unit: day, requests_per_unit: '5'"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '5'"),
    (limit("unit: day, requests_per_unit: !!int x"), 4,
     f"error loading config file: requests_per_unit {NUMBER} 'x'"),
    (limit("unit: day, requests_per_unit: 0b_"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '0b_'"),
    (limit(f"unit: day, requests_per_unit: {'9' * 5000}"), 4,
     f"error loading config file: requests_per_unit {NUMBER} '{'9' * 40}'"),
    (limit("unit: day, requests_per_unit: {unit: day}"), 4,
     f"error loading config file: requests_per_unit {NUMBER} that"),
    (limit("unit: day, requests_per_unit: 1, burst: 0"), 4,
     "error loading config file: burst must be a whole number from 1 to 4294967295, not '0'"),
    (limit("unit: day, requests_per_unit: 0, burst: 1"), 4,
     "burst needs requests_per_unit above 0, or it never refills"),
    (limit("unit: year, requests_per_unit: 1, burst: 1001"), 4,
     "the limit takes more than 1000 years to refill"),
    (limit("period: 5x, requests_per_unit: 1"), 4, f"invalid rate limit period: '5x' {DURATION}"),
    (limit("period: 5, requests_per_unit: 1"), 4, f"invalid rate limit period: '5' {DURATION}"),
    (limit("period: 0s, requests_per_unit: 1"), 4, "invalid rate limit period: it must be above 0"),
    (limit("period: 365001d, requests_per_unit: 1"), 4,
     "invalid rate limit period: it is over 1000 years"),
    (limit("period: 1h, unit: hour, requests_per_unit: 1"), 4,
     "give a unit or a period, not both"),
    (limit("unit: day, requests_per_unit: 1, max_debt: 0"), 4,
     "error loading config file: max_debt must be a whole number from 1 to 4294967295, not '0'"),
    (limit("unit: day, requests_per_unit: 1, on_exceed: reject, max_debt: 5"), 4,
     "max_debt has no meaning with on_exceed: reject"),
    (limit("unit: day, requests_per_unit: 0, max_debt: 5"), 4,
     "max_debt needs requests_per_unit above 0"),
    (limit("unit: day, on_exceed: shrug"), 4, "invalid on_exceed 'shrug': write reject or debt"),
    (limit("unlimited: perhaps, unit: day"), 4,
     "error loading config file: unlimited must be true or false"),
    (limit("unlimited: !!bool x, unit: day"), 4,
     "error loading config file: unlimited must be true or false"),
    (limit("unlimited: !!bool {unit: day}, unit: day"), 4,
     "error loading config file: unlimited must be true or false"),
    (HEAD + "  - key: k\n    rate_limit: 5\n", 4,
     "error loading config file: rate_limit must be a map"),
    (limits("unit: day, requests_per_unit: 1"), 5, "every limit of rate_limits needs a name"),
    (limits("name: a, unit: day", "name: a, unit: hour"), 6,
     "duplicate limit name 'a' in rate_limits"),
    (limits("name: a, unit: day", "name: b, unlimited: true, unit: day"), 6,
     "a limit of rate_limits can't be unlimited"),
    (limits("name: a, unit: day, replaces: [{name: a}]"), 5,
     "replaces should not contain name of same descriptor"),
    (HEAD + "  - key: k\n    rate_limits: []\n", 4, "rate_limits must list at least one limit"),
    (HEAD + "  - key: k\n    rate_limit: {unit: day}\n    rate_limits: [{name: a, unit: day}]\n", 5,
     "give rate_limit or rate_limits, not both"),
    (HEAD + "  - key: [{key: k}]\n", 3, "error loading config file: key must be a text"),
    ("domain: d\ndescriptors: {key: k}\n", 2,
     "error loading config file: descriptors must be a list"),
    ("- domain: d\n", 1, "error loading config file: the file must be a map with a domain"),
    ("just words\n", 1, "error loading config file: the file must be a map with a domain"),
    ("{domain: d} x\n", 1, "error loading config file: did not find expected <document start>"),
    ("domain: d\ndescriptors: \x07\n", 2,
     "error loading config file: control characters are not allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), OURS)
def test_errors_of_our_own_have_their_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    """Values that can't be meant, and our extras used wrongly, are refused with their place."""
    assert f"rules.yaml:{line}: {message}" in errors_of(tmp_path, text)


METADATA = [
    ("text", "it must be a map"),
    ("{a: .nan}", "nan is not a finite number"),
    ("{a: .inf}", "inf is not a finite number"),
    (f"{{a: {'9' * 400}}}", "int too large to convert to float"),
    ("{a: !!int b}", "'b' is not a whole number"),
    ("{a: !!bool b}", "a value does not fit its tag"),
    ("{a: !!set {b}}", "{'b'} is neither text, number, true, false, list nor map"),
    ("{? [a] : b}", "a key is a list or a map, in line 4"),
    ("{a: {? {b: c} : d}}", "a key is a list or a map, in line 4"),
    ("{a: " * 30 + "b" + "}" * 30, "nested deeper than 24 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("metadata", "message"), METADATA)
def test_metadata_that_no_answer_can_carry_is_refused(
    tmp_path: Path, metadata: str, message: str
) -> None:
    """What protobuf's Struct has no place for is found when loading, not when answering."""
    text = f"{HEAD}  - key: k\n    metadata: {metadata}\n    rate_limit: {{unit: day}}\n"
    assert errors_of(tmp_path, text) == [f"rules.yaml:4: error parsing metadata: {message}"]


ENDLESS = [
    (HEAD + "  - &a\n    key: k\n    descriptors: [*a]\n", "an anchor contains itself"),
    ("domain: d\ndescriptors: &a\n  - key: k\n    descriptors: *a\n  - key: l\n"
     "    descriptors: *a\n", "an anchor contains itself"),
    (HEAD + "  - &a\n    key: k\n    <<: *a\n", "an anchor contains itself"),
    (HEAD + "  - key: k\n    metadata: &m {a: *m}\n", "an anchor contains itself"),
    ("domain: d\nmetadata:\n  a0: &a0 [x]\n"
     + "".join(f"  a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 64)),
     "more than 1000000 values, once its aliases are written out"),
    ("domain: d\ndescriptors: " + "[" * 1_000_000, "nested deeper than 200 levels"),
    ("domain: d\nmetadata:\n  a0: &a0 [x]\n"
     + "".join(f"  a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 300)),
     "nested deeper than 200 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), ENDLESS)
def test_a_file_without_end_is_refused_at_once(tmp_path: Path, text: str, message: str) -> None:
    """Anchors that hold themselves or double, and endless brackets, neither hang nor crash."""
    (error,) = errors_of(tmp_path, text)
    assert error.endswith(f": error loading config file: {message}")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("domain: d\n<<: 3\n", 2, "expected a map or a list of maps for <<"),
        ("domain: d\n<<:\n", 2, "expected a map or a list of maps for <<"),
        (HEAD + "  - key: k\n    <<: [x]\n", 4, "expected a map for <<"),
        (HEAD + "  - *nowhere\n", 3, "found undefined alias"),
    ],
)
def test_bad_merges_and_aliases_have_their_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    """A merge of something that is no map is an error of the file."""
    (error,) = errors_of(tmp_path, text)
    assert error.startswith(f"rules.yaml:{line}: error loading config file: {message}")


@pytest.mark.parametrize(
    ("text", "line"),
    [(" domain: d\ndescriptors: []\n", 2), ("{domain: d}}\n", 1), ("{domain: d}\nx\n", 2)],
)
def test_text_behind_the_rules_without_an_end_marker_is_refused(
    tmp_path: Path, text: str, line: int
) -> None:
    """A slip of indentation must not hide the rest of a file."""
    (error,) = errors_of(tmp_path, text)
    said = "error loading config file: did not find expected <document start>"
    assert error == f"rules.yaml:{line}: {said}"


def test_all_errors_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    """An unknown key does not hide what else is wrong, and lines come in order."""
    text = HEAD + (
        "  - key: a\n    rate_limit: {unit: foo}\n"
        "  - key: b\n    ratelimit: {}\n"
        "  - key: a\n"
        "  - value: x\n"
    )
    assert errors_of(tmp_path, text) == [
        "rules.yaml:4: invalid rate limit unit 'foo'",
        "rules.yaml:6: config error, unknown key 'ratelimit'",
        "rules.yaml:7: duplicate descriptor composite key 'd.a'",
        "rules.yaml:8: descriptor has empty key",
    ]


def test_a_fault_behind_an_anchor_is_told_once(tmp_path: Path) -> None:
    """Aliases repeat a fault, not the message."""
    text = HEAD + ("  - key: a\n    rate_limit: &r {unit: foo}\n  - key: b\n    rate_limit: *r\n")
    assert errors_of(tmp_path, text) == ["rules.yaml:4: invalid rate limit unit 'foo'"]
