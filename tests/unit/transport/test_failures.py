"""What callers and the log are told when something fails."""

import asyncio

import pytest
from penstock.errors import InvalidRequestError, OverloadError, RequestError, StoreError
from penstock.transport.failures import CallError, Code, failure_of, status_of

FAULT = "a fault of this server; its log has more"


@pytest.mark.parametrize(
    ("error", "code", "http", "metric", "text"),
    [
        (InvalidRequestError("bad"), Code.INVALID_ARGUMENT, 400, "service_error", "bad"),
        (RequestError("no domain"), Code.UNKNOWN, 400, "service_error", "no domain"),
        (
            StoreError("/secret/path is gone", kind="lost"),
            Code.UNAVAILABLE,
            503,
            "store_error",
            "the store did not answer (lost); the server's log has more",
        ),
        (OverloadError("too many"), Code.UNAVAILABLE, 503, "store_error", "too many"),
        (asyncio.CancelledError(), Code.CANCELLED, 503, "cancelled", FAULT),
        (RuntimeError("hunter2"), Code.INTERNAL, 500, "internal_error", FAULT),
    ],
)
def test_each_error_has_its_codes_and_its_text(
    error: BaseException, code: Code, http: int, metric: str, text: str
) -> None:
    """The same for gRPC, HTTP, metrics and spans; secrets stay in the log."""
    assert failure_of(error) == (code, http, metric)
    assert status_of(error) == (code, text)


def test_a_method_chooses_the_code_of_its_own_errors() -> None:
    """As health checking does for a service that it does not know."""
    assert status_of(CallError(Code.NOT_FOUND, "which?")) == (Code.NOT_FOUND, "which?")


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (StoreError("the disk is full"), "answering UNAVAILABLE: the disk is full"),
        (RuntimeError("hunter2"), "answering INTERNAL: a fault of this server"),
        (RequestError("no domain"), ""),
        (CallError(Code.NOT_FOUND), ""),
    ],
)
def test_the_log_is_told_what_the_operator_can_mend(
    error: Exception, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Mistakes of callers are their own to mend: a log that they fill helps nobody."""
    status_of(error)
    assert caplog.messages == ([logged] if logged else [])
