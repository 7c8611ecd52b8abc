"""A server whose DynamoDB goes away, hangs, or was never there."""

import asyncio
import subprocess
import time
from pathlib import Path

import pytest
from penstock.cli import main
from penstock.store.dynamodb.aws.circuit import OPENS_AFTER
from penstock.store.dynamodb.aws.location import CALL_S, Location

from tests.e2e.outage import BLIND, USERS, Outcome, RunningProxy, connect
from tests.support.aws_proxy import Hold
from tests.support.patient import wait_long_for_dynamodb
from tests.support.processes import PATIENCE_S, PENSTOCK, penstock, wait_for
from tests.support.transports import on_one_transport

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


@pytest.mark.parametrize(
    ("transport", "on_unavailable"),
    [*[("native", answer) for answer in BLIND], ("grpcio", "error")],
    indirect=["transport"],
)
def test_an_outage_is_answered_as_the_operator_wants_and_it_ends_by_itself(
    tmp_path: Path, rules: Path, proxied_table: str, proxy: RunningProxy, on_unavailable: str
) -> None:
    """The server lives on, takes nothing blindly, and decides within seconds of the store's return.

    Also once it does not ask for every request any more.
    """
    flags = ("--on-unavailable", on_unavailable)
    with (
        penstock(tmp_path, *flags, rules=rules, store=proxied_table) as server,
        connect(server.address) as client,
    ):
        before = client.decided(USERS)
        proxy.down()
        during = [client.ask(user) for user in USERS for _ in range(OPENS_AFTER + 2)]
        is_alive = client.is_alive()
        proxy.up()
        after = dict[str, Outcome]()
        for user in before:
            client.recovered()
            after |= client.decided([user])

    assert set(before.values()) == {Outcome("OK", 4)}
    assert during == [BLIND[on_unavailable]] * len(during)
    assert is_alive
    assert set(after.values()) == {Outcome("OK", 3)}


@on_one_transport
def test_the_stored_answer_for_outages_reaches_servers_that_only_have_rules(
    tmp_path: Path,
    rules: Path,
    proxied_table: str,
    proxy: RunningProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the time that a change may take, and without a flag."""
    wait_long_for_dynamodb(monkeypatch)
    with (
        penstock(tmp_path, "--policy-cache-ttl", "1s", rules=rules, store=proxied_table) as server,
        connect(server.address) as client,
    ):
        assert main(["limits", "set", "--on-unavailable", "deny", "--store", proxied_table]) == 0
        seen = proxy.calls("BatchGetItem")
        # The first look may have begun before the change, and the last may not have ended.
        wait_for(lambda: proxy.calls("BatchGetItem") >= seen + 3, "the server to look again")
        proxy.down()
        assert wait_for(lambda: client.ask("bob"), "an answer") == BLIND["deny"]


def test_a_store_that_hangs_is_answered_for_before_the_caller_gives_up(
    tmp_path: Path, rules: Path, proxied_table: str, proxy: RunningProxy
) -> None:
    """By the caller's deadline or after a second, whichever is first; and the server can stop."""
    flags = ("--on-unavailable", "deny", "--drain-timeout", "100ms")
    with (
        penstock(tmp_path, *flags, rules=rules, store=proxied_table) as server,
        connect(server.address) as client,
    ):
        before = client.decided(USERS)
        proxy.fail_always(Hold(asyncio.Event()))
        # Shorter than the server's own patience. A busy machine may be too late, not every time.
        hurried = wait_for(
            lambda: client.ask("bob", timeout_s=0.8 * CALL_S) == BLIND["deny"], "an answer in time"
        )
        start = time.monotonic()
        patient = client.ask("eve", timeout_s=PATIENCE_S)
        waited_s = time.monotonic() - start
        is_alive = client.is_alive()
        exit_code = server.terminate()

    assert set(before.values()) == {Outcome("OK", 4)}
    assert hurried
    assert patient == BLIND["deny"]
    assert waited_s < PATIENCE_S
    assert is_alive
    assert exit_code == 0


@on_one_transport
@pytest.mark.parametrize("hangs", [False, True], ids=["gone", "hangs"])
def test_a_server_starts_without_its_store_and_waits_for_it(
    tmp_path: Path, rules: Path, proxied_table: str, proxy: RunningProxy, hangs: bool
) -> None:
    """An outage must not keep new servers from starting: they warn, and serve as configured."""
    if hangs:
        proxy.fail_always(Hold(asyncio.Event()))
    else:
        proxy.down()
    with (
        penstock(tmp_path, rules=rules, store=proxied_table) as server,
        connect(server.address) as client,
    ):
        without = client.ask("bob")
        is_alive = client.is_alive()
        proxy.fail_always(None)
        proxy.up()
        after = client.recovered()
        log = server.log()

    assert "WARNING" in log
    assert "the table can't be checked now" in log
    assert without == BLIND["error"]
    assert is_alive
    assert set(after.values()) == {Outcome("OK", 4)}


@on_one_transport
def test_a_server_without_a_table_says_how_to_make_one(
    tmp_path: Path, rules: Path, proxy: RunningProxy
) -> None:
    """That does not pass by itself, so it does not start."""
    store = str(Location("nowhere", "eu-west-1", proxy.url))
    command = [str(PENSTOCK), "serve", "--config", str(rules), "--store", store]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == 2
    assert "penstock table create" in ended.stderr
    assert store in ended.stderr
