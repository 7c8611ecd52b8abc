"""The lean client: the same answers as the SDK's, and calls signed anew when AWS refuses them."""

import asyncio
import calendar
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from penstock.store.dynamodb.aws.client import ItemClient, to_json
from penstock.store.dynamodb.aws.clients import open_clients
from penstock.store.dynamodb.aws.credentials import CredentialCache
from penstock.store.dynamodb.aws.errors import Failure, Fault
from penstock.store.dynamodb.aws.lean import LeanClient
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.pool import Pool
from penstock.store.dynamodb.aws.sdk import SdkClient
from penstock.store.dynamodb.aws.signing import Signer

from tests.support.processes import PATIENCE_S
from tests.support.raw_endpoint import RawEndpoint, RawRequest, Reply, http, ok, refusal
from tests.support.tables import PATIENT_S
from tests.unit.store.dynamodb.test_credentials import Fixed

IMAGE = {"PK": {"S": "ENTITY#bob"}, "b_rpm_tk": {"N": "-5"}}
REASONS = [
    {"Code": "None"},
    {"Code": "ConditionalCheckFailed", "Message": "no", "Item": IMAGE},
]
ANSWERS: dict[str, bytes | Reply] = {
    "success": ok({"Attributes": IMAGE, "ConsumedCapacity": {"CapacityUnits": 1.0}}),
    "nothing said": http(b""),
    "failed condition": refusal("ConditionalCheckFailedException", Item=IMAGE),
    "cancelled": refusal("TransactionCanceledException", CancellationReasons=REASONS),
    "throttled": refusal("ProvisionedThroughputExceededException"),
    "capital message": ok({"__type": "x#AccessDeniedException", "Message": "No"}, status=400),
    "code with a URL": ok({"__type": "y#InternalServerError:http://x"}, status=500),
    "plain code": ok({"__type": "ResourceNotFoundException", "message": "no"}, status=400),
    "no code": ok({"message": "no"}, status=503),
    "a page of a proxy": http(b"<html>Bad Gateway</html>", status=502),
    "a page of a firewall": http(b"<html>No</html>", status=403),
    "no text": http(b'{"\xff": 1}'),
    "broken off": Reply([ok({})[:-1]], closes=True),
}
OWN_WORDS = {"no text", "broken off", "a page of a proxy"}
"""Where the SDK has other words for it."""

SDK_ADDS = " (reached max retries: 0)"


class Pair(NamedTuple):
    endpoint: RawEndpoint
    lean: ItemClient
    sdk: ItemClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[Pair]:
    """Both clients on one endpoint. They take long to make."""
    async with RawEndpoint() as endpoint:
        here = Location("t", "eu-west-1", endpoint.url)
        async with open_clients(here, PATIENT_S) as clients:
            yield Pair(endpoint, clients.items, SdkClient(clients.sdk))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_means_the_same_to_both_clients(pair: Pair, name: str) -> None:
    """The code, the message, the reasons, the image, the status, the headers."""
    pair.endpoint.script = [ANSWERS[name]] * 2
    lean = await pair.lean.update_item({"TableName": "t"})
    sdk = await pair.sdk.update_item({"TableName": "t"})
    assert pair.endpoint.script == []
    if isinstance(lean, Failure) or isinstance(sdk, Failure):
        assert isinstance(lean, Failure)
        assert isinstance(sdk, Failure)
        assert lean.fault is sdk.fault
        if name in OWN_WORDS:
            return
        assert lean.message == sdk.message.replace(SDK_ADDS, "")
        assert told(lean.response) == told(sdk.response)
    else:
        assert told(lean) == told(sdk)


def told(response: Any) -> Any:
    """What the store reads of a response. Each client adds something of its own to the rest."""
    names = ["Attributes", "ConsumedCapacity", "Error", "Item", "CancellationReasons"]
    metadata = response.get("ResponseMetadata", {})
    return {
        "status": metadata.get("HTTPStatusCode"),
        "headers": metadata.get("HTTPHeaders"),
        **{name: response.get(name) for name in names},
    }


async def test_a_wrong_checksum_is_an_unknown_outcome() -> None:
    """Something on the way has changed the answer."""
    for status in (200, 400):
        async with RawEndpoint() as endpoint, lean_on(endpoint) as client:
            endpoint.script = [http(b'{"Item": {}}', "x-amz-crc32: 7", status=status)]
            failure = await client.get_item({})
        assert isinstance(failure, Failure)
        assert failure.fault is Fault.UNKNOWN


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"<html>", b"[" * 100_000])
async def test_a_success_that_tells_nothing_is_an_unknown_outcome(body: bytes) -> None:
    """The SDK takes some of these for an empty answer."""
    async with RawEndpoint() as endpoint, lean_on(endpoint) as client:
        endpoint.script = [http(body)]
        failure = await client.update_item({})
    assert isinstance(failure, Failure)
    assert failure.fault is Fault.UNKNOWN


async def test_a_redirect_is_not_followed() -> None:
    """A signature is good for one host."""
    async with RawEndpoint() as endpoint, lean_on(endpoint) as client:
        endpoint.script = [http(b"", f"Location: {endpoint.url}", status=307)]
        failure = await client.update_item({})
        assert isinstance(failure, Failure)
        assert failure.fault is Fault.PERMANENT
        assert len(endpoint.requests) == 1


CALLS = ["update_item", "put_item", "get_item", "batch_get_item", "transact_write_items"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("form", ["dicts", "text"])
@pytest.mark.parametrize("operation", CALLS)
async def test_a_request_is_that_of_the_sdk(pair: Pair, operation: str, form: str) -> None:
    """The target and the body, whatever characters it has, and in whatever form it comes."""
    odd = 'ä"\\\n\u2028\ud83d\ude00'.encode("utf-16", "surrogatepass").decode("utf-16")
    attributes: dict[str, Any] = {
        "N": {"N": "-5"}, "S": {"S": odd}, "B": {"BOOL": True}, "L": {"L": [{"S": ""}]},
    }  # fmt: skip
    shapes: dict[str, dict[str, Any]] = {
        "update_item": {"Key": attributes, "UpdateExpression": "ADD #n0 :v0"},
        "put_item": {"Item": attributes},
        "get_item": {"Key": attributes, "ConsistentRead": True},
        "batch_get_item": {"RequestItems": {"t": {"Keys": [attributes]}}},
        "transact_write_items": {"TransactItems": [{"Put": {"Item": attributes}}]},
    }
    parameters = {**shapes[operation], "ReturnConsumedCapacity": "TOTAL"}
    if operation == "transact_write_items":
        parameters["ClientRequestToken"] = "token"
    for client in (pair.lean, pair.sdk):
        await getattr(client, operation)(to_json(parameters) if form == "text" else parameters)
    lean, sdk = pair.endpoint.requests[-2:]
    assert lean.body == sdk.body.replace(b'": ', b'":').replace(b", ", b",")
    for name in ("x-amz-target", "content-type", "host", "accept-encoding"):
        assert lean.headers[name] == sdk.headers[name]


# Signed anew.


class Clock:
    def __init__(self, ahead_s: float = 0.0) -> None:
        self.ahead_s = ahead_s

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@asynccontextmanager
async def lean_on(
    endpoint: RawEndpoint, clock_s: Clock | None = None, source: Any = None
) -> AsyncIterator[LeanClient]:
    pool = Pool("127.0.0.1", endpoint.port, None, PATIENCE_S)
    found = source or Fixed("AKID")
    credentials = CredentialCache(found.resolve, found.resolve, time.monotonic)
    signer = Signer("eu-west-1", f"127.0.0.1:{endpoint.port}")
    yield LeanClient(signer, credentials, pool, clock_s or Clock())
    await credentials.close()
    await pool.close()


def strict_about_time(request: RawRequest) -> bytes:
    """As AWS is: a signature is good for minutes."""
    stamp = time.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    now_s = time.time()
    if abs(calendar.timegm(stamp) - now_s) > 300:
        return refusal("InvalidSignatureException", now_s)
    return ok({})


@pytest.mark.parametrize("ahead_s", [3_600, -86_400])
async def test_a_wrong_clock_is_put_right_for_signatures(ahead_s: float) -> None:
    """The first call is sent twice, those after it once; and again when the clock is mended."""
    async with RawEndpoint(strict_about_time) as endpoint:
        clock = Clock(ahead_s)
        async with lean_on(endpoint, clock) as client:
            for calls, sent in ((1, 2), (2, 3), (3, 4)):
                assert not isinstance(await client.update_item({}), Failure)
                assert len(endpoint.requests) == sent, calls
            clock.ahead_s = 0
            assert not isinstance(await client.update_item({}), Failure)
            assert not isinstance(await client.update_item({}), Failure)
            assert len(endpoint.requests) == 7


async def test_a_wrong_clock_fails_no_call_of_many() -> None:
    """All of them were refused, and the first answer has put the clock right."""
    async with (
        RawEndpoint(strict_about_time) as endpoint,
        lean_on(endpoint, Clock(3_600)) as client,
    ):
        answers = await asyncio.gather(*(client.update_item({}) for _ in range(8)))
    assert [answer for answer in answers if isinstance(answer, Failure)] == []


@pytest.mark.parametrize("code", ["InvalidSignatureException", "SignatureDoesNotMatch"])
async def test_a_wrong_secret_is_no_wrong_clock(code: str) -> None:
    """The clocks agree, so the call is not sent again; nor if AWS tells no time."""
    async with RawEndpoint() as endpoint, lean_on(endpoint) as client:
        for date_s in (time.time(), None):
            endpoint.script = [refusal(code, date_s)]
            failure = await client.update_item({})
            assert isinstance(failure, Failure)
            assert failure.fault is Fault.PERMANENT
        assert len(endpoint.requests) == 2


@pytest.mark.parametrize("code", ["ExpiredTokenException", "UnrecognizedClientException"])
async def test_keys_that_stay_refused_are_looked_for_once(code: str) -> None:
    """And the call fails as AWS said; it is not sent again with the same keys."""
    source = Fixed("AKID")
    async with RawEndpoint(lambda _: refusal(code)) as endpoint:
        async with lean_on(endpoint, source=source) as client:
            for _ in range(20):
                failure = await client.update_item({})
                assert isinstance(failure, Failure)
                assert failure.fault is Fault.PERMANENT
        assert len(endpoint.requests) == 20
    assert source.resolved == 2  # at first, and once after the refusals


async def test_no_keys_is_for_the_operator_and_no_reason_to_ask_again_at_once() -> None:
    """As with the SDK; but the keys may still come, without a restart."""
    source = Fixed(None)
    async with RawEndpoint() as endpoint, lean_on(endpoint, source=source) as client:
        for _ in range(5):
            failure = await client.update_item({})
            assert isinstance(failure, Failure)
            assert failure.fault is Fault.PERMANENT
            assert "no AWS credentials" in failure.message
        assert endpoint.requests == []
    assert source.resolved == 1


async def test_keys_that_no_header_can_carry_are_for_the_operator() -> None:
    """Nothing is sent."""
    source = Fixed("AKID\n")
    async with RawEndpoint() as endpoint, lean_on(endpoint, source=source) as client:
        failure = await client.update_item({})
        assert isinstance(failure, Failure)
        assert failure.fault is Fault.PERMANENT
        assert endpoint.requests == []


async def test_a_service_of_credentials_that_fails_leaves_nothing_unknown() -> None:
    """Whatever it raises, the call was not sent."""
    source = Fixed("AKID", failure=ConnectionResetError("metadata"))
    async with RawEndpoint() as endpoint, lean_on(endpoint, source=source) as client:
        failure = await client.update_item({})
        assert isinstance(failure, Failure)
        assert failure.fault is Fault.UNREACHABLE


async def test_keys_that_change_in_the_middle_of_load_fail_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of keys is replaced, without notice; AWS refuses the old ones from then on."""
    file = tmp_path / "credentials"

    def write(access: str) -> None:
        text = f"[default]\naws_access_key_id={access}\naws_secret_access_key=s\n"
        file.write_text(text + f"aws_session_token=token-of-{access}\n")

    valid = ["old"]

    def answer(request: RawRequest) -> bytes:
        assert request.headers["x-amz-security-token"] == f"token-of-{request.access_key}"
        if request.access_key == valid[-1]:
            return ok({})
        return refusal("ExpiredTokenException", time.time())

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    write("old")

    async with RawEndpoint(answer) as endpoint:
        location = Location("t", "eu-west-1", endpoint.url)
        async with open_clients(location, PATIENT_S) as clients:
            answers: list[Any] = []

            async def load() -> None:
                for _ in range(25):
                    answer = await clients.items.update_item({})
                    answers.append(answer)
                    if len(answers) == 60:
                        write("new")
                        valid.append("new")

            await asyncio.gather(*(load() for _ in range(8)))
    assert [answer for answer in answers if isinstance(answer, Failure)] == []
    used = [request.access_key for request in endpoint.requests]
    assert set(used) == {"old", "new"}
    # Only calls that were under way have been sent twice.
    assert 200 < len(used) <= 208
