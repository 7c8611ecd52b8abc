"""A worker: it answers calls, and does what its parent asks, until the parent tells it to stop."""

import asyncio
import logging
import os
import socket
from typing import Any, Final, cast

from penstock.answering import Answering, open_answering
from penstock.errors import ConfigError, PenstockError
from penstock.event_loop import choose_loop
from penstock.insight.rates import Totals
from penstock.slices import run, run_at_once
from penstock.supervise import Work
from penstock.telemetry.logs import set_up
from penstock.telemetry.repeats import Repeats
from penstock.telemetry.totals import Snapshot, take_snapshot
from penstock.workers.channel import Channel, Handle, open_channel
from penstock.workers.lanes import Lane
from penstock.workers.orders import MAY_PASS, Begin, Question, write_answer, write_error
from penstock.workers.rules import HandedRules

LOG: Final = logging.getLogger(__name__)

STATUS_S: Final = 1.0
"""How often the parent hears of a worker, so that the parent notices a worker that hangs."""

GRACE_S: Final = 2.0
"""For calls under way when the parent is gone. They take milliseconds."""

EXIT_ERROR: Final = 2


def main(number: int, event_loop: str, channel: int, lane: int | None = None) -> int:
    """Run until the parent says so, or is gone; returns the exit code.

    `channel` and `lane` are files that the parent has opened. Without a lane, the worker listens
    on the port itself.
    """

    for descriptor in filter(None, (channel, lane)):
        os.set_inheritable(descriptor, False)

    async def run() -> int:
        return await Worker(lane).run(number, socket.socket(fileno=channel))

    with asyncio.Runner(loop_factory=choose_loop(event_loop)) as runner:
        return runner.run(run())


class Worker:
    def __init__(self, lane: int | None) -> None:
        loop = asyncio.get_running_loop()
        self._lane_descriptor = lane
        self._lane: Lane | None = None
        self._begin: asyncio.Future[Begin] = loop.create_future()
        self._begun: asyncio.Future[dict[str, str]] = loop.create_future()
        """The address, or the error that is in the way."""
        self._stop: asyncio.Future[float] = loop.create_future()
        """Set to the time that calls under way have to finish."""
        self._stopped: asyncio.Future[Snapshot] = loop.create_future()
        """The last that was counted."""
        self._answering: Answering | None = None
        self._rules = HandedRules()

    async def run(self, number: int, end: socket.socket) -> int:
        channel = await open_channel(end, "the parent", self._handles())
        hearing = asyncio.create_task(channel.run())
        hearing.add_done_callback(self._stop_without_parent)
        try:
            either: set[asyncio.Future[Any]] = {hearing, self._begin}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done():
                return EXIT_ERROR
            begin = self._begin.result()
            repeats = set_up(begin.settings.log_level, begin.settings.log_format, number)
            try:
                return await self._serve(begin, channel, repeats)
            finally:
                repeats.tell_all()
        finally:
            await channel.finish()
            await hearing

    async def _serve(self, begin: Begin, channel: Channel, repeats: Repeats) -> int:
        try:
            if self._lane_descriptor is not None:
                self._lane = Lane(self._lane_descriptor, begin.grpc_port)
            shared = self._lane or begin.grpc_port
            feed = self._rules if begin.settings.has_xds else None
            async with open_answering(begin.settings, shared, feed) as answering:
                self._answering = answering
                try:
                    await answering.prepare()
                    address = await answering.start()
                    self._keep_parts(answering, channel, repeats)
                    self._begun.set_result({"address": address})
                    await self._serve_until_told(answering)
                finally:
                    await answering.parts.stop()
                    await answering.stop(self._stop.result() if self._stop.done() else GRACE_S)
        except PenstockError as exc:
            if self._begun.done():
                LOG.error("this worker can't go on: %s", exc)
            else:
                self._begun.set_result({"error": str(exc)})
            return EXIT_ERROR
        # Only now: what the store still had to write is counted, too.
        self._stopped.set_result(run_at_once(take_snapshot(answering.metrics)))
        return 0

    def _keep_parts(self, answering: Answering, channel: Channel, repeats: Repeats) -> None:
        def tell_status() -> None:
            channel.tell("status", {"healthy": answering.is_healthy()})

        async def keep_telling() -> None:
            while True:
                tell_status()
                await asyncio.sleep(STATUS_S)

        def tell_point(at_ms: int, counted: Totals) -> None:
            channel.tell("point", [at_ms, counted.dump()])

        answering.feeding.told = tell_point
        answering.announced = tell_status
        answering.parts.keep(Work("the word to the parent", keep_telling))
        answering.parts.keep(Work("the count of repeated messages", repeats.keep_telling))
        tell_status()

    async def _serve_until_told(self, answering: Answering) -> None:
        failed = asyncio.create_task(answering.parts.failed())
        try:
            either: set[asyncio.Future[Any]] = {failed, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                await failed
        finally:
            failed.cancel()

    def _stop_without_parent(self, _: object) -> None:
        """Never outlive the parent: nobody else tells a worker to stop."""
        if not self._stop.done():
            LOG.error("the process that started this worker has ended, so this worker stops")
            self._stop.set_result(GRACE_S)

    def _handles(self) -> dict[str, Handle]:
        """The parent asks for no more than to begin until that has been answered."""

        def serving() -> Answering:
            return cast("Answering", self._answering)

        return {
            "begin": self._handle_begin,
            "decide": self._decide,
            "metrics": lambda _: run(take_snapshot(serving().metrics)),
            "ready": lambda _: serving().why_not_ready(),
            "rules": lambda _: self._read_rules(serving()),
            "view": lambda body: self._read_view(serving(), body),
            "piece of rules": self._rules.add,
            "use rules": lambda _: self._rules.use(),
            "ended parts": lambda names: serving().note_ended_elsewhere(names),
            "connections": lambda _: self._count_connections(serving()),
            "drain": lambda _: serving().begin_drain(),
            "awaited": lambda _: serving().awaited(),
            "stop": self._handle_stop,
        }

    async def _handle_begin(self, body: Any) -> dict[str, str]:
        try:
            self._begin.set_result(Begin.read(body))
        except ConfigError as exc:
            return {"error": str(exc)}
        return await self._begun

    async def _handle_stop(self, grace_s: float) -> Snapshot:
        self._stop.set_result(grace_s)
        return await self._stopped

    def _count_connections(self, answering: Answering) -> list[int]:
        """Those that are open, and all that have ever arrived."""
        return [answering.connections, cast("Lane", self._lane).received]

    async def _read_rules(self, answering: Answering) -> str:
        return (await answering.read_rules()).decode()

    async def _read_view(self, answering: Answering, body: Any) -> Any:
        name, query = body
        try:
            return {"view": await answering.read_view_here(name, query)}
        except MAY_PASS as exc:
            return write_error(exc)

    async def _decide(self, body: Any) -> Any:
        question = Question.read(body)
        service = cast("Answering", self._answering).service
        try:
            return write_answer(
                await service.should_rate_limit(
                    question.request, question.timeout_s, method=question.method
                )
            )
        except MAY_PASS as exc:
            return write_error(exc)
