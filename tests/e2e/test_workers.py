"""A server of several processes, `--workers`: for its clients and operators it is one server."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import grpc
import pytest

from tests.e2e.outage import Client, Outcome, locked
from tests.support.certificates import Authority, SecretMount, served_certificate
from tests.support.metrics import Samples, read_text, sample
from tests.support.processes import PATIENCE_S, PENSTOCK, Penstock, penstock, wait_for
from tests.support.rules import replace_rules
from tests.support.statsd import StatsD
from tests.support.web import decide, get, post

LIMIT = 40
MANY = 100_000
RULES = """\
domain: example
descriptors:
  - {{key: user, rate_limit: {{unit: day, requests_per_unit: {limit}}}}}
"""
TRANSPORTS = ["native", "grpcio"]
CLIENTS = 8
"""With grpcio the system spreads them by chance. So many never meet the same of two workers."""
SERVES = re.compile(r"INFO worker (\d+) serves, process (\d+)$", re.MULTILINE)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES.format(limit=LIMIT))
    return file


@pytest.fixture(params=TRANSPORTS)
def server(tmp_path: Path, rules: Path, request: pytest.FixtureRequest) -> Iterator[Penstock]:
    """With each transport."""
    with penstock(tmp_path, *flags(request.param), rules=rules) as server:
        yield server


def flags(transport: str, *more: str) -> tuple[str, ...]:
    return "--workers", "2", "--transport", transport, *more


def processes(server: Penstock) -> dict[int, int]:
    """The process of each worker, by the worker's number."""
    return {int(number): int(process) for number, process in SERVES.findall(server.log())}


def is_running(process: int) -> bool:
    """A zombie is not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def metrics_of(server: Penstock) -> Samples:
    return read_text(get(server.http, "/metrics").text)


def wait_for_metrics(server: Penstock, wanted: Samples) -> Samples:
    """The page, once it has these samples: a busy worker may be late, and then miss in the page."""

    def look() -> Samples | None:
        page = metrics_of(server)
        return page if wanted.items() <= page.items() else None

    return wait_for(look, f"metrics with {wanted}")


@contextmanager
def connected(address: str, count: int = CLIENTS) -> Iterator[list[Client]]:
    """Clients with a connection each: gRPC would have all of a process share one."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as channels:
        yield [
            Client(channels.enter_context(grpc.insecure_channel(address, options=options)))
            for _ in range(count)
        ]


@pytest.fixture
def dynamodb_table(dynamodb_url: str, tmp_path: Path) -> Iterator[str]:
    """A table, made as a user makes it."""
    url = f"dynamodb://workers-{tmp_path.name}?region=eu-west-1&endpoint={dynamodb_url}"
    subprocess.run([str(PENSTOCK), "table", "create", "--store", url], check=True)
    yield url
    subprocess.run([str(PENSTOCK), "table", "delete", "--store", url, "--yes"], check=True)


def check_limit(server: Penstock) -> int:
    """Of twice as many requests as are admitted, half pass; gives how many the store was late for.

    Those may have taken a token, or not.
    """
    with connected(server.address) as clients, ThreadPoolExecutor(CLIENTS) as pool:
        asked = [
            pool.submit(client.ask, "bob", PATIENCE_S)
            for _ in range(2 * LIMIT // CLIENTS)
            for client in clients
        ]
        codes = [one.result().code for one in asked]
    passed, late = codes.count("OK"), codes.count("UNAVAILABLE")
    assert set(codes) - {"UNAVAILABLE"} == {"OK", "OVER_LIMIT"}
    assert LIMIT - late <= passed <= LIMIT
    requests = sample("ratelimit_service_total_requests", grpc_method="ShouldRateLimit")
    page = wait_for_metrics(server, {requests: 2 * LIMIT})
    hits = "ratelimit_service_rate_limit_{}"
    rule = {"domain": "example", "key1": "user"}
    assert page[sample(hits.format("within_limit"), **rule)] == passed
    assert page[sample(hits.format("over_limit"), **rule)] == codes.count("OVER_LIMIT")
    return late


def test_a_limit_holds_exactly_for_all_workers_on_sqlite(server: Penstock) -> None:
    """They share the file; and every request is counted, whichever worker has decided it."""
    assert check_limit(server) == 0


def test_a_limit_holds_exactly_for_all_workers_on_dynamodb(
    tmp_path: Path, rules: Path, dynamodb_table: str
) -> None:
    """They share the table. On a busy machine, it may be late for some."""
    with penstock(tmp_path, *flags("native"), rules=rules, store=dynamodb_table) as server:
        check_limit(server)


def test_it_says_once_that_it_listens_when_all_workers_serve(server: Penstock) -> None:
    """And which worker says what; and the page and the statistics are those of one server."""
    log = server.log()
    assert log.count("listens on") == 1
    assert sorted(processes(server)) == [1, 2]
    before = log.partition("listens on")[0]
    for number in (1, 2):
        assert f"[worker {number}] rules loaded, domains: example" in before
        assert f"INFO worker {number} serves" in before
    page = metrics_of(server)
    assert page[sample("penstock_workers")] == 2
    assert page[sample("penstock_healthy")] == 1
    assert page[sample("ratelimit_service_config_load_success")] == 1
    assert [decide(server.http, "example", ("user", "bob")).status for _ in range(4)] == [200] * 4
    for line in (
        "ratelimit.service.rate_limit.example.user.total_hits: 4\n",
        "ratelimit_server.json.total_requests: 4\n",
    ):
        wait_for(partial(is_in_stats, server, line), line)
    assert "\nexample.user: unit=DAY" in get(server.debug, "/rlconfig").text


def is_in_stats(server: Penstock, line: str) -> bool:
    return line in get(server.debug, "/stats").text


def test_one_worker_is_one_process(tmp_path: Path, rules: Path) -> None:
    """Nothing is started where one process does."""
    with penstock(tmp_path, rules=rules) as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        assert children.read_text() == ""
        assert metrics_of(server)[sample("penstock_workers")] == 1


def test_connections_are_spread_evenly(tmp_path: Path, rules: Path) -> None:
    """Each goes to the worker that has the fewest, also after others have gone."""
    with penstock(tmp_path, *flags("native"), rules=rules) as server:
        empty = sockets(server)

        def wait_until(*more: int) -> None:
            wanted = [before + added for before, added in zip(empty, more, strict=True)]
            wait_for(lambda: sockets(server) == wanted, f"{more} connections")

        with connected(server.address, 6) as clients:
            for client in clients:
                assert client.ask("bob").code == "OK"
            wait_until(3, 3)
        wait_until(0, 0)
        with connected(server.address, 1) as (first,):
            first.ask("bob")
            wait_until(1, 0)
            with connected(server.address, 1) as (second,):
                second.ask("bob")
                wait_until(1, 1)


def sockets(server: Penstock) -> list[int]:
    """How many each worker has open."""

    def count(process: int) -> int:
        opened = 0
        for file in Path(f"/proc/{process}/fd").iterdir():
            try:
                opened += os.readlink(file).startswith("socket:")  # noqa: PTH115 - no path
            except OSError:
                continue  # closed meanwhile
        return opened

    return [count(process) for _, process in sorted(processes(server).items())]


def test_statsd_gets_the_counts_of_all_workers(tmp_path: Path, rules: Path) -> None:
    """From one sender; the last ones when the server stops."""
    statsd = StatsD()
    statsd.start()
    env = {"USE_STATSD": "true", "STATSD_PORT": str(statsd.port), "STATSD_HOST": "127.0.0.1"}
    try:
        with penstock(
            tmp_path, *flags("native", "--stats-flush-interval", "1h"), rules=rules, env=env
        ) as server:
            with connected(server.address, 4) as clients:
                assert [client.ask("bob").code for client in clients] == ["OK"] * 4
            assert server.terminate() == 0
    finally:
        statsd.stop()
    assert statsd.counters["ratelimit.service.rate_limit.example.user.total_hits"] == 4
    assert statsd.counters["ratelimit_server.ShouldRateLimit.total_requests"] == 4


def has_loaded(server: Penstock, number: int, times: int) -> bool:
    return server.log().count(f"[worker {number}] rules loaded") == times


def test_changed_rules_reach_all_workers(server: Penstock, rules: Path) -> None:
    """Rules with errors reach none, and all of them say so."""
    with connected(server.address) as clients:
        assert {client.ask("ann").remaining for client in clients} == set(
            range(LIMIT - CLIENTS, LIMIT)
        )
        replace_rules(rules, RULES.format(limit=1000))
        for number in (1, 2):
            wait_for(partial(has_loaded, server, number, 2), "the new rules")
        assert {client.ask("eve").remaining for client in clients} == set(
            range(1000 - CLIENTS, 1000)
        )
        replace_rules(rules, "domain: example\nbad: 1\n")
        for number in (1, 2):
            server.wait_for_log(f"[worker {number}] the changed rules have errors")
        assert {client.ask("eve").code for client in clients} == {"OK"}
        assert all(client.is_alive() for client in clients)
    loads = {
        sample("ratelimit_service_config_load_success"): 2.0,
        sample("ratelimit_service_config_load_error"): 1.0,
    }
    wait_for_metrics(server, loads)
    assert get(server.http, "/healthcheck").status == 200


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_new_certificates_reach_all_workers(tmp_path: Path, rules: Path, transport: str) -> None:
    """Each worker follows the files."""
    ca = Authority()
    first, second = ca.issue("penstock.test"), ca.issue("penstock.test")
    mount = SecretMount(tmp_path / "certs", tls_crt=first.cert, tls_key=first.key)
    env = {
        "GRPC_SERVER_USE_TLS": "true",
        "GRPC_SERVER_TLS_CERT": str(mount.path("tls_crt")),
        "GRPC_SERVER_TLS_KEY": str(mount.path("tls_key")),
    }
    with penstock(tmp_path, *flags(transport), rules=rules, env=env) as server:

        def served() -> set[bytes]:
            return {served_certificate("127.0.0.1", server.port) for _ in range(CLIENTS)}

        (before,) = served()
        mount.swap(tls_crt=second.cert, tls_key=second.key)
        (after,) = served()
        assert before != after

        def is_told_by_all() -> bool:
            # The system gives connections to workers as it likes: some may get none for a while.
            assert served() == {after}
            log = server.log()
            return all(f"[worker {number}] TLS files changed" in log for number in (1, 2))

        wait_for(is_told_by_all, "all workers to see the new files")


def test_the_http_port_answers_for_all(server: Penstock, tmp_path: Path) -> None:
    """Decisions, and errors as they are in one process."""
    remaining = [
        post(server.http, "/json", body).text.partition('limitRemaining":')[2].partition(",")[0]
        for body in [{"domain": "example", "descriptors": [{"entries": [{"key": "user"}]}]}] * 3
    ]
    assert remaining == ["39", "38", "37"]
    page = post(server.http, "/json", {"domain": ""})
    assert (page.status, page.text) == (400, "rate limit domain must not be empty\n")
    with locked(tmp_path / "penstock.db"):
        page = decide(server.http, "example", ("user", "bob"))
    assert page.status == 503
    assert page.text.startswith("the store did not answer (")


def test_readiness_is_that_of_all_workers(tmp_path: Path, rules: Path) -> None:
    """With the reason that one process would give."""
    flags_ = flags("native", "--ready-needs-store")
    with penstock(tmp_path, *flags_, rules=rules) as server, ThreadPoolExecutor(1) as pool:
        wait_for(lambda: get(server.http, "/ready").status == 200, "readiness")
        with locked(tmp_path / "penstock.db"):

            def look() -> str | None:
                asked = pool.submit(decide, server.http, "example", ("user", "bob"))
                page = get(server.http, "/ready")
                asked.result()
                return page.text if page.status == 503 else None

            # On a busy machine, a worker may be late as well.
            reason = wait_for(look, "a look at the store")
            assert "the store does not answer" in reason.rstrip().split("; ")
            assert get(server.http, "/healthcheck").status == 200
        wait_for(lambda: get(server.http, "/ready").status == 200, "readiness")


class Load:
    """Clients that send without a pause, until they are told to stop.

    Those that `leave` stop when their server's health check says that they should.
    """

    def __init__(self, clients: list[Client], *, leave: bool) -> None:
        self._leave = leave
        self._pool = ThreadPoolExecutor(len(clients))
        self.begun = [Event() for _ in clients]
        self._stopped = Event()
        self._running = [
            self._pool.submit(self._run, client, begun)
            for client, begun in zip(clients, self.begun, strict=True)
        ]

    def _run(self, client: Client, begun: Event) -> list[Outcome]:
        outcomes = []
        while not self._stopped.is_set():
            outcomes.append(client.ask("load", PATIENCE_S))
            # Others may have used up the limit before this client was connected.
            if outcomes[-1].code in {"OK", "OVER_LIMIT"}:
                begun.set()
            if self._leave and not client.is_alive():
                break
        return outcomes

    def wait_until_begun(self) -> None:
        assert all(begun.wait(PATIENCE_S) for begun in self.begun)

    def stop(self) -> None:
        self._stopped.set()

    def outcomes(self) -> list[Outcome]:
        """All of them, when every client has left, or was told to stop."""
        found = [outcome for one in self._running for outcome in one.result(PATIENCE_S)]
        self._pool.shutdown()
        return found


def test_a_drain_under_load_loses_nothing(server: Penstock, rules: Path) -> None:
    """Every call is answered, and every answer was taken from the bucket."""
    # Refills one in 5 minutes.
    replace_rules(rules, RULES.format(limit=MANY).replace("day", "year"))
    wait_for(lambda: server.log().count("rules loaded") == 4, "the new rules")
    with connected(server.address) as clients:
        load = Load(clients, leave=True)
        load.wait_until_begun()
        server.process.send_signal(signal.SIGTERM)
        outcomes = load.outcomes()
        assert server.process.wait(PATIENCE_S) == 0
    assert {outcome.code for outcome in outcomes} == {"OK"}
    assert min(outcome.remaining or 0 for outcome in outcomes) == MANY - len(outcomes)
    assert server.log().rstrip().endswith("stopped")
    check_nothing_is_left(server)


def check_nothing_is_left(server: Penstock) -> None:
    """No process, and nobody on the ports."""
    wait_for(lambda: not any(map(is_running, processes(server).values())), "workers to end")
    for address in (server.address, server.http, server.debug):
        host, _, port = address.rpartition(":")
        wait_for(partial(is_free, host, int(port)), f"{address} to be free")


def is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_second_signal_hurries_all_workers(tmp_path: Path, rules: Path, transport: str) -> None:
    """The first one waits for a health checker that does not come again."""
    more = ("--drain-timeout", "1h")
    with (
        penstock(tmp_path, *flags(transport, *more), rules=rules) as server,
        connected(server.address, 1) as (client,),
    ):
        assert client.is_alive()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_log("waiting for health checkers that were not told yet")
        page = get(server.http, "/ready")
        assert (page.status, page.text) == (503, "draining\n")
        assert get(server.http, "/healthcheck").status == 500
        assert client.ask("bob").code == "OK"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 0
        check_nothing_is_left(server)


def test_ctrl_c_stops_all_workers_at_once(tmp_path: Path, rules: Path) -> None:
    """A terminal sends SIGINT to every process; only the first one minds it."""
    with (
        penstock(tmp_path, *flags("native", "--drain-timeout", "1h"), rules=rules) as server,
        connected(server.address, 2) as clients,
    ):
        assert all(client.is_alive() for client in clients)
        for process in (*processes(server).values(), server.process.pid):
            os.kill(process, signal.SIGINT)
        assert server.process.wait(PATIENCE_S) == 0
        check_nothing_is_left(server)
    assert "Traceback" not in server.log()


def test_a_worker_that_is_killed_is_replaced(server: Penstock) -> None:
    """Its clients connect anew and go on, and nobody else notices."""
    restarts = sample("penstock_part_restarts_total", part="worker 2")
    with connected(server.address) as clients:
        load = Load(clients, leave=False)
        load.wait_until_begun()
        killed = processes(server)[2]
        os.kill(killed, signal.SIGKILL)
        server.wait_for_log(f"worker 2 (process {killed}) was killed by SIGKILL")
        assert get(server.http, "/healthcheck").status == 200
        server.wait_for_log("worker 2 runs again")
        # A worker has less than a second to say so, which a busy machine may not give it.
        wait_for(lambda: get(server.http, "/ready").status == 200, "both workers to be ready")
        page = metrics_of(server)
        assert page[restarts] == 1
        assert page[sample("penstock_workers")] == 2
        load.stop()
        outcomes = load.outcomes()
        for client in clients:
            # gRPC waits for a second or more before it tries once more to connect.
            wait_for(lambda: client.ask("bob").code == "OK", "a client to be served again")  # noqa: B023 - called at once
    # A client has one call under way. It may be lost, and further ones until it is connected anew.
    assert {outcome.code for outcome in outcomes} <= {"OK", "OVER_LIMIT", "UNAVAILABLE"}
    assert server.terminate() == 0
    check_nothing_is_left(server)


def test_what_a_killed_worker_had_counted_stays_counted(tmp_path: Path, rules: Path) -> None:
    """As of the last time that somebody looked."""
    requests = sample("ratelimit_service_total_requests", grpc_method="ShouldRateLimit")
    with penstock(tmp_path, *flags("native"), rules=rules) as server:
        with connected(server.address, 4) as clients:
            assert [client.ask("bob").code for client in clients] == ["OK"] * 4
        wait_for_metrics(server, {requests: 4})
        for number in (1, 2):
            os.kill(processes(server)[number], signal.SIGKILL)
            server.wait_for_log(f"worker {number} runs again")
            assert metrics_of(server)[requests] == 4


def test_workers_do_not_outlive_their_parent(server: Penstock) -> None:
    """Not even if it had no time to tell them."""
    with connected(server.address, 4) as clients:
        assert [client.ask("bob").code for client in clients] == ["OK"] * 4
        server.process.kill()
        check_nothing_is_left(server)
    for number in (1, 2):
        assert f"[worker {number}] the process that started this worker has ended" in server.log()


def test_a_worker_that_hangs_makes_the_server_unhealthy(server: Penstock) -> None:
    """It never looks well while calls of some connections are not answered."""
    hanging = processes(server)[1]
    os.kill(hanging, signal.SIGSTOP)
    try:
        wait_for(lambda: get(server.http, "/healthcheck").status == 500, "the hanging worker")
        page = get(server.http, "/ready")
        assert (page.status, page.text) == (503, "worker 1 does not answer\n")
        # Its metrics are the last known ones.
        assert metrics_of(server)[sample("penstock_healthy")] == 0
    finally:
        os.kill(hanging, signal.SIGCONT)
    wait_for(lambda: get(server.http, "/healthcheck").status == 200, "the worker to go on")


def test_rules_that_broke_do_not_end_the_workers_that_have_the_good_ones(
    tmp_path: Path, rules: Path
) -> None:
    """A worker is replaced as soon as they are mended."""
    with penstock(tmp_path, *flags("native"), rules=rules) as server:
        replace_rules(rules, "domain: example\nbad: 1\n")
        server.wait_for_log("the changed rules have errors")
        os.kill(processes(server)[1], signal.SIGKILL)
        server.wait_for_log("worker 1 can't be replaced, will try again")
        with connected(server.address, 2) as clients:
            assert [client.ask("bob").code for client in clients] == ["OK"] * 2
        assert get(server.http, "/healthcheck").status == 200
        assert metrics_of(server)[sample("penstock_workers")] == 1
        replace_rules(rules, RULES.format(limit=LIMIT))
        server.wait_for_log("worker 1 runs again")
        assert metrics_of(server)[sample("penstock_workers")] == 2


def test_workers_share_a_unix_socket(tmp_path: Path, rules: Path) -> None:
    """It goes with the server."""
    path = tmp_path / "grpc.sock"
    with penstock(tmp_path, *flags("native", "--grpc-uds", str(path)), rules=rules) as server:
        assert server.address == f"unix:{path}"
        with connected(server.address, 4) as clients:
            assert [client.ask("bob").remaining for client in clients] == [39, 38, 37, 36]
        assert server.terminate() == 0
    assert not path.exists()
