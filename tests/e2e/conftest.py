"""The parts that several files of these tests share."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest
from penstock.cli import main
from penstock.store.dynamodb.aws.location import Location

from tests.e2e.outage import RunningProxy
from tests.e2e.rls_client import XdsClient, run_xds_client


@pytest.fixture(scope="module", params=["native", "grpcio"])
def transport(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each way to serve gRPC in turn, for all servers of a test that are not told otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_TRANSPORT", request.param)
        yield request.param


@pytest.fixture(scope="session")
def xds() -> Iterator[XdsClient]:
    """The independent client. One process does for all tests: it keeps no state."""
    with run_xds_client() as client:
        yield client


@pytest.fixture
def proxy(dynamodb_url: str) -> Iterator[RunningProxy]:
    """In front of DynamoDB, to cut it off."""
    running = RunningProxy(dynamodb_url)
    yield running
    running.close()


@pytest.fixture
def proxied_table(dynamodb_url: str, proxy: RunningProxy) -> Iterator[str]:
    """A table as its users make it, seen through the proxy."""
    direct = Location(f"proxied-{uuid4().hex}", "eu-west-1", dynamodb_url)
    assert main(["table", "create", "--store", str(direct)]) == 0
    yield str(replace(direct, endpoint=proxy.url))
    assert main(["table", "delete", "--store", str(direct), "--yes"]) == 0
