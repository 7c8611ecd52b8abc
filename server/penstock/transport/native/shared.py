"""What all connections of one server share."""

import asyncio
from dataclasses import dataclass, field, replace
from random import uniform
from typing import TYPE_CHECKING, Final

from penstock.transport.call_bounds import CallBounds
from penstock.transport.client_names import AllowedName
from penstock.transport.http2 import Bounds
from penstock.transport.methods import Methods
from penstock.transport.native.turns import Turns
from penstock.transport.native.unfinished import Unfinished

if TYPE_CHECKING:
    from penstock.transport.native.connection import GrpcConnection


AGE_SPREAD: Final = 0.1
"""As gRPC's C library has it."""


@dataclass(slots=True, eq=False)
class Shared:
    methods: Methods
    bounds: Bounds
    max_message_bytes: int
    call_bounds: CallBounds
    loop: asyncio.AbstractEventLoop
    allowed: AllowedName | None = None
    """The name that a client's certificate must have; None if any will do."""
    unfinished: Unfinished = field(init=False)
    turns: Turns = field(init=False)
    streams: int = 0
    """Streams that stay open, of all connections."""
    connections: "set[GrpcConnection]" = field(default_factory=set)
    is_empty: asyncio.Event = field(default_factory=asyncio.Event)
    """There are no connections."""

    def __post_init__(self) -> None:
        self.unfinished = Unfinished(self.call_bounds, self.loop)
        self.turns = Turns(self.loop)
        self.is_empty.set()

    def draw_bounds(self) -> Bounds:
        """For one connection: those that began together are not all asked to go together."""
        age_s = self.bounds.max_age_s
        if age_s is None:
            return self.bounds
        spread = uniform(1 - AGE_SPREAD, 1 + AGE_SPREAD)  # noqa: S311 - no secret
        return replace(self.bounds, max_age_s=age_s * spread)

    def add(self, connection: "GrpcConnection") -> None:
        self.connections.add(connection)
        self.is_empty.clear()

    def remove(self, connection: "GrpcConnection") -> None:
        self.connections.discard(connection)
        if not self.connections:
            self.is_empty.set()
