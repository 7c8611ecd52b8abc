"""What is metered, and what that does to amounts that descriptors bring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.bucket import credit
from penstock.core.entities import SYSTEM, StoredLimits
from penstock.core.limits import MILLI, Limit, Unit
from penstock.core.mapping import CHECK, HITS, Amount, Consume, EntityMapping, Mappings, Template
from penstock.core.metering import override_meter
from penstock.core.request import Descriptor, Entries, Override, Request
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule, Rules
from penstock.core.take import Mode
from penstock.service import metering
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.metering import LEARNS_MS, Metering
from penstock.service.policies import Policies
from penstock.slices import run_at_once
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change

NOW = 1_794_792_780_000
MINUTE = 60_000
TEN = Limit.per(10, 1_000)
USER = (("user", "bob"),)
ENTITY = (("entity", "bob"), ("resource", "gpt-4"))


def rules(limit: Limit = TEN, on_exceed: OnExceed | None = None, path: str = "d.user") -> Rules:
    said = {} if on_exceed is None else {limit.name: on_exceed}
    node = Node("user", rule=Rule(path, (limit,), on_exceed=said))
    return {"d": Domain("d", Children([node]))}


class Server:
    """A limiter on a clock that a test moves."""

    def __init__(self, used: Rules, *, is_known: bool = True) -> None:
        """`is_known`: the rules have been there for a minute."""
        self.now_ms = NOW - (LEARNS_MS if is_known else 0)
        self.store = MemoryStore()
        policies = Policies(self.store.policy, MINUTE, lambda: self.now_ms)
        self.limiter = Limiter(self.store, Options(), lambda: self.now_ms, policies)
        self.limiter.use(used)
        self.now_ms = NOW

    async def is_over(
        self,
        hits: int | None,
        entries: Entries = USER,
        override: Override | None = None,
        *,
        only_looks: bool = False,
    ) -> bool:
        descriptor = Descriptor(entries, hits, override=override)
        prepared = self.limiter.prepare(Request("d", (descriptor,)))
        return (await self.limiter.answer(prepared, only_looks=only_looks)).decision.over


@given(
    tokens=st.integers(1, 50),
    period_ms=st.sampled_from([1_000, 7_001, MINUTE]),
    amount=st.integers(1, 20),
    above=st.floats(1.05, 8),
    is_known=st.booleans(),
)
async def test_a_client_above_its_rate_gets_what_the_limit_admits(
    tokens: int, period_ms: int, amount: int, above: float, is_known: bool
) -> None:
    """Whatever it sends as its cost: a refusal is not charged, so it is not starved."""
    # With room for what comes between two requests, or some of it is cut off at the burst.
    limit = Limit.per(tokens, period_ms, burst=max(tokens, 2 * amount))
    server = Server(rules(limit), is_known=is_known)
    step_ms = max(1, int(amount * period_ms / tokens / above))
    begin_ms = server.now_ms
    prepared = server.limiter.prepare(Request("d", (Descriptor(USER, amount),)))
    admitted = 0
    for _ in range(300):
        server.now_ms += step_ms
        admitted += amount * (not (await server.limiter.answer(prepared)).decision.over)
    refilled = credit(limit, begin_ms, server.now_ms)
    # In the first minute refusals are charged, down to one burst of debt.
    charged = credit(limit, begin_ms, begin_ms + LEARNS_MS) + limit.burst
    least = refilled - limit.burst - (0 if is_known else charged)
    assert least <= admitted * MILLI <= refilled + limit.burst


async def test_half_of_what_is_sent_at_twice_the_rate_passes() -> None:
    """5 of 10 a second, four times a second: the reference server passes half of it, too."""
    server = Server(rules())
    over = []
    for _ in range(400):
        server.now_ms += 250
        over.append(await server.is_over(5))
    assert 200 <= over.count(False) <= 202


async def test_a_rule_that_was_asked_with_nothing_is_charged_what_is_reported() -> None:
    """Envoy checks with 0 and reports when the stream ends: then it is in debt, and refused."""
    server = Server(rules())
    assert not await server.is_over(0)
    assert await server.is_over(14)
    assert await server.is_over(0)
    server.now_ms += 400
    assert not await server.is_over(0)


async def test_a_request_that_was_prepared_before_its_rule_was_metered_is_a_report() -> None:
    """Servers keep prepared requests, for as long as the rules are the same."""
    server = Server(rules())
    prepared = server.limiter.prepare(Request("d", (Descriptor(USER, 14),)))
    assert (await server.limiter.answer(prepared)).decision.over
    assert not await server.is_over(0)
    assert (await server.limiter.answer(prepared)).decision.over
    assert await server.is_over(0)


async def test_who_only_looks_makes_no_rule_metered() -> None:
    """An operator's look must not change what becomes of costs."""
    server = Server(rules())
    assert not await server.is_over(0, only_looks=True)
    assert await server.is_over(14)
    assert not await server.is_over(10)


@pytest.mark.parametrize("own", [None, 14])
async def test_reject_turns_metering_off(own: int | None) -> None:
    """Whatever it was asked with, and also in its first minute."""
    server = Server(rules(Limit.per(1, 1_000), OnExceed.REJECT), is_known=False)
    await server.is_over(0)
    await server.is_over(own)
    await server.is_over(own)
    assert not await server.is_over(0)


async def test_an_amount_that_does_not_fit_is_a_report_for_a_minute() -> None:
    """A server that has just started can't know yet, and a report must not be lost."""
    server = Server(rules(Limit.per(10, MINUTE)), is_known=False)
    server.now_ms += LEARNS_MS - 1
    assert await server.is_over(14)
    assert await server.is_over(0, only_looks=True)
    server.now_ms += LEARNS_MS
    assert await server.is_over(14)
    assert not await server.is_over(0, only_looks=True)


async def test_a_reload_begins_no_new_minute_and_forgets_nothing() -> None:
    """For rules that stay; one that is new is learned anew."""
    server = Server(rules())
    server.limiter.use(rules(Limit.per(9, 1_000)))
    assert await server.is_over(14)
    assert not await server.is_over(0)
    server.limiter.use(rules())
    assert await server.is_over(14)
    assert await server.is_over(0)


def test_a_rule_that_was_gone_is_learned_anew() -> None:
    """Another one may have its place."""
    learned, meter = Metering(), ("rule", "d", "d.user")
    run_at_once(learned.use(rules(), NOW))
    learned.learn((meter,))
    assert learned.own_amount(meter, NOW + LEARNS_MS) is Mode.CHARGE
    run_at_once(learned.use(rules(path="d.other"), NOW + LEARNS_MS))
    run_at_once(learned.use(rules(), NOW + LEARNS_MS))
    assert learned.own_amount(meter, NOW + LEARNS_MS) is Mode.TAKE_OR_CHARGE
    assert learned.own_amount(meter, NOW + 2 * LEARNS_MS) is Mode.TAKE


def test_what_the_keys_of_requests_add_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An override needs no rule, and clients may choose its keys."""
    monkeypatch.setattr(metering, "MAX_LEARNED", 3)
    learned = Metering()
    run_at_once(learned.use({}, NOW))
    meters = [override_meter("d", ((f"key-{number}", ""),)) for number in range(5)]
    for meter in meters:
        learned.learn((meter,))
    modes = [learned.own_amount(meter, NOW + LEARNS_MS) for meter in meters]
    assert modes.count(Mode.CHARGE) == 3


async def test_an_override_is_metered_by_its_keys() -> None:
    """Its first check tells it, for all of its values."""
    server, rate = Server(rules()), Override(10, Unit.SECOND)
    for entries, is_in_debt in (((("a", "x"),), False), ((("a", "y"),), True)):
        assert await server.is_over(14, entries, rate)
        assert await server.is_over(0, entries, rate) is is_in_debt


ONE = Amount(1_000)


def mapping(keys: tuple[str, ...], consume: Consume | None = None) -> EntityMapping:
    return EntityMapping(keys, Template("{api_key}"), Template("gpt-4"), consume)


async def with_mappings(*mappings: EntityMapping) -> Server:
    """With 5 requests and 10 tokens a second for everybody, once the rules are known."""
    by_keys = {one.keys: one for one in mappings}
    server = Server({"d": Domain("d", Children([]), Mappings("d", by_keys))})
    limits = (Limit.per(5, 1_000, name="rpm"), Limit.per(10, 1_000, name="tpm"))
    await server.store.policy.write_limits(SYSTEM, StoredLimits(limits, 0), Change("test", NOW))
    return server


API_KEY, REPORT = (("api_key", "k"),), (("api_key", "k"), ("report", "r"))


async def test_a_mapping_is_metered_once_it_was_asked_with_nothing() -> None:
    """As a rule is; until then its amounts are costs."""
    server = await with_mappings(mapping(("api_key",), (("rpm", ONE), ("tpm", HITS))))
    assert await server.is_over(14, API_KEY)
    assert not await server.is_over(0, API_KEY)
    assert await server.is_over(14, API_KEY)
    assert await server.is_over(0, API_KEY)


async def test_a_mapping_reports_what_another_one_checks() -> None:
    """Nobody has to ask with 0 for that: the file says it."""
    checks = mapping(("api_key",), (("rpm", ONE), ("tpm", CHECK)))
    server = await with_mappings(checks, mapping(("api_key", "report"), (("tpm", HITS),)))
    assert await server.is_over(14, REPORT)
    assert await server.is_over(None, API_KEY)


async def test_a_limit_that_is_named_is_metered_by_itself() -> None:
    """Tokens are checked and reported, and requests beside them are costs."""
    server = await with_mappings()
    rpm, tpm = ((*ENTITY, ("limit", name)) for name in ("rpm", "tpm"))
    assert not await server.is_over(0, tpm)
    assert await server.is_over(14, tpm)
    assert await server.is_over(0, tpm)
    assert await server.is_over(14, rpm)
    assert not await server.is_over(0, rpm)
