"""Stores that fail while a server runs, and a client that looks on."""

import asyncio
import sqlite3
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from penstock.core.request import Descriptor, Request
from penstock.store.dynamodb.aws.circuit import LONGEST_PAUSE_S
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request

from tests.support.aws_proxy import AwsProxy, Fault
from tests.support.processes import PATIENCE_S, wait_for

RECOVERS_S = LONGEST_PAUSE_S + PATIENCE_S
"""The longest that the server does not look, and the rest is for a busy machine."""


USERS = [f"user-{number}" for number in range(5)]
"""More than one, so that a test learns enough although the store is late for some."""

_NUMBERS = count()


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

    def ask(self, user: str, timeout_s: float = 60, hits: int | None = None) -> Outcome:
        request = encode_request(Request("example", (Descriptor((("user", user),), hits),)))
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

    def decided(self, users: Iterable[str]) -> dict[str, Outcome]:
        """Ask for each user once, and give the answers that the store decided.

        On a busy machine the store may be late for some. Nobody knows what these users took.
        """
        asked = {user: self.ask(user) for user in users}
        return {user: found for user, found in asked.items() if found.remaining is not None}

    def recovered(self) -> dict[str, Outcome]:
        """Ask for users who were never asked for, until the store decides."""
        return wait_for(lambda: self.decided([f"new-{next(_NUMBERS)}"]), "a decision", RECOVERS_S)

    def is_alive(self) -> bool:
        status = self._health(HealthCheckRequest(), timeout=PATIENCE_S).status
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
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=PATIENCE_S)


@contextmanager
def connect(address: str) -> Iterator[Client]:
    with grpc.insecure_channel(address) as channel:
        yield Client(channel)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Nobody else can write to a SQLite file."""
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.close()
