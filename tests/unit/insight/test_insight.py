"""What a limiter notes of its decisions: who asked, who was denied, and by whose limit."""

from typing import Any

import pytest
from penstock.core.entities import Entity, Scope, StoredLimits
from penstock.core.keys import MAX_ENTITY
from penstock.core.lease import LeaseAsk
from penstock.core.limits import MILLI, Limit, Unit
from penstock.core.mapping import EntityMapping, Mappings, Template
from penstock.core.plan import Behaviour
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rules import Children, Domain, Node, Rule, Rules
from penstock.core.take import Key
from penstock.insight.denials import Denial
from penstock.insight.insight import BATCH, Insight
from penstock.insight.windows import By, Of
from penstock.service.answer import Options
from penstock.service.leases import Leases
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.slices import run_at_once
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change

NOW = 1_794_792_780_000
MINUTE = 60_000
FIVE = Limit.per(5, MINUTE)
CHANGE = Change("test", NOW)


def rules() -> Rules:
    mapping = EntityMapping(("key", "model"), Template("{key}"), Template("{model}"))
    nodes = [
        Node("user", rule=Rule("d.user", (FIVE,))),
        Node("shadow", rule=Rule("d.shadow", (Limit.per(0, MINUTE),), shadow_mode=True)),
        Node("free", rule=Rule("d.free", ())),
    ]
    return {"d": Domain("d", Children(nodes), Mappings("d", {mapping.keys: mapping}))}


class Stage:
    """A limiter with a store in memory, and what it noted."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.insight = Insight(NOW)
        self.store = MemoryStore()
        self.policies = Policies(self.store.policy, MINUTE, lambda: NOW)
        options = Options(behaviour or Behaviour())
        self._limiter = Limiter(
            self.store, options, lambda: NOW, self.policies, insight=self.insight
        )
        self._limiter.use(rules())

    async def limit(self, entity: str, *limits: Limit) -> None:
        await self.store.policy.write_limits(Scope(entity, "gpt"), StoredLimits(limits, 0), CHANGE)

    async def ask(self, *entries: tuple[str, str], **more: Any) -> None:
        request = Request("d", (Descriptor(entries, **more),))
        await self._limiter.answer(self._limiter.prepare(request))

    def counts(self, by: By, of: Of) -> dict[Any, int]:
        tops = run_at_once(self.insight.read(of, "minute", NOW))
        return dict((tops.requests if by == "requests" else tops.denials).counts)

    def denials(self) -> list[Denial]:
        return self.insight.latest_denials()


async def test_requests_and_denials_are_counted_by_rule_entity_and_resource() -> None:
    """Eight requests on a limit of five: three are denied."""
    stage = Stage()
    for _ in range(8):
        await stage.ask(("user", "bob"))
    await stage.ask(("user", "ann"))
    bob, ann = Key("user=bob", "$domain:d"), Key("user=ann", "$domain:d")
    assert stage.counts("requests", "entity") == {bob: 8, ann: 1}
    assert stage.counts("denials", "entity") == {bob: 3}
    assert stage.counts("requests", "rule") == {"d.user": 9}
    assert stage.counts("denials", "resource") == {"$domain:d": 3}
    last, *_ = denials = stage.denials()
    assert len(denials) == 3
    assert last == Denial(NOW, "d.user", bob, "user=bob", FIVE, 1, 12, passed=False)
    assert stage.insight.latest_denials("user=ann") == []


async def test_a_denial_names_the_parent_whose_limit_it_was() -> None:
    """And the name of the limit alone, and how much was asked of it."""
    stage = Stage()
    await stage.store.policy.write_entity(Entity("project"), CHANGE)
    await stage.store.policy.write_entity(Entity("user", "project", cascade=True), CHANGE)
    await stage.limit("user", Limit.per(100, MINUTE, name="rpm"))
    await stage.limit("project", Limit.per(2, MINUTE, name="rpm"))
    await stage.ask(("key", "user"), ("model", "gpt"), hits=3)
    (denial,) = stage.denials()
    assert (denial.key, denial.limited) == (Key("user", "gpt"), "project")
    assert (denial.limit.name, denial.limit.burst, denial.amount) == ("rpm", 2_000, 3)
    assert stage.counts("denials", "rule") == {"d [key, model]": 1}
    assert stage.counts("denials", "entity") == {Key("user", "gpt"): 1}


@pytest.mark.parametrize(
    ("behaviour", "key"), [(Behaviour(), "shadow"), (Behaviour(shadow_mode=True), "user")]
)
async def test_what_only_shadow_mode_lets_pass_is_shown_and_is_no_denial(
    behaviour: Behaviour, key: str
) -> None:
    """Of a rule, or of the whole server: operators want to see whom it would limit."""
    stage = Stage(behaviour)
    for _ in range(6):
        await stage.ask((key, "bob"))
    assert {denial.passed for denial in stage.denials()} == {True}
    assert stage.counts("denials", "rule") == {}


async def test_overrides_refunds_and_what_nothing_limits() -> None:
    """Rates of requests share one name. What asks nothing of a limit is not counted."""
    stage = Stage()
    await stage.ask(("user", "bob"), override=Override(1, Unit.MINUTE))
    await stage.ask(("user", "bob"), hits=1, refund=True)
    await stage.ask(("free", "bob"))
    await stage.ask(("stranger", "bob"))
    assert stage.counts("requests", "rule") == {"d override": 1}


async def test_leases_are_counted_as_one_rule() -> None:
    """With the entity that asks, and its denials."""
    stage = Stage()
    await stage.limit("user", Limit.per(2, MINUTE, name="rpm"))
    leases = Leases(stage.store, stage.policies, lambda: NOW, lambda _: (), insight=stage.insight)
    for _ in range(3):
        await leases.take(LeaseAsk(Key("user", "gpt"), {"rpm": MILLI}))
    assert stage.counts("requests", "rule") == {"leases": 3}
    assert stage.counts("denials", "entity") == {Key("user", "gpt"): 1}
    (denial,) = stage.denials()
    assert (denial.limit.name, denial.limited, denial.wait_s) == ("rpm", "user", 30)


async def test_leases_of_a_domain_are_counted_as_another_rule() -> None:
    """Of a domain that has rules. All others are one."""
    stage = Stage()
    await stage.limit("user", Limit.per(9, MINUTE, name="rpm"))
    has_domain = {"llm"}.__contains__
    leases = Leases(
        stage.store, stage.policies, lambda: NOW, lambda _: (), insight=stage.insight,
        has_domain=has_domain,
    )  # fmt: skip
    for domain in ("llm", "made-up", "made-up, too", "leases"):
        await leases.take(LeaseAsk(Key("user", "gpt"), {"rpm": MILLI}, domain=domain))
    assert stage.counts("requests", "rule") == {
        "leases": 1, "llm leases": 1, "unknown leases": 2,
    }  # fmt: skip


async def test_values_that_clients_make_up_cannot_grow_memory() -> None:
    """Thousands of long values: the number of keys, and the length of each, have a bound."""
    stage = Stage()
    for number in range(3 * BATCH):
        await stage.ask(("user", f"{number:05}" + "x" * 500))
    tops = run_at_once(stage.insight.read("entity", "hour", NOW))
    assert len(tops.requests) <= 512
    assert max(len(key.entity) for key in tops.requests.counts) <= MAX_ENTITY
    assert tops.requests.floor <= 3 * BATCH // 257
    assert stage.counts("requests", "rule") == {"d.user": 3 * BATCH}
