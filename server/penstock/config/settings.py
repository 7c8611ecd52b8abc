"""Settings, each declared once: flags, environment names and the docs derive from here.

A flag counts before the environment, and the environment before the default. Nothing reads flags or
the environment later.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.config.kinds import (
    ADDRESS,
    BOOL,
    CALLS,
    COUNT,
    COUNTING,
    DECISIONS,
    DURATION,
    EVENT_LOOP,
    FORMAT,
    HEADERS,
    LEVEL,
    MESSAGE_BYTES,
    NAMES,
    PAIRS,
    PATH,
    PORT,
    PROTOCOL,
    REQUEST_BYTES,
    SHARE,
    SIZE,
    SOURCE,
    TAGS,
    TEXT,
    TRANSPORT,
    UNAVAILABLE,
    USAGE,
    VALUES,
    WORKERS,
    Address,
    Kind,
    Tags,
)
from penstock.core.request import DEFAULT_MAX_BYTES
from penstock.core.usage import USAGE_KEPT, UsageKept
from penstock.errors import ConfigError

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - the reference server's default: Envoy is elsewhere


def _setting(env: str, kind: Kind, default: Any, doc: str, *, is_secret: bool = False) -> Any:
    metadata = {"env": env, "kind": kind, "doc": doc}
    return field(default=default, repr=not is_secret, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    config: str = _setting(
        "PENSTOCK_CONFIG",
        PATH,
        "",
        "rules file, or directory of rules files; the default comes from RUNTIME_*",
    )
    store: str = _setting(
        "PENSTOCK_STORE",
        TEXT,
        "sqlite:///penstock.db",
        "URL of the store for buckets and stored limits",
    )
    workers: int = _setting(
        "PENSTOCK_WORKERS",
        WORKERS,
        1,
        "processes that answer gRPC calls on one port; auto: one for each core",
    )
    grpc_host: str = _setting(
        "GRPC_HOST", TEXT, ANY_IPV4, "address to listen on; `::` means all IPv4 and IPv6 addresses"
    )
    grpc_port: int = _setting("GRPC_PORT", PORT, 8081, "port to listen on; 0 picks a free one")
    grpc_uds: str = _setting(
        "GRPC_UDS", PATH, "", "unix socket to listen on, instead of an address and a port"
    )
    grpc_max_connection_age: int = _setting(
        "GRPC_MAX_CONNECTION_AGE",
        DURATION,
        86_400_000,
        "age at which the server asks the client of a connection to reconnect; 0: never",
    )
    grpc_max_connection_age_grace: int = _setting(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        DURATION,
        3_600_000,
        "time that calls have to finish after GRPC_MAX_CONNECTION_AGE",
    )
    grpc_server_use_tls: bool = _setting(
        "GRPC_SERVER_USE_TLS",
        BOOL,
        False,
        "serve gRPC over TLS; needs a certificate and a private key",
    )
    grpc_server_tls_cert: str = _setting(
        "GRPC_SERVER_TLS_CERT",
        PATH,
        "",
        "PEM file with the certificate chain; a new file is used without a restart",
    )
    grpc_server_tls_key: str = _setting(
        "GRPC_SERVER_TLS_KEY",
        PATH,
        "",
        "PEM file with the private key; a new file is used without a restart",
    )
    grpc_client_tls_cacert: str = _setting(
        "GRPC_CLIENT_TLS_CACERT",
        PATH,
        "",
        "PEM file with CAs; clients must have a certificate from one of these CAs; "
        "a new file is used without a restart",
    )
    grpc_client_tls_san: str = _setting(
        "GRPC_CLIENT_TLS_SAN",
        TEXT,
        "",
        "name that a client's certificate must have: a DNS name, an IP address or a URI",
    )
    transport: str = _setting(
        "PENSTOCK_TRANSPORT",
        TRANSPORT,
        "native",
        "what serves gRPC: Penstock's own transport, or grpc.aio, which is several times slower",
    )
    event_loop: str = _setting(
        "PENSTOCK_EVENT_LOOP",
        EVENT_LOOP,
        "auto",
        "event loop of the process; auto: uvloop where it is installed, otherwise asyncio's own",
    )
    grpc_max_connections: int = _setting(
        "PENSTOCK_GRPC_MAX_CONNECTIONS",
        COUNT,
        0,
        "most gRPC connections at a time, to all workers; 0: as many as open files allow, at most "
        "10,000",
    )
    max_request_bytes: int = _setting(
        "PENSTOCK_MAX_REQUEST_BYTES",
        REQUEST_BYTES,
        DEFAULT_MAX_BYTES,
        "largest request in bytes, over gRPC (before and after decompression) and on /json",
    )
    max_calls: int = _setting(
        "PENSTOCK_MAX_CALLS",
        CALLS,
        2_048,
        "most calls that a worker decides at the same time; further calls get the answer of "
        "--on-unavailable at once",
    )
    host: str = _setting("HOST", TEXT, ANY_IPV4, "address of the HTTP port")
    port: int = _setting(
        "PORT", PORT, 8080, "HTTP port: /healthcheck, /ready, /json, /metrics; 0 picks a free one"
    )
    http_decisions: str = _setting(
        "PENSTOCK_HTTP_DECISIONS",
        DECISIONS,
        "auto",
        "whether /json answers requests; auto: yes, unless GRPC_CLIENT_TLS_CACERT is set, "
        "because HTTP clients show no certificates",
    )
    debug_host: str = _setting("DEBUG_HOST", TEXT, ANY_IPV4, "address of the debug port")
    debug_port: int = _setting(
        "DEBUG_PORT", PORT, 6070, "debug port: /console, /rlconfig, /stats; 0 picks a free one"
    )
    console_token: str = _setting(
        "PENSTOCK_CONSOLE_TOKEN",
        TEXT,
        "",
        "token that opens the console on the debug port to other machines, at least 16 characters; "
        "empty: only clients on the same machine can open the console, without a token",
        is_secret=True,
    )
    console_values: str = _setting(
        "PENSTOCK_CONSOLE_VALUES",
        VALUES,
        "shown",
        "how the console shows names of entities and values of clients",
    )
    ready_needs_store: bool = _setting(
        "PENSTOCK_READY_NEEDS_STORE",
        BOOL,
        False,
        "/ready fails while the store can't be read, or the SQLite file can't be written",
    )
    healthy_with_at_least_one_config_loaded: bool | None = _setting(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        BOOL,
        None,
        "health checks fail until rules are loaded; the default is true for rules from files, and "
        "false for rules over xDS: a control plane without rules may never send any",
    )
    drain_timeout: int = _setting(
        "PENSTOCK_DRAIN_TIMEOUT",
        DURATION,
        20_000,
        "time that clients have after SIGTERM to move to other servers",
    )
    config_type: str = _setting(
        "CONFIG_TYPE", SOURCE, "file", "where rules come from: files, or an xDS server"
    )
    config_grpc_xds_server_url: str = _setting(
        "CONFIG_GRPC_XDS_SERVER_URL",
        TEXT,
        "localhost:18000",
        "host and port of the xDS server that rules come from",
    )
    config_grpc_xds_node_id: str = _setting(
        "CONFIG_GRPC_XDS_NODE_ID",
        TEXT,
        "default",
        "name by which the xDS server knows for whom the rules are",
    )
    config_grpc_xds_node_metadata: Tags = _setting(
        "CONFIG_GRPC_XDS_NODE_METADATA",
        PAIRS,
        (),
        "metadata of the node for the xDS server: key=value,key=value",
    )
    config_grpc_xds_server_connect_retry_interval: int = _setting(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        DURATION,
        3_000,
        "pause after a failure to connect to the xDS server, up to 50 % shorter or longer",
    )
    config_grpc_xds_client_additional_headers: Tags = _setting(
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        HEADERS,
        (),
        "headers for the xDS server: name:value,name:value",
        is_secret=True,
    )
    config_grpc_xds_server_use_tls: bool = _setting(
        "CONFIG_GRPC_XDS_SERVER_USE_TLS", BOOL, False, "connect to the xDS server over TLS"
    )
    config_grpc_xds_client_tls_cert: str = _setting(
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        PATH,
        "",
        "PEM file with the certificate for the xDS server; the next connection uses a new file",
    )
    config_grpc_xds_client_tls_key: str = _setting(
        "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
        PATH,
        "",
        "PEM file with the private key for the xDS server; the next connection uses a new file",
    )
    config_grpc_xds_server_tls_cacert: str = _setting(
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        PATH,
        "",
        "PEM file with CAs; the xDS server must have a certificate from one of these CAs, or from "
        "one of the system's if this is empty; the next connection uses a new file",
    )
    config_grpc_xds_server_tls_san: str = _setting(
        "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        TEXT,
        "",
        "name that the xDS server's certificate must have, if it differs from the host",
    )
    xds_client_backoff_initial_interval: int = _setting(
        "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        DURATION,
        10_000,
        "pause after a stream from the xDS server has ended; doubles while streams bring nothing",
    )
    xds_client_backoff_max_interval: int = _setting(
        "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
        DURATION,
        60_000,
        "longest pause after a stream from the xDS server has ended",
    )
    xds_client_backoff_random_factor: float = _setting(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        SHARE,
        0.5,
        "share by which the pause after a stream is shorter or longer, at random",
    )
    xds_client_backoff_jitter: bool = _setting(
        "XDS_CLIENT_BACKOFF_JITTER",
        BOOL,
        True,
        "whether the pause after a stream is random",
    )
    xds_client_max_msg_size_in_bytes: int = _setting(
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        MESSAGE_BYTES,
        4_194_304,
        "largest response of the xDS server in bytes; 20,000 rules take 1 to 5 MB",
    )
    runtime_root: str = _setting(
        "RUNTIME_ROOT", PATH, "", "first part of the path of the rules directory"
    )
    runtime_subdirectory: str = _setting(
        "RUNTIME_SUBDIRECTORY", TEXT, "", "second part of the path of the rules directory"
    )
    runtime_appdirectory: str = _setting(
        "RUNTIME_APPDIRECTORY", TEXT, "config", "third part of the path of the rules directory"
    )
    runtime_ignoredotfiles: bool = _setting(
        "RUNTIME_IGNOREDOTFILES",
        BOOL,
        True,
        "skip files whose names begin with a dot; ConfigMaps need this",
    )
    merge_domain_config: bool = _setting(
        "MERGE_DOMAIN_CONFIG", BOOL, False, "allow the rules of one domain in several files"
    )
    force_start_without_initial_config: bool = _setting(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        BOOL,
        False,
        "start even if the rules can't be used, or have not come over xDS yet; requests fail until "
        "rules are loaded",
    )
    shadow_mode: bool = _setting(
        "SHADOW_MODE",
        BOOL,
        False,
        "answer OK even over a limit; the statuses of descriptors stay as they are",
    )
    quota_mode: bool = _setting("QUOTA_MODE", BOOL, False, "treat every limit as a quota")
    counting: str = _setting(
        "PENSTOCK_COUNTING",
        COUNTING,
        "steady",
        "how rules count that say nothing else: steady refill; fixed windows; or all as the "
        "reference server: fixed windows, denied requests count, debts end with the window",
    )
    cache_key_prefix: str = _setting(
        "CACHE_KEY_PREFIX",
        TEXT,
        "",
        "prefix of bucket keys; servers with different prefixes share no buckets of rules",
    )
    local_cache_size_in_bytes: int | None = _setting(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        SIZE,
        None,
        "0: ask DynamoDB for each denial; otherwise denials are remembered for 1 s",
    )
    policy_cache_ttl: int = _setting(
        "PENSTOCK_POLICY_CACHE_TTL",
        DURATION,
        60_000,
        "time that servers keep stored limits in memory; a change is in force after this time",
    )
    audit_retention: int = _setting(
        "PENSTOCK_AUDIT_RETENTION",
        DURATION,
        90 * 86_400_000,
        "time that the store keeps audit events; 0: for ever",
    )
    audit_archive: str = _setting(
        "PENSTOCK_AUDIT_ARCHIVE",
        PATH,
        "",
        "where audit events go before the store removes them: a directory, or "
        "s3://BUCKET/PREFIX?region=REGION",
    )
    usage_retention: UsageKept = _setting(
        "PENSTOCK_USAGE_RETENTION",
        USAGE,
        USAGE_KEPT,
        "time that the store keeps usage, after a window of each size began; 0: for ever",
    )
    on_unavailable: str = _setting(
        "PENSTOCK_ON_UNAVAILABLE",
        UNAVAILABLE,
        "error",
        "answer while the store fails; error means gRPC UNAVAILABLE",
    )
    limit_response_headers_enabled: bool = _setting(
        "LIMIT_RESPONSE_HEADERS_ENABLED",
        BOOL,
        False,
        "add RateLimit-* headers to answers, and retry-after to denials",
    )
    limit_limit_header: str = _setting(
        "LIMIT_LIMIT_HEADER", TEXT, "RateLimit-Limit", "name of the header with the limit"
    )
    limit_remaining_header: str = _setting(
        "LIMIT_REMAINING_HEADER",
        TEXT,
        "RateLimit-Remaining",
        "name of the header with the number of tokens left",
    )
    limit_reset_header: str = _setting(
        "LIMIT_RESET_HEADER", TEXT, "RateLimit-Reset", "name of the header with the seconds to wait"
    )
    response_dynamic_metadata: bool = _setting(
        "RESPONSE_DYNAMIC_METADATA",
        BOOL,
        False,
        "add the request and the rules' metadata to the answer",
    )
    log_level: str = _setting("LOG_LEVEL", LEVEL, "info", "least severe level that is logged")
    log_format: str = _setting("LOG_FORMAT", FORMAT, "text", "format of the log")
    near_limit_ratio: float = _setting(
        "NEAR_LIMIT_RATIO", SHARE, 0.8, "share of a limit above which hits count as near the limit"
    )
    record_trace: str = _setting(
        "PENSTOCK_RECORD_TRACE",
        PATH,
        "",
        "directory to record requests in, for `penstock simulate`; empty: record nothing",
    )
    record_trace_max_bytes: int = _setting(
        "PENSTOCK_RECORD_TRACE_MAX_BYTES",
        SIZE,
        2**30,
        "most bytes of all files of a recording; the oldest file is deleted to make room",
    )
    record_hash: tuple[str, ...] = _setting(
        "PENSTOCK_RECORD_HASH",
        NAMES,
        (),
        "keys whose values are recorded as hashes, separated by commas; *: all keys",
    )
    record_hash_key: str = _setting(
        "PENSTOCK_RECORD_HASH_KEY",
        TEXT,
        "",
        "secret of the hashes in a recording, at least 16 characters; empty: random at each start",
        is_secret=True,
    )
    use_prometheus: bool = _setting(
        "USE_PROMETHEUS", BOOL, False, "also serve metrics on a separate port"
    )
    prometheus_addr: Address = _setting(
        "PROMETHEUS_ADDR", ADDRESS, ("", 9090), "address and port for USE_PROMETHEUS"
    )
    prometheus_path: str = _setting(
        "PROMETHEUS_PATH", TEXT, "/metrics", "path of metrics on the port of PROMETHEUS_ADDR"
    )
    prometheus_response_time_as_milliseconds: bool = _setting(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        BOOL,
        False,
        "show response times for Prometheus in ms, as old versions of the reference server did",
    )
    use_statsd: bool = _setting("USE_STATSD", BOOL, False, "send metrics to StatsD over TCP")
    statsd_host: str = _setting("STATSD_HOST", TEXT, "localhost", "host of StatsD")
    statsd_port: int = _setting("STATSD_PORT", PORT, 8125, "port of StatsD")
    stats_flush_interval: int = _setting(
        "STATS_FLUSH_INTERVAL", DURATION, 10_000, "how often metrics are sent to StatsD"
    )
    extra_tags: Tags = _setting(
        "EXTRA_TAGS", TAGS, (), "tags added to every metric for StatsD: name:value,name:value"
    )
    tracing_enabled: bool = _setting(
        "TRACING_ENABLED", BOOL, False, "send traces over OTLP; OTEL_EXPORTER_OTLP_* say where"
    )
    tracing_service_name: str = _setting(
        "TRACING_SERVICE_NAME", TEXT, "RateLimit", "service.name of traces"
    )
    tracing_service_namespace: str = _setting(
        "TRACING_SERVICE_NAMESPACE", TEXT, "", "service.namespace of traces"
    )
    tracing_service_instance_id: str = _setting(
        "TRACING_SERVICE_INSTANCE_ID", TEXT, "", "service.instance.id of traces (default: random)"
    )
    tracing_exporter_protocol: str = _setting(
        "TRACING_EXPORTER_PROTOCOL", PROTOCOL, "http", "protocol for OTLP"
    )
    tracing_sampling_rate: float = _setting(
        "TRACING_SAMPLING_RATE", SHARE, 1.0, "share of traces to record, unless the caller decides"
    )

    @property
    def has_xds(self) -> bool:
        """Whether rules come over xDS."""
        return self.config_type != "file"

    @property
    def health_needs_rules(self) -> bool:
        wanted = self.healthy_with_at_least_one_config_loaded
        return not self.has_xds if wanted is None else wanted

    def rules_path(self) -> Path:
        """The path of the rules; ConfigError if no setting names a path."""
        if self.config:
            return Path(self.config)
        if self.runtime_root:
            return Path(self.runtime_root, self.runtime_subdirectory, self.runtime_appdirectory)
        raise ConfigError("no rules: give --config FILE_OR_DIRECTORY, or set RUNTIME_ROOT")
