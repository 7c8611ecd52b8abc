"""An archive: what is written is read back, each event once, the latest first."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.archive import open_archive
from penstock.archive.archive import AuditArchive
from penstock.archive.events import dump_batch, load_batch
from penstock.archive.files import name_batch, parse_name
from penstock.core.entities import Scope
from penstock.errors import ConfigError, StoreError
from penstock.store.policy_port import AuditEvent
from penstock.store.retention_port import RecordedEvent

NOW = 1_794_792_780_000


def recorded(number: int, subject: str = "bob", at_ms: int | None = None) -> RecordedEvent:
    """The event number `number`, a second after the one before it."""
    when = NOW + 1_000 * number if at_ms is None else at_ms
    after = {"rpm": {"capacity": number, "burst": 1, "refill": 1, "period_ms": 1}}
    event = AuditEvent(subject, "limits.write", when, "ann", Scope(subject, None), None, after)
    return RecordedEvent(f"{number:019}", event)


async def read(archive: AuditArchive, subject: str = "bob") -> list[AuditEvent]:
    return [event async for event in archive.read(subject)]


class Shelf:
    """A folder in memory that notes what is read."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.read: list[str] = []

    async def put(self, name: str, data: bytes) -> None:
        self.files[name] = data

    async def names(self) -> list[str]:
        return sorted(self.files)

    async def get(self, name: str) -> bytes:
        self.read.append(name)
        return self.files[name]

    async def close(self) -> None:
        pass


async def test_events_are_read_back_as_they_were(archive: AuditArchive) -> None:
    """Those of the subject alone, from all files, the latest first."""
    bobs, eves = [recorded(n) for n in range(5)], [recorded(n, "eve") for n in range(5, 7)]
    await archive.write([bobs[0], bobs[1], eves[0]])
    await archive.write([bobs[2], eves[1], bobs[3], bobs[4]])
    assert await read(archive) == [one.event for one in reversed(bobs)]
    assert await read(archive, "eve") == [one.event for one in reversed(eves)]
    assert await read(archive, "nobody") == []


async def test_an_event_that_was_archived_twice_is_read_once(archive: AuditArchive) -> None:
    """As after a crash between archiving and removing: the next batch has it again."""
    events = [recorded(n) for n in range(4)]
    await archive.write(events[:2])
    await archive.write(events[:2])
    await archive.write(events[:4])
    assert await read(archive) == [one.event for one in reversed(events)]


async def test_nothing_is_read_from_an_archive_that_was_never_written(
    archive: AuditArchive,
) -> None:
    """There is no error either: nothing has expired yet."""
    assert await read(archive) == []


numbers = st.integers(0, 30)


@given(
    st.lists(st.lists(numbers, min_size=1, max_size=6, unique=True), max_size=12),
    st.lists(st.integers(0, 5), min_size=31, max_size=31),
)
async def test_each_event_is_read_once_in_order_whatever_the_batches(
    batches: list[list[int]], seconds: list[int]
) -> None:
    """Batches may overlap in any way, and events may be from the same time."""
    archive, known = AuditArchive(Shelf()), dict[tuple[int, str], AuditEvent]()
    for batch in batches:
        events = [recorded(n, at_ms=NOW + seconds[n] * 1_000) for n in batch]
        await archive.write(events)
        known |= {(one.event.at_ms, one.id): one.event for one in events}
    assert await read(archive) == [known[place] for place in sorted(known, reverse=True)]


async def test_files_that_are_too_old_to_matter_are_left_alone() -> None:
    """A reader that wants the latest two of five thousand files reads one."""
    shelf = Shelf()
    archive = AuditArchive(shelf)
    for n in range(0, 100, 2):
        await archive.write([recorded(n), recorded(n + 1)])
    latest = archive.read("bob")
    assert [(await anext(latest)).at_ms for _ in range(2)] == [NOW + 99_000, NOW + 98_000]
    await latest.aclose()
    assert len(shelf.read) == 1


def test_the_same_batch_is_the_same_file() -> None:
    """So a batch that is written again after a crash adds nothing."""
    batch = [recorded(1), recorded(2)]
    assert dump_batch(batch) == dump_batch(list(batch))
    assert name_batch(batch) == name_batch(list(batch))
    assert name_batch(batch) != name_batch([recorded(1), recorded(3, at_ms=NOW + 2_000)])
    file = parse_name(name_batch(batch))
    assert file is not None
    assert (file.first_ms, file.last_ms) == (NOW + 1_000, NOW + 2_000)


def test_a_line_is_one_event_for_other_tools() -> None:
    """gzip and a JSON parser are all that they need."""
    event = AuditEvent("b\u2028ob\n", "entity.write", NOW, "ann", None, None, {"name": "ü"})
    (line,) = gzip.decompress(dump_batch([RecordedEvent("7", event)])).splitlines()
    assert json.loads(line) == {
        "id": "7",
        "at": "2026-11-16T01:33:00Z",
        "at_ms": NOW,
        "subject": "b\u2028ob\n",
        "action": "entity.write",
        "by": "ann",
        "scope": None,
        "before": None,
        "after": {"name": "ü"},
    }


DAMAGED = {
    "no gzip": (b"no gzip", "the file can't be read"),
    "cut off": (gzip.compress(b"x" * 999)[:-9], "the file can't be read"),
    "no text": (gzip.compress(b"\xff"), "the file can't be read"),
    "no event": (gzip.compress(b"{}\n"), "line 1 is not an audit event"),
    "a number": (
        dump_batch([recorded(1)]) + gzip.compress(b"7\n"),
        "line 2 is not an audit event",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(name: str) -> None:
    """With the line, where there is one."""
    data, problem = DAMAGED[name]
    with pytest.raises(ConfigError, match=f"^2026-11/a.gz: {problem}"):
        load_batch("2026-11/a.gz", data)


async def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    """Also the rest of a write that a crash cut off."""
    archive = await open_archive(str(tmp_path))
    await archive.write([recorded(1)])
    (tmp_path / "2026-11" / ".unfinished-1").write_bytes(b"x")
    (tmp_path / "backup.tar.gz").write_bytes(b"x")
    assert len(await read(archive)) == 1


async def test_only_the_owner_can_read_an_archive_on_disk(tmp_path: Path) -> None:
    """As it is with the store."""
    archive = await open_archive(str(tmp_path / "audit"))
    await archive.write([recorded(1)])
    modes = [path.stat().st_mode & 0o077 for path in (tmp_path / "audit").rglob("*")]
    assert modes == [0, 0]


async def test_a_folder_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    """It names the archive, and leaves nothing half written."""
    in_the_way = tmp_path / "audit" / name_batch([recorded(1)]).partition("/")[0]
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file where a folder has to be")
    archive = await open_archive(str(tmp_path / "audit"))
    with pytest.raises(StoreError, match=f"audit archive {tmp_path}/audit: .*exists"):
        await archive.write([recorded(1)])


async def test_a_bucket_that_is_not_there_is_an_error_of_the_store(s3_url: str) -> None:
    """For writers and for readers, with AWS's own words."""
    archive = await open_archive(s3_url.replace("bucket-", "no-bucket-"))
    with pytest.raises(StoreError, match=r"audit archive s3://no-bucket-\d+/some/prefix/: .*exist"):
        await archive.write([recorded(1)])
    with pytest.raises(StoreError, match="audit archive s3://no-bucket-"):
        await read(archive)
    await archive.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/x", "an archive is a directory, or s3://BUCKET/PREFIX"),
        ("s3://", "no name of a bucket"),
        ("s3://UPPER/x", "no name of a bucket"),
        ("s3://bucket/x?regoin=eu-west-1", "unknown option 'regoin'"),
        ("s3://bucket/x?endpoint=localhost", "endpoint is a URL"),
        ("s3://[bucket/x", "Invalid IPv6 URL"),
        ("a\0b", "null character"),
    ],
)
async def test_a_bad_name_of_an_archive_is_refused(url: str, problem: str) -> None:
    """Before anything is written anywhere."""
    with pytest.raises(ConfigError, match=problem):
        await open_archive(url)


async def test_a_file_is_no_archive(tmp_path: Path) -> None:
    """Somebody may name the store's own file."""
    (tmp_path / "penstock.db").touch()
    with pytest.raises(ConfigError, match="this is a file"):
        await open_archive(str(tmp_path / "penstock.db"))
