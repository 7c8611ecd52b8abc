"""The reference server's counting over real gRPC, at times that a test chooses."""

from random import Random
from typing import Any

import grpc
from penstock.config.problems import Problems
from penstock.config.rules import combine
from penstock.config.rules_file import read_rules_file
from penstock.core.plan import Behaviour
from penstock.core.request import Descriptor, Request
from penstock.core.rule_counting import RuleCounting
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.support.reference_counter import LIMITS, RULES, ReferenceCounter, Told
from tests.support.transports import MakeServer
from tests.unit.transport.conftest import NOW

REQUESTS = 60


def told(status: dict[str, Any]) -> Told:
    limit = status.get("current_limit")
    return Told(
        status["code"] == "OVER_LIMIT",
        None if limit is None else limit.get("requests_per_unit", 0),
        status.get("limit_remaining", 0),
        int(status.get("duration_until_reset", "0s").removesuffix("s")),
    )


async def test_answers_on_the_wire_are_those_of_the_reference_server(
    make_server: MakeServer,
) -> None:
    """Over some boundaries, with several descriptors, amounts, checks and refunds."""
    problems, now_ms, rng = Problems(), NOW, Random(5)
    file = read_rules_file("rules.yaml", RULES, problems, RuleCounting.REFERENCE)
    assert file is not None
    options = Options(Behaviour(counting=RuleCounting.REFERENCE))
    limiter = Limiter(MemoryStore(), options, lambda: now_ms)
    limiter.use(combine([file], problems, merge_domains=False).rules)
    server = make_server(RateLimitService(limiter), Listener("127.0.0.1", 0))
    address, reference, codes = await server.start(), ReferenceCounter(), set[str]()
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )
        for _ in range(REQUESTS):
            now_ms += rng.choice([0, 0, 0, 0, 1, 700, 20_000])
            descriptors = [
                Descriptor(((key, "a"),), rng.choice([None, None, 0, 2, 7]), rng.random() < 0.1)
                for key in rng.choices(list(LIMITS), k=rng.randint(1, 3))
            ]
            request = Request("d", tuple(descriptors), rng.randint(0, 2))
            response = decode_response(await call(encode_request(request), timeout=PATIENCE_S))
            over, statuses = reference.ask(request, now_ms)
            assert [told(status) for status in response["statuses"]] == statuses
            assert response["overall_code"] == ("OVER_LIMIT" if over else "OK")
            codes.add(response["overall_code"])
    await server.stop(0)
    assert codes == {"OK", "OVER_LIMIT"}
    assert now_ms > NOW + 60_000
