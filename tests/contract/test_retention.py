"""What every store lets go of that has no TTL of its own: old audit events, usage, idle buckets."""

from collections.abc import Sequence

import pytest
from penstock.core.bucket import IDLE_MS
from penstock.core.entities import SYSTEM, Scope, StoredLimits
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.core.usage import HOUR_MS, USAGE_KEPT, UsageKept, Used, Window, total
from penstock.errors import StoreError
from penstock.service.retention import STEP, Retention
from penstock.store.policy_port import AuditEvent, Change
from penstock.store.port import Store
from penstock.store.retention_port import RecordedEvent, RetentionStore
from penstock.telemetry.metrics import Metrics

from tests.support.usage import ALWAYS_MS

NOW = 1_794_792_780_000
DAY_MS = 86_400_000
RPM = Limit.per(60, 60_000, name="rpm")
LIMITS = StoredLimits((RPM,), 0)

pytestmark = pytest.mark.parametrize("full_store", ["memory", "sqlite"], indirect=True)


@pytest.fixture
def retention(full_store: Store) -> RetentionStore:
    """What the store lets go of."""
    assert full_store.retention is not None
    return full_store.retention


class Kept:
    """An archive in memory, which may be out of order."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.is_broken = False

    async def write(self, recorded: Sequence[RecordedEvent]) -> None:
        if self.is_broken:
            raise StoreError("the disk is full")
        self.events += [one.event for one in recorded]


async def change_limits(store: Store, *days: int, scope: Scope = SYSTEM) -> None:
    for day in days:
        await store.policy.write_limits(scope, LIMITS, Change("ann", NOW + day * DAY_MS))


async def days_left(store: Store, subject: str = "$SYSTEM") -> list[int]:
    page = await store.policy.list_audit(subject, None, 1_000)
    return [(event.at_ms - NOW) // DAY_MS for event in page.items]


async def test_the_oldest_events_expire_first(full_store: Store, retention: RetentionStore) -> None:
    """Events of every subject are removed, but no event before its time."""
    await change_limits(full_store, 2, 0, 1)
    await change_limits(full_store, 0, scope=Scope("bob"))
    before_ms = NOW + 2 * DAY_MS
    assert await retention.count_expired_audit(before_ms) == 3
    expired = await retention.list_expired_audit(before_ms, 2)
    assert [(one.event.subject, one.event.at_ms) for one in expired] == [
        ("$SYSTEM", NOW), ("bob", NOW),
    ]  # fmt: skip
    assert await retention.remove_audit(expired) == 2
    assert await retention.remove_audit(expired) == 0
    assert await days_left(full_store) == [1, 2]
    assert await days_left(full_store, "bob") == []


async def test_idle_buckets_go_and_busy_ones_stay(
    full_store: Store, retention: RetentionStore
) -> None:
    """Idle means full again, for a while. What is dropped starts full, as it was."""
    keys = [Key(f"user-{n}", "gpt-4") for n in range(5)]
    for key in keys:
        await full_store.take([Take(key, (RPM,), (Draw(0, MILLI),))], NOW)
    later_ms = NOW + 1_000 + IDLE_MS
    await full_store.take([Take(keys[3], (RPM,), (Draw(0, MILLI),))], later_ms)
    assert await retention.count_idle_buckets(later_ms - 1) == 0
    assert await retention.count_idle_buckets(later_ms) == 4
    removed, after = 0, None
    for _ in range(3):
        step = await retention.remove_idle_buckets(later_ms, after, 2)
        removed, after = removed + step.items, step.next
    assert (removed, after) == (4, None)
    assert [await full_store.read(key) is not None for key in keys] == [
        False, False, False, True, False,
    ]  # fmt: skip
    (taken,) = await full_store.take([Take(keys[0], (RPM,), (Draw(0, MILLI),))], later_ms)
    assert taken.drawn[0].balance == 59 * MILLI


async def test_usage_outlives_idle_buckets(full_store: Store, retention: RetentionStore) -> None:
    """The windows add up to all that was consumed, before a bucket goes and afterwards."""
    key = Key("user", "gpt-4")
    for n in range(3):
        later_ms = NOW + n * (HOUR_MS + IDLE_MS)
        for _ in range(2):
            await full_store.take([Take(key, (RPM,), (Draw(0, MILLI),))], later_ms)
        removed = await retention.remove_idle_buckets(later_ms + 2_000 + IDLE_MS, None, STEP)
        assert removed.items == 1
        for window in Window:
            found = await full_store.usage.read("user", window, 0, ALWAYS_MS)
            assert total(one.used for one in found) == Used(2 * n + 2, {"rpm": (2 * n + 2) * MILLI})


async def test_events_are_archived_before_they_go(
    full_store: Store, retention: RetentionStore
) -> None:
    """All of them, in as many steps as it takes, and only those that have expired."""
    await change_limits(full_store, *[0] * (STEP + 1), 1)
    archive, metrics = Kept(), Metrics()
    service = Retention(retention, archive, DAY_MS, USAGE_KEPT, metrics)
    assert await service.count_audit(NOW + DAY_MS) == 0
    assert await service.count_audit(NOW + DAY_MS + 1) == STEP + 1
    await service.work_off(NOW + DAY_MS + 1)
    assert len(archive.events) == metrics.audit_archived.value == STEP + 1
    assert await days_left(full_store) == [1]


async def test_events_stay_while_the_archive_fails(
    full_store: Store, retention: RetentionStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and counted, and the next time they go."""
    await change_limits(full_store, 0)
    archive, metrics = Kept(), Metrics()
    archive.is_broken = True
    service = Retention(retention, archive, DAY_MS, USAGE_KEPT, metrics)
    await service.work_off(NOW + 2 * DAY_MS)
    assert await days_left(full_store) == [0]
    assert metrics.retention_errors.value == 1
    assert "old audit events stay in the store: the disk is full" in caplog.text
    archive.is_broken = False
    await service.work_off(NOW + 2 * DAY_MS)
    assert await days_left(full_store) == []
    assert len(archive.events) == 1


async def test_events_can_be_kept_for_ever(full_store: Store, retention: RetentionStore) -> None:
    """With a retention of 0."""
    await change_limits(full_store, 0)
    service = Retention(retention, None, 0, USAGE_KEPT, Metrics())
    await service.work_off(NOW + 10_000 * DAY_MS)
    assert await service.count_audit(NOW + 10_000 * DAY_MS) == 0
    assert await days_left(full_store) == [0]


NEVER_FULL = RPM._replace(refill=1, period_ms=366 * DAY_MS)
"""So that its bucket is never idle."""


async def use_on(store: Store, *days: int) -> None:
    for day in days:
        take = Take(Key("user", "gpt-4"), (NEVER_FULL,), (Draw(0, MILLI),))
        await store.take([take], NOW + day * DAY_MS)


async def usage_left(store: Store) -> dict[Window, list[int]]:
    """The takes of the windows that there are, by the size of the windows."""
    return {
        window: [one.used.takes for one in await store.usage.read("user", window, 0, ALWAYS_MS)]
        for window in Window
    }


async def test_windows_of_usage_expire_by_their_size(
    full_store: Store, retention: RetentionStore
) -> None:
    """Each after its own time. The larger windows still tell the sum."""
    await use_on(full_store, 0, 1, 1, 20, 40)
    kept = UsageKept(hour_ms=2 * DAY_MS, day_ms=30 * DAY_MS, month_ms=0)
    service = Retention(retention, None, 0, kept, Metrics())
    now_ms = NOW + 40 * DAY_MS
    before = await usage_left(full_store)
    assert before[Window.HOUR] == before[Window.DAY] == [1, 2, 1, 1]
    assert await service.count_usage(now_ms) == 5
    assert await usage_left(full_store) == before
    await service.work_off(now_ms)
    assert await service.count_usage(now_ms) == 0
    assert await usage_left(full_store) == {
        Window.HOUR: [1],
        Window.DAY: [1, 1],
        Window.MONTH: before[Window.MONTH],
    }
    assert sum(before[Window.MONTH]) == 5


async def test_usage_expires_step_by_step(full_store: Store, retention: RetentionStore) -> None:
    """However small the steps are, all of it goes, and a window goes once."""
    await use_on(full_store, 0, 1, 2, 3)
    first_ms = UsageKept(DAY_MS, DAY_MS, 0).first_ms(NOW + 3 * DAY_MS)
    expired, removed = await retention.count_expired_usage(first_ms), 0
    while step := await retention.remove_usage(first_ms, 1):
        removed += step
    assert removed == expired == 6
    assert (await usage_left(full_store))[Window.HOUR] == [1]


async def test_usage_can_be_kept_for_ever(full_store: Store, retention: RetentionStore) -> None:
    """With a time of 0."""
    await use_on(full_store, 0, 1)
    service = Retention(retention, None, 0, UsageKept(0, 0, 0), Metrics())
    await service.work_off(NOW + 10_000 * DAY_MS)
    assert await service.count_usage(NOW + 10_000 * DAY_MS) == 0
    assert (await usage_left(full_store))[Window.HOUR] == [1, 1]


async def test_usage_expires_though_the_archive_of_the_audit_fails(
    full_store: Store, retention: RetentionStore
) -> None:
    """Neither waits for the other."""
    await change_limits(full_store, 0)
    await use_on(full_store, 0, 1)
    archive, metrics = Kept(), Metrics()
    archive.is_broken = True
    service = Retention(retention, archive, DAY_MS, UsageKept(DAY_MS, 0, 0), metrics)
    await service.work_off(NOW + DAY_MS + HOUR_MS)
    assert metrics.retention_errors.value == 1
    assert await days_left(full_store) == [0]
    assert (await usage_left(full_store))[Window.HOUR] == [1]
