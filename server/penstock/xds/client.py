"""The client of an xDS server: one stream, whole states, an ACK or a NACK for each.

The law of this file: whatever the server sends, and however often the stream ends, the rules in
force change only to rules without errors.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar

from penstock.config.problems import RulesError
from penstock.config.read_apart import ReadingError
from penstock.config.watch import RETRY_S
from penstock.core.foreign_text import show
from penstock.telemetry.metrics import Metrics
from penstock.transport.ads import AdsError, AdsServer, AdsStream, open_stream
from penstock.transport.codec import (
    RULES_TYPE,
    Discovered,
    XdsNode,
    decode_discovered,
    encode_discovery,
)
from penstock.xds.pauses import Pauses
from penstock.xds.status import XdsStatus

LOG: Final = logging.getLogger(__name__)

REFUSED_AGAIN_S: Final = 1.0
"""Before the second NACK of the same resources. Some control planes answer a NACK with the same
resources at once, so without a pause both sides would do nothing else."""

READ_TRIES: Final = 3
"""Reading can fail because the machine has no memory or no processes left, which may pass. While
the client tries again, newer rules wait."""

ASK_AGAIN_S: Final = 60.0
"""After a NACK of rules that could not be read. Some control planes send a refused state again by
themselves. The others are asked for all rules on a new stream."""

SHORT_BYTES: Final = 64 * 1_024
"""To decode the envelope of a shorter response takes less than 1 ms."""

T = TypeVar("T")

Read = Callable[[bytes], Awaitable[T]]
"""Makes rules of a response. RulesError if they have errors, ReadingError if another try may help.
"""

Use = Callable[[T], Awaitable[None]]
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class RefusedResources:
    digest: bytes
    reason: str


class XdsClient(Generic[T]):
    def __init__(
        self,
        server: AdsServer,
        node: XdsNode,
        read: Read[T],
        pauses: Pauses,
        metrics: Metrics,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.status: Final = XdsStatus(server.address, node.id, metrics)
        self._server = server
        self._node = node
        self._read = read
        self._pauses = pauses
        self._metrics = metrics
        self._sleep = sleep
        self._version = ""
        """The last version that was accepted, of any stream."""
        self._in_force: bytes | None = None
        """The digest of the resources that were accepted last."""
        self._refused: RefusedResources | None = None

    async def follow(self, use: Use[T]) -> None:
        """Have all rules used that come without errors, for ever."""
        while True:
            await self._sleep(await self._follow_until_end(use))

    async def _follow_until_end(self, use: Use[T]) -> float:
        """Follow one stream to its end. Returns the pause before the next."""
        is_connected = False
        try:
            async with open_stream(self._server) as stream:
                is_connected = True
                self.status.note_connected(True)
                LOG.info("connected to the xDS server %s", self._server.address)
                await self._follow_stream(stream, use)
        except AdsError as exc:
            if is_connected:
                pause_s = self._pauses.after_ended_stream()
                text = "the stream from the xDS server %s ended, trying again in %.1f s: %s"
            else:
                pause_s = self._pauses.after_refused_connection()
                text = "the xDS server %s can't be reached, trying again in %.1f s: %s"
            LOG.warning(text, self._server.address, pause_s, exc)
            return pause_s
        finally:
            self.status.note_connected(False)

    async def _follow_stream(self, stream: AdsStream, use: Use[T]) -> NoReturn:
        # Without a version: a control plane that was restarted may count from 1 again, and would
        # take its version 3 for the version 3 that is in force here.
        await stream.send(encode_discovery(self._node, ""))
        ask_again_s: float | None = None
        while True:
            response = await _receive(stream, ask_again_s)
            try:
                discovered = await _decode(response)
            except ValueError as exc:
                raise AdsError(str(exc)) from exc
            self._pauses.reset()
            ask_again_s = None
            try:
                reason = await self._take_over(discovered, response, use)
            except ReadingError as exc:
                ask_again_s = ASK_AGAIN_S
                reason = f"the rules can't be read, which is no fault of the rules: {exc}"
                self._log_refusal(discovered, reason)
            del response  # else it stays in memory until the next response, maybe for days
            if reason:
                self.status.note_nack(discovered.version, reason)
            else:
                self._version = discovered.version
                self.status.note_ack(discovered.version)
            answer = encode_discovery(self._node, self._version, discovered.nonce, reason)
            await stream.send(answer)

    async def _take_over(self, discovered: Discovered, response: bytes, use: Use[T]) -> str:
        """Use the rules of a response. Returns the errors that they have, or nothing. ReadingError
        if the same rules may be read the next time.
        """
        if discovered.digest == self._in_force:
            self._refused = None
            return ""
        if self._refused is not None and self._refused.digest == discovered.digest:
            await self._sleep(REFUSED_AGAIN_S)
            return self._refused.reason
        if discovered.type_url != RULES_TYPE:
            return self._refuse(discovered, f"not {RULES_TYPE}, but '{show(discovered.type_url)}'")
        try:
            rules = await self._read_patiently(response)
        except RulesError as exc:
            return self._refuse(discovered, str(exc))
        LOG.info("rules of version %s have come over xDS", discovered.version)
        await use(rules)
        self._in_force, self._refused = discovered.digest, None
        return ""

    async def _read_patiently(self, response: bytes) -> T:
        for _ in range(READ_TRIES - 1):
            try:
                return await self._read(response)
            except ReadingError as exc:
                self._metrics.config_load_error.add()
                self.status.note_unread(str(exc))
                LOG.error(
                    "the rules from the xDS server can't be read, the last good rules stay in "
                    "force, trying again in %.0f s: %s", RETRY_S, exc,
                )  # fmt: skip
                await self._sleep(RETRY_S)
        return await self._read(response)

    def _refuse(self, discovered: Discovered, reason: str) -> str:
        self._refused = RefusedResources(discovered.digest, reason)
        self._log_refusal(discovered, reason)
        return reason

    def _log_refusal(self, discovered: Discovered, reason: str) -> None:
        self._metrics.config_load_error.add()
        LOG.error(
            "the rules of version %s from the xDS server can't be used, the last good rules stay "
            "in force:\n%s", discovered.version, reason,
        )  # fmt: skip


async def _receive(stream: AdsStream, ask_again_s: float | None) -> bytes:
    """The next response. AdsError if the stream has ended, or if it is time to ask again."""
    try:
        async with asyncio.timeout(ask_again_s):
            return await stream.receive()
    except TimeoutError as exc:
        raise AdsError("asking for rules again that could not be read") from exc


async def _decode(response: bytes) -> Discovered:
    """Long responses are decoded in a thread. Most of that time, the event loop runs."""
    if len(response) < SHORT_BYTES:
        return decode_discovered(response)
    return await asyncio.to_thread(decode_discovered, response)
