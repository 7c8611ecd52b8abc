"""The transports that serve gRPC. What is tested on the wire is tested on each of them."""

from typing import TypeAlias

import pytest
from penstock.transport.grpcio import GrpcServer
from penstock.transport.native.server import NativeServer

AnyServer: TypeAlias = GrpcServer | NativeServer
MakeServer: TypeAlias = type[GrpcServer] | type[NativeServer]

TRANSPORTS: dict[str, MakeServer] = {"native": NativeServer, "grpcio": GrpcServer}
"""By the name that `--transport` has for them."""

on_one_transport = pytest.mark.parametrize("transport", ["native"], indirect=True)
"""For tests of what does not depend on the transport, in a file whose tests run on each."""
