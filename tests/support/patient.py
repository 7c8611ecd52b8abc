"""Penstock with patience for DynamoDB Local: on a busy machine, a call may take many seconds.

As a program, it is `penstock`. Otherwise servers and commands wait for a second, as they should.
"""

import sys
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import penstock.store.dynamodb.aws.streams as streams
import penstock.store.dynamodb.store as dynamodb
import penstock.store.dynamodb.usage.opening as usage
import penstock.transport.http_site as http_site
from penstock.cli import main
from penstock.store.dynamodb.aws.clients import open_clients

if TYPE_CHECKING:  # to import it would take a server half as long as to start
    import pytest

PATIENT_S = 60


def wait_long_for_dynamodb(patch: "pytest.MonkeyPatch") -> None:
    """Let the stores that this process opens wait, and what counts their usage."""
    for module, name, value in _patient():
        patch.setattr(module, name, value)


def _patient() -> Iterator[tuple[ModuleType, str, Any]]:
    yield dynamodb, "open_clients", partial(open_clients, call_s=PATIENT_S)
    yield dynamodb, "DynamoStore", partial(dynamodb.DynamoStore, call_s=PATIENT_S)
    for module in (streams, usage):
        yield module, "CALL_S", PATIENT_S
    yield http_site, "ANSWER_S", PATIENT_S


if __name__ == "__main__":
    for patched in _patient():
        setattr(*patched)
    sys.exit(main())
