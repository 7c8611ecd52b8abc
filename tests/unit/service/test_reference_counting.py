"""With one setting, rules count as the reference server counts: every status, header and metric."""

from collections.abc import Sequence
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.problems import Problems
from penstock.config.rules import combine
from penstock.config.rules_file import read_rules_file
from penstock.core.limits import Unit
from penstock.core.plan import Behaviour
from penstock.core.request import Descriptor, Override, Request
from penstock.core.rule_counting import RuleCounting
from penstock.core.rules import Rules
from penstock.service.answer import Answer, Options
from penstock.service.headers import HeaderNames
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.telemetry.metrics import Metrics

from tests.support.reference_counter import (
    LIMITS,
    RULES,
    HitCounts,
    ReferenceCounter,
    Told,
)

BOUNDARY = 1_794_787_200_000
"""A year, or an hour, of the reference server does not begin here; a day does."""


def load(text: str, counting: RuleCounting = RuleCounting.REFERENCE) -> Rules:
    problems = Problems()
    file = read_rules_file("rules.yaml", text, problems, counting)
    assert file is not None
    return combine([file], problems, merge_domains=False).rules


class Server:
    """A limiter at times that a test chooses, which counts as the reference server."""

    def __init__(self, rules: Rules, counting: RuleCounting = RuleCounting.REFERENCE) -> None:
        self.now_ms = BOUNDARY
        self.metrics = Metrics()
        options = Options(Behaviour(counting=counting), headers=HeaderNames())
        self._limiter = Limiter(MemoryStore(), options, lambda: self.now_ms, metrics=self.metrics)
        self._limiter.use(rules)

    def ask(self, request: Request) -> Answer:
        started = self._limiter.start(self._limiter.prepare(request))
        assert isinstance(started, Answer)
        return started

    def passed(self, times: int, hits: int = 0) -> int:
        """How many of so many requests pass."""
        request = Request("d", (Descriptor((("minute", "v"),)),), hits)
        return [self.ask(request).decision.over for _ in range(times)].count(False)


AMOUNTS = st.sampled_from([None, None, None, 0, 1, 2, 7, 30])
DESCRIPTORS = st.builds(
    Descriptor,
    st.tuples(
        st.tuples(st.sampled_from([*LIMITS, "free", "unknown"]), st.sampled_from(["a", "b"]))
    ),
    AMOUNTS,
    st.sampled_from([False, False, False, True]),
    st.sampled_from([None, None, None, None, Override(3, Unit.HOUR)]),
)
REQUESTS = st.builds(
    Request,
    st.just("d"),
    st.lists(DESCRIPTORS, min_size=1, max_size=4).map(tuple),
    st.integers(0, 3),
)
STEPS = st.sampled_from(
    [0, 0, 0, 0, 1, 999, 1_000, 20_000, 59_999, 60_000, 3_600_000, 86_400_000, 10**10]
)
"""Boundaries are met to the millisecond, and jumped over."""


def shown(told: Sequence[Told]) -> tuple[tuple[str, str], ...]:
    """The headers of the reference server: of the last one over, else of that with least left."""
    limited = [one for one in told if one.tokens is not None]
    if not limited:
        return ()
    over = [one for one in limited if one.over]
    one = over[-1] if over else min(limited, key=lambda one: one.remaining)
    values = one.tokens, one.remaining, one.reset_s
    names = "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"
    return tuple(zip(names, map(str, values), strict=True))


@given(st.integers(0, 86_400_000), st.lists(st.tuples(STEPS, REQUESTS), max_size=30))
def test_every_answer_is_that_of_the_reference_server(
    start_ms: int, asked: Sequence[tuple[int, Request]]
) -> None:
    """Statuses, headers, metrics; refunds, checks, limits of 0; and jumps over boundaries."""
    server, reference = Server(ALL_RULES), ReferenceCounter()
    server.now_ms += start_ms
    for step_ms, request in asked:
        server.now_ms += step_ms
        over, told = reference.ask(request, server.now_ms)
        answer = server.ask(request)
        assert [
            Told(
                one.over,
                None if one.limit is None else one.limit.requests_per_unit,
                0 if one.limit is None else one.remaining,
                one.reset_s,
            )
            for one in answer.decision.statuses
        ] == told
        assert answer.decision.over == over
        headers = [pair for pair in answer.headers if pair[0] != "retry-after"]
        assert tuple(headers) == shown(told)
    for name, counts in reference.hits.items():
        key = f"{name}_a*" if name == "shared" else name
        hits = server.metrics.rule_hits.of(("d", key), ("d", key))
        assert HitCounts(**{field: getattr(hits, field) for field in asdict(counts)}) == counts


ALL_RULES = load(RULES)

COSTS = st.lists(st.sampled_from(["minute", "day"]), min_size=1, max_size=3)


@given(st.lists(st.tuples(STEPS, COSTS, st.integers(1, 8)), max_size=40))
def test_fixed_windows_alone_count_what_passes(
    asked: Sequence[tuple[int, list[str], int]],
) -> None:
    """All of a request, or nothing of it: a number for each window, and no more than the limit."""
    server = Server(FIXED_RULES, RuleCounting.FIXED)
    used = dict[tuple[str, int], int]()
    for step_ms, keys, hits in asked:
        server.now_ms += step_ms
        after = used.copy()
        for key in keys:
            window = key, server.now_ms // 1_000 // LIMITS[key].unit_s
            after[window] = after.get(window, 0) + hits
        fits = all(count <= LIMITS[key].tokens for (key, _), count in after.items())
        answer = server.ask(Request("d", tuple(Descriptor(((key, "v"),)) for key in keys), hits))
        assert answer.decision.over is not fits
        used = after if fits else used
        for key, status in zip(keys, answer.decision.statuses, strict=True):
            unit_s = LIMITS[key].unit_s
            assert status.reset_s == unit_s - server.now_ms // 1_000 % unit_s


FIXED_RULES = load(RULES, RuleCounting.FIXED)

FORTY = """
domain: d
descriptors:
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 40}}
"""


def test_a_client_a_little_over_its_rate_gets_its_whole_rate_in_every_window() -> None:
    """On a steady bucket that denied requests drain, it got 2 of 40."""
    server = Server(load(FORTY))
    for _ in range(5):
        assert server.passed(44) == 40
        server.now_ms += 60_000


def test_only_the_setting_counts_denied_requests() -> None:
    """Three of four fit; then two are left, unless the refused amount was counted."""
    for counting, left in ((RuleCounting.FIXED, 4), (RuleCounting.REFERENCE, 0)):
        server = Server(load(FORTY, counting), counting)
        assert server.passed(4, hits=12) == 3
        assert server.passed(10) == left


@pytest.mark.parametrize("own", ["window: steady", "window: fixed, carry_debt: true"])
def test_a_rule_that_keeps_its_debt_does_not_count_denied_requests(own: str) -> None:
    """Or a client a little over its rate would get ever deeper into debt."""
    server = Server(load(FORTY.replace("40}", f"40, {own}}}")))
    for _ in range(5):
        assert server.passed(44) == 40
        server.now_ms += 60_000


def test_a_rule_can_refuse_without_counting() -> None:
    """What a rule says of amounts that do not fit goes before the setting."""
    server = Server(load(FORTY.replace("40}", "40, on_exceed: reject}")))
    assert server.passed(1, hits=41) == 0
    assert server.passed(1, hits=40) == 1


def test_a_rule_can_bound_what_is_counted() -> None:
    """Refunds find no more than `max_debt` over the limit."""
    server = Server(load(FORTY.replace("40}", "40, max_debt: 5}")))
    assert server.passed(1, hits=1_000) == 0
    server.ask(Request("d", (Descriptor((("minute", "v"),), 45, refund=True),)))
    assert server.passed(1, hits=40) == 1
