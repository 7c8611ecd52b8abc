"""The log of a real server: what is in it, what never is, and how little of it an outage makes."""

import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from penstock.cli import main

from tests.e2e.outage import BLIND, Client, RunningProxy, connect, locked
from tests.e2e.rls_client import XdsClient, entries
from tests.support.aws_proxy import Answer
from tests.support.certificates import Authority
from tests.support.patient import wait_long_for_dynamodb
from tests.support.processes import PATIENCE_S, Penstock, penstock, wait_for
from tests.support.rules import replace_rules
from tests.support.web import decide, get, post

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: PATH, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: generic_key, value: slow, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: api_key, rate_limit: {unit: day, requests_per_unit: 5}}
entities:
  - {keys: [api_key, model], entity: "{api_key}", resource: "{model}", consume: {rpm: 1, typo: 1}}
"""

REQUESTS = 200
MOST_LINES = 10
"""For one outage. A line for each request would be twenty times as many."""

COUNT = re.compile(r" \(this(?:, or others like it,)? came (once|[0-9,]+ times) more\)$")

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAs3cretOne",
    "AWS_SECRET_ACCESS_KEY": "s3cretTwo",
    "AWS_SESSION_TOKEN": "s3cretThree",
    "REDIS_AUTH": "s3cretFour",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cretFive",
}
"""Whatever is wrong, `s3cret` is not in the log."""

REFUSED = (
    "The request signature we calculated does not match the signature you provided.\n\n"
    "The Canonical String for this request should have been\n'POST\nx-amz-security-token:{}'"
).format(SECRETS["AWS_SESSION_TOKEN"])


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def table(proxied_table: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table with a limit for all, seen through the proxy."""
    wait_long_for_dynamodb(monkeypatch)
    store = f"--store={proxied_table}"
    assert main(["limits", "set", "--resource=gpt-4", "rpm=9/day", store]) == 0
    return proxied_table


def warnings(server: Penstock) -> list[str]:
    """The messages of warnings and errors."""
    found = re.findall(r"^\S+ \S+ (?:WARNING|ERROR) (.*)$", server.log(), re.MULTILINE)
    assert "Traceback" not in server.log()
    return [str(line) for line in found]


def messages(lines: list[str]) -> int:
    """How many messages the lines stand for: a line with a count, for as many as it tells."""
    total = 0
    for line in lines:
        count = COUNT.search(line)
        if count is None or count[1] == "once":
            total += 1
        else:
            total += int(count[1].split()[0].replace(",", ""))
    return total


def send_garbage(address: str) -> None:
    """What neither gRPC, nor TLS, nor HTTP is; waits until it has been turned away."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as stranger:
        stranger.sendall(b"neither one\x00nor the other\r\n\r\n" * 10)
        with suppress(ConnectionError):
            while stranger.recv(1024):
                pass


def test_json_is_a_line_a_message_whatever_happens(tmp_path: Path, rules: Path) -> None:
    """Also for errors of many lines, and for strangers on the TLS port, whom gRPC speaks of."""
    issued = Authority().issue("localhost")
    (tmp_path / "cert.pem").write_bytes(issued.cert)
    (tmp_path / "key.pem").write_bytes(issued.key)
    env = {"LOG_FORMAT": "json", "REDIS_URL": "x", "GRPC_SERVER_USE_TLS": "true"}
    env |= {"GRPC_SERVER_TLS_CERT": "cert.pem", "GRPC_SERVER_TLS_KEY": "key.pem"}
    with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
        for _ in range(3):
            send_garbage(server.address)
        replace_rules(rules, "domain: é\nbad: 1\nworse: 2\n")
        server.wait_for_log("the last good rules stay")
        assert server.terminate() == 0
        lines = [json.loads(line) for line in server.log().splitlines()]
    for line in lines:
        assert {"@timestamp", "@message", "level"} <= line.keys()
        assert line["@timestamp"].endswith("Z")
        assert datetime.fromisoformat(line["@timestamp"]).tzinfo is not None
    assert [line["level"] for line in lines].count("error") == 1
    said = [line["@message"] for line in lines]
    assert said[0] == "ignored variables, which have no meaning here: REDIS_URL"
    assert said[-1] == "stopped"
    assert f"{rules}:2: config error, unknown key 'bad'\n{rules}:3: " in "\n".join(said)


def test_requests_leave_no_lines_unless_asked_for(tmp_path: Path, rules: Path) -> None:
    """Nor do those that make no sense, in whatever way."""
    with penstock(tmp_path, rules=rules, store="memory:") as server:
        before = server.log()
        statuses = [decide(server.http, "example", ("user", "bob")).status for _ in range(6)]
        statuses += [post(server.http, "/json", body).status for body in ("{}", "}")]
        statuses += [get(server.http, path).status for path in ("/healthcheck", "/nowhere")]
        for address in (server.address, server.http):
            send_garbage(address)
        assert statuses == [200] * 5 + [429, 400, 400, 200, 404]
        assert server.log() == before


def test_secrets_are_in_no_line_at_any_level(
    tmp_path: Path, rules: Path, table: str, proxy: RunningProxy, xds: XdsClient
) -> None:
    """Ours to AWS and elsewhere, and those of clients; while all goes well, and while it does not.

    The AWS SDK's own lines at this level have signatures and credentials.
    """
    env = {**SECRETS, "LOG_LEVEL": "debug", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    env |= {"TRACING_ENABLED": "true", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    flags = ("--policy-cache-ttl", "500ms")
    with penstock(tmp_path, *flags, rules=rules, store=table, env=env, patient=True) as server:

        def ask(*pairs: tuple[str, str]) -> int:
            return decide(server.http, "example", *pairs).status

        stored = (("api_key", "s3cretSeven"), ("model", "gpt-4"))
        assert ask(("api_key", "s3cretEight")) == ask(*stored) == 200
        assert ask(("PATH", "/login?token=s3cretNine")) == 200
        assert xds.ask(server.address, "example", entries(generic_key="slow"))
        proxy.fail_always(Answer(400, "InvalidSignatureException", REFUSED))
        refused = xds.ask_in_vain(server.address, "example", entries(api_key="s3cretTen"))
        proxy.fail_always(None)
        proxy.down()
        wait_for(
            lambda: ask(*stored) and "stored limits can't be read" in server.log(),
            "the outage to be told",
        )
        server.terminate()
        log = server.log()
    assert refused.code == "UNAVAILABLE"
    assert refused.details == "the store did not answer (permanent); the server's log has more"
    for text in (
        "[api_key=(hidden)] within limit 5 per day, 4 left",
        "[api_key=(hidden), model='gpt-4'] within rpm 9 per day, 8 left",
        "[PATH='/login'?(hidden)] within",
        "[generic_key='slow'] within",
        "does not match the signature you provided",
        "check the secret key, and this machine's clock",
        "limit gpt-4/typo does not exist",
        "Failed to export",
        "REDIS_AUTH",
    ):
        assert text in log, text
    assert "s3cret" not in log
    assert "botocore" not in log


def flood(client: Client, threads: int, each: int) -> set[object]:
    """Send requests of many users at once; gives the kinds of answers."""

    def ask(number: int) -> list[object]:
        return [client.ask(f"user-{number}-{i}") for i in range(each)]

    with ThreadPoolExecutor(threads) as pool:
        return {outcome for outcomes in pool.map(ask, range(threads)) for outcome in outcomes}


@pytest.mark.parametrize(
    ("choice", "text"), [("error", "answering UNAVAILABLE: "), ("deny", "answering deny without ")]
)
def test_an_outage_of_dynamodb_under_load_is_a_handful_of_lines(
    tmp_path: Path, rules: Path, table: str, proxy: RunningProxy, choice: str, text: str
) -> None:
    """With every failed request in their counts, once the server stops at the latest."""
    flags = ("--on-unavailable", choice)
    with (
        penstock(tmp_path, *flags, rules=rules, store=table) as server,
        connect(server.address) as client,
    ):
        proxy.down()
        assert flood(client, 4, REQUESTS // 4) == {BLIND[choice]}
        during = warnings(server)
        assert server.terminate() == 0
        lines = warnings(server)
    assert len(during) <= MOST_LINES
    assert len(lines) <= 2 * MOST_LINES
    assert messages([line for line in lines if line.startswith(text)]) == REQUESTS


def test_a_locked_sqlite_file_under_load_is_a_handful_of_lines(tmp_path: Path, rules: Path) -> None:
    """Requests fail together, a second after they came; the log says it once."""
    with penstock(tmp_path, rules=rules) as server, connect(server.address) as client:
        with locked(tmp_path / "penstock.db"):
            assert flood(client, 30, 2) == {BLIND["error"]}
        assert server.terminate() == 0
        lines = warnings(server)
    failed = "answering UNAVAILABLE: the SQLite file could not be written: database is locked"
    assert lines == [failed, f"{failed} (this came 59 times more)"]


def test_all_that_is_odd_about_rules_is_told(tmp_path: Path, rules: Path) -> None:
    """However much it is: it is not one thing again and again."""
    odd = [f"  - {{key: k{number}, key: k{number}}}" for number in range(30)]
    rules.write_text("\n".join(["domain: example", "descriptors:", *odd]))
    with penstock(tmp_path, rules=rules, store="memory:") as server:
        log = server.log()
    assert all(f"{rules}:{number + 3}: " in log for number in range(30))
