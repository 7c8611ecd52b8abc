"""Gates as programs open them: what is special about a form, and wrong use."""

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.client.embedded import leases_on
from penstock.client.gate import Gate
from penstock.core.lease import LeaseAsk, Recorded, Refused
from penstock.errors import RequestError
from penstock.service.leases import LeasePort
from penstock.store.memory import MemoryStore
from penstock.store.open import open_table

from tests.support.gates import NOW, Clock, embedded, served, set_limits
from tests.support.processes import PATIENCE_S
from tests.support.stores import FaultyStore

LIMITS = {"rpm": "10/year"}


async def use(store: str) -> dict[str, int | float]:
    async with penstock.open(store, limits=LIMITS) as gate:
        async with gate.acquire("user", "search", rpm=3):
            pass
        return await gate.available("user", "search")


async def test_a_store_is_opened_by_its_url(tmp_path: Path) -> None:
    """What is in a file is there for the next program, what is in memory is not."""
    assert [await use("memory:") for _ in range(2)] == [{"rpm": 7}] * 2
    file = f"sqlite:///{tmp_path}/limits.db"
    assert [await use(file) for _ in range(2)] == [{"rpm": 7}, {"rpm": 4}]


async def test_a_table_is_opened_by_its_url(dynamodb_url: str) -> None:
    """As servers open it."""
    url = f"dynamodb://leases?region=eu-west-1&endpoint={dynamodb_url}"
    table = open_table(url)
    await table.create("the test", lambda *_: None)
    try:
        assert [await use(url) for _ in range(2)] == [{"rpm": 7}, {"rpm": 4}]
    finally:
        await table.delete(lambda *_: None)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://localhost", "store 'redis://localhost': unknown kind of store"),
        ("sqlite://limits.db", "store 'sqlite://limits.db': write sqlite:///path.db"),
        ("sqlite:///none.db", "there is no such file; create it with `penstock limits set"),
        ("memory:x", "memory: takes nothing behind it"),
    ],
)
async def test_a_wrong_url_is_an_error_when_the_gate_opens(
    url: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do instead, and no new file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(penstock.ConfigError) as caught:
        async with penstock.open(url):
            pytest.fail("the gate must not open")
    assert text in str(caught.value)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a look that does not wait


async def test_a_gate_has_to_be_open() -> None:
    """The error says how to open it. A closed gate can be opened again, an open one can't."""
    gate = penstock.open("memory:")
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"write `async with penstock\.open"):
            await gate.available("user", "search")
        async with gate:
            assert await gate.available("user", "search") == {}
            with pytest.raises(RuntimeError, match="this gate is open already"):
                await gate.__aenter__()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limits": {"rpm": "10"}}, "'10' is not a rate: write 100/minute"),
        ({"limits": {"r p m": "10/s"}}, "'r p m' is not a name for a limit"),
        ({"limits": {f"l{n}": "1/s" for n in range(11)}}, "11 limits, at most 10"),
        ({"on_unavailable": "deny"}, "on_unavailable: 'deny' is not 'raise' or 'allow'"),
    ],
)
def test_wrong_options_are_errors_at_once(options: dict[str, Any], text: str) -> None:
    """Before a store is opened, or a server is asked."""
    for make in (penstock.open, penstock.connect):
        with pytest.raises(ValueError, match=text):
            make("memory:", **options)
    for domain in ("", "a\nb", "\udcff"):
        with pytest.raises(ValueError, match="is not the name of a domain"):
            penstock.connect("localhost", domain=domain)


async def test_wrong_amounts_and_limits_take_nothing() -> None:
    """They are errors of the program, whatever the store says."""
    async with penstock.open("memory:", limits=LIMITS) as gate:
        with pytest.raises(ValueError, match="'rpm': can't take -1"):
            async with gate.acquire("user", "search", rpm=-1):
                pytest.fail("the block must not begin")
        with pytest.raises(ValueError, match="is not a rate"):
            async with gate.acquire("user", "search", rpm=1, limits={"rpm": "often"}):
                pytest.fail("the block must not begin")
        async with gate.acquire("user", "search", rpm=1) as lease:
            with pytest.raises(ValueError, match=r"'rpm': 0\.0005 is finer than 0\.001"):
                await lease.adjust({"rpm": 0.0005})
        assert await gate.available("user", "search") == {"rpm": 9}


async def test_a_program_that_does_not_know_of_stored_limits_yet_keeps_to_them() -> None:
    """One that has looked before they were stored goes by the bucket, not by its own limits: else
    the two would change the bucket in turns."""
    store, clock = MemoryStore(), Clock()
    own = {"rpm": "5/year"}
    async with embedded(store, clock, limits=own) as late, embedded(store, clock) as early:
        async with late.acquire("user", "gpt-4", rpm=1):
            pass
        clock.now_ms += 10_000
        await set_limits(store, {"rpm": "100/year"})
        async with early.acquire("user", "gpt-4", rpm=49):
            assert await early.available("user", "gpt-4") == {"rpm": 50}
        clock.now_ms += 10_000
        async with late.acquire("user", "gpt-4", rpm=10):
            assert await early.available("user", "gpt-4") == {"rpm": 40}


async def test_an_outage_can_be_allowed(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is on record then, and nothing is given back. The log tells each time."""
    store = FaultyStore(MemoryStore())
    await set_limits(store, LIMITS)
    clock = Clock()
    for gate in (
        embedded(store, clock, on_unavailable="allow"),
        served(store, clock, on_unavailable="allow"),
    ):
        caplog.clear()
        async with gate as opened:
            await opened.available("user", "gpt-4")
            store.fault = "before"
            async with opened.acquire("user", "gpt-4", rpm=5) as lease:
                assert lease.consumed == {"rpm": 0}
                await lease.adjust(rpm=2)
                assert lease.consumed == {"rpm": 0}
                store.fault = None
                await lease.adjust(rpm=-3)
                assert await opened.available("user", "gpt-4") == {"rpm": 10}
        told = [
            one.getMessage() for one in caplog.records if one.name.startswith("penstock.client")
        ]
        assert [text.partition(",")[0] for text in told] == [
            "a lease has nothing on record",
            "an adjustment is not on record",
        ]


async def test_closing_waits_for_a_take_whose_caller_is_gone() -> None:
    """What it took is given back before the store is closed."""
    held, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FaultyStore):
        async def take(self, *args: Any) -> Any:
            held.set()
            await go_on.wait()
            return await super().take(*args)

    store = Slow(MemoryStore())
    await set_limits(store, LIMITS)
    async with asyncio.timeout(PATIENCE_S), embedded(store, Clock(NOW)) as gate:

        async def block() -> None:
            async with gate.acquire("user", "gpt-4", rpm=1):
                pytest.fail("the block must not begin")

        task = asyncio.create_task(block())
        await held.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # at once: the store still waits
        go_on.set()
    async with embedded(store, Clock(NOW)) as gate:
        assert await gate.available("user", "gpt-4") == {"rpm": 10}


class Changed:
    """Leases of a server that was replaced by another one: nothing can be settled there."""

    def __init__(self, leases: LeasePort, error: Exception) -> None:
        self._leases = leases
        self._error = error
        self.taking, self.go_on = asyncio.Event(), asyncio.Event()
        self.balances = leases.balances

    async def take(self, ask: LeaseAsk) -> Recorded | Refused:
        self.taking.set()
        await self.go_on.wait()
        return await self._leases.take(ask)

    async def settle(self, ask: LeaseAsk) -> Recorded:  # noqa: ARG002 - as in the port
        raise self._error


@pytest.mark.parametrize(
    "error",
    [penstock.ConfigError("no leases here"), RequestError("no leases here"),
     RuntimeError("no leases here")],
)  # fmt: skip
async def test_a_rollback_that_fails_hides_no_exception(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever went wrong in it: the caller gets its own exception, and the log tells the rest."""
    port = Changed(leases_on(MemoryStore(), Clock()), error)

    @asynccontextmanager
    async def opened() -> AsyncIterator[LeasePort]:
        yield port

    async def fail() -> None:
        async with gate.acquire("user", "search", rpm=1):
            raise ZeroDivisionError

    async with asyncio.timeout(PATIENCE_S), Gate(opened, LIMITS) as gate:
        task = asyncio.create_task(fail())
        await port.taking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        port.go_on.set()
        with pytest.raises(ZeroDivisionError):
            await fail()
    assert sorted(record.getMessage() for record in caplog.records) == [
        "a lease could not be given back: no leases here",
        "a lease whose caller was cancelled can't be given back: no leases here",
    ]


def test_the_error_can_be_pickled() -> None:
    """It may cross processes."""
    error = penstock.RateLimited("text", "user", "gpt-4", "rpm", 1.5)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(copy), vars(copy)) == ("text", vars(error))


def test_importing_penstock_is_cheap() -> None:
    """What a gate needs is imported when it is opened; gRPC only for a server, AWS for DynamoDB."""
    heavy = ("grpc", "google", "yaml", "sqlite3", "aiohttp", "aioboto3", "asyncio")
    look = f"import sys, penstock; print([m for m in {heavy} if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, text=True)
    assert seen.stdout == "[]\n"
    look = look.replace("; print", "; penstock.open('memory:'); print")
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, text=True)
    assert "grpc" not in seen.stdout
    assert "aioboto3" not in seen.stdout


def test_everything_that_is_public_is_there() -> None:
    """Also what is imported late."""
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Lock'"):
        penstock.Lock  # noqa: B018
