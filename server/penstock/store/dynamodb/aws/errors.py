"""What the errors of AWS mean for us: one table for all clients. Never awaits."""

from enum import Enum
from typing import Any, Final, NamedTuple

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
    """A call that did not do what it should, as a value: a failed condition is part of the work."""

    fault: Fault
    message: str
    response: dict[str, Any]
    """What DynamoDB answered. Empty if there was no answer."""


class DynamoError(StoreError):
    """A call to AWS failed. `fault` says what the failure means."""

    def __init__(self, failure: Failure) -> None:
        transient = failure.fault is not Fault.PERMANENT
        super().__init__(failure.message, transient=transient, kind=failure.fault.value)
        self.fault = failure.fault


NOT_IN_TIME: Final = Failure(Fault.UNKNOWN, "DynamoDB did not answer in time", {})


def explain_answer(response: dict[str, Any], said: str) -> Failure:
    """Tell what an error that DynamoDB answered means.

    The response has the code under `Error`, `Code`, and the status under `ResponseMetadata`,
    `HTTPStatusCode`. `said` is the message for the log.
    """
    code = response.get("Error", {}).get("Code", "")
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    fault = CODES.get(code, Fault.UNKNOWN if status >= 500 else Fault.PERMANENT)
    if fault is Fault.CANCELLED and (failure := _unmendable(response)):
        return failure
    message = f"DynamoDB: {first_line(said)}"
    if code in HELP:
        message += f"; {HELP[code]}"
    return Failure(fault, message, response)


def first_line(said: str) -> str:
    """The message of AWS or of its SDK, for the log.

    Only the first line: when AWS refuses a signature, the lines below show the signed text, with
    the session token.
    """
    return show(said.partition("\n")[0], MAX_SAID)


def _unmendable(cancelled: dict[str, Any]) -> Failure | None:
    """The failure, if a transaction was not cancelled by a condition or a conflict."""
    for reason in cancelled.get("CancellationReasons", ()):
        fault = REASONS.get(reason["Code"], Fault.PERMANENT)
        if fault in {Fault.THROTTLED, Fault.PERMANENT}:
            said = show(f"{reason['Code']} {reason.get('Message', '')}", MAX_SAID)
            return Failure(fault, f"DynamoDB cancelled a transaction: {said}", cancelled)
    return None
