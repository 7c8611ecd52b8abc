"""Keys of the one table: escaped, so that no name can pose as another key, and of bounded size."""

from hashlib import sha256
from typing import Final

from penstock.core.take import Key

PK: Final = "PK"
SK: Final = "SK"
VERSION_KEY: Final = ("SYSTEM#", "#VERSION")

MAX_BYTES: Final = 900
"""DynamoDB takes 1,024 bytes in a sort key, and an entity stands in one behind `BUCKET#`."""

_ESCAPES: Final = str.maketrans({"%": "%25", "#": "%23"})


def partition(entity: str) -> str:
    """Where everything about an entity lives."""
    return f"ENTITY#{_part(entity)}"


def bucket_sort(resource: str) -> str:
    return f"#BUCKET#{_part(resource)}"


def resource_partition(resource: str) -> str:
    """In the index of resources."""
    return f"RESOURCE#{_part(resource)}"


def bucket_of(entity: str) -> str:
    """In the index of resources, behind the resource."""
    return f"BUCKET#{_part(entity)}"


def primary_key(key: Key) -> dict[str, dict[str, str]]:
    return {PK: {"S": partition(key.entity)}, SK: {"S": bucket_sort(key.resource)}}


def _part(text: str) -> str:
    escaped = text.translate(_ESCAPES)
    data = escaped.encode()
    if len(data) <= MAX_BYTES:
        return escaped
    # No escaped text has two `%` in a row, so a hash never meets a name.
    return f"{escaped[:64]}%%{sha256(data).hexdigest()}"
