"""Leases of a running server."""

from contextlib import AbstractAsyncContextManager
from os import PathLike
from pathlib import Path

from penstock.transport.client import full_address
from penstock.transport.client_tls import ClientTls
from penstock.transport.lease_client import RemoteLeases, connect_leases

AnyPath = str | PathLike[str]


def reach_leases(
    address: str,
    timeout_s: float,
    *,
    tls: bool,
    ca: AnyPath | None,
    cert: AnyPath | None,
    key: AnyPath | None,
    server_name: str,
) -> AbstractAsyncContextManager[RemoteLeases]:
    """Connect with the first call. ConfigError for an address or a file that can't be used."""
    trust = None
    if tls or ca or cert or key or server_name:
        trust = ClientTls(_path(ca), _path(cert), _path(key), server_name)
    return connect_leases(full_address(address, "address"), timeout_s, trust)


def _path(file: AnyPath | None) -> Path | None:
    return None if file is None else Path(file)
