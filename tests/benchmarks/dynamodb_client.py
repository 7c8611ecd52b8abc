"""The client's CPU time for one UpdateItem: ours against aioboto3's."""

import asyncio
import statistics
import time

from penstock.store.dynamodb.aws.clients import Clients, open_clients
from penstock.store.dynamodb.aws.errors import Failure
from penstock.store.dynamodb.aws.location import ClientName, Location

from tests.benchmarks.instant_endpoint import answering
from tests.benchmarks.targets import Target, at_most
from tests.support.tables import CLIENTS

CALLERS = 16
ROUNDS = 5
CALLS = {"lean": 10_000, "aioboto3": 2_000}
TARGET = 0.1

KEY = {"PK": {"S": "ENTITY#bench|client_ip=10.1.2.3"}, "SK": {"S": "#BUCKET#bench"}}
UPDATE = {
    "TableName": "bench",
    "Key": KEY,
    "UpdateExpression": "ADD #n0 :v0, #n1 :v1 SET #n2 = :v2",
    "ConditionExpression": "#n3 = :v3 AND #n4 >= :v4 AND #n0 >= :v5 AND #n2 >= :v6",
    "ExpressionAttributeNames": {
        "#n0": "b_limit_tk", "#n1": "b_limit_tc", "#n2": "ttl", "#n3": "policy", "#n4": "rf",
    },
    "ExpressionAttributeValues": {
        ":v0": {"N": "-1000"}, ":v1": {"N": "1000"}, ":v2": {"N": "1794796380"},
        ":v3": {"S": "5c0f3b1c9a7e4d21"}, ":v4": {"N": "1794792780000"}, ":v5": {"N": "1000"},
        ":v6": {"N": "1794792780"},
    },
    "ReturnValues": "ALL_NEW",
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    "ReturnConsumedCapacity": "TOTAL",
}  # fmt: skip
ANSWER = {
    "Attributes": {
        **KEY, "entity_id": {"S": "bench|client_ip=10.1.2.3"}, "resource": {"S": "bench"},
        "rf": {"N": "1794792780000"}, "ttl": {"N": "1794796380"}, "cascade": {"BOOL": False},
        "policy": {"S": "5c0f3b1c9a7e4d21"}, "policy_ms": {"N": "1794792780000"},
        "b_limit_tk": {"N": "99000"}, "b_limit_tc": {"N": "1000"}, "b_limit_cp": {"N": "100000"},
        "b_limit_bx": {"N": "100000"}, "b_limit_ra": {"N": "100000"}, "b_limit_rp": {"N": "60000"},
    },
    "ConsumedCapacity": {"TableName": "bench", "CapacityUnits": 1.0},
}  # fmt: skip


def show_client_cpu() -> list[Target]:
    """Print the CPU time of a call on each client, and their ratio in the same round."""
    with answering(ANSWER) as url:
        rounds = [asyncio.run(_round(url)) for _ in range(ROUNDS)]
    print(f"CPU of the client for one UpdateItem, {CALLERS} at once")
    for name in CLIENTS:
        print(f"  {name:<42} {statistics.median(one[name] for one in rounds):>9,.0f} us")
    ratio = statistics.median(one["lean"] / one["aioboto3"] for one in rounds)
    return [at_most("CPU of one UpdateItem / aioboto3's", ratio, TARGET, digits=3)]


async def _round(url: str) -> dict[str, float]:
    return {name: await call_us(url, name, CALLS[name]) for name in CLIENTS}


async def call_us(url: str, client: ClientName, calls: int) -> float:
    """The CPU time of one UpdateItem through a client."""
    async with open_clients(Location("bench", "eu-west-1", url, client_name=client)) as clients:
        await _call(clients, CALLERS)
        start_s = time.process_time()
        await asyncio.gather(*(_call(clients, calls // CALLERS) for _ in range(CALLERS)))
        return (time.process_time() - start_s) / calls * 1e6


async def _call(clients: Clients, times: int) -> None:
    for _ in range(times):
        answer = await clients.items.update_item(UPDATE)
        assert not isinstance(answer, Failure), answer
