"""The SQLite file of a real server: full, deleted, locked, copied; what probes and callers see."""

import resource
import stat
from itertools import count
from pathlib import Path

import pytest

from tests.e2e.outage import BLIND, Outcome, connect, locked
from tests.support.processes import Penstock, penstock, wait_for
from tests.support.web import decide, get

pytestmark = pytest.mark.usefixtures("transport")

RULES = """\
domain: example
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 500}}
  - key: user
    value: meter*
    rate_limit: {unit: day, requests_per_unit: 500, on_exceed: debt}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def wait_until_ready(server: Penstock) -> None:
    wait_for(lambda: get(server.http, "/ready").status == 200, "readiness")


def wait_until_unready(server: Penstock) -> str:
    def look() -> str | None:
        page = get(server.http, "/ready")
        return page.text if page.status == 503 else None

    return wait_for(look, "the fault to be seen")


def test_a_file_that_can_not_be_written_makes_a_server_unready(tmp_path: Path, rules: Path) -> None:
    """It can still be read; and once there is room, the server is ready again."""
    with penstock(tmp_path, "--ready-needs-store", rules=rules) as server:
        wait_until_ready(server)
        pid, size = server.process.pid, (tmp_path / "penstock.db-wal").stat().st_size
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
        reason = wait_until_unready(server)
        assert reason.startswith("the store did not answer (sqlite_")
        assert "not ready, the store can't be used: the SQLite file could not be" in server.log()
        assert get(server.http, "/healthcheck").status == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        wait_until_ready(server)
        assert decide(server.http, "example", ("user", "bob")).status == 200


def test_a_deleted_file_makes_a_server_unready_and_its_answers_errors(
    tmp_path: Path, rules: Path
) -> None:
    """Noticed while nobody asks, and no new file full of fresh budgets is made."""
    file = tmp_path / "penstock.db"
    with penstock(tmp_path, "--ready-needs-store", rules=rules) as server:
        assert decide(server.http, "example", ("user", "bob")).status == 200
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.rename(tmp_path / "away.db")
        server.wait_for_log("the SQLite file was deleted; nothing is served from it")
        assert decide(server.http, "example", ("user", "bob")).status == 503
        reason = wait_until_unready(server)
        assert reason == "the store did not answer (file_deleted); the server's log has more\n"
        assert get(server.http, "/healthcheck").status == 200
        assert not file.exists()
        (tmp_path / "away.db").rename(file)
        server.wait_for_log("the file is back")
        wait_until_ready(server)
        assert decide(server.http, "example", ("user", "bob")).status == 200


def test_a_charge_whose_caller_was_told_unavailable_is_made_later(
    tmp_path: Path, rules: Path
) -> None:
    """The file was locked for longer than the caller waited, and than a commit waits for it."""
    with penstock(tmp_path, rules=rules) as server, connect(server.address) as client:
        meters = (f"meter-{number}" for number in count())
        with locked(tmp_path / "penstock.db"):
            # A busy machine may be too late to answer in half a second. It is not every time.
            meter = next(one for one in meters if client.ask(one, 0.5, hits=7) == BLIND["error"])
            assert client.ask("bob") == BLIND["error"], "the first commit has failed before it"
        wait_for(lambda: client.ask(meter, hits=0) == Outcome("OK", 493), "the charge to land")
        assert client.ask("bob") == Outcome("OK", 499)
        assert "penstock_store_not_landed_total 0\n" in get(server.http, "/metrics").text
