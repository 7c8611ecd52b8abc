"""The recorder: an answer never waits for it, and it never takes more room than it may."""

import asyncio
import errno
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.config.settings import Settings
from penstock.core.request import Descriptor, Request
from penstock.errors import ConfigError
from penstock.service.answer import Options
from penstock.service.limiter import Limiter
from penstock.store.memory import MemoryStore
from penstock.telemetry.metrics import Metrics
from penstock.traffic import recorder as recorder_module
from penstock.traffic import segments as segments_module
from penstock.traffic.hashing import NamesByHash, make_hash, make_hide
from penstock.traffic.json_lines import Hide
from penstock.traffic.reading import Reader
from penstock.traffic.recorder import DISK, QUEUE, RECORD_BYTES, REQUESTS_A_SLICE, Recorder
from penstock.traffic.segments import LEAST_BYTES, MAX_FILES, PARTS, Segments
from penstock.transport.codec import PEEK, encode_request
from penstock.transport.rls import PlainCall, RateLimitService

from tests.unit.traffic.test_tally import RULES

NOW = 1_794_792_780_000
SECRET = "a secret of some length"  # noqa: S105 - of this test


def asked(value: str = "bob", hits: int | None = None) -> Request:
    return Request("d", (Descriptor((("user", value), ("path", "/a")), hits),))


def segments(folder: Path, max_bytes: int = LEAST_BYTES, writers: int = 1) -> Segments:
    ticks = iter(range(1_000_000))
    return Segments(folder, max_bytes, writers, lambda: NOW + next(ticks))


def recorder(folder: Path, metrics: Metrics | None = None, hide: Hide | None = None) -> Recorder:
    return Recorder(segments(folder), metrics or Metrics(), lambda: NOW, hide)


def recorded(folder: Path) -> list[Request]:
    """All requests of all files, none of which may be cut."""
    reader = Reader()
    found = [one.request for one in reader.read([str(folder)])]
    assert reader.notes.cut_files == []
    return found


def modes(folder: Path) -> list[int]:
    return [file.stat().st_mode & 0o777 for file in folder.iterdir()]


def delete_files(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def read_text(folder: Path) -> str:
    (file,) = folder.iterdir()
    return gzip.decompress(file.read_bytes()).decode()


async def begin_flush(recording: Recorder) -> "asyncio.Task[None]":
    """Flush until another thread writes what was in the queue."""
    flushing = asyncio.create_task(recording.flush())
    for _ in range(3):
        await asyncio.sleep(0)
    return flushing


async def test_what_is_noted_is_read_back(tmp_path: Path) -> None:
    """All requests, in their order, after a flush and after the end."""
    metrics = Metrics()
    recording = recorder(tmp_path / "new" / "folder", metrics)
    first = [asked(f"user-{number}", number % 3 or None) for number in range(3 * REQUESTS_A_SLICE)]
    for one in first:
        recording.note(one, 20)
    await recording.flush()
    assert recorded(tmp_path / "new" / "folder") == first
    recording.note(asked("last"), 20)
    await recording.close()
    assert recorded(tmp_path / "new" / "folder") == [*first, asked("last")]
    assert metrics.recorded.value == len(first) + 1
    assert modes(tmp_path / "new" / "folder") == [0o600]


async def test_a_full_queue_loses_requests_and_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until what is in the queue has been written."""
    monkeypatch.setattr(recorder_module, "MAX_QUEUE_BYTES", 10 * (RECORD_BYTES + 50))
    metrics = Metrics()
    recording = recorder(tmp_path, metrics)
    for number in range(15):
        recording.note(asked(f"user-{number}"), 50)
    assert metrics.recording_lost.of(QUEUE).value == 5
    await recording.flush()
    recording.note(asked("later"), 50)
    await recording.close()
    assert recorded(tmp_path) == [
        *[asked(f"user-{number}") for number in range(10)],
        asked("later"),
    ]
    assert metrics.recorded.value == 11


async def test_what_is_being_written_counts_for_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes memory as long as the disk takes."""
    monkeypatch.setattr(recorder_module, "MAX_QUEUE_BYTES", 2 * (RECORD_BYTES + 50))
    metrics = Metrics()
    recording = recorder(tmp_path, metrics)
    recording.note(asked("first"), 50)
    flushing = await begin_flush(recording)
    recording.note(asked("second"), 50)
    recording.note(asked("third"), 50)
    assert metrics.recording_lost.of(QUEUE).value == 1
    await flushing
    await recording.close()
    assert recorded(tmp_path) == [asked("first"), asked("second")]


async def test_a_flush_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    """As when the server stops in the middle."""
    recording = recorder(tmp_path)
    recording.note(asked(), 20)
    flushing = await begin_flush(recording)
    recording.note(asked("second"), 20)
    flushing.cancel()
    await recording.close()
    assert recorded(tmp_path) == [asked(), asked("second")]


async def test_a_full_disk_loses_requests_and_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before stays readable, and recording goes on when there is room."""
    metrics = Metrics()
    recording = recorder(tmp_path, metrics)
    recording.note(asked("before"), 20)
    await recording.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", _fails_in_the_middle(os.write))
        recording.note(asked("lost"), 20)
        recording.note(asked("lost, too"), 20)
        await recording.flush()
    assert metrics.recording_lost.of(DISK).value == 2
    recording.note(asked("after"), 20)
    await recording.close()
    assert recorded(tmp_path) == [asked("before"), asked("after")]
    assert metrics.recorded.value == 2


def _fails_in_the_middle(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    written = list[bytes]()

    def fail(file: int, data: bytes) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(data)
        return write(file, data[:7])

    return fail


async def test_a_deleted_file_is_begun_anew(tmp_path: Path) -> None:
    """Otherwise all that follows would go nowhere."""
    recording = recorder(tmp_path)
    recording.note(asked("gone"), 20)
    await recording.flush()
    delete_files(tmp_path)
    recording.note(asked("kept"), 20)
    await recording.close()
    assert recorded(tmp_path) == [asked("kept")]


def test_all_files_together_keep_to_the_bound(tmp_path: Path) -> None:
    """With several writers, and with files that other runs have left. The oldest go first."""
    bound = 3 * LEAST_BYTES
    member = gzip.compress(os.urandom(LEAST_BYTES // 7))
    writers = [segments(tmp_path, bound, writers=3) for _ in range(3)]
    most, names = 0, list[str]()
    for turn in range(60):
        writers[turn * turn % 3].write(member)
        found = sorted(tmp_path.iterdir())
        names = sorted({*names, *[file.name for file in found]})
        most = max(most, sum(file.stat().st_size for file in found))
    assert bound // 2 < most <= bound
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == names[-len(left) :]
    assert len(left) < len(names)
    for writer in writers:
        writer.close()


def test_few_files_are_left_by_many_starts(tmp_path: Path) -> None:
    """Each start begins a file, however little is in it."""
    for number in range(MAX_FILES + 20):
        name = f"requests-2026-{number:05}-1.jsonl.gz"
        (tmp_path / name).touch()
    (tmp_path / "other").touch()
    writer = segments(tmp_path)
    writer.write(gzip.compress(b"x"))
    writer.close()
    assert len(list(tmp_path.glob("requests-*"))) == MAX_FILES
    assert (tmp_path / "other").exists()


def test_more_than_a_file_may_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound on the disk goes before the requests."""
    monkeypatch.setattr(segments_module, "LEAST_BYTES", 400)
    writer = segments(tmp_path, max_bytes=400)
    with pytest.raises(OSError, match="more than a file may have"):
        writer.write(bytes(400 // PARTS + 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "max_bytes", "why"),
    [
        ("file/below", LEAST_BYTES, "--record-trace: .* cannot be created"),
        ("folder", LEAST_BYTES - 1, "--record-trace-max-bytes: .* is too small"),
    ],
)
def test_a_recording_that_cannot_be_made_is_an_error_of_the_start(
    tmp_path: Path, place: str, max_bytes: int, why: str
) -> None:
    """Nobody should find out after a week that nothing was recorded."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=why):
        segments(tmp_path / place, max_bytes)


async def test_hidden_values_are_stable_and_others_stay(tmp_path: Path) -> None:
    """The same value has the same hash, in another run, too. Other keys keep their values."""
    for folder in ("one", "two"):
        recording = recorder(tmp_path / folder, hide=make_hide(("user",), SECRET))
        for value in ("bob", "eve", "bob"):
            recording.note(asked(value), 20)
        await recording.close()
    first, second = (recorded(tmp_path / folder) for folder in ("one", "two"))
    assert first == second
    entries = [dict(request.descriptors[0].entries) for request in first]
    assert entries[0] == entries[2] != entries[1]
    assert {one["path"] for one in entries} == {"/a"}
    text = read_text(tmp_path / "one")
    assert "bob" not in text
    assert json.loads(text.splitlines()[0])["time"] == NOW


def test_hashes_need_the_secret_and_known_names_are_found_again() -> None:
    """With the secret, a rule for one value applies to hashed requests, too."""
    assert make_hash(SECRET, "bob") != make_hash(SECRET + "!", "bob")
    hide = make_hide(("*",), SECRET)
    assert hide is not None
    hidden = Request("d", (Descriptor((("user", hide("user", "bob")), ("x", hide("x", "eve")))),))
    restored = NamesByHash(SECRET, ["bob", "amy"]).restore(hidden).descriptors[0].entries
    assert restored == (("user", "bob"), ("x", make_hash(SECRET, "eve")))
    assert make_hide((), SECRET) is None


def test_the_secret_is_not_shown() -> None:
    """A log of the settings must not have it."""
    assert SECRET not in repr(Settings(record_hash_key=SECRET))


async def test_the_service_notes_what_it_decides() -> None:
    """Requests over gRPC and HTTP, and no peeks: these teach a server nothing either."""
    limiter = Limiter(MemoryStore(), Options(), lambda: NOW)
    limiter.use(RULES)
    noted: list[tuple[Request, int]] = []
    service = RateLimitService(limiter, record=lambda request, size: noted.append((request, size)))
    data = encode_request(asked())
    await service.should_rate_limit(data)
    service.start(data, PlainCall())
    check = encode_request(asked(hits=0))
    service.start(check, PlainCall(headers=lambda: ((PEEK, ""),)))
    with pytest.raises(Exception, match="domain"):
        await service.should_rate_limit(encode_request(Request("", asked().descriptors)))
    service.start(check, PlainCall())
    assert noted == [(asked(), len(data))] * 2 + [(asked(hits=0), len(check))]
