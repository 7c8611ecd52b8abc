"""The handler of AWS Lambda, called with those records of a real stream that the template's filter
lets through, as AWS Lambda hands them over."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from penstock import usage_lambda
from penstock.archive import open_archive
from penstock.core.entities import SYSTEM, StoredLimits
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.core.usage import Used, Window, total
from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.streams import open_streams
from penstock.store.dynamodb.table.schema import create_arguments
from penstock.store.open import read_set_aside
from penstock.store.policy_port import Change

from tests.support.cloudformation import Template
from tests.support.event_filter import delivered
from tests.support.tables import PATIENT_S, open_exact_on
from tests.support.usage import ALWAYS_MS

RPM = Limit.per(1_000, 60_000, name="rpm")
TAKES = 12

FUNCTION = {"StreamArn": "arn:aws:dynamodb:eu-west-1:1:table/t/stream/s"}
COUNTING = Template("usage.yaml", **FUNCTION)
ARCHIVING = Template("usage.yaml", **FUNCTION, ArchiveBucket="my-archive")


async def make(location: Location) -> None:
    async with location.client(PATIENT_S) as sdk:
        await sdk.create_table(TableName=location.table, **create_arguments(None, stream=True))


async def load(location: Location) -> list[dict[str, Any]]:
    """Take from two entities, and as often from a rule; returns all records of the stream."""
    async with open_exact_on(location) as store:
        for n in range(TAKES):
            for key in (Key(f"user-{n % 2}", "gpt-4"), Key(f"user-{n % 2}", "$domain:example")):
                draws = (Draw(0, (n + 1) * MILLI),)
                await store.take([Take(key, (RPM,), draws)], 1_794_792_817_591)
    return await read_stream(location)


async def read_stream(location: Location) -> list[dict[str, Any]]:
    """All records of the table's stream."""
    async with location.client(PATIENT_S) as sdk, open_streams(location) as streams:
        arn = (await sdk.describe_table(TableName=location.table))["Table"]["LatestStreamArn"]
        described = await streams.describe_stream(StreamArn=arn)
        records: list[dict[str, Any]] = []
        for shard in described["StreamDescription"]["Shards"]:
            where = {"StreamArn": arn, "ShardId": shard["ShardId"]}
            begin = await streams.get_shard_iterator(ShardIteratorType="TRIM_HORIZON", **where)
            answer = await streams.get_records(ShardIterator=begin["ShardIterator"])
            records += answer["Records"]
        return [as_lambda_has_it(arn, one) for one in records]


def as_lambda_has_it(arn: str, record: dict[str, Any]) -> dict[str, Any]:
    """JSON: the time in seconds, and the stream's name beside the record."""
    change = dict(record["dynamodb"])
    change["ApproximateCreationDateTime"] = change["ApproximateCreationDateTime"].timestamp()
    event = {**record, "dynamodb": change, "eventSourceARN": arn, "eventSource": "aws:dynamodb"}
    copy: dict[str, Any] = json.loads(json.dumps(event))
    return copy


async def used(location: Location) -> list[Used]:
    async with open_exact_on(location) as store:
        found = [await store.usage.read(f"user-{n}", Window.DAY, 0, ALWAYS_MS) for n in range(2)]
    return [total(one.used for one in windows) for windows in found]


@contextmanager
def fresh_process() -> Iterator[None]:
    """AWS Lambda starts a process when it needs one."""
    usage_lambda.close()
    yield
    usage_lambda.close()


def test_batches_that_come_twice_are_counted_once(
    dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In halves, again as a whole, and by another process."""
    location = Location("test-lambda", "eu-west-1", dynamodb_url)
    monkeypatch.setenv("PENSTOCK_STORE", str(location))
    monkeypatch.setenv("PENSTOCK_USAGE_RETENTION", "month=0")
    asyncio.run(make(location))
    records = delivered(COUNTING, asyncio.run(load(location)))
    assert len(records) == TAKES
    expected = [Used(6, {"rpm": sum(range(n + 1, 13, 2)) * MILLI}) for n in range(2)]
    for batches in ([records[:5], records[3:]], [records], [records[4:], records]):
        with fresh_process():
            for batch in batches:
                answer = usage_lambda.handler({"Records": batch}, None)
                assert answer == {"counted": len(batch)}
        assert asyncio.run(used(location)) == expected
    # The function is not called for its own writes, nor for those of rules.
    written = asyncio.run(read_stream(location))
    assert len(written) > 2 * TAKES
    assert delivered(ARCHIVING, written) == records
    images = [one["dynamodb"]["NewImage"] for one in written]
    for_ever = {one["window"]["S"] for one in images if "window" in one and "ttl" not in one}
    assert for_ever == {"month"}


def test_a_failure_makes_lambda_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception does: nothing is counted that is not on record."""
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    with fresh_process(), pytest.raises(ConfigError, match="set PENSTOCK_STORE"):
        usage_lambda.handler({"Records": []}, None)
    monkeypatch.setenv("PENSTOCK_USAGE_RETENTION", "30d")
    monkeypatch.setenv("PENSTOCK_STORE", "dynamodb://penstock?region=r")
    with fresh_process(), pytest.raises(ConfigError, match="PENSTOCK_USAGE_RETENTION: '30d'"):
        usage_lambda.handler({"Records": []}, None)
    monkeypatch.delenv("PENSTOCK_USAGE_RETENTION")
    monkeypatch.setenv("PENSTOCK_STORE", "dynamodb://gone?region=r&endpoint=http://127.0.0.1:9")
    change = {"SequenceNumber": "1", "Keys": {"SK": {"S": "#BUCKET#gpt-4"}}}
    event = {"Records": [{"eventName": "INSERT", "dynamodb": change}]}
    with fresh_process(), pytest.raises(StoreError):
        usage_lambda.handler(event, None)


async def change_and_expire(location: Location) -> list[dict[str, Any]]:
    """Change limits twice, and remove the records of it, as the table's TTL does months later."""
    async with open_exact_on(location) as store:
        for n in range(2):
            change = Change("ann", 1_794_792_780_000 + n)
            await store.policy.write_limits(SYSTEM, StoredLimits((RPM,), 0), change)
    async with location.client(PATIENT_S) as sdk:
        found = await sdk.scan(TableName=location.table)
        for item in found["Items"]:
            if item["PK"]["S"].startswith("AUDIT#"):
                key = {name: item[name] for name in ("PK", "SK")}
                await sdk.delete_item(TableName=location.table, Key=key)
    return await read_stream(location)


def test_expired_audit_events_go_to_the_archive(
    dynamodb_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each is read once, however often its batch comes."""
    location = Location("test-lambda-archive", "eu-west-1", dynamodb_url)
    monkeypatch.setenv("PENSTOCK_STORE", str(location))
    monkeypatch.setenv("PENSTOCK_AUDIT_ARCHIVE", str(tmp_path))
    asyncio.run(make(location))
    removed = asyncio.run(change_and_expire(location))
    assert delivered(COUNTING, removed) == []  # without a bucket, there is nothing to do
    records = delivered(ARCHIVING, removed)
    assert len(records) == 2
    for batch in (records[:-1], records):
        with fresh_process():
            assert usage_lambda.handler({"Records": batch}, None) == {"counted": 0}

    async def archived() -> list[int]:
        archive = await open_archive(str(tmp_path))
        return [event.at_ms async for event in archive.read("$SYSTEM")]

    assert asyncio.run(archived()) == [1_794_792_780_001, 1_794_792_780_000]


def test_a_batch_comes_again_while_the_archive_fails(
    dynamodb_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise its audit events would be lost."""
    location = Location("test-lambda-failing", "eu-west-1", dynamodb_url)
    monkeypatch.setenv("PENSTOCK_STORE", str(location))
    monkeypatch.setenv("PENSTOCK_AUDIT_ARCHIVE", str(tmp_path))
    (tmp_path / "2026-11").write_text("a file where a folder has to be")
    asyncio.run(make(location))
    records = delivered(ARCHIVING, asyncio.run(change_and_expire(location)))
    with fresh_process(), pytest.raises(StoreError, match="audit archive"):
        usage_lambda.handler({"Records": records}, None)


def test_items_of_the_older_form_are_left_alone(
    dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a table is migrated, its composite items count, and nothing is set aside."""
    location = Location("test-lambda-single", "eu-west-1", dynamodb_url)
    monkeypatch.setenv("PENSTOCK_STORE", str(location))
    asyncio.run(make(location))
    (record, *_) = delivered(COUNTING, asyncio.run(load(location)))
    record["dynamodb"]["Keys"]["SK"]["S"] = "#BUCKET#gpt-4#rpm"
    with fresh_process():
        assert usage_lambda.handler({"Records": [record]}, None) == {"counted": 0}
    assert asyncio.run(read_set_aside(str(location))) == []
