"""Real servers on one store, killed and started again while clients ask, and what came of it."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import grpc
from penstock.transport.codec import METHOD, SERVICE, decode_response, encode_request

from tests.attacks.history import Call, Mode, Outcome
from tests.attacks.history_load import RULES, Ask, Load
from tests.support.processes import Penstock, penstock

CLIENTS = 12
PATIENT_S = 30.0
"""For a caller that waits: a busy machine is no failure."""

ERRORS = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"}
"""What a client may see of a store that fails, a server that dies, or its own impatience."""

PAUSE_S = 0.02
"""After an error. A client without patience would ask a server that is gone for ever."""


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """One life of a server, from its start to its end."""

    place: int
    """Which of the servers. A life that follows has the same."""
    process: Penstock
    ask: Callable[..., Awaitable[bytes]]

    @property
    def has_told_errors(self) -> bool:
        return " ERROR " in self.process.log()


@dataclass(frozen=True, slots=True)
class _Answered:
    call: Call
    server: Server


@dataclass(slots=True)
class Record:
    """What happened so far."""

    answered: list[_Answered] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    """Verdicts, and gRPC's errors."""
    kills: int = 0
    stops: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.kills + self.stops

    @property
    def decided(self) -> int:
        return self.codes["OK"] + self.codes["OVER_LIMIT"]

    def calls(self) -> list[Call]:
        """All calls. A refused take counts as unknown where giving it back may have failed.

        On DynamoDB, what a request took from one item is given back if another item refuses. A
        server that can't tell whether that worked says so in its log, as an error.
        """
        unsure = {server for server in self.servers if server.has_told_errors}
        return [
            replace(one.call, outcome=Outcome.UNKNOWN)
            if one.server in unsure and one.call.outcome is Outcome.OVER_LIMIT and _takes(one.call)
            else one.call
            for one in self.answered
        ]

    @property
    def servers(self) -> set[Server]:
        return {one.server for one in self.answered}


def _takes(call: Call) -> bool:
    return any(move.mode is Mode.TAKE for move in call.moves)


class Fleet:
    """Servers on one store. At least one of them is up at any time."""

    def __init__(self, folder: Path, stores: Sequence[str], rng: Random) -> None:
        """`stores` has a URL for each server: the same store, maybe by another way."""
        self._folder = folder
        self._rules = folder / "rules.yaml"
        self._rules.write_text(RULES)
        self._stores = stores
        self._rng = rng
        self._processes = ExitStack()
        self._up: dict[int, Server] = {}
        self._channels: list[grpc.aio.Channel] = []
        self._starting: set[asyncio.Task[None]] = set()
        self.record = Record()

    async def start(self) -> None:
        async with asyncio.TaskGroup() as group:
            for place in range(len(self._stores)):
                group.create_task(self._start(place))

    async def _start(self, place: int) -> None:
        running = penstock(
            self._folder,
            "--drain-timeout",
            "100ms",
            rules=self._rules,
            store=self._stores[place],
        )
        # Waits for the process, whose store may be behind a proxy on this loop.
        process = await asyncio.to_thread(running.__enter__)
        self._processes.push(running)
        channel = grpc.aio.insecure_channel(process.address)
        self._channels.append(channel)
        ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{SERVICE}/{METHOD}"
        )
        self._up[place] = Server(place, process, ask)

    async def lose_one(self) -> None:
        """End a server, in most cases without a warning, and start it again."""
        if len(self._up) < 2:
            return
        server = self._up.pop(self._rng.choice(sorted(self._up)))
        if self._rng.random() < 0.2:
            self.record.stops += 1
            await self._stop(server)
        else:
            self.record.kills += 1
            server.process.process.kill()
            await asyncio.to_thread(server.process.process.wait)
        starting = asyncio.create_task(self._start(server.place))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    async def _stop(self, server: Server) -> None:
        code = await asyncio.to_thread(server.process.terminate)
        if code != 0:
            self.record.complaints.append(f"exit code {code} after SIGTERM")

    async def stop(self) -> None:
        """Let every server finish what it owes."""
        await asyncio.gather(*self._starting)
        servers, self._up = list(self._up.values()), {}
        await asyncio.gather(*[self._stop(server) for server in servers])
        for server in self.record.servers:
            if "a fault of this server" in server.process.log():
                self.record.complaints.append(server.process.log())

    async def close(self) -> None:
        await asyncio.gather(*self._starting, return_exceptions=True)
        self._processes.close()
        for channel in self._channels:
            await channel.close()

    async def ask(self, load: Load, ask: Ask, timeout_s: float) -> None:
        """Make a call, and put down what came of it."""
        server = self._up[self._rng.choice(sorted(self._up))]
        outcome, sent_ms = Outcome.UNKNOWN, time.time_ns() // 1_000_000
        code = "CANCELLED"
        try:
            data = await server.ask(encode_request(ask.request), timeout=timeout_s)
        except grpc.aio.AioRpcError as exc:
            code = exc.code().name
            if code not in ERRORS:
                self.record.complaints.append(f"{code}: {exc.details()}")
        else:
            code = str(decode_response(data)["overall_code"])
            outcome = Outcome(code)
        finally:
            # A millisecond that has begun counts.
            answered_ms = time.time_ns() // 1_000_000 + 1
            call = Call(ask.moves, outcome, sent_ms, answered_ms)
            self.record.answered.append(_Answered(call, server))
            self.record.codes[code] += 1
        if outcome is Outcome.OK and ask.refundable is not None:
            load.may_refund(ask.refundable)
        if outcome is Outcome.UNKNOWN:
            await asyncio.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class Attack:
    """Clients that ask until so many calls were decided, and so many servers lost meanwhile.

    The moments of a loss and of a disturbance are counted in decisions.
    """

    fleet: Fleet
    rng: Random
    decisions: int
    losses: int
    disturb: Callable[[], None]

    async def run(self) -> None:
        load = Load(self.rng)
        disturbing = asyncio.create_task(self._disturb())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._lose_servers())
                for _ in range(CLIENTS):
                    group.create_task(self._ask_on(load))
        finally:
            disturbing.cancel()

    async def _ask_on(self, load: Load) -> None:
        record, rng = self.fleet.record, self.rng
        while record.decided < self.decisions or record.lost < self.losses:
            timeout_s = rng.uniform(0.001, 0.03) if rng.random() < 0.05 else PATIENT_S
            calling = asyncio.create_task(self.fleet.ask(load, load.next(), timeout_s))
            await asyncio.sleep(0)  # it is sent, before anybody gives up on it
            if rng.random() < 0.04:
                await asyncio.sleep(rng.choice((0, 0.001, 0.004, 0.01)))
                calling.cancel()
            await asyncio.wait([calling])
            if not calling.cancelled():
                calling.result()

    async def _lose_servers(self) -> None:
        record = self.fleet.record
        while record.lost < self.losses:
            apart = self.decisions // (self.losses + 1)
            await self._decided(record.decided + self.rng.randint(1, apart))
            await self.fleet.lose_one()

    async def _disturb(self) -> None:
        while True:
            self.disturb()
            await self._decided(self.fleet.record.decided + self.rng.randint(1, 60))

    async def _decided(self, count: int) -> None:
        while self.fleet.record.decided < count:  # noqa: ASYNC110 - every answer would wake it
            await asyncio.sleep(PAUSE_S / 4)


@asynccontextmanager
async def running_fleet(folder: Path, stores: Sequence[str], rng: Random) -> AsyncIterator[Fleet]:
    fleet = Fleet(folder, stores, rng)
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.close()
