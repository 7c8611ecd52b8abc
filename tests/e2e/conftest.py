"""The parts that several files of these tests share."""

from collections.abc import Iterator

import pytest

from tests.e2e.rls_client import XdsClient, run_xds_client


@pytest.fixture(scope="session")
def xds() -> Iterator[XdsClient]:
    """The independent client. One process does for all tests: it keeps no state."""
    with run_xds_client() as client:
        yield client
