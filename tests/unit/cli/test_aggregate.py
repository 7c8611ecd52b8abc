"""`penstock aggregate`, as a user types it, and killed while it works."""

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.store.dynamodb.aws.location import Location

from tests.support.ports import free_port
from tests.support.processes import PATIENCE_S, PENSTOCK, wait_for
from tests.support.tables import PATIENT_S, open_exact_on
from tests.support.web import get
from tests.unit.cli.conftest import Type

RPM = Limit.per(10**6, 60_000, name="rpm")


@pytest.fixture
def location(dynamodb_url: str, type_in: Type) -> Iterator[Location]:
    location = Location(f"aggregate-{time.monotonic_ns()}", "eu-west-1", dynamodb_url)
    assert type_in("table", "create", "--store", str(location)).code == 0
    yield location
    assert type_in("table", "delete", "--yes", "--store", str(location)).code == 0


def load(location: Location, takes: int, entity: str = "user-1") -> None:
    async def work() -> None:
        async with open_exact_on(location) as store:
            for _ in range(takes):
                call = Take(Key(entity, "gpt-4"), (RPM,), (Draw(0, 2 * MILLI),))
                await store.take([call], int(time.time() * 1000))

    asyncio.run(work())


def test_once_counts_what_there_is(location: Location, type_in: Type) -> None:
    """And the next time only what is new."""
    for takes in (3, 2):
        load(location, takes)
        assert type_in("aggregate", "--once", "--store", str(location)).code == 0
    ran = type_in("usage", "user-1", "--json", "--store", str(location))
    assert json.loads(ran.out)["total"] == {"takes": 5, "amounts": {"rpm": 10}}
    ran = type_in("aggregate", "--set-aside", "--store", str(location))
    assert (ran.code, ran.err) == (0, "no record is set aside\n")


def test_records_that_are_set_aside_are_shown(location: Location, type_in: Type) -> None:
    """With the reason; scripts get the record, too."""

    async def poison() -> None:
        item = {"PK": {"S": "ENTITY#eve"}, "SK": {"S": "#BUCKET#gpt-4"}}
        async with location.client(PATIENT_S) as sdk:
            await sdk.put_item(TableName=location.table, Item=item)

    asyncio.run(poison())
    assert type_in("aggregate", "--once", "--store", str(location)).code == 0
    ran = type_in("aggregate", "--set-aside", "--store", str(location))
    assert ran.code == 1
    assert "KeyError" in ran.out
    (one,) = json.loads(type_in("aggregate", "--set-aside", "--json", "--store", str(location)).out)
    assert "ENTITY#eve" in one["record"]


def test_other_stores_need_no_worker(type_in: Type) -> None:
    """It says who counts there."""
    ran = type_in("aggregate", "--store", "sqlite:///penstock.db")
    assert ran.code == 2
    assert "servers count usage themselves" in ran.err


def test_a_killed_worker_is_followed_by_another(
    location: Location, type_in: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process, killed while takes go on, then one that is told to stop. Sums are exact."""
    address = f"127.0.0.1:{free_port()}"
    page = ["--use-prometheus", "--prometheus-addr", address]
    command = [str(PENSTOCK), "aggregate", "--store", str(location), *page]

    def takes(entity: str = "user-1") -> int:
        ran = type_in("usage", entity, "--json", "--store", str(location))
        return int(json.loads(ran.out)["total"]["takes"])

    load(location, 5)
    with subprocess.Popen(command, cwd=tmp_path) as worker:
        wait_for(lambda: takes() > 0, "the worker to count")
        load(location, 20)
        worker.kill()
    load(location, 5)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.store.dynamodb.usage.worker.CLAIM_S", 0)  # it has run out
        assert type_in("aggregate", "--once", "--store", str(location)).code == 0
    assert takes() == 30
    load(location, 5, "user-2")
    with subprocess.Popen(command, cwd=tmp_path) as worker:
        wait_for(lambda: takes("user-2") == 5, "the next worker to count")
        shown = get(address, "/metrics").text
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    assert 'penstock_usage_records_total{outcome="counted"} 5' in shown
