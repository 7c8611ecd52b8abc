"""The port of calls to AWS: which client makes a call, and that no client raises."""

from typing import Any, get_args

import pytest
from penstock.store.dynamodb.aws.client import (
    Members,
    Operation,
    calls_of,
    parameters_of,
    to_json,
)
from penstock.store.dynamodb.aws.errors import Failure, Fault
from penstock.store.dynamodb.aws.sdk import SdkClient

LISTS = {"query", "scan", "batch_write_item"}


class Echo:
    """Stands in for the SDK's client: answers with its name, the call and the parameters."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, operation: str) -> Any:
        async def answer(**parameters: Any) -> dict[str, Any]:
            return {"by": self._name, "operation": operation, **parameters}

        return answer


@pytest.mark.parametrize("operation", get_args(Operation))
async def test_every_call_goes_to_its_client(operation: Operation) -> None:
    """A client for the calls of decisions can stand beside the SDK."""
    calls = calls_of(SdkClient(Echo("items")), SdkClient(Echo("lists")))
    by = "lists" if operation in LISTS else "items"
    answer = {"by": by, "operation": operation, "TableName": "t"}
    assert await calls[operation]({"TableName": "t"}) == answer


class Broken:
    def __getattr__(self, operation: str) -> Any:
        async def fail(**_: Any) -> None:
            raise KeyError("Attributes")

        return fail


@pytest.mark.parametrize("operation", get_args(Operation))
async def test_an_error_of_the_sdk_comes_back_as_a_failure(operation: Operation) -> None:
    """Whatever it is: who calls needs no table of the SDK's exceptions."""
    client = SdkClient(Broken())
    answer = await calls_of(client, client)[operation]({})
    assert isinstance(answer, Failure)
    assert answer.fault is Fault.UNKNOWN


def test_members_are_added_to_dicts_and_to_text_alike() -> None:
    """Whatever form the parameters of a call have, the call is the same."""
    members = Members(TableName='a"%s', Limit=3, Deep={"L": [1, None]})
    given = {"Key": {"PK": {"S": "ü%"}}, "Flag": True}
    expected = {**given, "TableName": 'a"%s', "Limit": 3, "Deep": {"L": [1, None]}}
    assert parameters_of(members.added_to(given)) == expected
    assert parameters_of(members.added_to(to_json(given))) == expected
