"""The thread that does errands for the event loop."""

import asyncio
import gc
import threading
import weakref
from contextvars import Context, ContextVar

import pytest
from penstock.store.sqlite.threads import ErrandThread

from tests.support.processes import PATIENCE_S

WHO = ContextVar("WHO", default="nobody")


async def test_work_is_done_in_order_on_a_thread_of_its_own() -> None:
    """Each result comes to the one that asked, on the event loop."""
    thread, done = ErrandThread("errands"), list[int]()

    def work(number: int) -> tuple[int, str]:
        done.append(number)
        return number, threading.current_thread().name

    asked = [thread.ask(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc] # mypy can't infer such a lambda
    assert await asyncio.gather(*asked) == [(number, "errands") for number in range(20)]
    assert done == list(range(20))
    thread.close()


@pytest.mark.parametrize("fault", [ZeroDivisionError("a fault"), SystemExit("even this")])
async def test_a_fault_is_told_and_the_thread_goes_on(fault: BaseException) -> None:
    """A caller that waits gets the error, whatever the error is."""
    thread = ErrandThread("errands")

    def fail() -> None:
        raise fault

    told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    thread.do(fail, lambda _, exc: told.set_result(exc))
    assert await told is fault
    assert await thread.ask(lambda: 5) == 5
    thread.close()


async def test_closing_finishes_what_was_begun() -> None:
    """What comes later is an error at once."""
    thread, gate, done = ErrandThread("closing"), threading.Event(), list[int]()
    asked = asyncio.create_task(thread.ask(gate.wait))
    await asyncio.sleep(0)
    thread.do(lambda: done.append(1), lambda *_: None)
    gate.set()
    thread.close()
    assert done == [1]
    assert "closing" not in [each.name for each in threading.enumerate()]
    assert await asked
    with pytest.raises(RuntimeError, match="shutdown"):
        await thread.ask(lambda: 5)


async def test_work_is_done_even_if_its_caller_is_gone() -> None:
    """And its result disturbs nobody."""
    thread, gate, done = ErrandThread("errands"), threading.Event(), list[bool]()
    asked = asyncio.create_task(thread.ask(lambda: done.append(gate.wait())))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    gate.set()
    assert await thread.ask(lambda: 5) == 5
    assert done == [True]
    thread.close()


async def test_the_end_of_an_errand_runs_in_the_context_it_was_given() -> None:
    """Not in that of whoever happened to come first."""
    thread, context = ErrandThread("errands"), Context()
    context.run(WHO.set, "the group")
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    WHO.set("a caller")
    thread.do(lambda: 1, lambda *_: found.set_result(WHO.get()), context)
    assert await found == "the group"
    thread.close()


async def test_an_idle_thread_keeps_nothing_alive() -> None:
    """A group may hold thousands of callers."""

    class Big:
        pass

    thread, big = ErrandThread("errands"), Big()
    alive = weakref.ref(big)
    await thread.ask(lambda big=big: big)  # type: ignore[misc] # mypy can't infer such a lambda
    del big
    # The thread comes back from its last errand a moment after the answer.
    async with asyncio.timeout(PATIENCE_S):
        while alive() is not None:
            gc.collect()
            await asyncio.sleep(0.001)
    thread.close()


def test_a_thread_outlives_its_event_loop_without_a_word() -> None:
    """Nobody waits any more, so there is nobody to tell."""
    gate, opened = threading.Event(), list[ErrandThread]()

    async def leave() -> None:
        opened.append(ErrandThread("errands"))
        opened[0].do(gate.wait, lambda *_: None)

    asyncio.run(leave())
    gate.set()
    opened[0].close()
