"""What callers are told when something fails: one table for gRPC, HTTP, metrics and spans."""

import logging
from asyncio import CancelledError
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.errors import InvalidRequestError, PenstockError, RequestError, StoreError

LOG: Final = logging.getLogger(__name__)


class Code(IntEnum):
    """The status codes of gRPC that this server answers with."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class CallError(PenstockError):
    """A method's own answer to a call: a code, and what to tell the caller."""

    def __init__(self, code: Code, text: str = "") -> None:
        super().__init__(text)
        self.code = code


class Failure(NamedTuple):
    grpc: Code
    http: int
    metric: str
    """The word that metrics and spans have for it."""


# The first that fits counts.
_FAILURES: Final[tuple[tuple[type[BaseException], Failure], ...]] = (
    (InvalidRequestError, Failure(Code.INVALID_ARGUMENT, 400, "service_error")),
    # The reference server's code for these.
    (RequestError, Failure(Code.UNKNOWN, 400, "service_error")),
    (StoreError, Failure(Code.UNAVAILABLE, 503, "store_error")),
    (CancelledError, Failure(Code.CANCELLED, 503, "cancelled")),
    (BaseException, Failure(Code.INTERNAL, 500, "internal_error")),
)


def failure_of(error: BaseException) -> Failure:
    return next(failure for kind, failure in _FAILURES if isinstance(error, kind))


def text_for_caller(error: BaseException) -> str:
    """What the caller may know. The log has the rest: see `tell_log`."""
    if isinstance(error, StoreError):
        return error.for_caller
    if isinstance(error, RequestError | CallError):
        return str(error)
    return "a fault of this server; its log has more"


def tell_log(error: BaseException, answer: str) -> None:
    """Log what the operator has to know: `answer` is what the caller gets, such as UNAVAILABLE."""
    if isinstance(error, StoreError):
        LOG.warning("answering %s: %s", answer, error)
    elif not isinstance(error, RequestError | CallError | CancelledError):
        LOG.error("answering %s: a fault of this server", answer, exc_info=error)


class Status(NamedTuple):
    """How a call over gRPC ends."""

    code: Code
    text: str = ""


def status_of(error: BaseException) -> Status:
    """The gRPC status for an error, which is logged if the operator has to know of it."""
    code = error.code if isinstance(error, CallError) else failure_of(error).grpc
    tell_log(error, code.name)
    return Status(code, text_for_caller(error))
