"""A simulation decides as a server does: the same requests at the same times, byte for byte."""

import asyncio
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import MILLI, Limit, Unit
from penstock.core.mapping import HITS, Amount, EntityMapping, Mappings, Template
from penstock.core.plan import Behaviour
from penstock.core.policy_diff import Policy
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Children, Domain, Node, OnExceed, Rule, Rules
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change
from penstock.traffic.json_lines import write_line, write_request
from penstock.traffic.reading import Reader
from penstock.traffic.replay import Replay, TraceClock, fill_policy
from penstock.transport.codec import encode_answer, json_to_request
from penstock.transport.rls import RateLimitService

NOW = 1_794_792_817_591
NAMES = ("a", "b", "c")

limits = st.builds(
    Limit.per,
    st.integers(0, 8),
    st.sampled_from([1_000, 7_001, 60_000]),
    name=st.sampled_from(NAMES),
    burst=st.none() | st.integers(1, 12),
)
some_limits = st.lists(limits, max_size=3, unique_by=lambda limit: limit.name).map(tuple)


@st.composite
def nodes(draw: st.DrawFn, path: str, depth: int = 0) -> list[Node]:
    """One level of rules, with values, wildcards and keys alone."""
    made = []
    places = st.tuples(st.sampled_from(("k", "l")), st.sampled_from(("", "a", "b*", "c")))
    for key, value in draw(st.lists(places, min_size=1, max_size=3, unique=True)):
        here = f"{path}.{key}_{value}" if value else f"{path}.{key}"
        own = draw(some_limits)
        rule = Rule(
            here,
            own,
            draw(st.sampled_from([frozenset[str](), frozenset({"a"})])),
            shadow_mode=draw(st.booleans()) and draw(st.booleans()),
            quota_mode=draw(st.booleans()) and draw(st.booleans()),
            on_exceed={one.name: draw(st.sampled_from(OnExceed)) for one in own[:1]},
            max_debt={one.name: 3 * MILLI for one in own[1:2]},
        )
        below = Children(draw(nodes(here, depth + 1))) if depth == 0 else None
        shared = "*" in value and draw(st.booleans())
        made.append(Node(key, value, rule, share_threshold=shared, children=below))
    return made


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    consume = (("a", Amount(1_000)), ("b", HITS))
    mapping = EntityMapping(
        ("m",), Template("{m}"), Template("r"), draw(st.none() | st.just(consume))
    )
    mappings = Mappings("d", {("m",): mapping} if draw(st.booleans()) else {})
    return {"d": Domain("d", Children(draw(nodes("d"))), mappings)}


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A child that may cascade to its parent, and limits of every scope."""
    entities = {"a": Entity("a", None), "b": Entity("b", "a", cascade=draw(st.booleans()))}
    scopes = [SYSTEM, Scope(None, "r"), Scope("a"), Scope("b", "r")]
    chosen = draw(st.lists(st.sampled_from(scopes), unique=True))
    found = {scope: StoredLimits(draw(some_limits), 0) for scope in chosen}
    return Policy(entities, {scope: one for scope, one in found.items() if one.limits})


values = st.sampled_from(("a", "b", "bb", "c", "ü,=\\\n"))
entries = st.one_of(
    st.lists(st.tuples(st.sampled_from(("k", "l")), values), min_size=1, max_size=2),
    values.map(lambda value: [("m", value)]),
    values.map(lambda value: [("entity", value), ("resource", "r")]),
    values.map(lambda value: [("entity", value), ("resource", "r"), ("limit", "b")]),
).map(tuple)
descriptors = st.builds(
    Descriptor,
    entries,
    st.none() | st.integers(0, 6),
    st.booleans(),
    st.none() | st.builds(Override, st.integers(0, 5), st.just(Unit.MINUTE)),
)
plain = st.builds(Descriptor, entries)
requests = st.builds(
    Request,
    st.sampled_from(("d", "d", "d", "unknown")),
    st.lists(plain | descriptors, min_size=1, max_size=3).map(tuple),
    st.integers(0, 3),
)
traces = st.lists(
    st.tuples(st.sampled_from([0, 1, 100]) | st.integers(0, 70_000), requests),
    min_size=1,
    max_size=25,
)
behaviours = st.builds(
    Behaviour,
    shadow_mode=st.booleans(),
    quota_mode=st.booleans(),
    counting=st.sampled_from(RuleCounting),
) | st.just(Behaviour())


def timed(trace: Sequence[tuple[int, Request]]) -> list[tuple[int, Request]]:
    """Times from the steps between them."""
    found, now = [], NOW
    for step, request in trace:
        now += step
        found.append((now, request))
    return found


def wire(request: Request) -> bytes:
    """A request as Envoy sends it."""
    fields = {
        "domain": request.domain,
        "hits_addend": request.hits,
        "descriptors": [
            {
                "entries": [{"key": key, "value": value} for key, value in one.entries],
                **({} if one.hits is None else {"hits_addend": one.hits}),
                "is_negative_hits": one.refund,
                **(
                    {}
                    if one.override is None
                    else {
                        "limit": {
                            "requests_per_unit": one.override.requests_per_unit,
                            "unit": one.override.unit.name,
                        }
                    }
                ),
            }
            for one in request.descriptors
        ],
    }
    return json_to_request(json.dumps(fields).encode())


async def live_answers(
    trace: Sequence[tuple[int, Request]], rules: Rules, policy: Policy, behaviour: Behaviour
) -> list[bytes]:
    """What a server answers, with a clock that this test sets."""
    now = trace[0][0]
    store = MemoryStore()
    await fill_policy(store.policy, policy, Change("test", now))
    cache = Policies(store.policy, 60_000, lambda: now)
    limiter = Limiter(store, Options(behaviour=behaviour), lambda: now, cache)
    limiter.use(rules)
    service = RateLimitService(limiter)
    answers = []
    for now, request in trace:  # noqa: B007 - the clock above reads it
        answers.append(await service.should_rate_limit(wire(request)))
    return answers


async def simulated_answers(
    trace: Sequence[tuple[int, Request]], rules: Rules, policy: Policy, behaviour: Behaviour
) -> list[bytes]:
    """What a replay of the trace answers, by way of a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.jsonl"
        lines = [write_line(time_ms, write_request(request)) for time_ms, request in trace]
        file.write_text("".join(lines), encoding="utf-8")
        stream = list(Reader().read([str(file)]))
    assert [(one.time_ms, one.request) for one in stream] == list(trace)
    replay = await Replay.begin(rules, policy, Options(behaviour=behaviour), trace[0][0])
    return [encode_answer(await replay.decide(one)) for one in stream]


@settings(max_examples=150, deadline=None)
@given(traces, rules(), policies(), behaviours)
def test_a_replay_answers_as_a_server_does(
    trace: list[tuple[int, Request]], rules: Rules, policy: Policy, behaviour: Behaviour
) -> None:
    """Random rules, stored limits and requests: every answer is the same, byte for byte."""
    at = timed(trace)
    live = asyncio.run(live_answers(at, rules, policy, behaviour))
    assert asyncio.run(simulated_answers(at, rules, policy, behaviour)) == live


def test_the_clock_of_a_replay_never_goes_back() -> None:
    """An earlier time counts as the latest one, and is told of."""
    clock = TraceClock()
    assert [clock.advance(at) for at in (NOW, NOW + 5, NOW + 2, NOW + 5, NOW - 1, NOW + 6)] == [
        NOW, NOW + 5, NOW + 5, NOW + 5, NOW + 5, NOW + 6,
    ]  # fmt: skip
    assert (clock.first_ms, clock.late, clock.most_late_ms) == (NOW, 2, 6)


def test_the_property_test_sees_denials() -> None:
    """A trace whose later requests are denied, in both: the comparison above means something."""
    rule = Rule("d.k", (Limit.per(1, 60_000),))
    own: Rules = {"d": Domain("d", Children([Node("k", rule=rule)]))}
    asked = [(NOW + at, Request("d", (Descriptor((("k", "a"),)),))) for at in (0, 1, 60_000)]
    answers = asyncio.run(simulated_answers(asked, own, Policy(), Behaviour()))
    assert [answer[:2] for answer in answers] == [b"\x08\x01", b"\x08\x02", b"\x08\x01"]
