"""The table on the real DynamoDB Local: the check before serving, and changes while AWS fails."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.aws.errors import DynamoError, Fault
from penstock.store.dynamodb.aws.location import CALL_S, Location
from penstock.store.dynamodb.table.admin import FAILURES, TIMEOUT_S, TableAdmin, check_table
from penstock.store.dynamodb.table.report import find_fault, report_table
from penstock.store.dynamodb.table.schema import INDEXES
from penstock.store.dynamodb.table.state import TableState, parse_table, waits_for

from tests.support.aws_proxy import Answer, AwsProxy, Delay, Lose, Refuse
from tests.support.aws_proxy import Fault as ProxyFault
from tests.support.raw_endpoint import RawEndpoint, RawRequest, ok, refusal
from tests.support.tables import PATIENT_S
from tests.unit.store.dynamodb.bare_tables import (
    bare_table,
    call,
    drop,
    index,
    item,
    key_schema,
    locate,
    ttl_on,
)

OURS = [index(each.name, each.projection) for each in INDEXES]
VERSION = item("SYSTEM#", "#VERSION") | {"schema": {"N": "1"}}


@pytest.fixture
async def proxy(dynamodb_url: str) -> AsyncIterator[AwsProxy]:
    """Through which all goes, and on command not."""
    async with AwsProxy(dynamodb_url) as proxy:
        yield proxy


@pytest.fixture
async def location(proxy: AwsProxy, dynamodb_url: str) -> AsyncIterator[Location]:
    """A table that does not exist yet."""
    location = locate(proxy.url, f"table-{uuid4().hex}")
    yield location
    drop(locate(dynamodb_url, location.table))


class Watch:
    """Time that passes only in pauses, and all that was told about progress."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[tuple[str, float]] = []

    @property
    def texts(self) -> list[str]:
        return [text for text, _ in self.told]

    async def pause(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)

    def progress(self, text: str, elapsed_s: float) -> None:
        self.told.append((text, elapsed_s))

    def admin(self, location: Location) -> TableAdmin:
        return TableAdmin(location, self.pause, lambda: self.now_s)


@pytest.fixture
def watch() -> Watch:
    """A new one."""
    return Watch()


async def make(
    location: Location,
    *,
    table: dict[str, Any] | None = None,
    ttl: bool = True,
    version: dict[str, Any] | None = VERSION,
) -> None:
    """A table as it should be, or with one thing otherwise."""
    name = location.table
    async with location.client(PATIENT_S) as client:
        await client.create_table(TableName=name, **table or bare_table(("PK", "SK"), *OURS))
        if ttl:
            await client.update_time_to_live(TableName=name, **ttl_on("ttl"))
        if version:
            await client.put_item(TableName=name, Item=version)


async def check(location: Location) -> None:
    async with location.client(PATIENT_S) as client:
        await check_table(client, location)


def mend(location: Location) -> str:
    return f"run: penstock table create --store '{location}'"


async def test_a_table_that_is_right_passes_the_check(
    proxy: AwsProxy, location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    """In three calls, without a word."""
    await make(location)
    proxy.calls.clear()
    await check(location)
    assert proxy.calls == {"DescribeTable": 1, "GetItem": 1, "DescribeTimeToLive": 1}
    assert caplog.messages == []


async def test_what_create_makes_passes_the_check(location: Location, watch: Watch) -> None:
    """They go by the same declaration."""
    await watch.admin(location).create("1.2.3", watch.progress)
    await check(location)


async def test_a_missing_table_is_told_with_the_command_that_makes_it(location: Location) -> None:
    """And where it was looked for."""
    with pytest.raises(ConfigError) as caught:
        await check(location)
    place = f"table {location.table} in eu-west-1 at {location.endpoint}"
    assert str(caught.value) == f"{place}: there is no such table; {mend(location)}"


@pytest.mark.parametrize(
    ("otherwise", "message"),
    [
        ({"version": None}, "the version item is missing; run: "),
        ({"table": bare_table(("PK", "SK"), *OURS[:2])}, "index GSI3 is missing; run: "),
        (
            {"table": bare_table(("PK", "SK"), *OURS[1:]), "version": None},
            "the version item is missing, index GSI1 is missing; run: ",
        ),
        ({"version": VERSION | {"schema": {"N": "7"}}}, "its schema is 7, and this Penstock knows"),
        (
            {"version": VERSION | {"schema": {"N": "0"}, "created_by": {"S": "0.9"}}},
            "its schema is 0, and this Penstock knows 1: this Penstock is too new for the table, "
            "use Penstock 0.9, which made the table",
        ),
        (
            {"version": item("SYSTEM#", "#VERSION")},
            "its version item is not Penstock's: if it has single items, migrate it first, because "
            "this Penstock is too new for them; begin by: penstock migrate begin",
        ),
        (
            {"table": bare_table(("PK", "SK"), OURS[0], index("GSI2", "ALL"), OURS[2])},
            "index GSI2 projects ALL, not KEYS_ONLY: delete it; then run: ",
        ),
        (
            {"table": bare_table(("id", "SK")), "version": None},
            "its key is id (S), SK (S), not PK (S), SK (S): name another table",
        ),
    ],
)
async def test_what_is_wrong_with_a_table_is_told(
    location: Location, otherwise: dict[str, Any], message: str
) -> None:
    """With the command that mends it, where one does."""
    await make(location, **otherwise)
    with pytest.raises(ConfigError) as caught:
        await check(location)
    assert f"at {location.endpoint}: {message}" in str(caught.value)
    if "run: " in message:
        assert str(caught.value).endswith(mend(location))


async def test_a_table_without_ttl_is_a_warning(
    location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    """It only grows."""
    await make(location, ttl=False)
    await check(location)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f": TTL is off, so old buckets stay; {mend(location)}" in record.getMessage()


DENIED = "User: arn:aws:iam::1:user/p is not authorized to perform: dynamodb:{}"


@pytest.mark.parametrize("operation", ["DescribeTable", "GetItem"])
async def test_a_missing_right_is_named(
    proxy: AwsProxy, location: Location, operation: str
) -> None:
    """With who has to grant it."""
    await make(location)
    message = DENIED.format(operation)
    proxy.always = Answer(400, "AccessDeniedException", message, operation=operation)
    with pytest.raises(ConfigError) as caught:
        await check(location)
    assert message in str(caught.value)
    assert str(caught.value).endswith("; allow it in the policy of the credentials in use")


async def test_a_server_need_not_be_allowed_to_see_ttl(
    proxy: AwsProxy, location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    """It would only warn."""
    await make(location)
    denied = DENIED.format("DescribeTimeToLive")
    proxy.always = Answer(400, "AccessDeniedException", denied, operation="DescribeTimeToLive")
    await check(location)
    (message,) = caplog.messages
    assert "can't see whether TTL is on: " in message
    assert denied in message


@pytest.mark.parametrize(
    ("operation", "code", "status", "fault"),
    [
        ("DescribeTable", "ThrottlingException", 400, Fault.THROTTLED),
        ("DescribeTable", "InternalServerError", 500, Fault.UNKNOWN),
        ("GetItem", "ProvisionedThroughputExceededException", 400, Fault.THROTTLED),
        ("DescribeTimeToLive", "ServiceUnavailable", 503, Fault.UNKNOWN),
    ],
)
async def test_what_passes_by_itself_is_no_matter_of_configuration(
    proxy: AwsProxy, location: Location, operation: str, code: str, status: int, fault: Fault
) -> None:
    """The check leaves it to the caller, and does not try again."""
    await make(location)
    proxy.calls.clear()
    proxy.always = Answer(status, code, operation=operation)
    with pytest.raises(DynamoError, match=code) as caught:
        await check(location)
    assert (caught.value.fault, caught.value.transient) == (fault, True)
    assert proxy.calls[operation] == 1


async def test_an_aws_out_of_reach_is_no_matter_of_configuration(
    proxy: AwsProxy, location: Location
) -> None:
    """It may be back in a moment."""
    await proxy.down()
    with pytest.raises(DynamoError, match="can't be reached") as caught:
        await check(location)
    assert caught.value.fault is Fault.UNREACHABLE


def describe(**otherwise: Any) -> TableState:
    return parse_table(describe_fields(**otherwise))


def describe_fields(**otherwise: Any) -> dict[str, Any]:
    """A table as AWS describes it, which DynamoDB Local never does for long enough."""
    described = {
        "TableStatus": "ACTIVE",
        "KeySchema": key_schema(("PK", "SK")),
        "AttributeDefinitions": [
            {"AttributeName": f"{index}{key}", "AttributeType": "S"}
            for index in ("", "GSI1", "GSI2", "GSI3")
            for key in ("PK", "SK")
        ],
        "GlobalSecondaryIndexes": [{**each, "IndexStatus": "ACTIVE"} for each in OURS],
    }
    return described | otherwise


def described_indexes(**statuses: str) -> list[dict[str, Any]]:
    return [
        {**each, "IndexStatus": statuses.get(each["IndexName"], "ACTIVE"), "Backfilling": True}
        for each in OURS
    ]


@pytest.mark.parametrize(
    ("state", "fault", "waiting"),
    [
        (
            describe(TableStatus="CREATING"),
            "it is being created; run: ",
            "creating table penstock",
        ),
        (
            describe(TableStatus="DELETING"),
            "it is being deleted; run: ",
            "deleting table penstock",
        ),
        (
            describe(TableStatus="INACCESSIBLE_ENCRYPTION_CREDENTIALS"),
            "its status is INACCESSIBLE_ENCRYPTION_CREDENTIALS: see what AWS says about it",
            None,
        ),
        (
            describe(
                TableStatus="UPDATING", GlobalSecondaryIndexes=described_indexes(GSI2="CREATING")
            ),
            "the version item is missing, index GSI2 is still being built; run: ",
            "building index GSI2",
        ),
        (
            describe(GlobalSecondaryIndexes=described_indexes(GSI3="DELETING")),
            "the version item is missing, index GSI3 is missing; run: ",
            "deleting index GSI3",
        ),
        (
            describe(GlobalSecondaryIndexes=described_indexes(GSI1="UPDATING")),
            "the version item is missing; run: ",
            "changing index GSI1",
        ),
        (
            describe(TableStatus="UPDATING"),
            "the version item is missing; run: ",
            "changing table penstock",
        ),
        (describe(), "the version item is missing; run: ", None),
    ],
)
def test_a_table_between_two_states(state: TableState, fault: str, waiting: str | None) -> None:
    """What it lacks until then, and what there is to wait for."""
    found = find_fault(Location("penstock"), state, needs_ttl=False)
    assert found is not None
    assert found.startswith(fault)
    assert waits_for("penstock", state) == waiting


@pytest.mark.parametrize(
    ("items", "size_bytes", "shown"),
    [
        (0, 0, "0 items, 0 bytes"),
        (1, 1023, "1 item, 1,023 bytes"),
        (20, 1536, "20 items, 1.5 KiB"),
        (30_000, 5 * 2**20, "30,000 items, 5.0 MiB"),
        (1_000_000, 3000 * 2**30, "1,000,000 items, 3,000.0 GiB"),
    ],
)
def test_sizes_are_for_people(items: int, size_bytes: int, shown: str) -> None:
    """In units of 1,024."""
    state = describe(ItemCount=items, TableSizeBytes=size_bytes)
    assert ("last count", shown) in report_table("", Location("penstock"), state).rows


async def test_warm_throughput_is_asked_for_and_told() -> None:
    """Of the table alone. botocore has checked the request before it is here."""
    asked: list[dict[str, Any]] = []
    described = describe_fields(
        WarmThroughput={"ReadUnitsPerSecond": 40_000, "WriteUnitsPerSecond": 20_000}
    )

    def answer(request: RawRequest) -> bytes:
        operation = request.headers["x-amz-target"].rpartition(".")[2]
        if operation == "CreateTable":
            asked.append(json.loads(request.body))
            return ok({"TableDescription": described})
        if operation == "DescribeTable":
            return ok({"Table": described}) if asked else refusal("ResourceNotFoundException")
        if operation == "DescribeTimeToLive":
            told = {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}
            return ok({"TimeToLiveDescription": told})
        return ok({"Item": VERSION})

    async with RawEndpoint(answer) as endpoint:
        watch, location = Watch(), Location("penstock", "eu-west-1", endpoint.url)
        created = await watch.admin(location).create("1", watch.progress, warm=(40_000, 20_000))
        report = await watch.admin(location).status(watch.progress)
        again = await watch.admin(location).create("1", watch.progress, warm=(40_000, 30_000))
    assert (created.is_new, created.notes) == (True, ())
    (request,) = asked
    units = {"ReadUnitsPerSecond": 40_000, "WriteUnitsPerSecond": 20_000}
    assert request["WarmThroughput"] == units
    assert not any("WarmThroughput" in index for index in request["GlobalSecondaryIndexes"])
    assert ("warm", "40000 read and 20000 write units a second") in report.rows
    (note,) = again.notes
    assert note.startswith("its warm throughput stays as it is: 40000 read and 20000 write units")


CREATE_CALLS = [
    "DescribeTable", "CreateTable", "GetItem", "Scan", "PutItem",
    "DescribeTimeToLive", "UpdateTimeToLive",
]  # fmt: skip


@pytest.mark.parametrize("operation", CREATE_CALLS)
@pytest.mark.parametrize("fault", [Refuse, Lose])
async def test_create_goes_on_after_a_call_that_fails(
    proxy: AwsProxy, location: Location, watch: Watch, fault: Any, operation: str
) -> None:
    """Whether AWS did it or not: the next step sees."""
    proxy.faults = [fault(operation=operation)] * 2
    created = await watch.admin(location).create("1.2.3", watch.progress)
    assert (created.is_new, created.added) == (True, ())
    assert any("trying again, as " in text for text in watch.texts)
    await check(location)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("CreateTable", "ResourceInUseException"),
        ("CreateTable", "LimitExceededException"),
        ("GetItem", "ResourceNotFoundException"),
        ("PutItem", "ConditionalCheckFailedException"),
        ("PutItem", "ResourceNotFoundException"),
        ("UpdateTimeToLive", "ResourceInUseException"),
        ("UpdateTimeToLive", "ValidationException"),
        ("UpdateTable", "ResourceInUseException"),
        ("UpdateTable", "LimitExceededException"),
        ("UpdateTable", "ValidationException"),
    ],
)
async def test_create_goes_on_after_a_lost_race(
    proxy: AwsProxy, location: Location, watch: Watch, operation: str, code: str
) -> None:
    """With another that makes the same table, or with what AWS shows late."""
    if operation == "UpdateTable":
        await make(location, ttl=False, version=None)
    proxy.faults = [Answer(400, code, operation=operation)]
    await watch.admin(location).create("1.2.3", watch.progress, stream=True)
    await check(location)
    table = (await call(location, "describe_table"))["Table"]
    assert table["StreamSpecification"]["StreamEnabled"]


async def test_a_slow_answer_is_waited_for(
    proxy: AwsProxy, location: Location, watch: Watch
) -> None:
    """Longer than a decision may wait: nothing here has to be decided within a second."""
    proxy.faults = [Delay(1.5 * CALL_S, operation="CreateTable")]
    await watch.admin(location).create("1.2.3", watch.progress)
    assert not [text for text in watch.texts if "trying again" in text]


async def test_two_creates_at_once_make_one_table(location: Location) -> None:
    """Neither minds the other."""
    watches = [Watch(), Watch(), Watch()]
    creations = [watch.admin(location).create("1.2.3", watch.progress) for watch in watches]
    await asyncio.gather(*creations)
    await check(location)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Answer(400, "ThrottlingException"), Fault.THROTTLED),
        (Answer(500, "InternalServerError"), Fault.UNKNOWN),
    ],
)
async def test_create_gives_up_in_the_end(
    proxy: AwsProxy, location: Location, watch: Watch, fault: ProxyFault, expected: Fault
) -> None:
    """After a few failures in a row."""
    proxy.always = fault
    with pytest.raises(DynamoError) as caught:
        await watch.admin(location).create("1.2.3", watch.progress)
    assert caught.value.fault is expected
    assert proxy.calls.total() == FAILURES + 1


@pytest.mark.parametrize(
    ("operation", "code", "calls"),
    [
        ("CreateTable", "AccessDeniedException", 1),
        ("CreateTable", "ValidationException", 1),
        ("UpdateTimeToLive", "AccessDeniedException", 1),
        ("UpdateTimeToLive", "ValidationException", FAILURES + 1),
    ],
)
async def test_what_nothing_but_people_can_mend_is_told(
    proxy: AwsProxy, location: Location, watch: Watch, operation: str, code: str, calls: int
) -> None:
    """At once, unless a race may have been the reason."""
    proxy.always = Answer(400, code, operation=operation)
    with pytest.raises(ConfigError, match=f"{code}.* {operation} ") as caught:
        await watch.admin(location).create("1.2.3", watch.progress)
    assert str(caught.value).startswith(f"table {location.table} in eu-west-1 at ")
    assert proxy.calls[operation] == calls


async def test_create_waits_ten_minutes_and_no_longer(
    proxy: AwsProxy, location: Location, watch: Watch
) -> None:
    """It tells how long it has waited, about every second, and then how to look again."""
    proxy.always = Answer(400, "ResourceInUseException", operation="CreateTable")
    with pytest.raises(StoreError) as caught:
        await watch.admin(location).create("1.2.3", watch.progress)
    waiting = f"waiting for another change of table {location.table}"
    assert str(caught.value) == (
        f"table {location.table} in eu-west-1 at {location.endpoint}: not done after 10 minutes "
        f"({waiting}); it may still get there: penstock table status --store '{location}'"
    )
    assert set(watch.texts) == {waiting}
    times_s = [elapsed_s for _, elapsed_s in watch.told]
    assert TIMEOUT_S - 1 <= times_s[-1] <= TIMEOUT_S
    assert max(b - a for a, b in pairwise(times_s)) <= 1


@pytest.mark.parametrize("fault", [Refuse, Lose])
async def test_delete_goes_on_after_a_call_that_fails(
    proxy: AwsProxy, location: Location, watch: Watch, fault: Any
) -> None:
    """Whether AWS did it or not."""
    await make(location)
    proxy.faults = [fault(operation="DeleteTable")]
    await watch.admin(location).delete(watch.progress)
    with pytest.raises(ConfigError, match="there is no such table"):
        await check(location)


async def test_delete_waits_for_a_change_under_way(
    proxy: AwsProxy, location: Location, watch: Watch
) -> None:
    """AWS deletes no table before it is done."""
    await make(location)
    proxy.faults = [Answer(400, "ResourceInUseException", operation="DeleteTable")] * 9
    await watch.admin(location).delete(watch.progress)
    assert proxy.calls["DeleteTable"] == 10
    assert watch.texts[0] == f"waiting for another change of table {location.table}"


async def test_a_table_made_anew_is_not_deleted(
    proxy: AwsProxy, location: Location, watch: Watch
) -> None:
    """Delete asked for the one that was there."""

    async def pause(_: float) -> None:
        await make(location)
        watch.now_s += TIMEOUT_S + 1

    await make(location)
    admin = TableAdmin(location, pause, lambda: watch.now_s)
    with pytest.raises(StoreError, match="not done after 10 minutes"):
        await admin.delete(watch.progress)
    assert proxy.calls["DeleteTable"] == 1


async def test_a_protected_table_is_not_deleted(
    proxy: AwsProxy, location: Location, watch: Watch
) -> None:
    """AWS says why."""
    await make(location, table=bare_table(("PK", "SK"), *OURS, DeletionProtectionEnabled=True))
    try:
        with pytest.raises(ConfigError, match=r"(?i)deletion protection"):
            await watch.admin(location).delete(watch.progress)
        assert proxy.calls["DeleteTable"] == 1
    finally:
        await call(location, "update_table", DeletionProtectionEnabled=False)
