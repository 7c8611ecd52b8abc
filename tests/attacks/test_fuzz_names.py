"""Whatever something is called: a name is refused in plain words, or it can be read back."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from penstock.cli import main
from penstock.config.flags import DECLARED
from penstock.config.policy_file import read_policy
from penstock.core.entities import Scope, StoredLimits, name_problem
from penstock.core.foreign_text import is_plain
from penstock.core.keys import rule_key
from penstock.core.limits import Limit
from penstock.core.mapping import built_in_target
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Key
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.open import open_store
from penstock.store.policy_port import Change
from penstock.store.port import Store
from penstock.store.sqlite.schema import open_file
from penstock.transport.codec import decode_response, encode_request
from penstock.transport.rls import RateLimitService

from tests.support.processes import penstock
from tests.support.tables import new_table, open_on

NOW = 1_794_792_780_000

ODD = st.sampled_from(
    [
        "", " ", "a", "_default_", "$SYSTEM", "$RESOURCE:x", "$domain:d", "a/b", "a#b", "a%b", "%",
        "-", "--help", "a=b,c=d", "'", '"', "\\", "\\n", "{a}", "*", "~", "null", "1", "yes", "<<",
        "a: b", "- a", "&a", "!!int 1", "#", "\n", "\x00", "\x1b[2J", "\x85", "\x9b", "\u2028",
        "\u202e", "\ud800", "\udcff", "\ufeff", "\ufffe", "\U0010ffff", "\u00a0", "\u3000",
        "👩‍👩‍👧", "می‌خواهم", "\u200fعربي\u200e", "e\u0301", "é", "ﬁ",
        "İ", "ß", "😀" * 256, "😀" * 257, "é" * 256, "x" * 3_000,
    ]
)  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
NAMES = ODD | ANY_TEXT | st.tuples(ODD, ANY_TEXT).map("".join)
WIRE_NAMES = NAMES.filter(lambda name: not any("\ud800" <= char <= "\udfff" for char in name))
"""Those that UTF-8 can carry."""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `penstock …` on a new store: its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    open_file(Path("penstock.db"), "NORMAL").close()
    for setting in DECLARED:
        monkeypatch.delenv(setting.env, raising=False)

    def type_in(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(list(arguments))
        except SystemExit as exc:  # of argparse
            code = int(str(exc.code))
        out, err = capsys.readouterr()
        assert all(map(is_plain, f"{out}{err}".split("\n")))
        assert "Traceback" not in err
        return code, out, err

    return type_in


def settings_for(examples: int) -> settings:
    ignored = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(deadline=None, max_examples=examples, suppress_health_check=ignored)


@settings_for(30)
@given(name=NAMES)
def test_an_entity_that_is_created_can_be_read_back(run: Run, name: str) -> None:
    """With its limits, its record and its bucket; one that is refused leaves nothing."""
    created, _, err = run("entity", "create", f"--metadata=k={name}x", "--", name)
    accepted = name_problem("entity", name) is None and is_plain(name)
    assert (created == 0) == accepted, err
    if not accepted:
        assert created == 2
        assert run("entity", "show", "--", name)[0] == 2
        assert json.loads(run("entity", "list", "--json")[1]) == []
        return
    shown = json.loads(run("entity", "show", "--json", "--", name)[1])
    assert (shown["name"], shown["metadata"]) == (name, {"k": f"{name}x"})
    scope = (f"--entity={name}", f"--resource=r{name[:200]}")
    assert run("limits", "set", *scope, "rpm=5/day")[0] == 0
    assert json.loads(run("limits", "show", *scope, "--json")[1])["entity"] == name
    assert [one["entity"] for one in json.loads(run("limits", "list", "--json")[1])] == [name]
    assert run("bucket", "show", "--", name, f"r{name[:200]}")[0] == 0
    assert {one["subject"] for one in json.loads(run("audit", "--json", "--", name)[1])} == {name}
    policy = read_policy("export", run("policy", "export")[1], {})
    assert policy.entities[name].metadata == {"k": f"{name}x"}
    assert run("limits", "delete", *scope, "--yes")[0] == 0
    assert run("entity", "delete", "--yes", "--", name)[0] == 0
    assert run("entity", "show", "--", name)[0] == 1


@settings_for(30)
@given(entity=NAMES, resource=NAMES)
def test_no_name_of_a_bucket_is_a_fault(run: Run, entity: str, resource: str) -> None:
    """Those of rules are not checked as those of entities are."""
    for named in (resource, f"${resource}", f"$domain:{resource}"):
        assert run("bucket", "show", "--", entity, named)[0] in {1, 2}
        assert run("bucket", "reset", "--", entity, named)[0] in {1, 2}
        assert run("bucket", "list", f"--resource={named}")[0] in {0, 2}
        assert run("audit", "--", named)[0] in {1, 2}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("names")
    rules = folder / "rules.yaml"
    rules.write_text(
        "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 9}}]\n"
    )
    with penstock(folder, rules=rules, store="memory:") as server:
        yield server.address


@settings_for(30)
@given(name=NAMES)
def test_no_descriptor_is_a_fault_of_check(run: Run, address: str, name: str) -> None:
    """It is asked for, or refused for a reason."""
    for descriptor in (f"user={name}", f"{name}=x", name):
        code, out, err = run("check", "--address", address, "--domain", "d", "--", descriptor)
        assert code in {0, 1, 2}
        assert out if code < 2 else err
    assert run("check", "--address", address, f"--domain={name}", "user=bob")[0] in {0, 1, 2}


async def serve(store: Store) -> RateLimitService:
    limits = StoredLimits((Limit.per(5, 60_000, name="rpm"),), 0)
    await store.policy.write_limits(Scope(), limits, Change("test", NOW))
    limiter = Limiter(
        store, Options(), lambda: NOW, Policies(store.policy, 60_000, lambda: NOW), None
    )
    rule = Rule("d.user", (Limit.per(5, 60_000),))
    limiter.use({"d": Domain("d", Children([Node("user", rule=rule)]))})
    return RateLimitService(limiter)


async def ask_and_read_back(store: Store, service: RateLimitService, name: str) -> Key:
    """Take from an entity and by a rule; gives the entity's key as the store has it."""
    entity = (("entity", name), ("resource", name))
    user = (("user", name),)
    request = encode_request(Request("d", (Descriptor(entity), Descriptor(user))))
    answer = decode_response(await service.should_rate_limit(request))
    assert [status["current_limit"]["requests_per_unit"] for status in answer["statuses"]] == [5, 5]
    target = built_in_target(entity)
    assert target is not None
    key = Key(target.entity, target.resource)
    for one in (key, rule_key("d", user)):
        item = await store.read(one)
        assert item is not None
        assert is_plain(f"{one.entity}{one.resource}")
    return key


@settings_for(30)
@given(names=st.lists(WIRE_NAMES, min_size=1, max_size=4, unique=True))
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_a_request_names_can_be_read_back(run: Run, kind: str, names: list[str]) -> None:
    """From the store, and by an operator who types the name that the store has."""
    file = f"{uuid4().hex}.db"
    url = {"memory": "memory:", "sqlite": f"sqlite:///{file}"}[kind]

    async def work() -> list[Key]:
        store = await open_store(url)
        try:
            service = await serve(store)
            return [await ask_and_read_back(store, service, name) for name in names]
        finally:
            await store.close()

    keys = asyncio.run(work())
    if kind == "sqlite":
        for key in keys:
            code, out, err = run("bucket", "show", "--store", url, "--json", "--", *key)
            assert code == 0, err
            shown = json.loads(out)
            assert (shown["entity"], shown["resource"], shown["stored"]) == (*key, True)
        Path(file).unlink()


async def test_what_a_request_names_can_be_read_back_from_dynamodb(dynamodb_url: str) -> None:
    """The oddest ones, and a few made up of all letters."""
    names = [
        "", "a#b", "a%b", "$SYSTEM", "_default_", "\x00", "\x1b[2J", "\u202e", "👩‍👩‍👧",
        "می‌خواهم", "😀" * 256, "😀" * 257, "x" * 10_000, "e\u0301", "é", "\U0010ffff", "\ufffe",
    ]  # fmt: skip
    async with new_table(dynamodb_url) as location, open_on(location) as store:
        service = await serve(store)
        keys = [await ask_and_read_back(store, service, name) for name in names]
        assert len(set(keys)) == len(names)
