"""The handler of AWS Lambda, called with records of a real stream as AWS Lambda hands them over."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from penstock import usage_lambda
from penstock.core.limits import MILLI, Limit
from penstock.core.take import Draw, Key, Take
from penstock.core.usage import Used, Window, total
from penstock.errors import ConfigError, StoreError
from penstock.store.dynamodb.aws.location import Location
from penstock.store.dynamodb.aws.streams import open_streams
from penstock.store.dynamodb.table.schema import create_arguments

from tests.support.tables import PATIENT_S, open_on
from tests.support.usage import ALWAYS_MS

RPM = Limit.per(1_000, 60_000, name="rpm")
TAKES = 12


async def make(location: Location) -> None:
    async with location.client(PATIENT_S) as sdk:
        await sdk.create_table(TableName=location.table, **create_arguments(None, stream=True))


async def load(location: Location) -> list[dict[str, Any]]:
    """Take from two entities; returns the records that the stream has of it."""
    async with open_on(location) as store:
        for n in range(TAKES):
            key = Key(f"user-{n % 2}", "gpt-4")
            await store.take([Take(key, (RPM,), (Draw(0, (n + 1) * MILLI),))], 1_794_792_817_591)
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
    async with open_on(location) as store:
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
    asyncio.run(make(location))
    records = asyncio.run(load(location))
    assert len(records) == TAKES
    expected = [Used(6, {"rpm": sum(range(n + 1, 13, 2)) * MILLI}) for n in range(2)]
    for batches in ([records[:5], records[3:]], [records], [records[4:], records]):
        with fresh_process():
            for batch in batches:
                answer = usage_lambda.handler({"Records": batch}, None)
                assert answer == {"counted": len(batch)}
        assert asyncio.run(used(location)) == expected


def test_a_failure_makes_lambda_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception does: nothing is counted that is not on record."""
    monkeypatch.delenv("PENSTOCK_STORE", raising=False)
    with fresh_process(), pytest.raises(ConfigError, match="set PENSTOCK_STORE"):
        usage_lambda.handler({"Records": []}, None)
    monkeypatch.setenv("PENSTOCK_STORE", "dynamodb://gone?region=r&endpoint=http://127.0.0.1:9")
    change = {"SequenceNumber": "1", "Keys": {"SK": {"S": "#BUCKET#gpt-4"}}}
    event = {"Records": [{"eventName": "INSERT", "dynamodb": change}]}
    with fresh_process(), pytest.raises(StoreError):
        usage_lambda.handler(event, None)
