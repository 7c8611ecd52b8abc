"""One policy in virtual time: the limiter of a server, and a clock that shows the trace's times.

A replay is a server that starts with the first request: all buckets are full, and the server has
still to learn which rules are metered (`service/metering.py`). Rules and stored limits stay as they
are until the end.
"""

from typing import Final, Self

from penstock.core.policy_diff import EntityChange, Policy, diff
from penstock.core.rules import Rules
from penstock.service.answer import Answer, Options
from penstock.service.limiter import Limiter, wait_for
from penstock.service.policies import Policies
from penstock.store.memory import MemoryStore
from penstock.store.policy_port import Change, PolicyStore
from penstock.store.port import Store
from penstock.telemetry.metrics import Metrics
from penstock.traffic.reading import Timed

FOR_EVER_MS: Final = 10**18
"""Stored limits are read once, because nobody changes them during a replay."""


class Replay:
    def __init__(self, store: Store, rules: Rules, options: Options, start_ms: int) -> None:
        """`begin` makes the store."""
        self.metrics: Final = Metrics()
        self._now_ms = start_ms
        policies = Policies(store.policy, FOR_EVER_MS, self._clock_ms)
        self._limiter = Limiter(store, options, self._clock_ms, policies, self.metrics)
        self._limiter.use(rules)

    @classmethod
    async def begin(cls, rules: Rules, policy: Policy, options: Options, start_ms: int) -> Self:
        # Nobody reads the usage of a simulation, and to count it takes a seventh of the time.
        store = MemoryStore(counts_usage=False)
        await fill_policy(store.policy, policy, Change("simulation", start_ms))
        return cls(store, rules, options, start_ms)

    def _clock_ms(self) -> int:
        return self._now_ms

    async def decide(self, timed: Timed) -> Answer:
        """Answer a request as a server would at its time."""
        self._now_ms = timed.time_ms
        prepared = self._limiter.find(timed.key, lambda _: timed.request)
        started = self._limiter.start(prepared)
        if isinstance(started, Answer):
            return started
        await wait_for(started.future, None)
        return started.finish()


async def fill_policy(store: PolicyStore, policy: Policy, change: Change) -> None:
    """Write a policy to an empty store."""
    for one in diff(Policy(), policy):
        if isinstance(one, EntityChange):
            if one.after is not None:
                await store.write_entity(one.after, change)
        elif one.after is not None:
            await store.write_limits(one.scope, one.after, change)


class TraceClock:
    """The time of a replay. It never goes back.

    A request with an earlier time than the request before it is decided at that later time.
    """

    def __init__(self) -> None:
        self.first_ms = self.now_ms = 0
        self.late = 0
        """Requests with an earlier time than the one before."""
        self.most_late_ms = 0

    def advance(self, time_ms: int) -> int:
        if time_ms >= self.now_ms:
            self.first_ms = self.first_ms or time_ms
            self.now_ms = time_ms
        else:
            self.late += 1
            self.most_late_ms = max(self.most_late_ms, self.now_ms - time_ms)
        return self.now_ms
