"""Decisions by workers, for requests that come to the parent over HTTP."""

from collections.abc import Sequence
from itertools import count

from penstock.errors import StoreError
from penstock.workers.channel import ChannelError
from penstock.workers.orders import Question, read_answer
from penstock.workers.slot import Slot, usable


class WorkerGoneError(StoreError):
    """The worker that should decide has ended, or does not answer."""

    @property
    def for_caller(self) -> str:
        return "the worker that should decide has gone; ask again"


class RemoteService:
    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._turns = count()

    async def should_rate_limit(
        self, request: bytes, timeout_s: float | None = None, *, method: str = ""
    ) -> bytes:
        """Have the next worker decide. Raises what it would have raised here."""
        question = Question(request, timeout_s, method)
        try:
            body = await self._next_slot().ask("decide", question.write(), timeout_s)
        except ChannelError as exc:
            # Not asked again: what was asked for may have been taken already.
            raise WorkerGoneError(str(exc)) from exc
        return read_answer(body)

    def _next_slot(self) -> Slot:
        """Each worker in turn."""
        slots = usable(self._slots)
        if not slots:
            raise ChannelError("no worker runs")
        return slots[next(self._turns) % len(slots)]
