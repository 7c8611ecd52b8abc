"""What tests of the console find stored: a family of entities with limits, and many others."""

import asyncio
from itertools import islice
from pathlib import Path

from penstock.core.entities import SYSTEM, Entity, Scope, StoredLimits
from penstock.core.limits import Limit
from penstock.store.open import open_store
from penstock.store.policy_port import Change

YEAR_MS = 365 * 86_400_000
"""Nothing refills while a test runs, however slow the machine is."""

BY = Change("alice", 1_794_792_780_000)

RULES = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 5}
  - key: user
    value: vip
    rate_limit: {unit: year, requests_per_unit: 100, burst: 200, name: vips}
  - key: tried
    rate_limit: {unit: year, requests_per_unit: 1}
    shadow_mode: true
  - key: path
    rate_limits:
      - {name: steady, unit: second, requests_per_unit: 10, burst: 20}
      - {name: daily, unit: year, requests_per_unit: 10000}
entities:
  - keys: [api_key, model]
    entity: "{api_key}"
    resource: "{model}"
"""

FAMILY = ("org-1", "team-1", "user-1")
CROWD = 10_000
AT_ONCE = 1_000


def limits(rpm: int, tpm: int) -> StoredLimits:
    made = Limit.per(rpm, YEAR_MS, name="rpm"), Limit.per(tpm, YEAR_MS, name="tpm", burst=2 * tpm)
    return StoredLimits(made, 0)


async def _fill(url: str, crowd: int) -> None:
    store = await open_store(url)
    policy = store.policy
    parent = None
    for name in FAMILY:
        cascade = parent is not None
        await policy.write_entity(Entity(name, parent, cascade, {"desk": "7"}), BY)
        parent = name
    for number, name in enumerate(FAMILY):
        await policy.write_limits(Scope(name, "gpt-4"), limits(90 - 40 * number, 900), BY)
    await policy.write_limits(SYSTEM, limits(1_000, 1_000), BY)
    await policy.write_limits(SYSTEM, limits(2_000, 1_000), BY._replace(by="bob"))
    numbers = iter(range(crowd))
    while some := list(islice(numbers, AT_ONCE)):
        names = [f"crowd-{number:05}" for number in some]
        await asyncio.gather(*[policy.write_entity(Entity(name), BY) for name in names])
    await store.close()


def fill_store(folder: Path, crowd: int = 0) -> str:
    """Make a SQLite file; returns its URL for a server in the same folder."""
    asyncio.run(_fill(f"sqlite:///{folder / 'console.db'}", crowd))
    return "sqlite:///console.db"
