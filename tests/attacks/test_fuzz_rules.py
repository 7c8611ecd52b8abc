"""Whatever stands in a rules file: it is used, or told about with its file and line, in bounds.

`tests/unit/config/test_rules_reading.py` has what is written of texts; this is bytes and bombs.
"""

import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from penstock.config.policy_file import read_policy
from penstock.config.print_rules import rule_lines
from penstock.config.problems import MAX_PROBLEMS, MAX_TEXT, RulesError
from penstock.config.rules import MAX_BYTES, RulesSource
from penstock.core.foreign_text import is_plain

GOOD = b"""\
domain: d
descriptors:
  - key: user
    value: "a*"
    metadata: &m {tier: [free, 1, 2.5, true, ~, 2001-01-01], x: !!set {a, b}}
    rate_limits:
      - &l {name: rpm, unit: minute, requests_per_unit: 5, burst: 7, on_exceed: debt}
      - {<<: *l, name: tpd, period: 1d2h, unit: ~}
    descriptors:
      - {key: path, rate_limit: {unlimited: true}, shadow_mode: yes, share_threshold: no}
  - {key: ip, rate_limit: {<<: *l, replaces: [{name: x}]}, metadata: {<<: *m}}
entities:
  - {keys: [api_key, model], entity: "{api_key}", resource: "{domain}-{model}", consume: {rpm: 1}}
"""

PIECES = st.sampled_from(
    [
        b"&a ", b"*a", b"*l", b"*m", b"<<: ", b"? ", b"- ", b"{", b"}", b"[", b"]", b": ", b"\n",
        b"\n  ", b"|\n", b">\n", b"'", b'"', b"#", b"---\n", b"...\n", b"%YAML 1.1\n", b"%TAG ! x",
        b"!!timestamp ", b"!!bool ", b"!!int ", b"!!float ", b"!!binary ", b"!!omap ", b"!!pairs ",
        b"!!set ", b"!!merge ", b"!!python/name:os.system ", b"!x ", b"!<tag:x> ", b"0x", b"0b_",
        b"1:3", b".inf", b".nan", b"2001-99-99", b"9" * 5_000, b"1h1h", b"\0", b"\x1b[2J", b"\n\n",
        b"\xe2\x80\xae", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80",
        b'"\\ud800"', b'"\\U0001F600"', b'"\\x1b"', b"\t", b"=", b"~", b"{a}", b"$", b"*",
    ]
)  # fmt: skip

LINE = re.compile(r"\S*rules\.yaml:[1-9][0-9]*: \S")


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    data = GOOD
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.integers(0, 20))
        data = data[:start] + draw(PIECES | st.binary(max_size=4)) + data[end:]
    return data


def load(folder: Path, data: bytes) -> list[str]:
    """What is wrong with a file, if anything is."""
    file = folder / "rules.yaml"
    file.write_bytes(data)
    try:
        loaded = RulesSource(file).load()
    except RulesError as exc:
        return str(exc).split("\n")
    assert all(map(is_plain, rule_lines(loaded.rules)))
    assert all(map(is_plain, map(str, loaded.warnings)))
    return []


@settings(
    deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(mutations() | st.binary(max_size=200) | st.lists(PIECES, max_size=30).map(b"".join))
def test_no_bytes_raise_anything_but_rules_errors(tmp_path: Path, data: bytes) -> None:
    """Each error names the file and the line, and can be shown."""
    for line in load(tmp_path, data):
        assert LINE.match(line), line
        assert is_plain(line)
        assert len(line) < len(str(tmp_path)) + 8 * MAX_TEXT


@settings(deadline=None, max_examples=200)
@given(mutations() | st.lists(PIECES, max_size=30).map(b"".join))
def test_no_policy_file_raises_anything_but_rules_errors(data: bytes) -> None:
    """It is read by the same reader."""
    lines: list[str] = []
    try:
        read_policy("policy.yaml", data.decode(errors="replace"), {})
    except RulesError as exc:
        lines = exc.lines
    assert all(line.startswith("policy.yaml:") for line in lines)


@pytest.mark.parametrize(
    "value",
    [
        "!!timestamp x", "!!timestamp 2001-99-99", "!!bool x", "!!int x", "!!int ''", "!!float x",
        "!!float .", "!!binary é", "!!binary x", "!!omap x", "!!pairs [1]", "!!set [1]", "!!x y",
        "!!python/object/apply:os.system [ls]", "!!null x", "!!map x", "!!seq x", "!!str {a: b}",
        "{[1]: 2}", "{? {a: b} : 1}", "=", "<<", "{<<: 1}", "{<<: [1]}", "{<<: ~}",
        "1:" * 5_000 + "1", "9" * 5_000, "1e9999", ".inf", "0b", "0x", "-0b_",
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["metadata", "shadow_mode", "value", "rate_limit", "descriptors"])
def test_odd_tags_and_values_are_no_fault(tmp_path: Path, field: str, value: str) -> None:
    """Wherever they stand."""
    text = f"domain: d\ndescriptors:\n- key: k\n  {field}: {{a: {value}}}\n- {field}: {value}\n"
    for line in load(tmp_path, text.encode()):
        assert LINE.match(line), line


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines)


def merges(levels: int) -> str:
    """Each map has the one before it, and sixty keys of its own: their sizes add up to a square."""
    lines = ["m0: &m0 {k: 1}"]
    for i in range(1, levels):
        own = ", ".join(f"k{i}_{j}: 1" for j in range(60))
        lines.append(f"m{i}: &m{i} {{<<: *m{i - 1}, {own}}}")
    return "\n".join(lines)


BOMBS = {
    "a billion laughs": laughs(30),
    "laughs as descriptors": "domain: d\ndescriptors:\n- &d0 {key: k}\n"
    + "\n".join(f"- &d{i} {{key: k, descriptors: [{f'*d{i - 1}, ' * 10}]}}" for i in range(1, 30)),
    "laughs by merging": "m0: &m0 {k: 1}\n"
    + "\n".join(f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}" for i in range(1, 60)),
    "maps merged one into another": merges(190),
    "an anchor in itself": "domain: &a [*a]",
    "brackets": "[" * 1_000_000,
    "braces": "domain: " + "{a: " * 100_000,
    "dashes": "- " * 100_000,
    "a long key under many aliases": f"? &k {'x' * 500_000}\n: 1\nb:\n"
    + "\n".join("- {? *k : 1}" for _ in range(1_000)),
    "a long text under many aliases": f"domain: d\nx: &t {'x' * 1_000_000}\n"
    f"descriptors: [{'{key: *t}, ' * 5_000}]",
    "a long number": "domain: d\ndescriptors: [{key: k, rate_limit: "
    f"{{unit: day, requests_per_unit: 1, burst: {'9' * 100_000}}}}}]",
    "a long duration": "domain: d\ndescriptors: [{key: k, rate_limit: "
    f"{{requests_per_unit: 1, period: {'1s' * 500_000}}}}}]",
    "many unknown keys": "domain: d\n" + "\n".join(f"k{i}: 1" for i in range(20_000)),
    "the same key again and again": "domain: d\n" + "a: 1\n" * 20_000,
    "long words that mean nothing": "domain: d\n"
    + "\n".join(f"{'x' * 5_000}{i}: 1" for i in range(2_000)),
}


WRITTEN_OUT = {name for name in BOMBS if "laughs" in name or "merged" in name or "aliases" in name}
"""What is small until its aliases are written out is refused before anything is made of it."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_bounds(tmp_path: Path, name: str) -> None:
    """Neither what is made of it, nor what is told about it, is many times as large as it is."""
    data = BOMBS[name].encode()
    tracemalloc.start()
    try:
        lines = load(tmp_path, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert lines
    if name in WRITTEN_OUT:
        assert [line.partition(": ")[2] for line in lines] == [
            "error loading config file: more than 1000000 values, once its aliases are written out"
        ]
    assert len(lines) <= MAX_PROBLEMS + 1
    assert sum(map(len, lines)) < 1_000_000
    # A node takes half a kilobyte, and few are shorter than four bytes.
    assert peak < 128 * 2**20


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """Somebody put a video beside the rules."""
    file = tmp_path / "rules.yaml"
    with file.open("wb") as large:
        large.truncate(MAX_BYTES * 100)
    with pytest.raises(RulesError) as caught:
        RulesSource(file).load()
    assert str(caught.value) == f"{file}: cannot be read: the file is larger than 32 MiB"


def test_many_limits_of_one_descriptor_take_no_square_of_time(tmp_path: Path) -> None:
    """Thousands of names are looked for in a set, not one after the other."""
    limits = ", ".join(f"{{name: n{i}, unit: day, requests_per_unit: 1}}" for i in range(5_000))
    file = f"domain: d\ndescriptors: [{{key: k, rate_limits: [{limits}, {{name: n7, unit: day}}]}}]"
    assert load(tmp_path, file.encode()) == [
        f"{tmp_path}/rules.yaml:2: duplicate limit name 'n7' in rate_limits"
    ]
