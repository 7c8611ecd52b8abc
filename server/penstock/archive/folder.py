"""The port of an archive: a folder of files."""

from typing import Protocol


class Folder(Protocol):
    """Files by name. A name is a path below the folder, with `/` between its parts.

    Every method raises StoreError if the folder can't be used now.
    """

    async def put(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all. A file of that name is replaced."""
        ...

    async def names(self) -> list[str]: ...

    async def get(self, name: str) -> bytes: ...

    async def close(self) -> None: ...
