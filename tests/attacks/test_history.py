"""Whatever is killed, cut off or cancelled: what was answered is what is stored.

`--attack-minutes 60` repeats it for an hour on each store, with a seed of its own for each round.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from penstock.store.dynamodb.aws.location import CALL_S
from penstock.store.dynamodb.table import TableAdmin
from penstock.store.open import open_store

from tests.attacks.history import History, find_violations
from tests.attacks.history_load import laws, same, store_entities
from tests.attacks.history_servers import Attack, Record, running_fleet
from tests.support.aws_proxy import Answer, AwsProxy, Cut, Delay, Fault, Lose, Refuse
from tests.support.patient import wait_long_for_dynamodb
from tests.support.tables import new_table

SERVERS = 3
DECISIONS, LOSSES = 600, 3
"""Of one round: it takes about ten seconds, most of them for servers to start again."""

LONG_DECISIONS, LONG_LOSSES = 6_000, 12
"""Of one round, where there are minutes for it."""

FAULTS: list[Fault] = [
    Refuse(),
    Lose(),
    Cut(),
    Delay(0.005),
    Delay(0.2),
    # Comes to its item after its server has given up on it.
    Delay(1.2 * CALL_S),
    Answer(500, "InternalServerError"),
    Answer(400, "ThrottlingException"),
    Answer(400, "TransactionConflictException", operation="UpdateItem"),
]


@pytest.fixture
def attack_minutes(pytestconfig: pytest.Config) -> float:
    return float(pytestconfig.getoption("--attack-minutes"))


@pytest.fixture
def attack_seed(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--attack-seed"))


async def test_history_of_killed_servers_on_one_sqlite_file_holds(
    tmp_path: Path, attack_minutes: float, attack_seed: int
) -> None:
    """Three processes, of which one or two are down at times, and hurried or fickle callers."""

    async def check(folder: Path, seed: int) -> Record:
        store = f"sqlite:///{folder / 'penstock.db'}"
        return await check_round(folder, store, [store] * SERVERS, [], seed, attack_minutes)

    await check_rounds(check, tmp_path, attack_minutes, attack_seed)


LOST_TOKENS = ("more than all that was asked for", "are written together, and differ by")
"""What may be found if servers take ahead: a killed server, or a write without an answer, loses
what was held. More counts as consumed then, never less."""


@pytest.mark.parametrize(
    ("accuracy", "allowed"), [("accuracy=0", ()), ("accuracy=0.01", LOST_TOKENS)]
)
async def test_history_of_killed_servers_on_a_faulty_dynamodb_holds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dynamodb_url: str,
    attack_minutes: float,
    attack_seed: int,
    accuracy: str,
    allowed: tuple[str, ...],
) -> None:
    """Two of the servers see connections break, answers lost, and writes that land late."""
    wait_long_for_dynamodb(monkeypatch)  # here; the servers wait for a second

    async def check(folder: Path, seed: int) -> Record:
        async with AsyncExitStack() as stack:
            table = await stack.enter_async_context(new_table(dynamodb_url))
            await TableAdmin(table).create("the test", lambda _, __: None)
            # A proxy for each: it knows when nothing is under way any more.
            proxies = [
                await stack.enter_async_context(AwsProxy(dynamodb_url)) for _ in range(SERVERS)
            ]
            stores = [f"{replace(table, endpoint=proxy.url)}&{accuracy}" for proxy in proxies]
            store = f"{table}&{accuracy}"
            return await check_round(folder, store, stores, proxies, seed, attack_minutes, allowed)

    await check_rounds(check, tmp_path, attack_minutes, attack_seed)


async def check_rounds(
    check: Callable[[Path, int], Awaitable[Record]], folder: Path, minutes: float, seed: int
) -> None:
    """Check one round, or as many as fit into the minutes."""
    start = time.monotonic()
    total: Counter[str] = Counter()
    while True:
        place = folder / f"round-{seed}"
        place.mkdir()
        print(f"seed {seed}: ", end="", flush=True)
        record = await check(place, seed)
        counts = {"kills": record.kills, "stops": record.stops, **record.codes}
        print(", ".join(f"{count} {name}" for name, count in counts.items()), flush=True)
        total.update(rounds=1, **counts)
        seed += 1
        if time.monotonic() - start >= 60 * minutes:
            break
    print(f"all of {time.monotonic() - start:.0f} s:", dict(total), flush=True)


async def check_round(
    folder: Path,
    url: str,
    stores: Sequence[str],
    proxies: Sequence[AwsProxy],
    seed: int,
    minutes: float,
    allowed: Sequence[str] = (),
) -> Record:
    """Load servers on a store of their own, and hold what they answered against what it has."""
    rng = Random(seed)
    is_dynamodb = bool(proxies)

    def disturb() -> None:
        # The last one has no faults: a server that always works is beside those that do not.
        for proxy in proxies[:-1]:
            if not proxy.faults:
                proxy.faults.append(rng.choice(FAULTS))

    started_ms = time.time_ns() // 1_000_000
    store = await open_store(url)
    try:
        await store_entities(store, started_ms)
        async with running_fleet(folder, stores, rng) as fleet:
            decisions, losses = (LONG_DECISIONS, LONG_LOSSES) if minutes else (DECISIONS, LOSSES)
            await Attack(fleet, rng, decisions, losses, disturb).run()
            for proxy in proxies:
                proxy.faults.clear()
            await fleet.stop()
            record = fleet.record
        for proxy in proxies:
            await proxy.idle()
        ended_ms = time.time_ns() // 1_000_000 + 1
        promised = laws(is_dynamodb)
        history = History(started_ms, ended_ms, record.calls(), promised, same(is_dynamodb))
        items = {bucket.key: await store.read(bucket.key) for bucket in promised}
    finally:
        await store.close()
    violations = [
        text for text in find_violations(history, items) if not any(one in text for one in allowed)
    ]
    assert record.complaints + violations == [], f"seed {seed}"
    assert record.lost >= losses
    return record
