"""Opens the archive that a path or a URL names."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from penstock.archive.archive import AuditArchive
from penstock.archive.directory import Directory
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.archive.s3 import S3Location

FORMS: Final = "a directory, or s3://BUCKET/PREFIX?region=REGION"

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


async def open_archive(url: str) -> AuditArchive:
    """ConfigError if the text names no archive. A directory is made when it is needed."""
    scheme, colon, _ = url.partition("://")
    if not colon:
        return AuditArchive(Directory(_directory(url)))
    if scheme != "s3":
        raise ConfigError(f"audit archive '{url}': an archive is {FORMS}")
    location = _location(url)
    # The AWS SDK takes half a second to import, so only those who use it wait for it.
    from penstock.archive.s3 import open_s3

    return AuditArchive(await open_s3(location))


@asynccontextmanager
async def opened_archive(url: str) -> AsyncIterator[AuditArchive | None]:
    """The archive for as long as it is used. None if the text is empty."""
    archive = await open_archive(url) if url else None
    try:
        yield archive
    finally:
        if archive is not None:
            await archive.close()


def _directory(text: str) -> Path:
    path = Path(text)
    if "\0" in text:
        raise ConfigError(f"audit archive {text!r}: a path can't hold a null character")
    if path.exists() and not path.is_dir():
        raise ConfigError(f"audit archive {path}: this is a file; an archive is {FORMS}")
    return path


def _location(url: str) -> "S3Location":
    from penstock.archive.s3 import S3Location

    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise ConfigError(f"audit archive '{url}': {exc}; an archive is {FORMS}") from exc
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - {"region", "endpoint"}:
        raise ConfigError(f"audit archive '{url}': unknown option '{min(unknown)}'")
    if not _BUCKET.fullmatch(parts.netloc):
        raise ConfigError(f"audit archive '{url}': no name of a bucket; an archive is {FORMS}")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in {"http", "https"}:
        raise ConfigError(
            f"audit archive '{url}': endpoint is a URL, such as http://127.0.0.1:9000"
        )
    prefix = parts.path.strip("/")
    return S3Location(parts.netloc, prefix and f"{prefix}/", options.get("region"), endpoint)
