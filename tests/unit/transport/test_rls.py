"""The service from bytes to bytes: what it keeps ready, and for how long."""

import pytest
from penstock.core.limits import Limit
from penstock.core.request import Descriptor, Request
from penstock.core.rules import Children, Domain, Node, Rule
from penstock.service import prepared
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.transport import rls
from penstock.transport.codec import decode_response, encode_request

NOW = 1_794_792_780_000


def limiter() -> Limiter:
    made = Limiter(MemoryStore(), Options(), lambda: NOW)
    rule = Rule("d.user", (Limit.per(5, 60_000),))
    made.use({"d": Domain("d", Children([Node("user", rule=rule)]))})
    return made


def request(value: str, descriptors: int = 1) -> bytes:
    return encode_request(Request("d", (Descriptor((("user", value),)),) * descriptors))


async def remaining(service: rls.RateLimitService, data: bytes) -> int:
    answer = decode_response(await service.should_rate_limit(data))
    return int(answer["statuses"][-1].get("limit_remaining", 0))


async def test_a_request_seen_before_is_decided_anew() -> None:
    """What is kept is the plan, never the answer."""
    service = rls.RateLimitService(limiter())
    assert [await remaining(service, request("bob")) for _ in range(3)] == [4, 3, 2]


async def test_few_requests_are_kept_and_all_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for three, a hundred users are counted apart, again and again."""
    monkeypatch.setattr(prepared, "KEPT", 3)
    service = rls.RateLimitService(limiter())
    for left in (4, 3):
        users = [f"user-{number}" for number in range(100)]
        assert {await remaining(service, request(user)) for user in users} == {left}


@pytest.mark.parametrize("data", [request("v" * 2_000), request("v", descriptors=20)])
async def test_long_requests_are_answered_too(data: bytes) -> None:
    """They are only not kept ready."""
    service = rls.RateLimitService(limiter())
    first, second = await remaining(service, data), await remaining(service, data)
    assert (first, second) in {(4, 3), (0, 0)}
