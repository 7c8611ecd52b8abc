"""Views: the forms of values, what is concealed, and lists that go on."""

import json
from typing import Any

import pytest
from penstock.cli import audit, bucket_levels, tables
from penstock.console import values
from penstock.console.conceal import Conceal, Values, make_conceal, show
from penstock.console.console import VIEWS
from penstock.console.inside import Inside
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.limits import Limit, Window
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule, Rules
from penstock.insight.insight import Insight
from penstock.insight.windows import RULES_KEPT
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import AuditEvent, Change
from penstock.telemetry.metrics import Metrics

NOW = 1_794_792_780_000
MINUTE = 60_000
CHANGE = Change("alice", NOW)
SECRET = "secret-of-this-test"  # noqa: S105 - of no server
DAILY = Limit.per(9, 24 * 60 * MINUTE, name="day", window=Window())
LIMITS = (Limit.per(5, MINUTE, name="rpm"), Limit.per(9, 90_000, name="tpm", burst=20))


class Stage:
    """One process, without a server around it."""

    def __init__(self, conceal: Conceal = show) -> None:
        self.store, self.insight = MemoryStore(), Insight(NOW)
        nodes = [Node(f"k{number}", rule=Rule(f"d.k{number}", LIMITS)) for number in range(30)]
        self.rules: Rules = {"d": Domain("d", Children(nodes))}
        policies = Policies(self.store.policy, 0, lambda: NOW)
        self.limiter = Limiter(self.store, Options(), lambda: NOW, policies, insight=self.insight)
        self.use(self.rules)
        self.inside = Inside(
            self.insight,
            self.store,
            Metrics(),
            lambda: self.rules,
            lambda: 30,
            lambda: ["$domain:d"],
            lambda: ["rules from here"],
            lambda: "",
            conceal,
            lambda: NOW,
        )

    def use(self, rules: Rules) -> None:
        self.rules = rules
        self.limiter.use(rules)

    async def ask(self, *entries: tuple[str, str]) -> None:
        await self.limiter.answer(self.limiter.prepare(Request("d", (Descriptor(entries),))))

    async def part(self, view: str, **query: str) -> Any:
        return json.loads(json.dumps(await VIEWS[view].read(self.inside, query)))

    async def get(self, view: str, **query: str) -> Any:
        return VIEWS[view].join([await self.part(view, **query)], query)


def test_values_have_the_form_of_commands() -> None:
    """One schema: what a script learned from --json holds here, too."""
    entity = Entity("a", "b", cascade=True, metadata={"team": "x"}, version=3)
    assert values.entity_values(entity, show) == tables.entity_values(entity)
    limits = (Limit.unlimited("free"), DAILY, *LIMITS)
    assert values.bucket_values(None, limits, NOW) == [
        bucket_levels.level_values(level) for level in bucket_levels.find_levels(limits, None, NOW)
    ]


async def test_events_have_the_form_of_commands() -> None:
    """Of an entity, of limits, and of a bucket that was reset."""
    policy = MemoryStore().policy
    await policy.write_entity(Entity("u", metadata={"team": "x"}), CHANGE)
    await policy.write_limits(Scope("u", "gpt"), StoredLimits(LIMITS, 0), CHANGE)
    scope, filled = Scope("u", "gpt"), ({"rpm": 1_000}, {"rpm": 5_000})
    await policy.record(AuditEvent("u", "bucket.reset", NOW, "alice", scope, *filled))
    events = (await policy.list_audit("u", None, 10)).items
    assert len(events) == 3
    for event in events:
        assert values.event_values(event, show) == audit.event_values(event)


def test_buckets_of_windows_and_of_no_limit_are_told_apart() -> None:
    """A window says when it ends, and an unlimited limit has no balance."""
    told = values.bucket_values(None, (Limit.unlimited("free"), DAILY, LIMITS[0]), NOW)
    by_name = {one["name"]: one for one in told}
    assert by_name["day"]["resets_at"] == "2026-11-17 00:00:00Z"
    assert by_name["day"]["window"]["kind"] == "fixed"
    assert (by_name["free"]["balance"], by_name["free"]["tokens"]) == (None, None)
    assert by_name[LIMITS[0].name]["resets_at"] is None


@pytest.mark.parametrize("limit", ["1", "7", "50"])
async def test_entities_with_a_prefix_are_all_found_once_page_by_page(limit: str) -> None:
    """Whatever the size of a page, and wherever they stand among the others."""
    stage = Stage()
    names = [f"{kind}-{number:04}" for kind in ("a", "b", "c") for number in range(60)]
    for name in names:
        await stage.store.policy.write_entity(Entity(name), CHANGE)
    found, query = [], {"prefix": "b-", "limit": limit}
    while True:
        page = await stage.get("entities", **query)
        assert len(page["entities"]) <= int(limit)
        found += [entity["name"] for entity in page["entities"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert found == [name for name in names if name.startswith("b-")]


async def test_a_prefix_is_found_behind_any_number_of_other_names() -> None:
    """In one answer: the store looks for it."""
    stage = Stage()
    for number in range(6_000):
        await stage.store.policy.write_entity(Entity(f"crowd-{number}"), CHANGE)
    for name in ("zeta-1", "zeta-2"):
        await stage.store.policy.write_entity(Entity(name, "crowd-7"), CHANGE)
    for query in ({}, {"parent": "crowd-7"}):
        page = await stage.get("entities", prefix="zeta-2", **query)
        assert ([one["name"] for one in page["entities"]], page["next"]) == (["zeta-2"], None)


async def test_children_are_listed_by_their_parent() -> None:
    """With what is stored about each."""
    stage = Stage()
    for entity in (Entity("p"), Entity("c1", "p"), Entity("c2", "p", cascade=True), Entity("x")):
        await stage.store.policy.write_entity(entity, CHANGE)
    page = await stage.get("entities", parent="p")
    assert [(one["name"], one["cascade"]) for one in page["entities"]] == [
        ("c1", False), ("c2", True),
    ]  # fmt: skip
    answer = await stage.get("entity", id="p")
    assert (answer["children"], answer["has_more_children"]) == (["c1", "c2"], False)


async def test_rules_are_found_by_text_and_page_by_page() -> None:
    """The counts of two workers are added up."""
    stage = Stage()
    for _ in range(7):
        await stage.ask(("k3", "v"))
    first = await stage.get("rules", limit="20")
    rest = await stage.get("rules", limit="20", after=first["next"])
    assert (first["count"], len(first["rules"]), len(rest["rules"])) == (30, 20, 10)
    assert rest["next"] is None
    part = await stage.part("rules", contains="k3")
    answer = VIEWS["rules"].join([part, part], {})
    assert [(row["rule"], row["requests"], row["denials"]) for row in answer["rules"]] == [
        ("d.k3", 14, 4)
    ]


async def test_rules_of_one_name_are_two_rows() -> None:
    """A key may have a dot. The rules share their counts, which are those of all workers."""
    stage = Stage()
    rule = Rule("d.a.b", LIMITS)
    nodes = [Node("a.b", rule=rule), Node("a", children=Children([Node("b", rule=rule)]))]
    stage.use({"d": Domain("d", Children(nodes))})
    for _ in range(3):
        await stage.ask(("a.b", "v"))
    await stage.ask(("a", "v"), ("b", "v"))
    part = await stage.part("rules")
    for parts, count in (([part], 4), ([part, part], 8)):
        rows = VIEWS["rules"].join(parts, {})["rules"]
        assert [(row["rule"], row["requests"]) for row in rows] == [("d.a.b", count)] * 2


async def test_a_count_of_a_rule_is_never_too_low() -> None:
    """With more rules than are kept, each count says by how much it may be too high."""
    stage = Stage()
    nodes = [Node(f"k{number}", rule=Rule(f"d.k{number}", LIMITS)) for number in range(3_000)]
    stage.use({"d": Domain("d", Children(nodes))})
    for number in range(3_000):
        await stage.ask((f"k{number}", "v"))
    rows = (await stage.get("rules", limit="1000", contains="d.k2"))["rules"]
    assert len(rows) == 1_000
    assert all(1 <= row["requests"] <= 1 + row["error"] for row in rows)
    assert 0 < max(row["error"] for row in rows) <= 3_000 // (RULES_KEPT + 1)
    assert all(row["denials"] == 0 for row in rows)


async def test_tops_of_two_workers_are_one_list() -> None:
    """Sorted by the sum, with the latest denial of each."""
    stages = [Stage(), Stage()]
    for stage, users in zip(stages, ("aab", "bbbbbbbb"), strict=True):
        for user in users:
            await stage.ask(("k1", user))
    query = {"by": "requests", "of": "entity"}
    parts = [await stage.part("top", **query) for stage in stages]
    rows = VIEWS["top"].join(parts, query)["rows"]
    assert [(row["entity"], row["requests"], row["denials"]) for row in rows] == [
        ("k1=b", 9, 3), ("k1=a", 2, 0),
    ]  # fmt: skip
    assert rows[0]["last_denial"]["limit"]["name"] == "rpm"
    assert rows[1]["last_denial"] is None


@pytest.mark.parametrize("kind", ["hashed", "hidden"])
async def test_no_view_shows_a_name_that_is_concealed(kind: Values) -> None:
    """Only the name that the reader asked for. Keys of rules, and resources, stay readable."""
    stage = Stage(make_conceal(kind, SECRET))
    policy = stage.store.policy
    await policy.write_entity(Entity("parent-key"), CHANGE)
    await policy.write_entity(Entity("child-key", "parent-key", cascade=True), CHANGE)
    await policy.write_limits(Scope("parent-key"), StoredLimits(LIMITS, 0), CHANGE)
    for _ in range(8):
        await stage.ask(("entity", "child-key"), ("resource", "gpt"))
        await stage.ask(("k1", "bob-key"))
    answers = [
        await stage.get(view, **query)
        for view, query in [
            ("top", {"of": "entity"}), ("top", {"of": "rule"}), ("denials", {}), ("rules", {}),
            ("audit", {"subject": "parent-key"}), ("audit", {}),
        ]
    ]  # fmt: skip
    text = json.dumps(answers)
    assert "child-key" not in text
    assert "bob-key" not in text
    assert "k1=hash:" in text if kind == "hashed" else "k1=hidden" in text
    assert '"gpt"' in text
    answer = await stage.get("entity", id="child-key", resource="gpt")
    levels = answer["trees"][0]["levels"]
    assert levels[0]["entity"] == "child-key"
    assert levels[1]["buckets"][0]["balance"] == 0
    assert "parent-key" not in json.dumps(answer)
    assert "child-key" not in json.dumps(await stage.get("entity", id="parent-key"))


@pytest.mark.parametrize("kind", ["shown", "hashed"])
async def test_an_entity_with_long_values_is_found_by_its_name(kind: Values) -> None:
    """In every view by the same name, so a link leads to its buckets and denials."""
    stage = Stage(make_conceal(kind, SECRET))
    entity = f"k1={'v' * 480}"
    for _ in range(8):
        await stage.ask(("k1", "v" * 480))
    (row,) = (await stage.get("top"))["rows"]
    assert row["last_denial"]["entity"] == row["entity"]
    assert (row["entity"] == entity) == (kind == "shown")
    (tree,) = (await stage.get("entity", id=entity))["trees"]
    assert tree["levels"][0]["buckets"][0]["balance"] == 0
    assert len((await stage.get("denials", entity=entity))["denials"]) == 3


def test_hashes_are_those_of_a_recording() -> None:
    """The same secret gives the same hash, so both can be compared."""
    from penstock.traffic.hashing import make_hash

    conceal = make_conceal("hashed", SECRET)
    assert conceal("user-1", "gpt") == make_hash(SECRET, "user-1")
    assert conceal("user=bob,path=/x", "$domain:d") == (
        f"user={make_hash(SECRET, 'bob')},path={make_hash(SECRET, '/x')}"
    )


async def test_usage_has_every_window_of_its_span() -> None:
    """Also those in which nothing was used, so that a plot has no gaps."""
    stage = Stage()
    await stage.store.policy.write_limits(Scope("u"), StoredLimits(LIMITS, 0), CHANGE)
    for _ in range(3):
        await stage.ask(("entity", "u"), ("resource", "gpt"))
    answer = await stage.get("usage", id="u")
    assert len(answer["starts_ms"]) == 49
    (used,) = answer["usage"]
    assert used["start_ms"] == answer["starts_ms"][-1]
    assert (used["takes"], used["amounts"]) == (3, {"rpm": 3, "tpm": 3})
