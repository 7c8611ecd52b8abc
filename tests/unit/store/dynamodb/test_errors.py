"""What each failure of AWS means: for the write, and for whether to try again."""

from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientOSError
from aiohttp.client_reqrep import ConnectionKey
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
    SSLError,
    UnknownServiceError,
)
from penstock.core.foreign_text import is_plain
from penstock.store.dynamodb.aws.errors import (
    CODES,
    HELP,
    MAX_SAID,
    DynamoError,
    Failure,
    Fault,
)
from penstock.store.dynamodb.aws.sdk import explain

URL = "http://dynamodb"
PEER = ConnectionKey(
    host="dynamodb",
    port=443,
    is_ssl=False,
    ssl=True,
    proxy=None,
    proxy_auth=None,
    proxy_headers_hash=None,
)
REFUSED = ClientConnectorError(PEER, ConnectionRefusedError(111, "refused"))
RESET = ClientOSError(104, "reset by peer")

# Not read from the product's own table: a code that changes its meaning must show here.
ANSWERS: dict[str, Fault] = {
    "ConditionalCheckFailedException": Fault.CONDITION,
    "TransactionCanceledException": Fault.CANCELLED,
    "TransactionConflictException": Fault.CONFLICT,
    "TransactionInProgressException": Fault.UNKNOWN,
    "ReplicatedWriteConflictException": Fault.CONFLICT,
    "ProvisionedThroughputExceededException": Fault.THROTTLED,
    "RequestLimitExceeded": Fault.THROTTLED,
    "ThrottlingException": Fault.THROTTLED,
    "Throttling": Fault.THROTTLED,
    "LimitExceededException": Fault.THROTTLED,
    "InternalServerError": Fault.UNKNOWN,
    "InternalFailure": Fault.UNKNOWN,
    "ServiceUnavailable": Fault.UNKNOWN,
    "ServiceUnavailableException": Fault.UNKNOWN,
}

OTHER_ANSWERS = [
    (400, "ValidationException", Fault.PERMANENT),
    (400, "ResourceNotFoundException", Fault.PERMANENT),
    (400, "AccessDeniedException", Fault.PERMANENT),
    (400, "ExpiredTokenException", Fault.PERMANENT),
    (400, "IdempotentParameterMismatchException", Fault.PERMANENT),
    (400, "", Fault.PERMANENT),
    (413, "413", Fault.PERMANENT),
    (500, "SomethingNew", Fault.UNKNOWN),
    (502, "502", Fault.UNKNOWN),
    (503, "", Fault.UNKNOWN),
    (504, "GatewayTimeout", Fault.UNKNOWN),
]

NO_ANSWERS: dict[str, tuple[Exception, Fault]] = {
    "nobody gave credentials": (NoCredentialsError(), Fault.PERMANENT),
    "half of the credentials": (
        PartialCredentialsError(provider="env", cred_var="secret"),
        Fault.PERMANENT,
    ),
    "credentials not to be had now": (
        CredentialRetrievalError(provider="imds", error_msg="timed out"),
        Fault.UNREACHABLE,
    ),
    "no connection in time": (ConnectTimeoutError(endpoint_url=URL), Fault.UNREACHABLE),
    "no way through a proxy": (
        ProxyConnectionError(proxy_url=URL, error=REFUSED),
        Fault.UNREACHABLE,
    ),
    "no TLS": (SSLError(endpoint_url=URL, error=REFUSED), Fault.UNREACHABLE),
    "connection refused": (
        EndpointConnectionError(endpoint_url=URL, error=REFUSED),
        Fault.UNREACHABLE,
    ),
    "connection reset on the way": (
        EndpointConnectionError(endpoint_url=URL, error=RESET),
        Fault.UNKNOWN,
    ),
    "connection error of no known cause": (
        EndpointConnectionError(endpoint_url=URL),
        Fault.UNKNOWN,
    ),
    "no answer in time": (ReadTimeoutError(endpoint_url=URL), Fault.UNKNOWN),
    "connection closed": (ConnectionClosedError(endpoint_url=URL), Fault.UNKNOWN),
    "broken HTTP": (HTTPClientError(error=ValueError("chunk")), Fault.UNKNOWN),
    "no answer within the call's bound": (TimeoutError(), Fault.UNKNOWN),
    "the SDK can't": (
        UnknownServiceError(service_name="dynamo", known_service_names=""),
        Fault.PERMANENT,
    ),
    "garbage": (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), Fault.UNKNOWN),
    "an answer without its fields": (KeyError("Attributes"), Fault.UNKNOWN),
}

TRANSIENT = {fault: fault is not Fault.PERMANENT for fault in Fault}


def answered(code: str, status: int = 400, **fields: Any) -> ClientError:
    """An error that DynamoDB sent, as the SDK raises it."""
    response = {
        "Error": {"Code": code, "Message": HTTPStatus(status).phrase},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **fields,
    }
    return ClientError(response, "UpdateItem")


def test_every_code_of_the_table_is_tried() -> None:
    """A code that is added has to say here what it means."""
    assert CODES == ANSWERS


@pytest.mark.parametrize(("code", "fault"), ANSWERS.items())
@pytest.mark.parametrize("status", [400, 500])
def test_a_known_code_means_the_same_under_any_status(code: str, status: int, fault: Fault) -> None:
    """The code is more exact than the status."""
    assert explain(answered(code, status)).fault is fault


@pytest.mark.parametrize(("status", "code", "fault"), OTHER_ANSWERS)
def test_an_unknown_code_goes_by_its_status(status: int, code: str, fault: Fault) -> None:
    """A 4xx was refused, and of a 5xx nobody knows whether it happened."""
    assert explain(answered(code, status)).fault is fault


def test_an_error_without_code_or_status_is_refused_for_good() -> None:
    """The SDK makes such errors itself, before anything is sent."""
    assert explain(ClientError({}, "UpdateItem")).fault is Fault.PERMANENT


@pytest.mark.parametrize(("exc", "fault"), NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_without_an_answer_it_counts_whether_the_request_was_sent(
    exc: Exception, fault: Fault
) -> None:
    """Never sent: nothing happened. Sent, or perhaps sent: it may have happened."""
    assert explain(exc).fault is fault


@pytest.mark.parametrize(("fault", "transient"), TRANSIENT.items())
def test_only_a_permanent_fault_is_not_transient(fault: Fault, transient: bool) -> None:
    """And the error carries the fault and the words for its reader."""
    error = DynamoError(Failure(fault, "why", {}))
    assert (error.transient, error.fault, str(error)) == (transient, fault, "why")


def test_the_answer_comes_along() -> None:
    """The image of a refused item and the reasons of a transaction are in it."""
    item = {"PK": {"S": "ENTITY#x"}}
    failure = explain(answered("ConditionalCheckFailedException", Item=item))
    assert failure.response["Item"] == item


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("ResourceNotFoundException", "create the table with `penstock table create`"),
        ("AccessDeniedException", "policy of the credentials"),
        ("UnrecognizedClientException", "check the credentials and the region"),
        ("InvalidSignatureException", "this machine's clock"),
        ("ExpiredTokenException", "renew the credentials"),
    ],
)
def test_a_message_says_what_the_operator_can_do(code: str, text: str) -> None:
    """Together with AWS's own words, which name the right or the resource."""
    message = explain(answered(code)).message
    assert message.endswith(HELP[code])
    assert text in message
    assert code in message


def test_messages_without_an_answer_name_their_cause() -> None:
    """Those who read them have nothing else to go by."""
    refused = explain(NO_ANSWERS["connection refused"][0]).message
    assert refused.startswith("DynamoDB can't be reached: ")
    assert URL in refused
    assert "no AWS credentials" in explain(NoCredentialsError()).message
    assert "in time" in explain(TimeoutError()).message
    assert "KeyError('Attributes')" in explain(KeyError("Attributes")).message


def test_what_aws_says_is_shown_escaped_and_cut() -> None:
    """A proxy may stand in its place, and say anything."""
    hostile = "\x1b[2J\u202e" + "x" * 100_000
    codes = [{"Code": hostile, "Message": hostile}]
    for exc in (
        answered(hostile),
        answered("TransactionCanceledException", CancellationReasons=codes),
        EndpointConnectionError(endpoint_url="http://x", error=hostile),
        HTTPClientError(error=hostile),
        ValueError(hostile),
    ):
        message = explain(exc).message
        assert is_plain(message)
        assert len(message) < 2 * MAX_SAID


def test_a_caller_is_told_the_kind_alone() -> None:
    """In the word that the metric has for it."""
    error = DynamoError(explain(answered("AccessDeniedException")))
    assert error.for_caller == "the store did not answer (permanent); the server's log has more"
