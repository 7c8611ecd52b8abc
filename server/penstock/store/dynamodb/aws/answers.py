"""What an HTTP answer of DynamoDB says: the response or the Failure, as the SDK would tell it.

Never awaits. A body is believed only if its checksum is right.
"""

import json
from binascii import crc32
from typing import Any

from penstock.core.foreign_text import show
from penstock.store.dynamodb.aws.client import Response
from penstock.store.dynamodb.aws.errors import MAX_SAID, Failure, Fault, explain_answer
from penstock.store.dynamodb.aws.http_connection import HttpAnswer


def read_answer(operation: str, answer: HttpAnswer) -> Response | Failure:
    status, headers, body = answer
    checksum = headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(crc32(body)):
        return _unreadable(f"its checksum is not {checksum}")
    is_success = 200 <= status < 300
    try:
        content = json.loads(body.decode()) if body else {}
    except (ValueError, RecursionError) as exc:
        if is_success:
            return _unreadable(repr(exc))
        # A proxy or a load balancer has answered, in words of its own.
        content = {"message": body.decode(errors="replace")}
    if not isinstance(content, dict):
        return _unreadable("it is not an object")
    content["ResponseMetadata"] = {
        "RequestId": headers.get("x-amzn-requestid", ""),
        "HTTPStatusCode": status,
        "HTTPHeaders": headers,
    }
    return content if is_success else _explain(operation, status, content)


def _explain(operation: str, status: int, content: dict[str, Any]) -> Failure:
    # Such as com.amazonaws.dynamodb.v20120810#ThrottlingException, or with a URL behind a colon.
    code = str(content.get("__type", status)).partition(":")[0].rpartition("#")[2]
    message = str(content.get("message") or content.get("Message") or "")
    content["Error"] = {"Code": code, "Message": message}
    said = f"An error occurred ({code}) when calling the {operation} operation: {message}"
    return explain_answer(content, said)


def _unreadable(why: str) -> Failure:
    """The call may have happened, for all that we know."""
    return Failure(Fault.UNKNOWN, f"DynamoDB's answer can't be read: {show(why, MAX_SAID)}", {})
