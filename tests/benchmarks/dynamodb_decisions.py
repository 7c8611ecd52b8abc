"""What decisions on busy items cost on DynamoDB: CPU time, and calls.

The calls are counted in virtual time, over a model of the table, and then on DynamoDB Local.
"""

import asyncio

from tests.benchmarks.dynamodb_calls import show_calls
from tests.benchmarks.dynamodb_hot import show_hot_key
from tests.benchmarks.dynamodb_local import show_local
from tests.benchmarks.targets import Target


def show_decisions() -> list[Target]:
    return [*show_hot_key(), *show_calls(), *asyncio.run(show_local())]
