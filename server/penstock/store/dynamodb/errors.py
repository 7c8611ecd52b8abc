"""Translates the errors of AWS: one table says what each error code means for us."""

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
    """What a failure means: whether the write happened, and whether to retry."""

    CONDITION = "condition"  # the condition did not hold: an answer, not a failure
    CANCELLED = "cancelled"  # a transaction was cancelled, for the reasons in the response
    CONFLICT = "conflict"  # another write held the item: nothing happened, try again
    THROTTLED = "throttled"  # nothing happened; an immediate retry would make it worse
    UNREACHABLE = "unreachable"  # the call was never sent: nothing happened
    UNKNOWN = "unknown"  # the call was sent, and got no answer: it may have happened
    PERMANENT = "permanent"  # nothing happened, and a retry won't help: the operator must act


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
    # An earlier request with the same transaction is still under way.
    "TransactionInProgressException": Fault.UNKNOWN,
    "InternalServerError": Fault.UNKNOWN,
    "InternalFailure": Fault.UNKNOWN,
    "ServiceUnavailable": Fault.UNKNOWN,
    "ServiceUnavailableException": Fault.UNKNOWN,
}
"""Any other code is UNKNOWN with a status of 5xx, and PERMANENT with 4xx."""

REASONS: Final = {
    "None": None,
    "ConditionalCheckFailed": Fault.CONDITION,
    "TransactionConflict": Fault.CONFLICT,
    "ThrottlingError": Fault.THROTTLED,
    "ProvisionedThroughputExceeded": Fault.THROTTLED,
}
"""Why a transaction was cancelled, for each of its items. Any other reason is PERMANENT."""

HELP: Final = {
    "ResourceNotFoundException": "create the table with `penstock table create`",
    "AccessDeniedException": "allow it in the policy of the credentials in use",
    "UnrecognizedClientException": "check the credentials and the region",
    "InvalidSignatureException": "check the secret key, and this machine's clock",
    "ExpiredTokenException": "renew the credentials",
}


MAX_SAID: Final = 1_000
"""Characters of a message of AWS. A denied access takes 300, with all its names."""


class Failure(NamedTuple):
    fault: Fault
    message: str
    response: dict[str, Any]


class DynamoError(StoreError):
    """A call to AWS failed. `fault` says what the failure means."""

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
        # The service that hands out credentials may be back in a moment.
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
    """The message of AWS or of its SDK, for the log.

    Only the first line: when AWS refuses a signature, the lines below show the signed text, with
    the session token.
    """
    return show(str(exc).partition("\n")[0], MAX_SAID)


def _never_sent(exc: Exception) -> bool:
    if isinstance(exc, ConnectTimeoutError | ProxyConnectionError | SSLError):
        return True
    # The SDK raises the same error for a failed connect and for a connection that broke later.
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
    """The failure, if a transaction was not cancelled by a condition or a conflict."""
    for reason in cancelled.get("CancellationReasons", ()):
        fault = REASONS.get(reason["Code"], Fault.PERMANENT)
        if fault in {Fault.THROTTLED, Fault.PERMANENT}:
            said = show(f"{reason['Code']} {reason.get('Message', '')}", MAX_SAID)
            return Failure(fault, f"DynamoDB cancelled a transaction: {said}", {})
    return None
