"""The CPU time of a decision on known, distinct keys of DynamoDB, on each client.

Version 0.3 is the measure: it made its calls through aioboto3. It can't run here any more, but it
was measured beside one UpdateItem through aioboto3, and that call can be measured in each round.

Each decision goes through the service, from bytes to bytes. The endpoint answers at once. So what
is measured is the reading of the request, the choice of the write, its expression, the call, the
verdict, and the answer.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import uvloop
from penstock.core.bucket import Bucket, Item
from penstock.core.limits import MILLI, Limit
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.core.take import Key
from penstock.garbage import frozen
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.location import ClientName, Location
from penstock.store.dynamodb.buckets.terms import make_terms
from penstock.store.dynamodb.items.images import Image, write_record
from penstock.store.dynamodb.store import DynamoStore
from penstock.transport.codec import decode_response, encode_request
from penstock.transport.methods import Waiting
from penstock.transport.rls import PlainCall, RateLimitService

from tests.benchmarks.dynamodb_client import call_us
from tests.benchmarks.in_process import make_request
from tests.benchmarks.instant_endpoint import answering
from tests.benchmarks.targets import Target, at_most
from tests.support.tables import CLIENTS, PATIENT_S

CALLERS = 16
ROUNDS = 3
DECISIONS = {"lean": 6_000, "aioboto3": 1_500}
TARGET = 1 / 6
CALLS = 1_500

NOW = 1_794_792_780_000
LIMITS = {
    "1 limit": (Limit.per(100, 60_000),),
    "2 limits": (Limit.per(100, 60_000, name="rpm"), Limit.per(10_000, 60_000, name="tpm")),
}
LATER_MS = {"busy": 100, "idle": 30_000}
"""A busy key is consumed from. An idle key is settled first."""

VERSION_0_3 = {
    ("1 limit", "busy"): 1.49,
    ("1 limit", "idle"): 1.52,
    ("2 limits", "busy"): 1.55,
    ("2 limits", "idle"): 1.67,
}
"""What 0.3 needed for the same decision: so many times the CPU of one UpdateItem by aioboto3."""


class Server:
    """The service on a store, at a time that the benchmark sets."""

    def __init__(self, store: DynamoStore, limits: tuple[Limit, ...]) -> None:
        self.now_ms = NOW
        limiter = Limiter(store, Options(), lambda: self.now_ms)
        rules = Children([Node("user", "", Rule("bench.user", limits))])
        limiter.use({"bench": Domain("bench", rules)})
        self._service = RateLimitService(limiter)

    async def decide(self, requests: Sequence[bytes]) -> list[bytes]:
        """Ask as the transport does: without a task for each call."""
        answers: list[bytes] = []
        left, all_answered = iter(requests), asyncio.get_running_loop().create_future()

        def ask() -> None:
            for request in left:
                started = self._service.start(request, PlainCall())
                if not isinstance(started, bytes):
                    started.future.add_done_callback(partial(answered, started))
                    return
                answers.append(started)

        def answered(waiting: Waiting, _: "asyncio.Future[Any]") -> None:
            answers.append(waiting.finish())
            ask()
            if len(answers) == len(requests):
                all_answered.set_result(answers)

        for _ in range(CALLERS):
            ask()
        return cast("list[bytes]", await all_answered)


def show_distinct_keys() -> list[Target]:
    """Print the CPU time of a decision on each client, and compare them in the same round."""
    print(f"\nCPU of a decision on known, distinct keys of DynamoDB, {CALLERS} callers at once")
    targets = []
    for name, limits in LIMITS.items():
        with answering(_answer(limits)) as url:
            rounds = [_round(url, limits) for _ in range(ROUNDS)]
        for state in LATER_MS:
            figures = [
                statistics.median(one.cpu_us[client, state] for one in rounds) for client in CLIENTS
            ]
            told = ", ".join(f"{c} {us:,.0f} us" for c, us in zip(CLIENTS, figures, strict=True))
            print(f"  {f'{name}, {state}':<42} {told}")
            ratio = statistics.median(
                one.cpu_us["lean", state] / (one.call_us * VERSION_0_3[name, state])
                for one in rounds
            )
            scenario = f"CPU, distinct {state} keys, {name} / version 0.3's"
            targets.append(at_most(scenario, ratio, TARGET, digits=3))
    return targets


def _answer(limits: tuple[Limit, ...]) -> dict[str, Any]:
    """As DynamoDB answers each update: with the item, which is the same for all keys."""
    item = Item(NOW, tuple(Bucket(limit, limit.burst - MILLI, MILLI) for limit in limits), NOW)
    terms = make_terms(limits)
    image = Image(item, terms.expires_s(NOW), terms.fingerprint, None)
    return {
        "Attributes": write_record(Key("user=u0", "$domain:bench"), image),
        "ConsumedCapacity": {"TableName": "bench", "CapacityUnits": 1.0},
    }


class Round(NamedTuple):
    cpu_us: dict[tuple[ClientName, str], float]
    call_us: float
    """Of one UpdateItem through aioboto3."""


def _round(url: str, limits: tuple[Limit, ...]) -> Round:
    cpu_us = uvloop.run(_decisions(url, limits))
    # On asyncio's own loop, as 0.3 had it.
    return Round(cpu_us, asyncio.run(call_us(url, "aioboto3", CALLS)))


async def _decisions(url: str, limits: tuple[Limit, ...]) -> dict[tuple[ClientName, str], float]:
    cpu_us: dict[tuple[ClientName, str], float] = {}
    for name in CLIENTS:
        requests = [encode_request(make_request(f"u{n}")) for n in range(DECISIONS[name])]
        location = Location("bench", "eu-west-1", url, client_name=name)
        async with open_clients(location, PATIENT_S) as clients:
            store = DynamoStore(clients, location, call_s=PATIENT_S)
            server = Server(store, limits)
            await server.decide(requests)
            with frozen():  # as the server has it
                for state, later_ms in LATER_MS.items():
                    server.now_ms = NOW + later_ms
                    start_s = time.process_time()
                    answers = await server.decide(requests)
                    cpu_us[name, state] = (time.process_time() - start_s) / len(requests) * 1e6
                    codes = {decode_response(answer)["overall_code"] for answer in set(answers)}
                    assert (codes, len(answers)) == ({"OK"}, len(requests))
            await store.close()
    return cpu_us
