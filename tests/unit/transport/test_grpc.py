"""The service over real gRPC: codes, messages, deadlines, health, and what clients may send."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from penstock.core.request import Descriptor, Request
from penstock.errors import ConfigError, StoreError
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.service.metering import LEARNS_MS
from penstock.store.memory import MemoryStore
from penstock.transport.client import connect
from penstock.transport.codec import decode_response, encode_request
from penstock.transport.listener import Listener
from penstock.transport.rls import RateLimitService

from tests.support.processes import PATIENCE_S
from tests.support.transports import MakeServer
from tests.unit.transport.conftest import NOW, MoodyStore, Running, rules


def request(*values: str, key: str = "five", hits: int | None = None, domain: str = "d") -> bytes:
    descriptors = tuple(Descriptor(((key, value),), hits) for value in values)
    return encode_request(Request(domain, descriptors))


async def failure(running: Running, data: bytes, timeout_s: float = PATIENCE_S) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await running.call(data, timeout_s)
    return caught.value.code().name, caught.value.details() or ""


async def test_requests_are_answered_until_the_limit(running: Running) -> None:
    """Five pass, the sixth is over, with the time to wait."""
    answers = [decode_response(await running.call(request("bob"))) for _ in range(6)]
    codes = [answer["overall_code"] for answer in answers]
    assert codes == ["OK"] * 5 + ["OVER_LIMIT"]
    assert answers[5]["statuses"][0]["duration_until_reset"] == "12s"


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (request("v", domain=""), "UNKNOWN", "rate limit domain must not be empty"),
        (request(), "UNKNOWN", "rate limit descriptor list must not be empty"),
        (b"\xff\xff", "INVALID_ARGUMENT", "not a RateLimitRequest"),
        (
            b"\x0a\x01d\x12\x0b\x0a\x05\x0a\x01k\x12\x00\x12\x02\x08\x05",
            "INVALID_ARGUMENT",
            "descriptor 0: its limit override has no known unit (0); use one of SECOND,",
        ),
        (
            request(*["v"] * 257),
            "INVALID_ARGUMENT",
            "257 descriptors in one request, at most 256",
        ),
    ],
)
async def test_bad_requests_get_a_code_and_a_message(
    running: Running, data: bytes, code: str, text: str
) -> None:
    """The reference server's code and words where it has some; and it serves on."""
    assert (await failure(running, data))[0] == code
    assert text in (await failure(running, data))[1]
    assert decode_response(await running.call(request("bob")))["overall_code"] == "OK"


async def test_a_long_value_is_counted_like_any_other(running: Running) -> None:
    """Five pass, the sixth is over."""
    data = request("v" * 250_000)
    answers = [decode_response(await running.call(data)) for _ in range(6)]
    assert [one["overall_code"] for one in answers] == ["OK"] * 5 + ["OVER_LIMIT"]


async def test_a_request_that_is_too_long_is_refused_by_grpc(running: Running) -> None:
    """256 KiB are the most by default, and the connection lives on."""
    code, _ = await failure(running, request("v" * 262_144))
    assert code == "RESOURCE_EXHAUSTED"
    await running.call(request("bob"))


async def test_enormous_hits_are_charged_as_far_as_debt_goes(running: Running) -> None:
    """2^63 hits end at one burst of debt; they do not fit, and nothing overflows."""
    await running.call(request("bob", hits=0))
    answer = decode_response(await running.call(request("bob", hits=2**63)))
    assert answer["overall_code"] == "OVER_LIMIT"
    check = decode_response(await running.call(request("bob", hits=0)))
    assert check["statuses"][0]["duration_until_reset"] == "60s"


async def test_only_a_look_of_our_own_client_makes_no_rule_metered(make_server: MakeServer) -> None:
    """Our client sends a header with its look. A check without this header makes a rule metered."""
    times_ms = [NOW, *[NOW + LEARNS_MS] * 100]
    limiter = Limiter(MemoryStore(), Options(), lambda: times_ms.pop(0))
    limiter.use(rules())
    server = make_server(RateLimitService(limiter), Listener("127.0.0.1", 0))
    address = await server.start()
    look = Request("d", (Descriptor((("five", "bob"),), 0),))
    excess = Request("d", (Descriptor((("five", "bob"),), 7),))

    def ask_as_we_do(*requests: Request) -> list[str]:
        with connect(address, 30) as client:
            return [client.ask(one).response["overall_code"] for one in requests]

    looked = await asyncio.to_thread(ask_as_we_do, look, excess, look)
    async with grpc.aio.insecure_channel(address) as channel:
        client = Running(server, limiter, MoodyStore(), channel, address)
        codes = [
            decode_response(await client.call(encode_request(one)))["overall_code"]
            for one in (look, excess, look)
        ]
    await server.stop(0)
    assert looked == ["OK", "OVER_LIMIT", "OK"]
    assert codes == ["OK", "OVER_LIMIT", "OVER_LIMIT"]


async def test_a_report_in_the_first_minute_tells_how_much_was_charged(running: Running) -> None:
    """Nobody knows yet whether the rule is metered, so the excess is a debt of one burst."""

    def charge() -> tuple[int | None, ...] | None:
        with connect(running.address, PATIENCE_S) as client:
            return client.ask(Request("d", (Descriptor((("five", "bob"),), 7),))).charged

    assert [await asyncio.to_thread(charge) for _ in range(3)] == [(7,), (3,), (0,)]


async def test_a_failing_store_is_unavailable(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Never a decision: Envoy's failure_mode_deny has to decide."""
    running.store.error = StoreError("the disk is gone", kind="lost")
    text = "the store did not answer (lost); the server's log has more"
    assert await failure(running, request("bob")) == ("UNAVAILABLE", text)
    assert "the disk is gone" in caplog.text
    running.store.error = None
    await running.call(request("bob"))


async def test_a_fault_of_the_server_is_internal_and_tells_no_secrets(running: Running) -> None:
    """The caller learns that, the log learns what."""
    running.store.error = RuntimeError("password=hunter2")
    code, text = await failure(running, request("bob"))
    assert code == "INTERNAL"
    assert "hunter2" not in text


async def test_a_store_that_hangs_is_unavailable_before_the_deadline(running: Running) -> None:
    """The caller gets an answer in its time, and nobody else notices anything."""
    running.store.hold = True
    code, text = "DEADLINE_EXCEEDED", ""
    # A busy machine may be too late for the last tenth of a second. It is not every time.
    while code == "DEADLINE_EXCEEDED":
        code, text = await failure(running, request("bob"), 1.0)
    late = "the store did not answer (deadline); the server's log has more"
    assert (code, text) == ("UNAVAILABLE", late)
    running.store.hold = False
    await running.call(request("bob"))


async def test_a_caller_that_cancels_leaves_nothing_behind(running: Running) -> None:
    """Calls given up in the middle neither block nor fail those that follow."""
    running.store.hold = True
    calls = [asyncio.create_task(running.call(request("bob"))) for _ in range(20)]
    for _ in calls:
        await running.store.asked.acquire()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    running.store.hold = False
    answer = decode_response(await running.call(request("bob")))
    assert answer["statuses"][0]["limit_remaining"] == 4


async def test_an_unknown_method_is_unimplemented(running: Running) -> None:
    """As gRPC has it."""
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = running.channel.unary_unary("/a/B")
    with pytest.raises(grpc.aio.AioRpcError, match="Method not found"):
        await method(b"")


async def test_health_says_when_to_come(running: Running) -> None:
    """For the whole server and for `ratelimit`; an unknown service is not found."""
    check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    check = running.channel.unary_unary("/grpc.health.v1.Health/Check")
    serving = health_pb2.HealthCheckResponse

    async def status(name: str) -> int:
        asked = health_pb2.HealthCheckRequest(service=name).SerializeToString()
        return health_pb2.HealthCheckResponse.FromString(await check(asked)).status

    assert [await status(name) for name in ("", "ratelimit")] == [serving.NOT_SERVING] * 2
    running.server.set_serving(serving=True)
    assert [await status(name) for name in ("", "ratelimit")] == [serving.SERVING] * 2
    with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
        await status("other")


async def test_a_drain_goes_on_serving_and_ends_when_it_is_quiet(running: Running) -> None:
    """Health checks are told at once; a call during the drain is answered."""
    running.server.set_serving(serving=True)
    drain = asyncio.create_task(running.server.drain(timeout_s=600))
    await asyncio.sleep(0)  # it begins
    assert decode_response(await running.call(request("bob")))["overall_code"] == "OK"
    await asyncio.wait_for(drain, timeout=PATIENCE_S)


async def test_a_drain_waits_for_clients_that_still_send_requests(running: Running) -> None:
    """Until there was no call from one look to the next."""
    running.server.begin_drain()
    await running.call(request("bob"))
    assert running.server.awaited() == "clients that still send requests"
    assert running.server.awaited() == ""


async def test_a_drain_waits_until_every_health_checker_has_been_told(running: Running) -> None:
    """Two that ask over connections of their own, from one host: both have to come again."""
    running.server.set_serving(serving=True)
    asked = health_pb2.HealthCheckRequest(service="ratelimit").SerializeToString()
    # Channels to one address share a connection unless they are told not to.
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with (
        grpc.aio.insecure_channel(running.address, options=alone) as one,
        grpc.aio.insecure_channel(running.address, options=alone) as other,
    ):
        checks: list[grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = [
            channel.unary_unary("/grpc.health.v1.Health/Check") for channel in (one, other)
        ]
        for check in checks:
            await check(asked)
        running.server.begin_drain()
        for count, check in zip((2, 1), checks, strict=True):
            assert running.server.awaited().count("ipv4:127.0.0.1:") == count
            await check(asked)
        assert "ipv4:127.0.0.1:" not in running.server.awaited()


async def test_a_drain_does_not_wait_for_a_health_checker_that_is_gone(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits while the connection is open, and names it; then it ends."""
    caplog.set_level("INFO")
    running.server.set_serving(serving=True)
    asked = health_pb2.HealthCheckRequest().SerializeToString()
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(running.address, options=alone) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/grpc.health.v1.Health/Check"
        )
        await check(asked)
        drain = asyncio.create_task(running.server.drain(timeout_s=600))
        while "draining: waiting for health checkers that were not told yet" not in caplog.text:
            await asyncio.sleep(0.01)
            assert not drain.done()
        assert "not told yet: ipv4:127.0.0.1:" in caplog.text
    await drain


async def test_a_server_that_stops_lets_calls_under_way_finish(running: Running) -> None:
    """One has its answer, and then it is not waited any longer."""
    gate = running.store.gate = asyncio.Event()
    call = asyncio.create_task(running.call(request("bob"), 60))
    await running.store.was_asked.wait()
    alone = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(running.address, options=alone) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/grpc.health.v1.Health/Check"
        )

        async def check_until_refused() -> None:
            while True:
                await check(b"")

        stopping = asyncio.create_task(running.server.stop(600))
        with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
            await check_until_refused()
    assert not stopping.done()
    gate.set()
    assert decode_response(await call)["overall_code"] == "OK"
    await asyncio.wait_for(stopping, timeout=PATIENCE_S)


async def test_a_server_that_stops_waits_no_longer_than_it_may(running: Running) -> None:
    """For a store that hangs, or a health watcher."""
    running.store.hold = True
    watching: grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
    watching = running.channel.unary_stream("/grpc.health.v1.Health/Watch")
    watch = watching(b"")
    assert await watch.read() is not grpc.aio.EOF
    call = asyncio.create_task(running.call(request("bob"), 60))
    await running.store.was_asked.wait()
    await asyncio.wait_for(running.server.stop(0.1), timeout=PATIENCE_S)
    with pytest.raises(grpc.aio.AioRpcError):
        await call
    # grpc.aio cancels them, and tells so. Our own ends the connection.
    assert await watch.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_all_health_is_listed(running: Running) -> None:
    """As `grpc.health.v1.Health/List` has it: each name with its status."""
    listing: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = running.channel.unary_unary(
        "/grpc.health.v1.Health/List"
    )
    for serving, status in ((True, "SERVING"), (False, "NOT_SERVING")):
        running.server.set_serving(serving=serving)
        messages: Any = health_pb2  # the published types are older than List
        answer = messages.HealthListResponse.FromString(await listing(b""))
        found = {
            name: health_pb2.HealthCheckResponse.ServingStatus.Name(one.status)
            for name, one in answer.statuses.items()
        }
        assert found == {"": status, "ratelimit": status}


async def test_new_rules_apply_to_a_request_seen_before(running: Running) -> None:
    """What was prepared under the old rules is void."""
    assert (
        decode_response(await running.call(request("bob")))["statuses"][0]["limit_remaining"] == 4
    )
    running.limiter.use({})
    assert decode_response(await running.call(request("bob")))["statuses"] == [{"code": "OK"}]


async def test_a_port_that_is_taken_is_said_so(make_server: MakeServer, running: Running) -> None:
    """A second server on the port must not take half of the calls."""
    port = int(running.address.rpartition(":")[2])
    service = RateLimitService(Limiter(MemoryStore(), Options(), lambda: 0))
    second = make_server(service, Listener("127.0.0.1", port))
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: already taken"):
        await second.start()


@pytest.mark.parametrize(
    ("listener", "address"),
    [
        (Listener("0.0.0.0", 8081), "0.0.0.0:8081"),  # noqa: S104 - only written, not listened on
        (Listener("::", 8081), "[::]:8081"),
        (Listener("::", 8081, "/run/rls.sock"), "unix:/run/rls.sock"),
    ],
)
def test_addresses_are_written_as_grpc_wants_them(listener: Listener, address: str) -> None:
    """IPv6 in brackets, and a unix socket before both."""
    assert listener.address == address


async def test_clients_are_asked_to_connect_anew_when_a_connection_is_old(
    make_server: MakeServer,
) -> None:
    """So that they spread over servers that were added later."""
    limiter = Limiter(MemoryStore(), Options(), lambda: 0)
    limiter.use({})
    listener = Listener("127.0.0.1", 0, max_connection_age_ms=200, max_connection_age_grace_ms=200)
    server = make_server(RateLimitService(limiter), listener)
    address = await server.start()
    states = []
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        state = channel.get_state()
        for _ in range(2):
            await asyncio.wait_for(channel.wait_for_state_change(state), timeout=PATIENCE_S)
            state = channel.get_state(try_to_connect=True)
            states.append(state)
    assert states[0] is grpc.ChannelConnectivity.IDLE
    await server.stop(0)
