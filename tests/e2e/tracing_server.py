"""A server that sends traces, and requests to it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
from penstock.core.request import Descriptor, Request
from penstock.transport.codec import METHOD, SERVICE, encode_request

from tests.support.envoy import CONFIG_FILE
from tests.support.processes import PATIENCE_S, Penstock, penstock

EXAMPLE_RULES = CONFIG_FILE.parents[1] / "config" / "example.yaml"
SERVED = f"{SERVICE}/{METHOD}"


@contextmanager
def traced_penstock(
    folder: Path, environment: Mapping[str, str], *flags: str, **options: Any
) -> Iterator[Penstock]:
    """A server that sends traces soon, unless the environment says otherwise."""
    env = {"TRACING_ENABLED": "true", "OTEL_BSP_SCHEDULE_DELAY": "20", **environment}
    quick = ("--drain-timeout", "0s", *flags)
    with penstock(folder, *quick, rules=EXAMPLE_RULES, env=env, **options) as server:
        yield server


def ask(
    server: Penstock, times: int = 1, headers: Mapping[str, str] = MappingProxyType({})
) -> list[float]:
    """Ask for a decision, some times; returns the seconds that each took."""
    request = encode_request(Request("example", (Descriptor((("user", "bob"),)),)))
    taken_s = []
    with grpc.insecure_channel(server.address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVED}")
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
        for _ in range(times):
            start = time.perf_counter()
            call(request, timeout=PATIENCE_S, metadata=tuple(headers.items()))
            taken_s.append(time.perf_counter() - start)
    return taken_s


def stop(server: Penstock) -> None:
    """Stop a server as one does."""
    assert server.terminate() == 0
