"""The calls of decisions without the SDK: a tenth of its CPU time. `client.py` has the laws.

One exception to "never retries": if AWS refuses the signature, because the keys were changed or
because a clock is wrong, nothing has happened. Then the call is signed anew, once.
"""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Final

from penstock.store.dynamodb.aws.answers import read_answer
from penstock.store.dynamodb.aws.client import AwsRequest, Response, json_of
from penstock.store.dynamodb.aws.credentials import CredentialCache
from penstock.store.dynamodb.aws.errors import Failure, Fault, first_line
from penstock.store.dynamodb.aws.http_connection import BrokenError
from penstock.store.dynamodb.aws.pool import NeverSentError, Pool
from penstock.store.dynamodb.aws.sdk import explain
from penstock.store.dynamodb.aws.signing import Keys, Signer, UnfitKeysError
from penstock.store.dynamodb.aws.skew import WARN_S, skew_s

TARGET: Final = "DynamoDB_20120810."

KEYS_REFUSED: Final = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
}
CLOCK_REFUSED: Final = {
    "InvalidSignatureException",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
}
"""A wrong secret has some of these codes, too. The date of the answer tells them apart."""


class LeanClient:
    def __init__(
        self,
        signer: Signer,
        credentials: CredentialCache,
        pool: Pool,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._signer = signer
        self._credentials = credentials
        self._pool = pool
        self._clock_s = clock_s
        self._offset_s = 0.0
        """What to add to this server's clock for the time that AWS believes."""

    async def update_item(self, request: AwsRequest) -> Response | Failure:
        return await self._call("UpdateItem", request)

    async def put_item(self, request: AwsRequest) -> Response | Failure:
        return await self._call("PutItem", request)

    async def get_item(self, request: AwsRequest) -> Response | Failure:
        return await self._call("GetItem", request)

    async def batch_get_item(self, request: AwsRequest) -> Response | Failure:
        return await self._call("BatchGetItem", request)

    async def transact_write_items(self, request: AwsRequest) -> Response | Failure:
        return await self._call("TransactWriteItems", request)

    async def _call(self, operation: str, request: AwsRequest) -> Response | Failure:
        body = json_of(request).encode()
        keys = self._credentials.at_hand() or await self._wait_for_keys()
        if isinstance(keys, Failure):
            return keys
        sent_s, offset_s = self._clock_s(), self._offset_s
        answer = await self._send(operation, body, keys, sent_s)
        if (
            not isinstance(answer, Failure)
            or answer.fault is not Fault.PERMANENT
            or not await self._can_sign_anew(answer, keys, sent_s, offset_s)
        ):
            return answer
        keys = self._credentials.at_hand() or keys
        return await self._send(operation, body, keys, self._clock_s())

    async def _wait_for_keys(self) -> Keys | Failure:
        try:
            return await self._credentials.wait()
        except Exception as exc:  # noqa: BLE001 - whatever a provider of credentials raises
            failure = explain(exc)
            if failure.fault is Fault.UNKNOWN:  # whatever failed, it was not this call
                return failure._replace(fault=Fault.UNREACHABLE)
            return failure

    async def _send(
        self, operation: str, body: bytes, keys: Keys, now_s: float
    ) -> Response | Failure:
        try:
            head = self._signer.head(keys, TARGET + operation, body, now_s + self._offset_s)
            answer = await self._pool.exchange(head + body)
        except UnfitKeysError as exc:
            return Failure(Fault.PERMANENT, str(exc), {})
        except NeverSentError as exc:
            said = first_line(f"{self._pool.address}: {exc}")
            return Failure(Fault.UNREACHABLE, f"DynamoDB can't be reached: {said}", {})
        except BrokenError as exc:
            said = first_line(f"{self._pool.address}: {exc}")
            return Failure(Fault.UNKNOWN, f"the connection to DynamoDB broke: {said}", {})
        return read_answer(operation, answer)

    async def _can_sign_anew(
        self, refusal: Failure, keys: Keys, sent_s: float, offset_s: float
    ) -> bool:
        """Whether AWS refused the signature, and the next one will be another.

        The keys, the time and the offset are those of the refused signature: other calls may have
        changed them meanwhile.
        """
        code = refusal.response.get("Error", {}).get("Code")
        if code in KEYS_REFUSED:
            return await self._credentials.replace(keys)
        return code in CLOCK_REFUSED and self._set_clock(refusal, sent_s, offset_s)

    def _set_clock(self, refusal: Failure, sent_s: float, offset_s: float) -> bool:
        """Sign by AWS's clock from now on; false if this server's clock was not the reason."""
        date = refusal.response["ResponseMetadata"]["HTTPHeaders"].get("date", "")
        try:
            date_s = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return False
        self._offset_s = -skew_s(date_s, sent_s, self._clock_s())
        return abs(self._offset_s - offset_s) >= WARN_S
