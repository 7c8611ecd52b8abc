"""Penstock: a rate-limit server for Envoy, and rate limits for Python programs.

`open` and `connect` are for programs (docs/python.md). They import what they need when a gate is
opened, so that the command `penstock` starts fast.

docs/how-it-works.md has pictures, and a map of all rooms: which folder has the code for what.
"""

from collections.abc import Mapping
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import ConfigError, PenstockError, RateLimited, StoreError

if TYPE_CHECKING:
    from datetime import datetime

    from penstock.client.gate import Gate
    from penstock.client.lease import Lease
    from penstock.client.usage import TopUsage, Usage

__all__ = [
    "ConfigError", "Gate", "Lease", "PenstockError", "RateLimited", "StoreError", "TopUsage",
    "Usage", "connect", "open", "top_usage", "usage",
]  # fmt: skip

__version__ = version("penstock-ratelimit")


def open(  # noqa: A001 - as in `penstock.open`, which nobody imports with *
    store: str,
    *,
    limits: Mapping[str, str] | None = None,
    on_unavailable: Literal["raise", "allow"] = "raise",
) -> "Gate":
    """Take from a store without a server: `memory:`, `sqlite:///limits.db`, `dynamodb://table`.

    Use the gate with `async with`, which raises ConfigError if there is no such store. `limits`,
    such as {"rpm": "100/minute"}, are in force where no limits are stored.
    """
    from penstock.client.embedded import open_leases
    from penstock.client.gate import Gate

    return Gate(lambda: open_leases(store, has_limits=bool(limits)), limits, on_unavailable)


def connect(
    address: str,
    *,
    timeout_s: float = 5.0,
    tls: bool = False,
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str = "",
    limits: Mapping[str, str] | None = None,
    on_unavailable: Literal["raise", "allow"] = "raise",
    domain: str = "leases",
) -> "Gate":
    """Take through a running server: `HOST`, `HOST:PORT` or `unix:PATH`.

    Use the gate with `async with`. Each of `tls`, `ca`, `cert`, `key` and `server_name` turns on
    TLS. `domain` is the domain of the server's rules under which the server counts the decisions.
    """
    from penstock.client.gate import Gate
    from penstock.client.remote import reach_leases

    return Gate(
        lambda: reach_leases(
            address, timeout_s, tls=tls, ca=ca, cert=cert, key=key, server_name=server_name
        ),
        limits,
        on_unavailable,
        domain,
    )


async def usage(
    store: str,
    entity: str,
    *,
    window: Literal["hour", "day", "month"] = "day",
    resource: str | None = None,
    since: "datetime | None" = None,
    until: "datetime | None" = None,
    children: bool = False,
) -> "list[Usage]":
    """Read what an entity consumed, window by window; with `children`, what its children did.

    `since` and `until` need a time zone. A window counts if it begins in this time.
    """
    from penstock.client.usage import read_usage

    return await read_usage(store, entity, window, resource, since, until, children=children)


async def top_usage(
    store: str,
    resource: str,
    *,
    since: "datetime",
    until: "datetime | None" = None,
    window: Literal["hour", "day", "month"] = "day",
    count: int = 10,
    limit: str | None = None,
) -> "list[TopUsage]":
    """Find the entities that consumed most of a resource: of a limit, or by the number of takes."""
    from penstock.client.usage import read_top_usage

    return await read_top_usage(store, resource, window, since, until, count, limit)


def __getattr__(name: str) -> Any:
    if name in {"Gate", "Lease"}:
        from penstock.client import gate, lease

        return {"Gate": gate.Gate, "Lease": lease.Lease}[name]
    if name in {"TopUsage", "Usage"}:
        from penstock.client import usage

        return {"TopUsage": usage.TopUsage, "Usage": usage.Usage}[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
