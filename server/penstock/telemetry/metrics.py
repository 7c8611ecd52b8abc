"""Every metric, declared once. The docs, the check of the dashboard and all pages use this file.

Metrics that begin with `ratelimit_` have the names and labels of the reference server.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol

from penstock.telemetry.hits import RuleHits
from penstock.telemetry.instruments import Across, Distribution, Family, Kind, Labels, Series, Value

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
"""Envoy waits 20 ms by default. A call to DynamoDB takes at most 1 s."""

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
        """Called before metrics are read, for values that are cheaper to look up than to keep."""

        # Requests.
        self.rule_hits = RuleHits()
        self.requests = self._counters(
            "ratelimit_service_total_requests",
            "Requests, by method: ShouldRateLimit (gRPC), json (HTTP), or Take, Settle and "
            "Balances (leases).",
            ("grpc_method",),
            statsd="ratelimit_server.{0}.total_requests",
        )
        self.response_seconds = self._distributions(
            "ratelimit_service_response_time_seconds",
            "Time from the arrival of a request to the answer.",
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
            "Decisions, by domain and code (ok, over_limit). A domain without rules is `unknown`, "
            "that of leases is `leases`, unless the client names one.",
            ("domain", "code"),
        )
        self.blind_answers = self._counters(
            "penstock_blind_answers_total",
            "Answers without the store, by on_unavailable (allow, deny).",
            ("answer",),
        )
        self.overload = self._counter(
            "penstock_overload_total",
            "Calls beyond PENSTOCK_MAX_CALLS. Such a call gets the answer of on_unavailable.",
        )
        self.refunds = self._counter("penstock_refunded_hits_total", "Hits that were given back.")
        self.missing_limits = self._counter(
            "penstock_missing_limits_total",
            "Amounts for stored limits that do not exist. No bucket counts these amounts.",
        )
        self.debt_dropped = self._counter(
            "penstock_debt_dropped_tokens_total",
            "Tokens of reports that are not on record: the debt would be deeper than max_debt. "
            "In the first minute after a rule is loaded, refused costs count as reports.",
        )
        self.recorded = self._counter(
            "penstock_recorded_requests_total", "Requests that --record-trace has written to files."
        )
        self.recording_lost = self._counters(
            "penstock_recording_lost_requests_total",
            "Requests that --record-trace could not write, by reason (queue: too many at a time, "
            "disk: a write failed). These requests were answered all the same.",
            ("reason",),
        )

        # The audit.
        self.audit_archived = self._counter(
            "penstock_audit_archived_total",
            "Audit events that were written to the archive (PENSTOCK_AUDIT_ARCHIVE).",
        )
        self.retention_errors = self._counter(
            "penstock_retention_errors_total",
            "Times that old records could not be archived or removed. They stay in the store.",
        )

        # Rules.
        self.config_load_success = self._counter(
            "ratelimit_service_config_load_success",
            "Loads of rules that succeeded.",
            statsd="ratelimit.service.config_load_success",
            # Every worker loads the same files.
            across="extreme",
        )
        self.config_load_error = self._counter(
            "ratelimit_service_config_load_error",
            "Loads of rules that failed. The last good rules stay in force.",
            statsd="ratelimit.service.config_load_error",
            across="extreme",
        )
        self.limit_rate = self._gauges(
            "penstock_limit_requests_per_second",
            "Requests per second that a rule's limit admits in the long run.",
            ("domain", "rule", "limit"),
        )
        self.limit_burst = self._gauges(
            "penstock_limit_burst",
            "Requests that a rule's limit admits at once.",
            ("domain", "rule", "limit"),
        )
        self.rules_info = self._gauges(
            "penstock_rules_info",
            "Always 1. The labels have the source of the rules (file, xds), and the version that "
            "the xDS server gave them.",
            ("source", "version"),
        )
        self.xds_connected = self._gauge(
            "penstock_xds_connected", "1 while the stream from the xDS server is open, else 0."
        )
        self.xds_responses = self._counters(
            "penstock_xds_responses_total",
            "Responses of the xDS server, by the answer: ack, or nack if the rules had errors.",
            ("answer",),
        )
        self.xds_last_response = self._gauges(
            "penstock_xds_last_response_timestamp_seconds",
            "When the last ack and the last nack were sent, in seconds since the epoch.",
            ("answer",),
        )

        # The store.
        self.store_writes = self._counters(
            "penstock_store_writes_total",
            "Writes, by path (a write path on DynamoDB, commit on SQLite) and outcome "
            "(landed, lost, conflict, failed). Writes that were not sent are failed.",
            ("path", "outcome"),
        )
        self.store_reads = self._counter(
            "penstock_store_reads_total", "Items that were read from DynamoDB for a decision."
        )
        self.store_call_seconds = self._distributions(
            "penstock_store_call_seconds", "Time of each call to the store.", ("operation",)
        )
        self.store_errors = self._counters(
            "penstock_store_errors_total",
            "Calls to the store that failed, by kind. `deadline`: the caller's timeout came first.",
            ("kind",),
        )
        self.store_batch_size = self._distribution(
            "penstock_store_batch_size", "Callers that share one write.", SIZES
        )
        self.contention_retries = self._counter(
            "penstock_store_contention_retries_total",
            "Writes that were retried because another writer was faster.",
        )
        self.deny_cache_hits = self._counter(
            "penstock_deny_cache_hits_total", "Denials from memory, without a call to DynamoDB."
        )
        self.held_decisions = self._counter(
            "penstock_held_decisions_total",
            "Decisions from tokens that were taken ahead, without a call to DynamoDB.",
        )
        self.held_tokens = self._gauge(
            "penstock_held_tokens",
            "Tokens that were taken ahead from DynamoDB, and are not used yet.",
            across="sum",
        )
        self.held_lost = self._counter(
            "penstock_held_tokens_lost_total",
            "Tokens taken ahead that count as consumed, because a write got no answer, or because "
            "there was no time to give them back when the server stopped.",
        )
        self.hints = self._counters(
            "penstock_hints_total",
            "First writes of a decision, by the server's memory of the item: hit (still right), "
            "stale, or none.",
            ("outcome",),
        )
        self.capacity = self._counters(
            "penstock_dynamodb_capacity_units_total",
            "Capacity units that DynamoDB reports as consumed (read, write). DynamoDB reports none "
            "for refused writes.",
            ("kind",),
        )
        self.circuit_open = self._gauge(
            "penstock_store_circuit_open",
            "1 while the server does not call DynamoDB, because calls kept failing.",
        )
        self.clock_skew = self._gauge(
            "penstock_store_clock_skew_seconds",
            "Least time by which the server's clock is ahead of DynamoDB's; negative if behind.",
        )
        self.unknown_outcomes = self._counter(
            "penstock_store_unknown_outcomes_total",
            "Callers whose write got no answer. The amount counts as consumed.",
        )
        self.not_undone = self._counter(
            "penstock_store_not_undone_total",
            "Takes that could not be given back after another part of the request was refused.",
        )
        self.not_landed = self._counter(
            "penstock_store_not_landed_total", "Charges and refunds that could not be written."
        )
        self.sqlite_wal_bytes = self._gauge(
            "penstock_sqlite_wal_bytes",
            "Size of the SQLite file's log (-wal). A long read makes the log grow.",
        )

        # Usage, in a worker of `penstock aggregate`.
        self.usage_records = self._counters(
            "penstock_usage_records_total",
            "Records of the table's stream that were read, by outcome: counted, skipped (nothing "
            "was consumed), set_aside (can't be read, so it is not counted).",
            ("outcome",),
        )
        self.usage_lag = self._gauge(
            "penstock_usage_lag_seconds",
            "Age of the last record that was read from the table's stream; 0 if there are no more.",
        )
        self.usage_gaps = self._counter(
            "penstock_usage_gaps_total",
            "Shards that nobody read for more than a day, so that records are lost.",
        )

        # The process.
        self.event_loop_lag = self._distribution(
            "penstock_event_loop_lag_seconds",
            "How late the event loop runs a task that is due every 20 ms: the pauses of answers.",
            SECONDS,
        )
        self.build_info = self._gauges(
            "penstock_build_info",
            "Always 1. The labels have the version and the kind of store.",
            ("version", "store"),
        )
        self.part_restarts = self._counters(
            "penstock_part_restarts_total",
            "Restarts of a part of the server that had ended by itself.",
            ("part",),
        )
        self.healthy = self._gauge(
            "penstock_healthy", "1 while health checks answer SERVING, else 0."
        )
        self.workers = self._gauge(
            "penstock_workers", "Processes that answer calls. See --workers.", across="sum"
        )
        self.cpu_seconds = self._counter("process_cpu_seconds_total", "CPU time used, in seconds.")
        self.memory_bytes = self._gauge(
            "process_resident_memory_bytes", "Memory used, in bytes.", across="sum"
        )
        self.open_files = self._gauge("process_open_fds", "Files and sockets that are open.")
        self.max_open_files = self._gauge(
            "process_max_fds", "Files and sockets that the process may open."
        )
        self.start_time = self._gauge(
            "process_start_time_seconds", "When the server started, in seconds since the epoch."
        )

    def families(self) -> list[AnyFamily]:
        """All metrics, with their current values."""
        for update in self.before_reading:
            update()
        return [*self.rule_hits.families(), *self._families]

    def count_calls(self) -> int:
        """All calls that were answered."""
        return sum(sum(seconds.counts) for _, seconds in self.response_seconds.series())

    def _count_requests(self) -> None:
        """Count requests from their response times. This saves work while a request waits."""
        for labels, seconds in self.response_seconds.series():
            self.requests.of(*labels).value = sum(seconds.counts)

    def _add(
        self, name: str, text: str, kind: Kind, labels: Labels, statsd: str, across: Across
    ) -> Family[Value]:
        family = Family(name, text, kind, labels, Value, statsd, across)
        self._families.append(family)
        return family

    def _counters(self, name: str, text: str, labels: Labels, statsd: str = "") -> Family[Value]:
        return self._add(name, text, "counter", labels, statsd, "sum")

    def _counter(self, name: str, text: str, statsd: str = "", across: Across = "sum") -> Value:
        return self._add(name, text, "counter", (), statsd, across).of()

    def _gauges(self, name: str, text: str, labels: Labels) -> Family[Value]:
        return self._add(name, text, "gauge", labels, "", "extreme")

    def _gauge(self, name: str, text: str, across: Across = "extreme") -> Value:
        return self._add(name, text, "gauge", (), "", across).of()

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
