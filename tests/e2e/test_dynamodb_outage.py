"""A server whose DynamoDB goes away, hangs, or was never there."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import uuid4

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from penstock.cli import main
from penstock.core.request import Descriptor, Request
from penstock.store.dynamodb.circuit import LONGEST_PAUSE_S, OPENS_AFTER
from penstock.store.dynamodb.location import CALL_S, Location
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request

from tests.support.aws_proxy import AwsProxy, Fault, Hold
from tests.support.processes import PENSTOCK, penstock, wait_for

RULES = """\
domain: example
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
"""

RECOVERS_S = LONGEST_PAUSE_S + 5
"""The longest that the server does not look, and the rest is for a busy machine."""


class Outcome(NamedTuple):
    """The answer, or gRPC's error. Without the store nobody knows what remains."""

    code: str
    remaining: int | None = None


BLIND = {"error": Outcome("UNAVAILABLE"), "allow": Outcome("OK"), "deny": Outcome("OVER_LIMIT")}


class Client:
    def __init__(self, channel: grpc.Channel) -> None:
        self._rate_limit: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )
        self._health: grpc.UnaryUnaryMultiCallable[HealthCheckRequest, HealthCheckResponse] = (
            channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=HealthCheckRequest.SerializeToString,
                response_deserializer=HealthCheckResponse.FromString,
            )
        )

    def ask(self, user: str, timeout_s: float = 10) -> Outcome:
        request = encode_request(Request("example", (Descriptor((("user", user),)),)))
        try:
            answer = decode_response(self._rate_limit(request, timeout=timeout_s))
        except grpc.RpcError as exc:
            # It is also the call, which gRPC's types do not say.
            return Outcome(cast("grpc.Call", exc).code().name)
        (status,) = answer["statuses"]
        # A zero is not on the wire, so look for the limit, which comes with it.
        is_decided = "current_limit" in status
        remaining = status.get("limit_remaining", 0) if is_decided else None
        return Outcome(answer["overall_code"], remaining)

    def is_alive(self) -> bool:
        status = self._health(HealthCheckRequest(), timeout=10).status
        return status == HealthCheckResponse.SERVING


class RunningProxy:
    """The proxy on a loop in a thread of its own, as tests block while they wait for a process."""

    def __init__(self, dynamodb_url: str) -> None:
        self._proxy = AwsProxy(dynamodb_url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._run(self._proxy.__aenter__())
        self.url = self._proxy.url

    def up(self) -> None:
        self._run(self._proxy.up())

    def down(self) -> None:
        self._run(self._proxy.down())

    def calls(self, operation: str) -> int:
        return self._proxy.calls[operation]

    def fail_always(self, fault: Fault | None) -> None:
        self._proxy.always = fault

    def close(self) -> None:
        self._run(self._proxy.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=20)


@pytest.fixture
def proxy(dynamodb_url: str) -> Iterator[RunningProxy]:
    running = RunningProxy(dynamodb_url)
    yield running
    running.close()


@pytest.fixture
def store(dynamodb_url: str, proxy: RunningProxy) -> Iterator[str]:
    """A table as its users make it, seen through the proxy."""
    direct = Location(f"outage-{uuid4().hex}", "eu-west-1", dynamodb_url)
    assert main(["table", "create", "--store", str(direct)]) == 0
    yield str(replace(direct, endpoint=proxy.url))
    assert main(["table", "delete", "--store", str(direct), "--yes"]) == 0


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@contextmanager
def connect(address: str) -> Iterator[Client]:
    with grpc.insecure_channel(address) as channel:
        yield Client(channel)


@pytest.mark.parametrize("on_unavailable", BLIND)
def test_an_outage_is_answered_as_the_operator_wants_and_it_ends_by_itself(
    tmp_path: Path, rules: Path, store: str, proxy: RunningProxy, on_unavailable: str
) -> None:
    """The server lives on, takes nothing blindly, and decides within seconds of the store's return.

    Also once it does not ask for every request any more.
    """
    flags = ("--on-unavailable", on_unavailable)
    with (
        penstock(tmp_path, *flags, rules=rules, store=store) as server,
        connect(server.address) as client,
    ):
        before = client.ask("bob")
        proxy.down()
        during = [client.ask("bob") for _ in range(OPENS_AFTER + 2)]
        is_alive = client.is_alive()
        proxy.up()
        after = wait_for(lambda: _decided(client), "a decision", RECOVERS_S)

    assert before == Outcome("OK", 4)
    assert during == [BLIND[on_unavailable]] * len(during)
    assert is_alive
    assert after == Outcome("OK", 3)


def test_the_stored_answer_for_outages_reaches_servers_that_only_have_rules(
    tmp_path: Path, rules: Path, store: str, proxy: RunningProxy
) -> None:
    """Within the time that a change may take, and without a flag."""
    with (
        penstock(tmp_path, "--policy-cache-ttl", "1s", rules=rules, store=store) as server,
        connect(server.address) as client,
    ):
        assert main(["limits", "set", "--on-unavailable", "deny", "--store", store]) == 0
        seen = proxy.calls("BatchGetItem")
        # The first look may have begun before the change, and the last may not have ended.
        wait_for(lambda: proxy.calls("BatchGetItem") >= seen + 3, "the server to look again")
        proxy.down()
        assert wait_for(lambda: client.ask("bob"), "an answer") == BLIND["deny"]


def test_a_store_that_hangs_is_answered_for_before_the_caller_gives_up(
    tmp_path: Path, rules: Path, store: str, proxy: RunningProxy
) -> None:
    """By the caller's deadline or after a second, whichever is first; and the server can stop."""
    flags = ("--on-unavailable", "deny", "--drain-timeout", "100ms")
    with (
        penstock(tmp_path, *flags, rules=rules, store=store) as server,
        connect(server.address) as client,
    ):
        before = client.ask("bob")
        proxy.fail_always(Hold(asyncio.Event()))
        # Shorter than the server's own patience, and its last tenth is enough on a busy machine.
        hurried = [client.ask("bob", timeout_s=0.8 * CALL_S) for _ in range(2)]
        start = time.monotonic()
        patient = client.ask("eve", timeout_s=30)
        waited_s = time.monotonic() - start
        is_alive = client.is_alive()
        exit_code = server.terminate()

    assert before == Outcome("OK", 4)
    assert hurried == [BLIND["deny"]] * 2
    assert patient == BLIND["deny"]
    assert waited_s < CALL_S + 5
    assert is_alive
    assert exit_code == 0


@pytest.mark.parametrize("hangs", [False, True], ids=["gone", "hangs"])
def test_a_server_starts_without_its_store_and_waits_for_it(
    tmp_path: Path, rules: Path, store: str, proxy: RunningProxy, hangs: bool
) -> None:
    """An outage must not keep new servers from starting: they warn, and serve as configured."""
    if hangs:
        proxy.fail_always(Hold(asyncio.Event()))
    else:
        proxy.down()
    with (
        penstock(tmp_path, rules=rules, store=store) as server,
        connect(server.address) as client,
    ):
        without = client.ask("bob")
        is_alive = client.is_alive()
        proxy.fail_always(None)
        proxy.up()
        after = wait_for(lambda: _decided(client), "a decision", RECOVERS_S)
        log = server.log()

    assert "WARNING" in log
    assert "the table can't be checked now" in log
    assert without == BLIND["error"]
    assert is_alive
    assert after == Outcome("OK", 4)


def test_a_server_without_a_table_says_how_to_make_one(
    tmp_path: Path, rules: Path, proxy: RunningProxy
) -> None:
    """That does not pass by itself, so it does not start."""
    store = str(Location("nowhere", "eu-west-1", proxy.url))
    command = [str(PENSTOCK), "serve", "--config", str(rules), "--store", store]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "penstock table create" in ended.stderr
    assert store in ended.stderr


def _decided(client: Client) -> Outcome | None:
    outcome = client.ask("bob")
    return None if outcome.remaining is None else outcome
