"""Long work in slices: what is between two slices gets its turn."""

import asyncio
from itertools import pairwise

from penstock.slices import FREED, REST_S, WORK_S, Rests, Slices, free, join, run, run_at_once


def work(done: list[str], times: int = 3) -> Slices[int]:
    for _ in range(times):
        done.append("slice")
        yield
    return times


async def test_others_run_after_each_slice() -> None:
    """Whoever is ready gets a turn before the next slice."""
    done: list[str] = []

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            done.append("other")

    beside = asyncio.create_task(other())
    await asyncio.sleep(0)
    assert await run(work(done)) == 3
    beside.cancel()
    slices = [at for at, what in enumerate(done) if what == "slice"]
    assert len(slices) == 3
    assert all("other" in done[at:after] for at, after in pairwise(slices))


def test_long_work_rests_from_time_to_time() -> None:
    """After short slices the event loop gets a turn. Threads need longer to get Python's lock."""
    schedule = Rests(10.0)
    half_s = 0.6 * WORK_S
    now_s, rests = 10.0, []
    for _ in range(5):
        now_s += half_s
        rests.append(schedule.rest_s(now_s))
        now_s += rests[-1]
    assert rests == [0.0, REST_S, 0.0, REST_S, 0.0]


def test_work_can_be_done_at_once() -> None:
    """Where there is no event loop."""
    done: list[str] = []
    assert run_at_once(work(done, 5)) == 5
    assert done == ["slice"] * 5


async def test_a_text_is_joined_in_order() -> None:
    """What has no UTF-8 is shown escaped."""
    assert await join(iter(["a", "é\ud800", ""])) == b"a\xc3\xa9\\ud800"


def test_objects_are_freed_a_few_at_a_time() -> None:
    """The last ones first, and all of them in the end."""
    alive = set[int]()

    class Held:
        def __init__(self, number: int) -> None:
            self.number = number
            alive.add(number)

        def __del__(self) -> None:
            alive.discard(self.number)

    count = 2 * FREED + 7
    freeing = free([Held(number) for number in range(count)])
    assert len(alive) == count
    left = []
    for _ in freeing:
        left.append(len(alive))
        assert alive == set(range(len(alive)))
    assert left == [FREED + 7, 7, 0]
