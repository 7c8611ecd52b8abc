"""What a store says when it fails belongs in the log: callers learn the kind, and no names."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import grpc
import pytest
from penstock.cli import main
from penstock.core.foreign_text import is_plain
from penstock.core.request import Descriptor, Request
from penstock.store.dynamodb.aws.location import Location
from penstock.transport.codec import METHOD, SERVICE, encode_request

from tests.e2e.outage import RunningProxy, locked
from tests.support.aws_proxy import Answer, Cancel, Fault, Refuse
from tests.support.patient import wait_long_for_dynamodb
from tests.support.processes import PATIENCE_S, Penstock, penstock
from tests.support.web import decide, get

RULES = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n"

ACCOUNT = "123456789012"
ROLE = f"arn:aws:sts::{ACCOUNT}:assumed-role/penstock-prod/i-0abc"
DENIED = (
    f"User: {ROLE} is not authorized to perform: dynamodb:UpdateItem on resource: "
    f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/penstock-prod"
)
FORGED = "2026-01-01 00:00:00,000 ERROR forged"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.fixture
def proxy(dynamodb_url: str) -> Iterator[RunningProxy]:
    running = RunningProxy(dynamodb_url)
    yield running
    running.close()


@pytest.fixture
def table(dynamodb_url: str, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A table as its users make it, seen through the proxy."""
    wait_long_for_dynamodb(monkeypatch)
    direct = Location(f"words-{uuid4().hex}", "eu-west-1", dynamodb_url)
    assert main(["table", "create", "--store", str(direct)]) == 0
    yield str(replace(direct, endpoint=proxy.url))
    assert main(["table", "delete", "--store", str(direct), "--yes"]) == 0


def told(server: Penstock, user: str) -> tuple[str, list[str]]:
    """The code that gRPC answers, and every text that a caller gets, by gRPC and by HTTP."""
    request = encode_request(Request("d", (Descriptor((("user", user),)),)))

    async def call() -> grpc.aio.AioRpcError:
        async with grpc.aio.insecure_channel(server.address) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{SERVICE}/{METHOD}"
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await method(request, timeout=PATIENCE_S)
            return caught.value

    error = asyncio.run(call())
    pages = [decide(server.http, "d", ("user", f"{user}-http")), get(server.http, "/ready")]
    assert [page.status for page in pages] == [503, 503]
    return error.code().name, [error.details() or "", *[page.text for page in pages]]


@pytest.mark.parametrize(
    ("fault", "kind", "logged"),
    [
        (Answer(400, "AccessDeniedException", DENIED), "permanent", DENIED),
        (Answer(400, "ThrottlingException", f"slow down, {ACCOUNT}"), "throttled", ACCOUNT),
        (Answer(500, "InternalServerError", f"{ACCOUNT}\n{FORGED}"), "unknown", ACCOUNT),
        (Answer(400, f"{ACCOUNT}\x1b[2J\u202e\r", "x" * 50_000), "permanent", "\\x1b[2J\\u202e\\r"),
        (Refuse(), "unknown", "127.0.0.1"),
    ],
    ids=["denied", "throttled", "broken", "hostile", "cut off"],
)
def test_what_aws_says_is_for_the_log_alone(
    tmp_path: Path,
    rules: Path,
    proxy: RunningProxy,
    table: str,
    fault: Fault,
    kind: str,
    logged: str,
) -> None:
    """Accounts, roles, tables and addresses: no caller sees them, and who runs the server does."""
    env = {"PENSTOCK_READY_NEEDS_STORE": "true"}
    with penstock(tmp_path, rules=rules, store=table, env=env, patient=True) as server:
        start = len(server.log())
        proxy.fail_always(fault)
        code, texts = told(server, "bob")
        proxy.fail_always(None)
        assert server.terminate() == 0
        log = server.log()[start:]
    name = table.partition("//")[2].partition("?")[0]
    assert code == "UNAVAILABLE"
    for text in texts:
        assert text.strip() == f"the store did not answer ({kind}); the server's log has more"
        assert not any(word in text for word in (ACCOUNT, "penstock-prod", name, "127.0.0.1"))
    assert logged in log
    for line in log.splitlines():
        assert is_plain(line)
        assert not line.startswith(FORGED)
        assert len(line) < 3_000


def test_why_a_transaction_was_cancelled_is_for_the_log_alone(
    tmp_path: Path, rules: Path, proxy: RunningProxy, table: str
) -> None:
    """The reasons have AWS's words, too."""
    store = f"--store={table}"
    assert main(["entity", "create", "p", store]) == 0
    assert main(["entity", "create", "c", "--parent", "p", "--cascade", store]) == 0
    assert main(["limits", "set", "--resource", "r", "rpm=5/day", store]) == 0
    with penstock(tmp_path, rules=rules, store=table, patient=True) as server:
        proxy.fail_always(Cancel(("ValidationError", "None"), operation="TransactWriteItems"))
        page = decide(server.http, "d", ("entity", "c"), ("resource", "r"))
        proxy.fail_always(None)
        log = server.log()
    assert page.status == 503
    assert page.text == "the store did not answer (permanent); the server's log has more\n"
    assert "ValidationError as the test wants it" in log


def test_what_sqlite_says_is_for_the_log_alone(tmp_path: Path, rules: Path) -> None:
    """It may name files."""
    with penstock(tmp_path, rules=rules) as server:
        with locked(tmp_path / "penstock.db"):
            page = decide(server.http, "d", ("user", "bob"))
        assert server.terminate() == 0
        log = server.log()
    assert page.status == 503
    assert page.text == "the store did not answer (sqlite_busy); the server's log has more\n"
    assert "database is locked" in log
