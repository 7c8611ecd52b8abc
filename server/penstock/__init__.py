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
    from penstock.client.gate import Gate
    from penstock.client.lease import Lease

__all__ = [
    "ConfigError", "Gate", "Lease", "PenstockError", "RateLimited", "StoreError", "connect", "open",
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
) -> "Gate":
    """Take through a running server: `HOST`, `HOST:PORT` or `unix:PATH`.

    Use the gate with `async with`. Each of `tls`, `ca`, `cert`, `key` and `server_name` turns on
    TLS.
    """
    from penstock.client.gate import Gate
    from penstock.client.remote import reach_leases

    return Gate(
        lambda: reach_leases(
            address, timeout_s, tls=tls, ca=ca, cert=cert, key=key, server_name=server_name
        ),
        limits,
        on_unavailable,
    )


def __getattr__(name: str) -> Any:
    if name in {"Gate", "Lease"}:
        from penstock.client import gate, lease

        return {"Gate": gate.Gate, "Lease": lease.Lease}[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
