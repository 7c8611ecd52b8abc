"""The service over gRPC, with health checking and reflection."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from penstock.errors import ConfigError, InvalidRequestError, RequestError, StoreError
from penstock.transport.address import write_address
from penstock.transport.client_names import NamedClients
from penstock.transport.codec import METHOD, SERVICE
from penstock.transport.health import HealthChecks
from penstock.transport.rls import RateLimitService
from penstock.transport.tls import Tls, server_credentials

LOG: Final = logging.getLogger(__name__)

MAX_MS: Final = 2**31 - 1
"""What gRPC takes for a time: 24 days, which it reads as never."""

QUIET_S: Final = 0.5
"""Without a call for so long, clients have moved away. Envoy under load sends many in that time."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen, a host and port or a unix socket, and whether over TLS."""

    host: str
    port: int
    uds: str = ""
    max_connection_age_ms: int = 86_400_000
    max_connection_age_grace_ms: int = 3_600_000
    tls: Tls | None = None

    @property
    def address(self) -> str:
        if self.uds:
            return f"unix:{self.uds}"
        return write_address(self.host, self.port)


def _age_ms(age_ms: int) -> int:
    """As gRPC for Go reads it, and so the reference server: 0 is no end, not the beginning."""
    return min(age_ms or MAX_MS, MAX_MS)


class GrpcServer:
    def __init__(self, service: RateLimitService, listener: Listener) -> None:
        self._service = service
        self._listener = listener
        self._calls = 0
        self._health = HealthChecks()
        san = listener.tls.client_san if listener.tls else ""
        self._server = grpc.aio.server(
            interceptors=(NamedClients(san),) if san else (),
            options=(
                ("grpc.max_connection_age_ms", _age_ms(listener.max_connection_age_ms)),
                (
                    "grpc.max_connection_age_grace_ms",
                    _age_ms(listener.max_connection_age_grace_ms),
                ),
                # Without this a second server on the port would start, and take half of the calls.
                ("grpc.so_reuseport", 0),
            ),
        )

    async def start(self) -> str:
        """Listen; returns the address. ConfigError if that can't be done."""
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
            self._should_rate_limit
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        await self.set_serving(serving=False)
        address = self._listener.address
        tls = self._listener.tls
        try:
            if tls:
                port = self._server.add_secure_port(address, server_credentials(tls))
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError as exc:
            place = "the path is too long, or its directory does not exist"
            if not self._listener.uds:
                place = "taken by another process, or not an address of this machine"
            raise ConfigError(f"cannot listen on {address}: {place}") from exc
        await self._server.start()
        return address if self._listener.uds else f"{address.rpartition(':')[0]}:{port}"

    async def set_serving(self, *, serving: bool) -> None:
        """Tell health checks whether to send requests here."""
        await self._health.set_serving(serving=serving)

    async def drain(self, timeout_s: float) -> None:
        """Say NOT_SERVING, and go on serving until clients have moved away or time is up.

        They have once every health checker has been told, and no call came for a while.
        """
        await self.set_serving(serving=False)
        start = time.monotonic()
        while (left := start + timeout_s - time.monotonic()) > 0:
            calls = self._calls
            await asyncio.sleep(min(QUIET_S, left))
            if calls == self._calls and self._health.all_told_since(start):
                return

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and give those under way the time to finish."""
        await self._server.stop(grace_s)

    async def _should_rate_limit(
        self, request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]"
    ) -> bytes:
        self._calls += 1
        try:
            return await self._service.should_rate_limit(
                request, context.time_remaining(), lambda: context.invocation_metadata() or ()
            )
        except InvalidRequestError as exc:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(exc))
        except RequestError as exc:
            # The reference server's code for these.
            await context.abort(grpc.StatusCode.UNKNOWN, str(exc))
        except StoreError as exc:
            LOG.warning("answering UNAVAILABLE: %s", exc)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(exc))
        except Exception:
            LOG.exception("answering INTERNAL: a fault of this server")
            await context.abort(
                grpc.StatusCode.INTERNAL, "a fault of this server; its log has more"
            )
