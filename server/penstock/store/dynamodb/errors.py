"""What AWS says when it does not do as asked: each code in one table, translated once."""

from enum import Enum
from typing import Any, Final, NamedTuple

from aiohttp import ClientConnectorError
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
)

from penstock.core.foreign_text import show
from penstock.errors import StoreError


class Fault(Enum):
    """What a failure means for the write, and for the next one."""

    CONDITION = "condition"  # the condition did not hold: an answer, not a failure
    CANCELLED = "cancelled"  # a transaction, for the reasons that come with it
    CONFLICT = "conflict"  # another write held the item: nothing happened, try again
    THROTTLED = "throttled"  # nothing happened; to try again at once would make it worse
    UNREACHABLE = "unreachable"  # never sent: nothing happened
    UNKNOWN = "unknown"  # sent, and no answer: it may have happened
    PERMANENT = "permanent"  # nothing happened, nor will it until somebody mends something


CODES: Final = {
    "ConditionalCheckFailedException": Fault.CONDITION,
    "TransactionCanceledException": Fault.CANCELLED,
    "TransactionConflictException": Fault.CONFLICT,
    "ReplicatedWriteConflictException": Fault.CONFLICT,
    "ProvisionedThroughputExceededException": Fault.THROTTLED,
    "RequestLimitExceeded": Fault.THROTTLED,
    "ThrottlingException": Fault.THROTTLED,
    "Throttling": Fault.THROTTLED,
    "LimitExceededException": Fault.THROTTLED,
    # The same transaction, sent before: it may yet happen.
    "TransactionInProgressException": Fault.UNKNOWN,
    "InternalServerError": Fault.UNKNOWN,
    "InternalFailure": Fault.UNKNOWN,
    "ServiceUnavailable": Fault.UNKNOWN,
    "ServiceUnavailableException": Fault.UNKNOWN,
}
"""Every other code of a 5xx is UNKNOWN, and of a 4xx PERMANENT."""

REASONS: Final = {
    "None": None,
    "ConditionalCheckFailed": Fault.CONDITION,
    "TransactionConflict": Fault.CONFLICT,
    "ThrottlingError": Fault.THROTTLED,
    "ProvisionedThroughputExceeded": Fault.THROTTLED,
}
"""Why a transaction was cancelled, for each of its items. Others are PERMANENT."""

HELP: Final = {
    "ResourceNotFoundException": "create the table with `penstock table create`",
    "AccessDeniedException": "allow it in the policy of the credentials in use",
    "UnrecognizedClientException": "check the credentials and the region",
    "InvalidSignatureException": "check the secret key, and this machine's clock",
    "ExpiredTokenException": "renew the credentials",
}


MAX_SAID: Final = 1_000
"""Characters of what AWS says. A denied access takes 300, with all its names."""


class Failure(NamedTuple):
    fault: Fault
    message: str
    response: dict[str, Any]


class DynamoError(StoreError):
    """AWS could not do it, and why."""

    def __init__(self, failure: Failure) -> None:
        transient = failure.fault is not Fault.PERMANENT
        super().__init__(failure.message, transient=transient, kind=failure.fault.value)
        self.fault = failure.fault


def explain(exc: Exception) -> Failure:
    """Tell what a failed call means."""
    if isinstance(exc, ClientError):
        return _explain_answer(exc)
    if isinstance(exc, TimeoutError):
        return Failure(Fault.UNKNOWN, "DynamoDB did not answer in time", {})
    if isinstance(exc, NoCredentialsError | PartialCredentialsError):
        return Failure(Fault.PERMANENT, f"no AWS credentials: {_said(exc)}", {})
    if isinstance(exc, CredentialRetrievalError):
        # The service that hands them out may be back in a moment.
        return Failure(Fault.UNREACHABLE, f"AWS credentials can't be had: {_said(exc)}", {})
    if _never_sent(exc):
        return Failure(Fault.UNREACHABLE, f"DynamoDB can't be reached: {_said(exc)}", {})
    if isinstance(exc, HTTPClientError | EndpointConnectionError):
        return Failure(Fault.UNKNOWN, f"the connection to DynamoDB broke: {_said(exc)}", {})
    if isinstance(exc, BotoCoreError):
        return Failure(Fault.PERMANENT, f"the AWS SDK gave up: {_said(exc)}", {})
    return Failure(
        Fault.UNKNOWN, f"DynamoDB's answer can't be read: {show(repr(exc), MAX_SAID)}", {}
    )


def _said(exc: Exception) -> str:
    """What AWS or its SDK says, for the log.

    Only its first line: below, a refused signature has what was signed, session token and all.
    """
    return show(str(exc).partition("\n")[0], MAX_SAID)


def _never_sent(exc: Exception) -> bool:
    if isinstance(exc, ConnectTimeoutError | ProxyConnectionError | SSLError):
        return True
    # The SDK's error is the same for a connection that never stood and one that broke.
    return isinstance(exc, EndpointConnectionError) and isinstance(
        exc.kwargs.get("error"), ClientConnectorError
    )


def _explain_answer(exc: ClientError) -> Failure:
    response: dict[str, Any] = exc.response
    code = response.get("Error", {}).get("Code", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    fault = CODES.get(code, Fault.UNKNOWN if status >= 500 else Fault.PERMANENT)
    if fault is Fault.CANCELLED and (failure := _unmendable(response)):
        return failure
    message = f"DynamoDB: {_said(exc)}"
    if code in HELP:
        message += f"; {HELP[code]}"
    return Failure(fault, message, response)


def _unmendable(cancelled: dict[str, Any]) -> Failure | None:
    """Why a transaction was cancelled, if that is no matter of what the items hold."""
    for reason in cancelled.get("CancellationReasons", ()):
        fault = REASONS.get(reason["Code"], Fault.PERMANENT)
        if fault in {Fault.THROTTLED, Fault.PERMANENT}:
            said = show(f"{reason['Code']} {reason.get('Message', '')}", MAX_SAID)
            return Failure(fault, f"DynamoDB cancelled a transaction: {said}", {})
    return None
