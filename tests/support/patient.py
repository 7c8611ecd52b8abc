"""Penstock with patience for DynamoDB Local: on a busy machine, a call may take many seconds.

As a program, it is `penstock`. Otherwise servers and commands wait for a second, as they should.
"""

import sys
from functools import partial

import penstock.store.dynamodb.aws.streams as streams
import penstock.store.dynamodb.store as dynamodb
import penstock.store.dynamodb.usage.opening as usage
import pytest
from penstock.cli import main
from penstock.store.dynamodb.aws.clients import open_clients

PATIENT_S = 60


def wait_long_for_dynamodb(patch: pytest.MonkeyPatch) -> None:
    """Let the stores that this process opens wait, and what counts their usage."""
    patch.setattr(dynamodb, "open_clients", partial(open_clients, call_s=PATIENT_S))
    patch.setattr(dynamodb, "DynamoStore", partial(dynamodb.DynamoStore, call_s=PATIENT_S))
    for module in (streams, usage):
        patch.setattr(module, "CALL_S", PATIENT_S)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        wait_long_for_dynamodb(patch)
        sys.exit(main())
