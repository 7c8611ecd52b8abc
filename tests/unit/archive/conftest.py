"""An archive of each kind."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from penstock.archive import open_archive
from penstock.archive.archive import AuditArchive

from tests.support.s3 import run_s3

_BUCKETS = count()


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 for all tests of this process. Each test makes a bucket of its own."""
    with run_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture
def s3_url(s3_endpoint: str) -> str:
    """The URL of an archive in a new bucket."""
    bucket = f"bucket-{next(_BUCKETS)}"
    urlopen(Request(f"{s3_endpoint}/{bucket}", method="PUT")).close()  # noqa: S310 - our own server
    return f"s3://{bucket}/some/prefix?region=us-east-1&endpoint={s3_endpoint}"


@pytest.fixture(params=["directory", "s3"])
async def archive(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AuditArchive]:
    """A new, empty archive of each kind."""
    url = str(tmp_path / "audit")
    if request.param == "s3":
        url = request.getfixturevalue("s3_url")
    opened = await open_archive(url)
    yield opened
    await opened.close()
