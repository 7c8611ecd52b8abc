"""Every metric, declared once: the docs, the dashboard's check and all pages derive from here.

Those that begin with `ratelimit_` are the reference server's, with its names and labels.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from penstock.telemetry.hits import RuleHits
from penstock.telemetry.instruments import Distribution, Family, Kind, Labels, Series, Value

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
"""Envoy waits 20 ms by default, and a DynamoDB call at most a second."""

SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class AnyFamily(Protocol):
    """What pages and StatsD need of a metric."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def labels(self) -> Labels: ...
    def series(self) -> Iterator[tuple[Labels, Series]]: ...
    def statsd_series(self) -> Iterator[tuple[str, Series]]: ...


class Metrics:
    def __init__(self) -> None:
        self._families: list[AnyFamily] = []
        self.before_reading: list[Callable[[], None]] = [self._count_requests]
        """Called before metrics are read: for what is cheaper to look up than to keep."""

        # Requests.
        self.rule_hits = RuleHits()
        self.requests = self._counters(
            "ratelimit_service_total_requests",
            "Requests, by how they came in: ShouldRateLimit (gRPC) or json (HTTP).",
            ("grpc_method",),
            statsd="ratelimit_server.{0}.total_requests",
        )
        self.response_seconds = self._distributions(
            "ratelimit_service_response_time_seconds",
            "Time from a request to its answer.",
            ("grpc_method",),
            statsd="ratelimit_server.{0}.response_time",
        )
        self.request_errors = self._counters(
            "ratelimit_service_should_rate_limit_error",
            "Requests that ended in an error: service_error, store_error or internal_error.",
            ("err_type",),
            statsd="ratelimit.service.call.should_rate_limit.{0}",
        )
        self.global_shadow_mode = self._counter(
            "ratelimit_service_global_shadow_mode",
            "Requests over a limit that passed because SHADOW_MODE is on.",
            statsd="ratelimit.service.global_shadow_mode",
        )
        self.decisions = self._counters(
            "penstock_decisions_total",
            "Decisions, by domain and code (ok, over_limit). Domains without rules are `unknown`.",
            ("domain", "code"),
        )
        self.blind_answers = self._counters(
            "penstock_blind_answers_total",
            "Answers given without the store, as on_unavailable says (allow, deny).",
            ("answer",),
        )
        self.overload = self._counter(
            "penstock_overload_total",
            "Calls above PENSTOCK_MAX_CALLS at once. They were answered as on_unavailable says.",
        )
        self.refunds = self._counter("penstock_refunded_hits_total", "Hits that were given back.")
        self.missing_limits = self._counter(
            "penstock_missing_limits_total",
            "Amounts asked of stored limits that nobody has. They are not counted anywhere.",
        )

        # Rules.
        self.config_load_success = self._counter(
            "ratelimit_service_config_load_success",
            "Rules that were loaded.",
            statsd="ratelimit.service.config_load_success",
        )
        self.config_load_error = self._counter(
            "ratelimit_service_config_load_error",
            "Rules that could not be used. The last good ones stay.",
            statsd="ratelimit.service.config_load_error",
        )
        self.limit_rate = self._gauges(
            "penstock_limit_requests_per_second",
            "What a rule's limit lets through in the long run.",
            ("domain", "rule", "limit"),
        )
        self.limit_burst = self._gauges(
            "penstock_limit_burst",
            "What a rule's limit lets through at once.",
            ("domain", "rule", "limit"),
        )

        # The store.
        self.store_writes = self._counters(
            "penstock_store_writes_total",
            "Writes, by path (DynamoDB's write paths; commit on SQLite) and outcome "
            "(landed, lost, conflict, failed, which includes those not sent).",
            ("path", "outcome"),
        )
        self.store_reads = self._counter(
            "penstock_store_reads_total", "Items read from DynamoDB to decide on."
        )
        self.store_call_seconds = self._distributions(
            "penstock_store_call_seconds", "Time of each call to the store.", ("operation",)
        )
        self.store_errors = self._counters(
            "penstock_store_errors_total",
            "Calls to the store that failed, by kind. `deadline`: the caller's time was up first.",
            ("kind",),
        )
        self.store_batch_size = self._distribution(
            "penstock_store_batch_size", "Callers that share one write.", SIZES
        )
        self.contention_retries = self._counter(
            "penstock_store_contention_retries_total",
            "Writes decided anew because another writer was faster.",
        )
        self.deny_cache_hits = self._counter(
            "penstock_deny_cache_hits_total", "Denials from memory, without a call to DynamoDB."
        )
        self.hints = self._counters(
            "penstock_hints_total",
            "First writes by what this process last saw of the item: hit, stale, or none seen.",
            ("outcome",),
        )
        self.capacity = self._counters(
            "penstock_dynamodb_capacity_units_total",
            "Capacity that DynamoDB says was consumed (read, write). It does not say it of "
            "refused writes.",
            ("kind",),
        )
        self.circuit_open = self._gauge(
            "penstock_store_circuit_open", "1 while DynamoDB is not asked because it fails."
        )
        self.clock_skew = self._gauge(
            "penstock_store_clock_skew_seconds",
            "How far this server's clock is ahead of DynamoDB's, at the least; negative if behind.",
        )
        self.unknown_outcomes = self._counter(
            "penstock_store_unknown_outcomes_total",
            "Callers whose write may have landed or not. It is counted as consumed.",
        )
        self.not_undone = self._counter(
            "penstock_store_not_undone_total",
            "Takes that a sibling refused, and that could not be given back.",
        )
        self.not_landed = self._counter(
            "penstock_store_not_landed_total", "Charges and refunds that could not be written."
        )
        self.sqlite_wal_bytes = self._gauge(
            "penstock_sqlite_wal_bytes",
            "Size of the SQLite file's log (-wal). It grows while somebody reads for long.",
        )

        # The process.
        self.event_loop_lag = self._distribution(
            "penstock_event_loop_lag_seconds", "How late the event loop runs what is due.", SECONDS
        )
        self.build_info = self._gauges(
            "penstock_build_info",
            "1, with the version and the kind of store.",
            ("version", "store"),
        )
        self.part_restarts = self._counters(
            "penstock_part_restarts_total",
            "Parts of the server that ended by themselves and were started again.",
            ("part",),
        )
        self.healthy = self._gauge("penstock_healthy", "1 while health checks say SERVING.")
        self.cpu_seconds = self._counter("process_cpu_seconds_total", "CPU time used.")
        self.memory_bytes = self._gauge("process_resident_memory_bytes", "Memory used.")
        self.open_files = self._gauge("process_open_fds", "Files and sockets that are open.")
        self.max_open_files = self._gauge(
            "process_max_fds", "Files and sockets that the process may open."
        )
        self.start_time = self._gauge(
            "process_start_time_seconds", "When the server started, in seconds since the epoch."
        )

    def families(self) -> list[AnyFamily]:
        """All of them, as they are now."""
        for update in self.before_reading:
            update()
        return [*self.rule_hits.families(), *self._families]

    def _count_requests(self) -> None:
        """Each has a time, so that there is no need to count them, too, while they wait."""
        for labels, seconds in self.response_seconds.series():
            self.requests.of(*labels).value = sum(seconds.counts)

    def _add(self, name: str, text: str, kind: Kind, labels: Labels, statsd: str) -> Family[Value]:
        family = Family(name, text, kind, labels, Value, statsd)
        self._families.append(family)
        return family

    def _counters(self, name: str, text: str, labels: Labels, statsd: str = "") -> Family[Value]:
        return self._add(name, text, "counter", labels, statsd)

    def _counter(self, name: str, text: str, statsd: str = "") -> Value:
        return self._add(name, text, "counter", (), statsd).of()

    def _gauges(self, name: str, text: str, labels: Labels) -> Family[Value]:
        return self._add(name, text, "gauge", labels, "")

    def _gauge(self, name: str, text: str) -> Value:
        return self._add(name, text, "gauge", (), "").of()

    def _distributions(
        self, name: str, text: str, labels: Labels, statsd: str = ""
    ) -> Family[Distribution]:
        make = partial(Distribution, SECONDS)
        family = Family(name, text, "histogram", labels, make, statsd)
        self._families.append(family)
        return family

    def _distribution(self, name: str, text: str, bounds: Sequence[float]) -> Distribution:
        family = Family(name, text, "histogram", (), partial(Distribution, bounds))
        self._families.append(family)
        return family.of()
