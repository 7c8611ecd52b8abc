"""From settings to parts: what each room of a server is given."""

import logging
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, TypeVar, cast

from penstock import __version__
from penstock.config.rules import RulesSource
from penstock.config.settings import Settings
from penstock.config.watch import RulesWatcher
from penstock.core.plan import Behaviour
from penstock.core.rule_counting import RuleCounting
from penstock.errors import ConfigError
from penstock.service.answer import OnUnavailable, Options
from penstock.service.headers import HeaderNames
from penstock.telemetry.metrics import Metrics
from penstock.telemetry.statsd import ReadMetrics, Sender
from penstock.traffic.hashing import make_hide
from penstock.traffic.recorder import Recorder
from penstock.traffic.segments import Segments
from penstock.transport.codec import XdsNode
from penstock.transport.descriptors import Shares, open_files_limit, share
from penstock.transport.http import HttpPort
from penstock.transport.leases import LeaseService
from penstock.transport.listener import ConnectionBounds, Listener
from penstock.transport.rls import RateLimitService
from penstock.transport.served import Peeks
from penstock.transport.tls import CLIENT_CA, choose_tls

if TYPE_CHECKING:
    from penstock.telemetry.otel import OtelTracer
    from penstock.transport.grpcio import GrpcServer
    from penstock.transport.native.server import NativeServer
    from penstock.xds.client import XdsClient

T = TypeVar("T")

LOG: Final = logging.getLogger(__name__)

OTLP: Final = "otlp"
NO_EXPORTER: Final = "none"

HASH_KEY_BYTES: Final = 32
LEAST_HASH_KEY: Final = 16
"""Characters of the secret for hashes."""


def check_workers(settings: Settings) -> None:
    """Raise ConfigError if the settings ask for workers, and something else rules workers out."""
    if settings.workers == 1:
        return
    if settings.store.startswith("memory:"):
        raise ConfigError(
            f"--workers {settings.workers}: processes can't share the store memory:, so each would "
            "admit all of a limit; choose sqlite:///PATH or dynamodb://TABLE, or --workers 1"
        )
    if settings.grpc_uds and settings.transport == "grpcio":
        raise ConfigError(
            f"--workers {settings.workers}: with --transport grpcio, processes can't share a unix "
            "socket; choose --transport native, an address and a port, or --workers 1"
        )


def with_hash_key(settings: Settings) -> Settings:
    """Choose a secret for hashes, if one is needed and there is none. All workers need the same.

    ConfigError if the secret is so short that somebody could guess it.
    """
    hashes = settings.record_hash or settings.console_values == "hashed"
    if hashes and not settings.record_hash_key:
        return replace(settings, record_hash_key=token_hex(HASH_KEY_BYTES))
    if 0 < len(settings.record_hash_key) < LEAST_HASH_KEY:
        raise ConfigError(
            f"PENSTOCK_RECORD_HASH_KEY: {len(settings.record_hash_key)} characters can be guessed, "
            f"write at least {LEAST_HASH_KEY}"
        )
    return settings


def make_recorder(
    settings: Settings, metrics: Metrics, clock_ms: Callable[[], int]
) -> Recorder | None:
    """Make the recorder of requests; None if recording is off. ConfigError if it can't record."""
    if not settings.record_trace:
        return None
    segments = Segments(
        Path(settings.record_trace), settings.record_trace_max_bytes, settings.workers, clock_ms
    )
    hide = make_hide(settings.record_hash, settings.record_hash_key)
    return Recorder(segments, metrics, clock_ms, hide)


def rules_source(settings: Settings) -> RulesSource:
    return RulesSource(
        settings.rules_path(),
        settings.runtime_ignoredotfiles,
        settings.merge_domain_config,
        RuleCounting(settings.counting),
    )


def make_watcher(settings: Settings, metrics: Metrics) -> RulesWatcher:
    return RulesWatcher(rules_source(settings), metrics.config_load_error.add)


def make_xds_client(
    settings: Settings, metrics: Metrics, read: Callable[..., Awaitable[T]]
) -> "XdsClient[T]":
    """Make the client of an xDS server. `read` is a function of `xds.reading`. ConfigError if
    settings or files can't be used."""
    # Only here: gRPC's C library takes memory and time to start.
    from penstock.transport.ads import AdsServer
    from penstock.transport.ads_tls import FollowedAdsTls, choose_ads_tls
    from penstock.xds.client import XdsClient
    from penstock.xds.pauses import PauseOptions, Pauses

    tls = choose_ads_tls(
        use=settings.config_grpc_xds_server_use_tls,
        cert=settings.config_grpc_xds_client_tls_cert,
        key=settings.config_grpc_xds_client_tls_key,
        ca=settings.config_grpc_xds_server_tls_cacert,
        san=settings.config_grpc_xds_server_tls_san,
    )
    server = AdsServer(
        settings.config_grpc_xds_server_url,
        settings.xds_client_max_msg_size_in_bytes,
        settings.config_grpc_xds_client_additional_headers,
        FollowedAdsTls(tls) if tls else None,
    )
    pauses = PauseOptions(
        connect_s=settings.config_grpc_xds_server_connect_retry_interval / 1000,
        initial_s=settings.xds_client_backoff_initial_interval / 1000,
        max_s=settings.xds_client_backoff_max_interval / 1000,
        random_factor=settings.xds_client_backoff_random_factor,
        has_jitter=settings.xds_client_backoff_jitter,
    )
    node = XdsNode(
        settings.config_grpc_xds_node_id,
        dict(settings.config_grpc_xds_node_metadata),
        __version__,
    )
    if settings.config:
        LOG.warning("--config has no effect: rules come over xDS from %s", server.address)
    read_all = partial(
        read, merge_domains=settings.merge_domain_config, counting=RuleCounting(settings.counting)
    )
    return XdsClient(server, node, read_all, Pauses(pauses), metrics)


def grpc_listener(settings: Settings) -> Listener:
    return Listener(
        host=settings.grpc_host,
        port=settings.grpc_port,
        uds=settings.grpc_uds,
        max_connection_age_ms=settings.grpc_max_connection_age,
        max_connection_age_grace_ms=settings.grpc_max_connection_age_grace,
        tls=choose_tls(
            use=settings.grpc_server_use_tls,
            cert=settings.grpc_server_tls_cert,
            key=settings.grpc_server_tls_key,
            client_ca=settings.grpc_client_tls_cacert,
            client_san=settings.grpc_client_tls_san,
        ),
        max_message_bytes=settings.max_request_bytes,
        bounds=ConnectionBounds(most=connection_shares(settings).grpc),
    )


def make_transport(
    settings: Settings,
    service: RateLimitService,
    listener: Listener,
    peeks: Peeks,
    leases: LeaseService,
    arriving: socket.socket | None = None,
) -> "GrpcServer | NativeServer":
    """Make the gRPC server. Import only what it needs: gRPC's C library takes memory and time.

    `arriving`: connections come from this socket. The server opens no socket of its own.
    """
    if settings.transport == "grpcio":
        from penstock.transport.grpcio import GrpcServer

        return GrpcServer(service, listener, peeks=peeks, leases=leases)
    from penstock.transport.native.server import NativeServer

    return NativeServer(service, listener, peeks=peeks, leases=leases, listening=arriving)


def connection_shares(settings: Settings) -> Shares:
    """How many connections each port may have; ConfigError if open files don't allow it."""
    return share(open_files_limit(), settings.grpc_max_connections, settings.workers)


def why_no_decisions(settings: Settings) -> str:
    """Why /json does not decide, for the answer to its callers; empty if /json decides."""
    name = "PENSTOCK_HTTP_DECISIONS"
    if settings.http_decisions == "off":
        return f"decisions over HTTP are off: {name} is off"
    if settings.http_decisions == "auto" and settings.grpc_client_tls_cacert:
        return (
            f"decisions over HTTP are off: clients need a certificate for gRPC "
            f"({CLIENT_CA}), and this port asks for none; {name}=on allows them"
        )
    return ""


def limiter_options(settings: Settings) -> Options:
    names = HeaderNames(
        settings.limit_limit_header, settings.limit_remaining_header, settings.limit_reset_header
    )
    return Options(
        behaviour=Behaviour(
            settings.shadow_mode,
            settings.quota_mode,
            RuleCounting(settings.counting),
            settings.cache_key_prefix,
        ),
        on_unavailable=cast("OnUnavailable", settings.on_unavailable),
        headers=names if settings.limit_response_headers_enabled else None,
        dynamic_metadata=settings.response_dynamic_metadata,
        near_limit_ratio=settings.near_limit_ratio,
    )


def http_ports(settings: Settings) -> tuple[HttpPort, HttpPort, tuple[HttpPort, str] | None]:
    """The main port, the debug port, and the one for Prometheus alone, with its path."""
    shares = connection_shares(settings)
    main = HttpPort(settings.host, settings.port, "--host and --port", shares.http)
    flag = "--debug-host and --debug-port"
    debug = HttpPort(settings.debug_host, settings.debug_port, flag, shares.other)
    if not settings.use_prometheus:
        return main, debug, None
    prometheus = HttpPort(*settings.prometheus_addr, "--prometheus-addr", shares.other)
    return main, debug, (prometheus, settings.prometheus_path)


def metrics_in_milliseconds(settings: Settings, metrics: Metrics) -> frozenset[str]:
    """The names of metrics that count seconds, and are to show milliseconds to Prometheus."""
    is_wanted = settings.prometheus_response_time_as_milliseconds
    return frozenset({metrics.response_seconds.name} if is_wanted else ())


def make_sender(settings: Settings, read: ReadMetrics) -> Sender | None:
    if not settings.use_statsd:
        return None
    if not settings.stats_flush_interval:
        raise ConfigError(
            "STATS_FLUSH_INTERVAL: 0 is not an interval: write a duration such as 10s"
        )
    return Sender(read, settings.statsd_host, settings.statsd_port, settings.extra_tags)


def make_tracer(settings: Settings) -> "OtelTracer | None":
    """Make the exporter of traces, if our setting or a setting of OpenTelemetry turns traces on."""
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    is_wanted = settings.tracing_enabled or exporter == OTLP
    if not is_wanted or is_disabled or exporter == NO_EXPORTER:
        return None
    if exporter not in {"", OTLP}:
        raise ConfigError(f"OTEL_TRACES_EXPORTER: '{exporter}' is not one of otlp, none")
    # Takes a while to import, so only those who use it wait for it.
    from penstock.telemetry import otlp

    return otlp.make_tracer(
        otlp.TracingOptions(
            settings.tracing_service_name,
            settings.tracing_service_namespace,
            settings.tracing_service_instance_id,
            settings.tracing_exporter_protocol,
            settings.tracing_sampling_rate,
        )
    )
