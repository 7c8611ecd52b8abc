"""All workers as one engine behind the front: they answer calls, and are asked as one."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from penstock.build import grpc_listener, rules_source
from penstock.config.problems import RulesError
from penstock.config.settings import Settings
from penstock.feeds import as_comments
from penstock.insight.rates import Rates, Totals
from penstock.slices import run, run_at_once
from penstock.supervise import Parts, Work
from penstock.telemetry.metrics import AnyFamily, Metrics
from penstock.telemetry.process import watch_process
from penstock.telemetry.totals import retire, take_snapshot, total
from penstock.transport.draining import drain
from penstock.transport.listener import Listener
from penstock.transport.native.listening import opened
from penstock.workers.channel import ChannelError
from penstock.workers.lanes import HandOver
from penstock.workers.orders import Begin, read_view
from penstock.workers.port import reserve
from penstock.workers.remote import RemoteService, WorkerGoneError
from penstock.workers.rules import xds_client
from penstock.workers.slot import Slot, usable

LOG: Final = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Between two looks at workers that may hang."""

READY_S: Final = 0.9
"""For a worker to say whether it is ready: a look at the store takes 0.8 s, and probes wait 1 s."""

ANSWER_S: Final = 2.0
"""For a worker to answer anything else."""


@asynccontextmanager
async def open_crew(settings: Settings) -> AsyncIterator["Crew"]:
    """Check what can be checked once for all workers; ConfigError if something is wrong."""
    if not settings.has_xds:
        try:
            rules_source(settings).load()
        except RulesError:
            if not settings.force_start_without_initial_config:
                raise
    listener = grpc_listener(settings)
    if settings.transport == "grpcio":
        async with reserve(listener) as port:
            yield Crew(settings, replace(listener, port=port))
        return
    async with opened(listener) as listening:
        if not listener.uds:
            listener = replace(listener, port=listening.getsockname()[1])
        yield Crew(settings, listener, listening)


class Crew:
    def __init__(
        self, settings: Settings, listener: Listener, listening: socket.socket | None = None
    ) -> None:
        """Without a socket that is `listening`, workers listen for themselves."""
        self.metrics: Final = Metrics()
        self.parts: Final = Parts(self.metrics, self._tell_ended_parts)
        self._address = listener.address
        self._listening = listening
        self._hand_over: HandOver | None = None
        self._settings = settings
        self._xds = xds_client(settings, self.metrics) if settings.has_xds else None
        self._packed = b""
        """The rules that came last over xDS."""
        self._has_rules = asyncio.Event()
        begin = Begin(settings, listener.port)
        self._slots = [
            Slot(
                number,
                begin,
                self._has_serving,
                self._brief,
                self._retire,
                lambda: self._packed,
                self._add_point,
            )
            for number in range(1, settings.workers + 1)
        ]
        self.service: Final = RemoteService(self._slots)
        self.rates: Final = Rates()
        self._has_begun = False
        self._is_draining = False
        self._retired = run_at_once(retire())
        """What workers have counted that have ended."""
        watch_process(self.metrics)

    async def prepare(self) -> None:
        """Wait for rules that come over xDS. All else, workers prepare themselves."""
        if self._xds is None:
            return
        self.parts.keep(Work("the watch over the rules", self._follow_rules))
        if not self._settings.force_start_without_initial_config:
            LOG.info("waiting for the first rules")
            await self._has_rules.wait()

    async def start(self) -> str:
        """Start all workers; returns their address when all serve. ConfigError if one can't."""
        starting = [asyncio.create_task(slot.begin()) for slot in self._slots]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for task in starting:
                task.cancel()
            await asyncio.wait(starting)
            raise
        for slot in self._slots:
            self.parts.keep(slot, has_stand_ins=True)
        self.parts.keep(Work("the watch over the workers", self._watch))
        if self._listening is not None:
            self._hand_over = HandOver(self._listening, self._slots)
            self.parts.keep(self._hand_over)
        self._has_begun = True
        return self._address

    def is_healthy(self) -> bool:
        """Whether requests should come here.

        A worker that is gone holds no connections: its clients connect anew, to other workers. A
        worker that runs and is not well holds connections that are not served.
        """
        running = [slot for slot in self._slots if slot.worker is not None]
        is_up = self._has_begun and not self._is_draining and not self.parts.ended
        return is_up and bool(running) and all(slot.is_well for slot in running)

    async def why_not_ready(self) -> str:
        if self._is_draining:
            return "draining"
        if ended := self.parts.ended:
            return f"{ended} ended by itself"
        running = [slot for slot in self._slots if slot.worker is not None]
        if not running or not self._has_begun:
            return "no worker serves"
        return "; ".join(_once(await self._ask_all("ready", READY_S, "does not answer")))

    async def read_rules(self) -> bytes:
        """The rules of the first worker that answers. All workers have the same rules."""
        source = b"" if self._xds is None else as_comments(self._xds.status.lines())
        for slot in self._slots:
            with suppress(ChannelError):
                return source + str(await slot.ask("rules", timeout_s=ANSWER_S)).encode()
        return source

    @property
    def load_error(self) -> str:
        """Only the parent follows an xDS server. Each worker reads rules files for itself."""
        return "" if self._xds is None else self._xds.status.error

    @property
    def running_workers(self) -> int:
        return sum(slot.worker is not None for slot in self._slots)

    async def read_view(self, name: str, query: Mapping[str, str], *, of_all: bool) -> list[Any]:
        """What the workers that answer in time tell the console. WorkerGoneError if none does.

        One worker is asked if `of_all` is false, or the next one if it does not answer.
        """
        body = [name, dict(query)]

        async def ask(slot: Slot) -> list[Any]:
            with suppress(ChannelError):
                return [await slot.ask("view", body, ANSWER_S)]
            return []

        told: list[Any] = []
        slots = usable(self._slots)
        if of_all:
            told = [one for some in await asyncio.gather(*map(ask, slots)) for one in some]
        while slots and not of_all and not told:
            told = await ask(slots.pop(0))
        if not told:
            raise WorkerGoneError("no worker answers")
        return [read_view(one) for one in told]

    async def read_metrics(self) -> list[AnyFamily]:
        await asyncio.gather(*[slot.read_metrics() for slot in self._slots])
        own = run_at_once(take_snapshot(self.metrics))
        # At one moment: a worker that ends meanwhile is either here or among those that ended.
        snapshots = [slot.snapshot for slot in self._slots if slot.snapshot is not None]
        return (await run(total([own, self._retired, *snapshots]))).families()

    def begin_drain(self) -> None:
        self._is_draining = True
        for slot in self._slots:
            slot.tell("drain")

    async def drain(self, timeout_s: float) -> None:
        """Workers that nobody needs any more go on serving until that is so for all."""

        async def look() -> str:
            return ", and ".join(_once(await self._ask_all("awaited", ANSWER_S, "to answer")))

        self.begin_drain()
        await drain(look, timeout_s)

    async def stop(self, grace_s: float) -> None:
        if self._hand_over is not None:
            await self._hand_over.stop_accepting()
        await asyncio.gather(*[slot.stop(grace_s) for slot in self._slots])

    async def _ask_all(self, what: str, timeout_s: float, silence: str) -> list[str]:
        """The answers of all workers. Of one that does not answer, its name and `silence`."""

        async def ask(slot: Slot) -> str:
            try:
                return str(await slot.ask(what, timeout_s=timeout_s))
            except ChannelError:
                return f"{slot.name} {silence}"

        running = [slot for slot in self._slots if slot.worker is not None]
        return await asyncio.gather(*map(ask, running))

    async def _follow_rules(self) -> None:
        async def use(packed: bytes) -> None:
            self._packed = packed
            self._has_rules.set()
            await asyncio.gather(*[slot.use_rules() for slot in self._slots])

        if self._xds is not None:
            await self._xds.follow(use)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for slot in self._slots:
                slot.look()

    def _has_serving(self) -> bool:
        return any(slot.worker is not None for slot in self._slots)

    def _brief(self, slot: Slot) -> None:
        """Tell a worker that has begun what the others have been told."""
        slot.tell("ended parts", self.parts.ended)
        if self._is_draining:
            slot.tell("drain")

    def _retire(self, slot: Slot) -> None:
        """Keep what a worker had counted that has ended."""
        snapshot, slot.snapshot = slot.snapshot, None
        if snapshot is not None:
            self._retired = run_at_once(retire(self._retired, snapshot))

    def _add_point(self, body: Any) -> None:
        at_ms, counted = body
        self.rates.add(at_ms, Totals.load(counted))

    def _tell_ended_parts(self) -> None:
        """Health checks over gRPC, which workers answer, depend on the ports of the parent, too."""
        for slot in self._slots:
            slot.tell("ended parts", self.parts.ended)


def _once(texts: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(text for text in texts if text)
