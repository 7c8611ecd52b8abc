"""Rules of a response: the same rules, warnings and errors as those of files."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.packing import pack
from penstock.config.print_rules import rule_lines
from penstock.config.problems import RulesError
from penstock.config.read_apart import ReadingError, unpack
from penstock.config.rules import LoadedRules, RulesSource
from penstock.config.rules_resource import Resource, load_resources
from penstock.core.request import Descriptor, Request
from penstock.core.rule_counting import RuleCounting
from penstock.service.answer import Answer, Options
from penstock.service.limiter import Limiter
from penstock.slices import run_at_once
from penstock.store.memory import MemoryStore
from penstock.transport.codec import decode_rules
from penstock.xds.reading import read_packed, read_rules

from tests.support.ads import config, limit, pack_response

NOW = 1_794_792_780_000


async def errors_of(*resources: dict[str, Any], merge: bool = False) -> list[str]:
    with pytest.raises(RulesError) as caught:
        await read_rules(pack_response(resources, "v"), merge_domains=merge)
    return caught.value.lines


async def test_every_field_is_read() -> None:
    """As a file would have it."""
    response = pack_response(
        [
            config(
                "d",
                limit("user", shadow_mode=True, detailed_metric=True),
                limit("quota", "a*", quota_mode=True, metadata={"tier": "gold", "n": [1, 2.5]}),
                {
                    "key": "named",
                    "rate_limit": {
                        "unit": "WEEK",
                        "requests_per_unit": 7,
                        "name": "one",
                        "replaces": [{"name": "two"}],
                    },
                },
                {"key": "free", "rate_limit": {"unlimited": True}},
                {"key": "above", "descriptors": [limit("below", "x", n=0)]},
            )
        ],
        "v",
    )
    loaded = await read_rules(response, merge_domains=False)
    assert list(rule_lines(loaded.rules)) == [
        "d.user: unit=DAY requests_per_unit=5, shadow_mode: true, quota_mode: false, "
        "detailed_metric: true",
        "d.quota_a*: unit=DAY requests_per_unit=5, shadow_mode: false, quota_mode: true",
        "d.named: unit=WEEK requests_per_unit=7, shadow_mode: false, quota_mode: false, name: one",
        "d.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, "
        "unlimited: true",
        "d.above.below_x: unit=DAY requests_per_unit=0, shadow_mode: false, quota_mode: false",
    ]
    rules = {node.key: node.rule for node in loaded.rules["d"].children.nodes if node.rule}
    assert rules["quota"].metadata == {"tier": "gold", "n": [1, 2.5]}
    assert rules["named"].replaces == {"two"}


async def test_every_error_is_told_with_name_and_place() -> None:
    """In the words of `config check`."""
    assert await errors_of(
        config("", name="nameless-domain"),
        config(
            "d",
            {"key": ""},
            limit("k", per="UNKNOWN"),
            {"key": "m", "rate_limit": {"unit": 99, "requests_per_unit": 1}},
            {"key": "u", "rate_limit": {"unit": "DAY", "unlimited": True}},
            {"key": "a", "descriptors": [limit("b"), limit("b")]},
            limit("r", rate_limit={"unit": "DAY", "replaces": [{"name": ""}]}),
        ),
        config("d", name="second"),
        config("e", limit("k", metadata={"deep": nested(30)}), name=""),
    ) == [
        "d: descriptors[0]: descriptor has empty key",
        "d: descriptors[1].rate_limit: invalid rate limit unit 'UNKNOWN'",
        "d: descriptors[2].rate_limit: invalid rate limit unit '99'",
        "d: descriptors[3].rate_limit: should not specify rate limit unit when unlimited",
        "d: descriptors[4].descriptors[1]: duplicate descriptor composite key 'd.a.b'",
        "d: descriptors[5].rate_limit.replaces[0]: should not have an empty replaces entry",
        "nameless-domain: config file cannot have empty domain",
        "resource 4: descriptors[0].metadata: error parsing metadata: nested deeper than 24 levels",
        "second: duplicate domain 'd' in config file",
    ]


def nested(levels: int) -> Any:
    return {"x": nested(levels - 1)} if levels else 1


async def test_metadata_that_is_no_number_is_refused() -> None:
    """As in a file: JSON has no infinity."""
    for shown in ("inf", "-inf", "nan"):
        rule = {"key": "k", "rate_limit": {"unit": "DAY"}, "metadata": {"n": float(shown)}}
        resource = Resource("r", {"domain": "d", "descriptors": [rule]})
        with pytest.raises(RulesError, match=f"error parsing metadata: {shown} is not a finite"):
            load_resources([resource], merge_domains=False)


async def test_one_domain_may_span_resources_if_the_setting_says_so() -> None:
    """In the order of names, whatever order they come in."""
    parts = [config("d", limit("k", "b*"), name="2"), config("d", limit("k", "*"), name="1")]
    assert await errors_of(*parts) == ["2: duplicate domain 'd' in config file"]
    loaded = await read_rules(pack_response(parts, "v"), merge_domains=True)
    assert [node.value for node in loaded.rules["d"].children.nodes] == ["*", "b*"]


LONG = [config("d", *(limit("user", f"u{number}") for number in range(700)))]


@pytest.mark.parametrize("resources", [LONG, [config("d", limit("te*"))]])
async def test_packed_rules_are_the_same_rules(resources: list[Any]) -> None:
    """In a process of its own, and in a thread; with their warnings."""
    response = pack_response(resources, "v")
    counting = RuleCounting.FIXED
    here = await read_rules(response, merge_domains=False, counting=counting)
    output = await read_packed(response, merge_domains=False, counting=counting)
    packed = run_at_once(unpack(output))
    assert list(pack(packed.rules)) == list(pack(here.rules))
    assert all(", window: fixed" in line for line in rule_lines(here.rules))
    assert packed.warnings == here.warnings
    assert len(here.warnings) == (resources is not LONG)


async def test_errors_of_a_long_response_are_all_told() -> None:
    """By the process that reads it."""
    broken = [config("d", *(limit("user", f"u{number}") for number in range(700)), {"key": ""})]
    assert await errors_of(*broken) == ["d: descriptors[700]: descriptor has empty key"]
    with pytest.raises(RulesError, match="descriptor has empty key"):
        await read_packed(pack_response(broken, "v"), merge_domains=False)
    with pytest.raises(RulesError, match="duplicate domain"):
        await read_packed(pack_response([*LONG, *LONG], "v"), merge_domains=False)


async def test_a_process_that_fails_is_no_error_of_the_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another try may help."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(ReadingError):
        await read_rules(pack_response(LONG, "v"), merge_domains=False)


# The law: the same rules by file and by xDS decide the same, or have the same errors.

Level = list[dict[str, Any]]

keys = st.sampled_from(["user", "path", "a"])
values = st.sampled_from(["", "", "x", "y", "x*", "*"])
UNITS = ["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR"]
names = st.sampled_from(["one", "two"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.just(2.5) | st.sampled_from(["", "t"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)
amounts = {"requests_per_unit": st.integers(0, 2)}
replaced = st.lists(st.fixed_dictionaries({"name": st.just("two")}), max_size=1)
limits = st.one_of(
    st.fixed_dictionaries({"unit": st.sampled_from(UNITS), **amounts}, optional={"name": names}),
    st.fixed_dictionaries(
        {"unit": st.sampled_from(UNITS), **amounts, "name": st.just("one"), "replaces": replaced}
    ),
    st.just({"unlimited": True}),
)
any_name = st.just("") | names
any_limits = st.fixed_dictionaries(
    {"unit": st.sampled_from([*UNITS, "UNKNOWN"]), **amounts},
    optional={
        "unlimited": st.booleans(),
        "name": any_name,
        "replaces": st.lists(st.fixed_dictionaries({"name": any_name}), max_size=2),
    },
)


def descriptors(depth: int, limits: st.SearchStrategy[Any]) -> st.SearchStrategy[Level]:
    optional: dict[str, st.SearchStrategy[Any]] = {
        "value": values,
        "rate_limit": limits,
        "shadow_mode": st.booleans(),
        "quota_mode": st.booleans(),
        "detailed_metric": st.booleans(),
        "metadata": st.dictionaries(st.sampled_from("xy"), plain, max_size=2),
    }
    if depth:
        optional["descriptors"] = descriptors(depth - 1, limits)
    return st.lists(st.fixed_dictionaries({"key": keys}, optional=optional), max_size=3)


def without_repeats(level: Level) -> Level:
    """A level that has each key and value once, and its children, too."""
    once = {(one["key"], one.get("value", "")): one for one in level}
    return [
        {**one, "descriptors": without_repeats(one["descriptors"])} if "descriptors" in one else one
        for one in once.values()
    ]


def states(levels: st.SearchStrategy[Level]) -> st.SearchStrategy[Level]:
    domain = st.fixed_dictionaries(
        {"domain": st.sampled_from(["d", "e"]), "descriptors": levels.filter(bool)}
    )
    return st.lists(domain, min_size=1, max_size=2)


any_states = states(descriptors(2, any_limits))
good_states = states(descriptors(2, limits).map(without_repeats)).map(
    lambda state: list({one["domain"]: one for one in state}.values())
)
"""Without what would be an error."""

Entries = tuple[tuple[str, str], ...]


def paths(level: Level, above: Entries = ()) -> Iterator[Entries]:
    """Entries that the descriptors of a state match."""
    for one in level:
        value = one.get("value", "")
        path = (*above, (one["key"], value.replace("*", "z") or "v"))
        yield path
        yield from paths(one.get("descriptors", []), path)


@st.composite
def asked_states(draw: st.DrawFn) -> tuple[Level, list[Request]]:
    """A state without errors, and requests that its rules match."""
    state = draw(good_states)
    found = {one["domain"]: list(paths(one["descriptors"])) for one in state}
    amounts = st.none() | st.integers(0, 3)
    are_refunds = st.sampled_from([False, False, False, True])
    requests = []
    for _ in range(draw(st.integers(1, 6))):
        domain = draw(st.sampled_from(sorted(found)))
        described = st.builds(Descriptor, st.sampled_from(found[domain]), amounts, are_refunds)
        requests.append(Request(domain, tuple(draw(st.lists(described, min_size=1, max_size=3)))))
    return state, requests


def by_file(folder: Path, state: list[dict[str, Any]]) -> LoadedRules:
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for number, content in enumerate(state):
        # JSON is YAML, and quotes every text.
        (folder / str(number)).write_text(json.dumps(content))
    return RulesSource(folder).load()


def by_xds(state: list[dict[str, Any]]) -> LoadedRules:
    named = [{**content, "name": str(number)} for number, content in enumerate(state)]
    resources = []
    for name, content in decode_rules(pack_response(named, "v")):
        assert isinstance(content, dict)
        resources.append(Resource(name, content))
    return load_resources(resources, merge_domains=False)


def outcome(load: Callable[[], LoadedRules]) -> LoadedRules | set[tuple[str, str]]:
    """Rules; or which file or resource, and what is wrong, without the line or place."""
    try:
        return load()
    except RulesError as exc:
        return {(Path(one.file.partition(":")[0]).name, one.text) for one in exc.errors}


async def decide(loaded: LoadedRules, asked: list[Request]) -> list[Answer]:
    limiter = Limiter(MemoryStore(), Options(dynamic_metadata=True), lambda: NOW)
    limiter.use(loaded.rules)
    return [await limiter.answer(limiter.prepare(one)) for one in asked]


@given(asked_states())
async def test_the_same_rules_by_file_and_by_xds_decide_the_same(
    tmp_path_factory: pytest.TempPathFactory, asked: tuple[Level, list[Request]]
) -> None:
    """Whatever is asked of them."""
    state, requests = asked
    files, over_xds = by_file(tmp_path_factory.getbasetemp() / "by-file", state), by_xds(state)
    assert list(pack(over_xds.rules)) == list(pack(files.rules))
    assert await decide(over_xds, requests) == await decide(files, requests)


@given(state=any_states)
def test_a_state_with_errors_has_the_same_errors_by_file_and_by_xds(
    tmp_path_factory: pytest.TempPathFactory, state: Level
) -> None:
    """Or the same rules, if it has none."""
    folder = tmp_path_factory.getbasetemp() / "by-file"
    files, over_xds = outcome(lambda: by_file(folder, state)), outcome(lambda: by_xds(state))
    if isinstance(files, set) or isinstance(over_xds, set):
        assert over_xds == files
        return
    assert list(pack(over_xds.rules)) == list(pack(files.rules))


def test_what_a_file_would_read_otherwise_stays_text() -> None:
    """A value that looks like a number, a truth or nothing is a text on the wire."""
    for text in ("404", "true", "null", "~", "1e3", "0x10", "<<", "&a", "# no"):
        (domain,) = by_xds([{"domain": text, "descriptors": [{"key": text, "value": text}]}]).rules
        assert domain == text == yaml.safe_load(json.dumps(text))
