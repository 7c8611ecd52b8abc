"""What the pages for operators say is so: settings, metrics, tracing, runbook, security."""

import re
import sqlite3
from collections.abc import Iterator

import pytest
from penstock.config.flags import DECLARED
from penstock.config.reference import IGNORED, find_ignored
from penstock.config.settings import Settings
from penstock.core.request import DEFAULT_MAX_BYTES, MAX_DESCRIPTORS, MAX_ENTRIES
from penstock.front import GRACE_S
from penstock.service import policies, prepared
from penstock.service.limiter import STORE_SHARE
from penstock.store import spans
from penstock.store.dynamodb.aws import circuit
from penstock.store.dynamodb.aws.connection import ANSWERS
from penstock.store.dynamodb.aws.errors import Fault
from penstock.store.dynamodb.aws.location import CALL_S
from penstock.store.dynamodb.buckets import hints, queues
from penstock.store.dynamodb.buckets.sender import OUTCOMES
from penstock.store.dynamodb.buckets.writes import WritePath
from penstock.store.owed import LANDS_WITHIN_S
from penstock.store.sqlite import file as sqlite_file
from penstock.store.sqlite import rows as sqlite_rows
from penstock.store.sqlite import schema
from penstock.telemetry import hits, otel, otlp
from penstock.telemetry.instruments import MAX_SERIES
from penstock.telemetry.metrics import SECONDS, Metrics
from penstock.transport import descriptors, http_connection, http_site
from penstock.transport.call_bounds import DEFAULT_CALL_BOUNDS
from penstock.transport.codec import LEASES, METHOD, SERVICE
from penstock.transport.draining import QUIET_S
from penstock.transport.leases import BALANCES, SETTLE, TAKE
from penstock.transport.listener import DEFAULT_BOUNDS
from penstock.transport.request_spans import SHOULD_RATE_LIMIT

from tests.support.doc_tables import ALERTS
from tests.support.markdown import FENCE, ROOT, rows, table
from tests.support.promql import SUFFIXES, faults
from tests.support.reference_variables import REFERENCE_VARIABLES

SETTINGS, METRICS, TRACING, RUNBOOK = (
    ROOT / f"docs/{name}.md" for name in ("settings", "metrics", "tracing", "runbook")
)
SECURITY = ROOT / "docs/security.md"
COST = ROOT / "docs/dynamodb-cost.md"
PAGES = [*ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/*.md"), ROOT / "README.md", ALERTS]
SOURCES = "\n".join(path.read_text() for path in ROOT.glob("server/penstock/**/*.py"))
SQLITE_ERRORS = {name.lower() for name in vars(sqlite3) if name.startswith("SQLITE_")}
VALUES = SOURCES + "".join(f'"{name}"' for name in SQLITE_ERRORS)
"""Where the values of labels stand."""
FAMILIES = Metrics().families()

MENTIONED = re.compile(r"\b(?:penstock|ratelimit_service|process)_\w+\*?(?:\{[^}]*\})?")


def unknown_metrics(text: str) -> list[str]:
    """Metrics that a text names, and that there are not, or not with these labels."""
    names = {family.name for family in FAMILIES}
    found = []
    for mention in MENTIONED.findall(text):
        name = mention.partition("{")[0]
        if name.endswith("*"):
            known = any(each.startswith(name[:-1]) for each in names)
        elif name in names and mention == name:
            known = True  # a histogram has no series of its name, but may be spoken of
        else:
            known = not faults(mention, FAMILIES, VALUES)
        found += [] if known else [mention]
    return found


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_every_variable_of_the_reference_server_is_honoured_or_ignored() -> None:
    """And none both. No reason stands for nothing."""
    names = {name for name, _ in REFERENCE_VARIABLES}
    settings = {setting.env for setting in DECLARED}
    assert set(find_ignored(names)) == names - settings
    assert find_ignored(settings) == []
    for pattern in IGNORED:
        assert re.search(rf"`{pattern.replace('*', '[A-Z_]+')}`", SETTINGS.read_text()), pattern


def test_the_variables_of_opentelemetry_that_the_code_reads_are_told() -> None:
    """The others are its library's own, and are chosen by hand."""
    told = {name for cell in table(SETTINGS, "variable") for name in quoted(cell)}
    read = set(re.findall(r"\"(OTEL_\w+)\"", SOURCES))
    assert read
    assert read <= told


def test_pages_name_metrics_that_there_are() -> None:
    """With labels and values that these have."""
    for page in PAGES:
        assert unknown_metrics(page.read_text()) == [], page
    for page in (METRICS, RUNBOOK):
        assert MENTIONED.search(page.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "`penstock_store_error_total`",
        "`penstock_stores_*`",
        '`penstock_store_errors_total{type="throttled"}`',
        '`penstock_store_errors_total{kind="slowed"}`',
        "`ratelimit_service_rate_limit_total`",
    ],
)
def test_a_metric_that_is_not_there_would_be_found(text: str) -> None:
    """The test above would pass if it saw none."""
    assert unknown_metrics(text)


def test_queries_in_pages_ask_for_metrics_that_there_are() -> None:
    """Fences of their own language."""
    found = [
        query
        for page in (METRICS, RUNBOOK)
        for language, query in FENCE.findall(page.read_text())
        if language == "promql"
    ]
    assert found
    for query in found:
        assert faults(query, FAMILIES, SOURCES) == []


def test_the_labels_of_metrics_have_the_values_that_are_told() -> None:
    """Those that have a few, which the code names."""
    told = {name: quoted(cells[0]) for name, cells in table(METRICS, "label").items()}
    paths = {path.value for path in WritePath}
    kinds = {fault.value for fault in Fault if fault not in ANSWERS}
    assert told["`path`"] == paths | {"commit"}
    assert told["`outcome` of writes"] == {*OUTCOMES.values(), "failed"}
    assert kinds | {"not_asked", "deadline"} <= told["`kind` of errors"]
    for values in told.values():
        for value in values - SQLITE_ERRORS - {"key_value"}:
            assert re.search(rf"[\"_ ]{value}[\"` (]", SOURCES), value


def test_every_label_is_told() -> None:
    """But those that explain themselves."""
    told = {name for cell in table(METRICS, "label") for name in quoted(cell)}
    assert {label for family in FAMILIES for label in family.labels} - told == {
        *("code", "version", "store")  # in the meaning of their metrics
    }


def test_the_page_on_metrics_has_the_bounds_of_the_code() -> None:
    text = METRICS.read_text()
    assert f"the first {hits.MAX_DETAILED:,} " in text
    assert f"Beyond {MAX_SERIES:,} series" in text
    assert f"from {SECONDS[0] * 1000:g} ms to {SECONDS[-1]:g} s" in text


def test_the_page_on_tracing_has_every_attribute() -> None:
    """Those that requests begin with, those that the code notes, and no others."""
    told = {name for cell in table(TRACING, "attribute") for name in quoted(cell)}
    assert told == {*SHOULD_RATE_LIMIT.attributes, *re.findall(r"\.note\(\"([^\"]+)\"", SOURCES)}


def test_the_page_on_tracing_has_every_span() -> None:
    """By the names that the code gives them."""
    told = table(TRACING, "span")
    names = {name for cell in told for name in quoted(cell)}
    made = set(re.findall(r"(?:_span|work_span)\((?:self\._tracer, )?f?\"([^\"]+)\"", SOURCES))
    assert made == {"commit", "read", "write {path.value}"}
    leases = {f"{LEASES}/{name}" for name in (TAKE, SETTLE, BALANCES)}
    assert {"commit", "read", f"{SERVICE}/{METHOD}", *leases} <= names
    paths = quoted("".join(told["`write upsert`, `write speculative`, `write normal`, …"]))
    assert paths == {path.value for path in WritePath}
    assert f"up to {spans.MOST}" in TRACING.read_text()
    assert f"{otel.STOP_S:g} seconds" in TRACING.read_text()
    assert f"than {otlp.MAX_TEXT:,} characters" in TRACING.read_text()
    assert f"{otlp.MAX_TEXT:,} by default" in SETTINGS.read_text()


def test_the_runbook_has_the_sizes_of_the_code() -> None:
    """How much is kept in memory."""
    kept = {name: cells[0] for name, cells in table(RUNBOOK, "kept for speed").items()}
    assert kept == {
        "requests that came before, ready to decide": f"{prepared.KEPT:,}",
        "SQLite: items last used": f"{sqlite_rows.KEPT:,}",
        "DynamoDB: what was last seen of items": f"{hints.KEPT:,}",
        "limits of entities, and what they resolve to": f"{policies.KEPT:,}",
        "series of one metric": f"{MAX_SERIES:,}",
    }
    log_mib = schema.PAGE_BYTES * schema.WAL_PAGES // 2**20
    assert f"grows to {log_mib} MiB" in RUNBOOK.read_text()
    assert f"more than {sqlite_file.WAL_MOST_BYTES // 2**20} MiB" in RUNBOOK.read_text()


def times_of_the_code() -> Iterator[str]:
    """As the runbook has them."""
    yield f"after {circuit.OPENS_AFTER} failures in a row"
    yield f"after {circuit.FIRST_PAUSE_S:g} s, then more rarely"
    yield f"every {circuit.LONGEST_PAUSE_S:g} s at least"
    yield f"fails after {queues.ATTEMPTS} lost races"
    yield f"fails after {schema.BUSY_MS / 1000:g} s, or"
    yield f"charges are tried for {LANDS_WITHIN_S:g} s"
    yield f"The server tried for {LANDS_WITHIN_S:g} s"
    yield f"No call to DynamoDB lasts longer than {CALL_S:g} s"
    yield f"calls under way have {GRACE_S:g} s, and traces {otel.STOP_S:g} s"
    settings = {setting.name: setting.default_text for setting in DECLARED}
    yield f"`--drain-timeout` ({settings['drain_timeout'].replace('s', ' s')})"
    yield f"`--grpc-max-connection-age` ({settings['grpc_max_connection_age'].replace('h', ' h')})"


def test_the_runbook_has_the_times_of_the_code() -> None:
    """How long each thing takes, or is tried."""
    text = " ".join(RUNBOOK.read_text().split())
    assert [time for time in times_of_the_code() if time not in text] == []
    assert (STORE_SHARE, QUIET_S) == (0.9, 0.5), "the runbook has nine tenths, and half a second"


def test_the_page_on_security_has_the_bounds_of_the_code() -> None:
    """How many connections there may be, and for how long."""
    bounds = {name: cells[0] for name, cells in table(SECURITY, "on").items()}
    grpc, calls, idle = DEFAULT_BOUNDS, DEFAULT_CALL_BOUNDS, http_connection.IDLE_S
    assert bounds == {
        "gRPC: connections": f"{descriptors.MAX_GRPC:,}, or what [open files](#open-files) allow, "
        "or `--grpc-max-connections`; each worker has an equal part",
        "gRPC: from connecting to the end of the handshake": f"{grpc.handshake_ms // 1000} s",
        "gRPC: a connection without calls": f"{grpc.idle_ms // 60_000} min",
        "gRPC: a client from which nothing comes": f"a PING after {grpc.ping_after_ms // 1000} s, "
        f"which has {grpc.pong_within_ms // 1000} s to be answered",
        "gRPC: an answer that the client does not read": f"{grpc.pong_within_ms // 1000} s",
        "gRPC: calls of one connection at a time": f"{grpc.max_streams:,}",
        "gRPC: calls that wait for their message": f"{calls.max_waiting}, "
        f"for {calls.message_s:g} s",
        "gRPC: streams of health watchers and reflection": f"{calls.max_streams:,}",
        "a request": f"{DEFAULT_MAX_BYTES // 1024} KiB, or `--max-request-bytes`, "
        "also decompressed",
        "a request: what is in it": f"{MAX_DESCRIPTORS} descriptors, "
        f"and {MAX_ENTRIES:,} entries in all",
        "calls that are decided at once": f"{Settings().max_calls:,}, or `--max-calls`, "
        "in each worker; as many reports on top of these",
        "HTTP: connections on the main port": f"{descriptors.MAX_HTTP:,}, or what open files allow",
        "HTTP: connections on each other port": f"{descriptors.MAX_OTHER}",
        "HTTP: from one answer to the next request's headers, or to the first": f"{idle:g} s",
        "HTTP: from the headers of a request to the end of its body": f"{http_site.BODY_S:g} s",
        "HTTP: an answer that the client does not read": f"{http_connection.SEND_S:g} s",
    }
    text = " ".join(SECURITY.read_text().split())
    assert f"to the hard one, at most {descriptors.WANTED:,}." in text
    assert f"Of these {descriptors.RESERVED} are kept for the store" in text
    shares = descriptors.share(1_024)
    assert f"{shares.grpc} connections for gRPC and {shares.http} for HTTP" in text
    assert f"With less than {descriptors.LEAST} a server does not start" in text
    default = f"at most {descriptors.MAX_GRPC:,}"
    assert [one.name for one in DECLARED if default in one.doc] == ["grpc_max_connections"]


def test_the_example_of_capacity_adds_up() -> None:
    """By the units of each decision, which a test counts."""
    cost = {name: cells[-3:-1] for name, cells in table(COST, "decision").items()}
    total = [0, 0, 0]
    for count, decision, *units in rows(RUNBOOK, "decisions a second"):
        told = [int(cell.replace(",", "")) for cell in (count, *units)]
        if decision == "together":
            assert told == total
            return
        assert told[1:] == [told[0] * int(unit) for unit in cost[decision]], decision
        total = [one + other for one, other in zip(total, told, strict=True)]
    pytest.fail("no sum")


def test_the_suffixes_of_histograms_are_known() -> None:
    """A page may name a series: all of them are found."""
    for suffix in SUFFIXES:
        assert unknown_metrics(f"penstock_store_call_seconds{suffix}") == []
