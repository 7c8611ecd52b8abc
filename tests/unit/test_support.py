"""Tests of what other tests stand on: DynamoDB Local, and the proxy that fails on command."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aioboto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError

from tests.support.aws_proxy import (
    Answer,
    AwsProxy,
    Cancel,
    Cut,
    Delay,
    Fault,
    Hold,
    Lose,
    Refuse,
)
from tests.support.dynamodb import forget_aws_account, run_dynamodb
from tests.support.processes import wait_for

ROOT = Path(__file__).resolve().parents[2]

ONE_ATTEMPT = Config(retries={"total_max_attempts": 1})


class Table:
    """A table of one test, seen through the proxy."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    async def put(self, key: str, **options: str) -> None:
        await self.client.put_item(TableName=self.name, Item={"id": {"S": key}}, **options)

    async def has(self, key: str) -> bool:
        found = await self.client.get_item(TableName=self.name, Key={"id": {"S": key}})
        return "Item" in found

    async def put_together(self, *keys: str, condition: str) -> None:
        put = {"TableName": self.name, "ConditionExpression": condition}
        items = [{"Put": {**put, "Item": {"id": {"S": key}}}} for key in keys]
        await self.client.transact_write_items(TransactItems=items)


Connect = Callable[[str], AbstractAsyncContextManager[Any]]


@pytest.fixture(scope="module")
def connect() -> Connect:
    """Makes clients. They share what takes the first of them 0.1 s: the model of the service."""
    session = aioboto3.Session(region_name="eu-central-1")
    return lambda url: session.client("dynamodb", endpoint_url=url, config=ONE_ATTEMPT)


@pytest.fixture
async def proxy(dynamodb_url: str) -> AsyncIterator[AwsProxy]:
    async with AwsProxy(dynamodb_url) as proxy:
        yield proxy


@pytest.fixture
async def table(proxy: AwsProxy, connect: Connect) -> AsyncIterator[Table]:
    async with connect(proxy.url) as client:
        name = f"support-{uuid4()}"
        await client.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        proxy.calls.clear()
        yield Table(client, name)


async def test_requests_without_a_fault_pass_and_are_counted_by_operation(
    proxy: AwsProxy, table: Table
) -> None:
    """The client gets DynamoDB's own answers, errors included, and the proxy counts."""
    await table.put("a")
    await table.put("b")
    assert await table.has("a")
    assert not await table.has("c")
    with pytest.raises(ClientError, match="ConditionalCheckFailedException"):
        await table.put("a", ConditionExpression="attribute_not_exists(id)")
    assert proxy.calls == {"PutItem": 3, "GetItem": 2}


async def test_keys_that_are_good_no_more_are_refused(proxy: AwsProxy, table: Table) -> None:
    """As AWS does it; DynamoDB Local never hears of the call."""
    proxy.used_keys.clear()
    proxy.refused_keys.add("dummy")
    with pytest.raises(ClientError, match="ExpiredTokenException"):
        await table.put("a")
    proxy.refused_keys.clear()
    assert not await table.has("a")
    assert proxy.used_keys == {"dummy": 2}


async def test_many_requests_at_once_all_pass(proxy: AwsProxy, table: Table) -> None:
    """Answers find the client's pooled connection that asked."""
    keys = [str(number) for number in range(60)]
    await asyncio.gather(*map(table.put, keys))
    assert all(await asyncio.gather(*map(table.has, keys)))
    assert not any(await asyncio.gather(*(table.has(f"no {key}") for key in keys)))
    assert proxy.calls == {"PutItem": 60, "GetItem": 120}


@pytest.mark.parametrize(("fault", "written"), [(Refuse(), False), (Lose(), True), (Cut(), True)])
async def test_closed_connection_is_an_error_to_the_client_whatever_dynamodb_did(
    proxy: AwsProxy, table: Table, fault: Fault, written: bool
) -> None:
    """The client can't tell a refused write from one whose answer was lost or cut."""
    proxy.faults.append(fault)
    with pytest.raises(ConnectionClosedError):
        await table.put("a")
    assert proxy.calls == {"PutItem": 1}
    assert await table.has("a") is written


async def test_cut_answer_ends_in_the_middle_of_its_body(proxy: AwsProxy) -> None:
    """Head and half of the body arrive, and then the connection ends."""
    proxy.faults.append(Cut())
    target = "X-Amz-Target: DynamoDB_20120810.ListTables"
    # DynamoDB Local looks at the form of these two, and at no more.
    signed = "X-Amz-Date: 20260101T000000Z\r\nAuthorization: AWS4-HMAC-SHA256 Credential=dummy/"
    signed += "20260101/eu-central-1/dynamodb/aws4_request, SignedHeaders=host, Signature=dummy"
    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    head = f"POST / HTTP/1.1\r\nHost: x\r\n{target}\r\n{signed}\r\nContent-Length: 2\r\n\r\n"
    writer.write(head.encode() + b"{}")
    answer_head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    length = int(answer_head.lower().partition(b"content-length: ")[2].split()[0])
    assert answer_head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert len(body) == length // 2
    assert body.startswith(b'{"TableNames":')


async def test_delayed_request_is_overtaken_by_a_later_one(proxy: AwsProxy, table: Table) -> None:
    """The write waits in the proxy, and lands after a request that was sent later."""
    proxy.faults.append(Delay(0.3, operation="PutItem"))
    put = asyncio.create_task(table.put("a"))

    async def arrived() -> bool:
        return proxy.calls["PutItem"] == 1

    await until(arrived)
    assert not await table.has("a")
    await put
    assert await table.has("a")


async def test_held_request_lands_when_the_event_comes(proxy: AwsProxy, table: Table) -> None:
    """The test decides when DynamoDB gets the write."""
    hold = Hold(asyncio.Event(), operation="PutItem")
    proxy.faults.append(hold)
    put = asyncio.create_task(table.put("a"))
    await hold.arrived.wait()
    assert not await table.has("a")
    hold.event.set()
    await put
    assert await table.has("a")


async def test_held_request_lands_though_its_client_gave_up(proxy: AwsProxy, table: Table) -> None:
    """A write may come late, when nobody waits for it any more."""
    hold = Hold(asyncio.Event(), operation="PutItem")
    proxy.faults.append(hold)
    put = asyncio.create_task(table.put("a"))
    await hold.arrived.wait()
    put.cancel()
    await asyncio.gather(put, return_exceptions=True)
    assert put.cancelled()
    assert not await table.has("a")
    hold.event.set()
    await until(lambda: table.has("a"))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (500, "InternalServerError"),
        (400, "ThrottlingException"),
        (400, "ProvisionedThroughputExceededException"),
        (400, "TransactionConflictException"),
        (400, "AccessDeniedException"),
    ],
)
async def test_error_answer_reaches_the_client_instead_of_dynamodb(
    proxy: AwsProxy, table: Table, status: int, code: str
) -> None:
    """The client reads status, code and message as it does of a real error."""
    proxy.faults.append(Answer(status, code, "not now"))
    with pytest.raises(ClientError) as caught:
        await table.put("a")
    response = caught.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert response["Error"] == {"Code": code, "Message": "not now"}
    assert proxy.calls == {"PutItem": 1}
    assert not await table.has("a")


async def test_cancelled_transaction_looks_like_a_real_one(proxy: AwsProxy, table: Table) -> None:
    """An answer of the proxy's own differs from DynamoDB's in no field but the request's id."""
    await table.put("a")

    async def cancelled() -> dict[str, Any]:
        with pytest.raises(table.client.exceptions.TransactionCanceledException) as caught:
            await table.put_together("a", "b", condition="attribute_not_exists(id)")
        response: dict[str, Any] = caught.value.response
        return response

    real = await cancelled()
    proxy.faults.append(Cancel(("ConditionalCheckFailed", "None")))
    faked = await cancelled()
    assert faked["Error"] == real["Error"]
    codes = [reason["Code"] for reason in real["CancellationReasons"]]
    assert codes == ["ConditionalCheckFailed", "None"]
    assert [reason["Code"] for reason in faked["CancellationReasons"]] == codes
    assert [set(reason) for reason in faked["CancellationReasons"]] == [
        set(reason) for reason in real["CancellationReasons"]
    ]


async def test_fault_waits_in_the_queue_for_its_operation(proxy: AwsProxy, table: Table) -> None:
    """Faults hit in order, and other operations pass them by."""
    proxy.faults += [
        Answer(500, "First", operation="PutItem"),
        Answer(500, "Second", operation="PutItem"),
        Answer(500, "Any"),
    ]
    with pytest.raises(ClientError, match="Any"):
        await table.has("a")
    assert not await table.has("a")
    with pytest.raises(ClientError, match="First"):
        await table.put("a")
    with pytest.raises(ClientError, match="Second"):
        await table.put("a")
    await table.put("a")
    assert proxy.faults == []


async def test_lasting_fault_hits_until_it_is_taken_away(proxy: AwsProxy, table: Table) -> None:
    """Every request of its operation gets it, those that find one in the queue excepted."""
    proxy.always = Answer(500, "Lasting", operation="PutItem")
    for _ in range(3):
        with pytest.raises(ClientError, match="Lasting"):
            await table.put("a")
    assert not await table.has("a")
    proxy.faults.append(Answer(500, "Queued"))
    with pytest.raises(ClientError, match="Queued"):
        await table.put("a")
    proxy.always = None
    await table.put("a")


async def test_proxy_that_is_down_refuses_until_it_is_up_again(
    proxy: AwsProxy, table: Table
) -> None:
    """The same client fails while it is down, and goes on when it is back on its port."""
    url = proxy.url
    await table.put("a")
    await proxy.down()
    for _ in range(2):
        with pytest.raises(EndpointConnectionError):
            await table.has("a")
    await proxy.up()
    assert proxy.url == url
    assert await table.has("a")


async def test_going_down_breaks_off_the_requests_under_way(proxy: AwsProxy, table: Table) -> None:
    """A client that waits for its answer sees the connection close, and nothing is written."""
    hold = Hold(asyncio.Event())
    proxy.faults.append(hold)
    put = asyncio.create_task(table.put("a"))
    await hold.arrived.wait()
    await proxy.down()
    with pytest.raises(ConnectionClosedError):
        await put
    hold.event.set()
    await proxy.up()
    assert not await table.has("a")


async def test_idle_proxy_has_done_what_clients_asked_for_who_are_gone(
    dynamodb_url: str, proxy: AwsProxy, table: Table, connect: Connect
) -> None:
    """A write that its client gave up on has landed by then, however late it came to DynamoDB."""
    hold = Hold(asyncio.Event(), operation="PutItem")
    proxy.faults.append(hold)
    async with connect(proxy.url) as leaving:
        put = asyncio.create_task(Table(leaving, table.name).put("a"))
        await hold.arrived.wait()
        put.cancel()
        await asyncio.wait([put])
    idle = asyncio.create_task(proxy.idle())
    await table.client.close()
    await asyncio.sleep(0)
    assert not idle.done()
    hold.event.set()
    await idle
    async with connect(dynamodb_url) as direct:
        assert await Table(direct, table.name).has("a")


async def test_proxy_leaves_no_task_behind(dynamodb_url: str) -> None:
    """Leaving the block ends idle connections and held requests alike."""
    before = asyncio.all_tasks()
    async with AwsProxy(dynamodb_url) as proxy:
        hold = Hold(asyncio.Event())
        proxy.faults.append(hold)
        port = int(proxy.url.rpartition(":")[2])
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        reader, held = await asyncio.open_connection("127.0.0.1", port)
        held.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
        await hold.arrived.wait()
        assert len(asyncio.all_tasks() - before) == 2
    assert asyncio.all_tasks() == before
    assert await reader.read() == b""
    for writer in (idle, held):
        writer.close()
        await writer.wait_closed()


async def test_failure_that_no_fault_asked_for_fails_the_test(connect: Connect) -> None:
    """A DynamoDB Local that died doesn't pass for a fault."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy = await AwsProxy(f"http://127.0.0.1:{nobody.getsockname()[1]}").__aenter__()
        async with connect(proxy.url) as client:
            with pytest.raises(ConnectionClosedError):
                await client.list_tables()
        with pytest.raises(ExceptionGroup, match="without being told"):
            await proxy.__aexit__(None, None, None)


def test_dynamodb_ends_with_its_block(tmp_path: Path) -> None:
    """Nothing listens afterwards, and there is no file but the log."""
    with run_dynamodb(tmp_path) as url:
        assert is_open(url)
    assert not is_open(url)
    assert [file.name for file in tmp_path.iterdir()] == ["dynamodb.log"]


def test_dynamodb_ends_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    """No Java stays behind, though nothing of the test process runs any more."""
    program = "import os, pathlib, sys\nfrom tests.support.dynamodb import run_dynamodb\n"
    program += "with run_dynamodb(pathlib.Path(sys.argv[1])) as url:\n"
    program += "    print(url, flush=True)\n    os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", program, str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    assert killed.returncode == -9
    wait_for(lambda: not is_open(killed.stdout.strip()), "DynamoDB Local to end")


def test_missing_dynamodb_is_an_error_that_says_so(tmp_path: Path) -> None:
    """Tests that need it fail with the way out."""
    with (
        pytest.raises(FileNotFoundError, match=r"DynamoDBLocal\.jar.*`python3 tests` installs"),
        run_dynamodb(tmp_path, installed=tmp_path),
    ):
        pass


def test_dynamodb_that_stops_at_its_start_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is in the failure, and nobody waits for a process that has ended."""
    monkeypatch.setattr("tests.support.dynamodb.FAST_START", ["-XX:NoSuchFlag"])
    with pytest.raises(AssertionError, match="NoSuchFlag"), run_dynamodb(tmp_path):
        pass


async def test_tests_see_no_real_aws_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine is logged in to, only dummies remain."""
    during_tests = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "real")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "real")
    forget_aws_account(monkeypatch)
    left = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    assert "real" not in left.values()
    assert left == during_tests
    session = aioboto3.Session()
    credentials = await session.get_credentials()
    assert (credentials.access_key, credentials.secret_key) == ("dummy", "dummy")
    assert session.region_name is None


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():  # noqa: ASYNC110 - what it looks at has no event
        await asyncio.sleep(0.005)


def is_open(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0
