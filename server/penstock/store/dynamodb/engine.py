"""Awaits AWS: sends writes and reads, and tells how they went. Decides nothing."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from penstock.core.take import Key
from penstock.store.dynamodb.circuit import Circuit
from penstock.store.dynamodb.errors import REASONS, DynamoError, Failure, Fault, explain
from penstock.store.dynamodb.expressions import write_parameters
from penstock.store.dynamodb.images import Attributes, Image, parse_image
from penstock.store.dynamodb.keys import Primary, bucket_key, primary_of
from penstock.store.dynamodb.location import CALL_S
from penstock.store.dynamodb.tally import Tally
from penstock.store.dynamodb.writes import Create, Path, Write

LOG: Final = logging.getLogger(__name__)

TRIES: Final = 3
"""For what may be sent again without harm: a read, or a transaction with the same token."""

READ_AT_ONCE: Final = 100
"""What DynamoDB takes in one batch."""


class Landed(NamedTuple):
    image: Image | None
    """The item afterwards; a transaction does not show it."""


class Lost(NamedTuple):
    """A condition did not hold. What was there instead, for each write that failed."""

    images: Mapping[Key, Image | None]


class Conflict(NamedTuple):
    """Another write held an item. Nothing is known of it, and nothing happened."""


Outcome = Landed | Lost | Conflict


def pauses(most_s: float = 0.2) -> Iterator[float]:
    """How long to wait before each new try: random, so that rivals do not meet again."""
    longest = 0.005
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - spreads load, keeps no secret
        longest = min(2 * longest, most_s)


class Engine:
    def __init__(
        self, client: Any, table: str, timer_s: Callable[[], float], call_s: float = CALL_S
    ) -> None:
        self._client = client
        self.table = table
        self._timer_s = timer_s
        self._call_s = call_s
        self._circuit = Circuit()
        self.tally = Tally()

    async def write(self, writes: Sequence[Write]) -> Outcome:
        """Make one write, or several as one transaction. DynamoError if AWS could not do it."""
        path = writes[0].path if len(writes) == 1 else Path.CASCADE
        count = self.tally.writes
        try:
            outcome = await (self._one(writes[0]) if len(writes) == 1 else self._transact(writes))
        except BaseException:
            count[path, "failed"] += 1
            raise
        if isinstance(outcome, Landed):
            count[path, "landed"] += 1
        else:
            count[path, "lost" if isinstance(outcome, Lost) else "conflict"] += 1
        return outcome

    async def read(self, keys: Sequence[Key]) -> dict[Key, Image | None]:
        """Read buckets as they are now."""
        found = await self.read_items([bucket_key(key) for key in keys])
        self.tally.reads += len(keys)
        items = {key: found.get(bucket_key(key)) for key in keys}
        return {key: None if item is None else parse_image(item) for key, item in items.items()}

    async def read_items(self, keys: Sequence[Primary]) -> dict[Primary, Attributes]:
        """Read items of any kind as they are now; those that are not there are left out."""
        found: dict[Primary, Attributes] = {}
        keys = list(dict.fromkeys(keys))
        for first in range(0, len(keys), READ_AT_ONCE):
            found |= await self._read(keys[first : first + READ_AT_ONCE])
        return found

    async def _read(self, keys: Sequence[Primary]) -> dict[Primary, Attributes]:
        found: dict[Primary, Attributes] = {}
        wanted: Any = [key.attributes for key in keys]
        for pause_s, _ in zip(pauses(), range(TRIES), strict=False):
            answer = await self.call(
                "batch_get_item",
                RequestItems={self.table: {"Keys": wanted, "ConsistentRead": True}},
            )
            for attributes in answer["Responses"].get(self.table, ()):
                found[primary_of(attributes)] = attributes
            wanted = answer.get("UnprocessedKeys", {}).get(self.table, {}).get("Keys")
            if not wanted:
                return found
            await asyncio.sleep(pause_s)
        raise DynamoError(Failure(Fault.THROTTLED, "DynamoDB left a read unprocessed", {}))

    async def call(self, operation: str, **parameters: Any) -> Any:
        """Make a call that may be sent again without harm. DynamoError if AWS could not do it."""
        pause = pauses()
        for _ in range(TRIES - 1):
            answer = await self._call(operation, **parameters)
            if not isinstance(answer, Failure) or answer.fault is not Fault.UNKNOWN:
                break
            await asyncio.sleep(next(pause))
        else:
            answer = await self._call(operation, **parameters)
        if isinstance(answer, Failure):
            raise DynamoError(answer)
        return answer

    async def transact(self, actions: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
        """Do all or nothing, once; false if a condition did not hold, or another write was faster.

        An action is its kind, such as Put, and its parameters.
        """
        items = [{kind: {"TableName": self.table, **action}} for kind, action in actions]
        answer = await self._send(items)
        if not isinstance(answer, Failure):
            return True
        if answer.fault is Fault.CANCELLED:
            _faults_of(answer)
        elif answer.fault is not Fault.CONFLICT:
            raise DynamoError(answer)
        return False

    async def _one(self, write: Write) -> Outcome:
        parameters = write_parameters(write, self.table)
        if isinstance(write, Create):
            answer = await self._call("put_item", **parameters)
        else:
            answer = await self._call("update_item", ReturnValues="ALL_NEW", **parameters)
        if not isinstance(answer, Failure):
            if isinstance(write, Create):
                return Landed(write.image)
            return Landed(parse_image(answer["Attributes"]))
        if answer.fault is Fault.CONDITION:
            return Lost({write.key: _image(answer.response)})
        if answer.fault is Fault.CONFLICT:
            return Conflict()
        raise DynamoError(answer)

    async def _transact(self, writes: Sequence[Write]) -> Outcome:
        items = []
        for write in writes:
            kind = "Put" if isinstance(write, Create) else "Update"
            items.append({kind: write_parameters(write, self.table)})
        answer = await self._send(items)
        if not isinstance(answer, Failure):
            return Landed(None)
        if answer.fault is Fault.CANCELLED:
            return _read_reasons(writes, answer)
        if answer.fault is Fault.CONFLICT:
            return Conflict()
        raise DynamoError(answer)

    async def _send(self, items: Sequence[Mapping[str, Any]]) -> Any:
        # The token makes it safe to ask again when no answer came: it happens once.
        request = {"TransactItems": items, "ClientRequestToken": uuid4().hex}
        answer = await self._call("transact_write_items", **request)
        if isinstance(answer, Failure) and answer.fault is Fault.UNKNOWN:
            return await self._transact_again(request, answer)
        return answer

    async def _transact_again(self, request: Mapping[str, Any], unanswered: Failure) -> Any:
        """Ask again what got no answer. Only that it happened is certain, whatever else is said:
        what was sent first may still be on its way."""
        start_s = self._timer_s()
        for pause_s, _ in zip(pauses(), range(TRIES - 1), strict=False):
            await asyncio.sleep(pause_s)
            # Its conditions go by the time at which it was made.
            if self._timer_s() - start_s > self._call_s:
                break
            answer = await self._call("transact_write_items", **request)
            if not isinstance(answer, Failure):
                return answer
        return unanswered

    async def _call(self, operation: str, **parameters: Any) -> Any:
        """The answer, or the Failure."""
        if not self._circuit.admits(self._timer_s()):
            return Failure(Fault.UNREACHABLE, "DynamoDB fails; not asked again for a moment", {})
        try:
            async with asyncio.timeout(self._call_s):
                answer = await getattr(self._client, operation)(**parameters)
        except Exception as exc:
            # Whatever it is, a write may have happened: `explain` tells.
            LOG.debug("%s failed", operation, exc_info=True)
            failure = explain(exc)
            if failure.fault in {Fault.UNREACHABLE, Fault.UNKNOWN}:
                self._circuit.failed(self._timer_s())
            else:
                self._circuit.succeeded()
            return failure
        self._circuit.succeeded()
        return answer


def _image(response: Mapping[str, Any]) -> Image | None:
    attributes = response.get("Item")
    return parse_image(attributes) if attributes else None


def _read_reasons(writes: Sequence[Write], failure: Failure) -> Outcome:
    """Read the reason of every item: a conflict is no refusal, and one refusal is not all."""
    reasons = failure.response.get("CancellationReasons", ())
    images = {
        write.key: _image(reason)
        for write, fault, reason in zip(writes, _faults_of(failure), reasons, strict=True)
        if fault is Fault.CONDITION
    }
    return Lost(images) if images else Conflict()


def _faults_of(cancelled: Failure) -> list[Fault | None]:
    """The fault of every item of a transaction. DynamoError if one can't be mended here."""
    reasons = cancelled.response.get("CancellationReasons", ())
    faults = [REASONS.get(reason["Code"], Fault.PERMANENT) for reason in reasons]
    for fault, reason in zip(faults, reasons, strict=True):
        if fault in {Fault.THROTTLED, Fault.PERMANENT}:
            text = f"DynamoDB cancelled a transaction: {reason['Code']} {reason.get('Message', '')}"
            raise DynamoError(Failure(fault, text, {}))
    return faults
