"""Decisions by workers, for requests that come to the parent over HTTP."""

from collections.abc import Sequence

from penstock.errors import StoreError
from penstock.workers.channel import ChannelError
from penstock.workers.orders import Question, read_answer
from penstock.workers.slot import Slot


class WorkerGoneError(StoreError):
    """The worker that should decide has ended, or does not answer."""

    @property
    def for_caller(self) -> str:
        return "the worker that should decide has gone; ask again"


class RemoteService:
    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = slots
        self._turn = 0

    async def should_rate_limit(
        self, request: bytes, timeout_s: float | None = None, *, method: str = ""
    ) -> bytes:
        """Have the next worker decide. Raises what it would have raised here."""
        question = Question(request, timeout_s, method)
        try:
            body = await self._next().ask("decide", question.write(), timeout_s)
        except ChannelError as exc:
            # Not asked again: what was asked for may have been taken already.
            raise WorkerGoneError(str(exc)) from exc
        return read_answer(body)

    def _next(self) -> Slot:
        """Each worker in turn, but none that does not serve if another does."""
        for _ in self._slots:
            self._turn = (self._turn + 1) % len(self._slots)
            if self._slots[self._turn].is_well:
                break
        return self._slots[self._turn]
