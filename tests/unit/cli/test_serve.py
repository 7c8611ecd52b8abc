"""`penstock serve`: how it fails to start, and how it stops."""

import ctypes
import signal
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest
from penstock.store.sqlite.schema import open_file

from tests.support.processes import PATIENCE_S, PENSTOCK, penstock, wait_for
from tests.unit.cli.command import PATIENT, run, write_rules

"""A stop without a drain is far below this, a drain's time-out far above."""


def fails(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Start a server that can't start; gives what it says at the end, after a fitting prefix."""
    ran = run("serve", "--grpc-host=127.0.0.1", "--grpc-port=0", *arguments, cwd=folder, env=env)
    assert ran.code == 2
    assert "Traceback" not in ran.err
    before, prefix, message = ran.err.partition("penstock: error: ")
    assert prefix, before
    return message.strip()


def fails_on_store(folder: Path, url: str) -> str:
    return fails(folder, "--config", str(write_rules(folder)), "--store", url)


def test_without_rules_the_message_says_how_to_give_them(tmp_path: Path) -> None:
    """The first thing a new user sees."""
    message = "no rules: give --config FILE_OR_DIRECTORY, or set RUNTIME_ROOT"
    assert fails(tmp_path) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("domain: d\ndescriptors: [\n", "3: error loading config file: "
         "did not find expected node content"),
        ("domain: d\ndescriptor: []\n", "2: config error, unknown key 'descriptor'"),
    ],
)  # fmt: skip
def test_bad_rules_are_named_with_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    """A typo keeps the server from starting, and leaves nothing behind."""
    write_rules(tmp_path, text)
    said = fails(tmp_path, "--config", "rules.yaml")
    assert said == f"rules.yaml:{message}"
    assert [path.name for path in tmp_path.iterdir()] == ["rules.yaml"]


def test_a_variable_that_is_gone_keeps_the_server_from_starting(tmp_path: Path) -> None:
    """It would not do what the operator wants."""
    said = fails(tmp_path, env={"PENSTOCK_CHARGE_DENIED": "true"})
    assert said.startswith("PENSTOCK_CHARGE_DENIED is gone: set PENSTOCK_COUNTING=reference ")


def test_a_directory_without_rules_is_refused(tmp_path: Path) -> None:
    """From the reference server's variables, too."""
    (tmp_path / "data/config").mkdir(parents=True)
    env = {"RUNTIME_ROOT": str(tmp_path / "data"), "PENSTOCK_STORE": "memory:"}
    assert fails(tmp_path, env=env) == f"{tmp_path}/data/config: the directory has no rules files"


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """Two servers never share a port by accident."""
    rules = write_rules(tmp_path)
    with penstock(tmp_path, rules=rules, store="memory:") as first:
        port = f"--grpc-port={first.port}"
        said = fails(tmp_path, "--config", str(rules), "--store", "memory:", port)
    assert f"cannot listen on 127.0.0.1:{first.port}" in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--store", "memory:"],
            "--workers 2: processes can't share the store memory:, so each would admit all of a "
            "limit; choose sqlite:///PATH or dynamodb://TABLE, or --workers 1",
        ),
        (
            ["--transport", "grpcio", "--grpc-uds", "grpc.sock"],
            "--workers 2: with --transport grpcio, processes can't share a unix socket; choose "
            "--transport native, an address and a port, or --workers 1",
        ),
    ],
)
def test_what_workers_cannot_share_is_refused(
    tmp_path: Path, flags: list[str], message: str
) -> None:
    """At the start, with the reason and the way out."""
    rules = str(write_rules(tmp_path))
    assert fails(tmp_path, "--config", rules, "--workers", "2", *flags) == message
    assert [path.name for path in tmp_path.iterdir()] == ["rules.yaml"]


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_workers_that_cannot_start_are_told_of_once(tmp_path: Path, transport: str) -> None:
    """What is wrong with the rules, the store or the port is wrong for all of them."""
    rules = write_rules(tmp_path)
    flags = ["--workers=2", f"--transport={transport}", "--host=127.0.0.1", "--port=0"]
    flags += ["--debug-host=127.0.0.1", "--debug-port=0", f"--config={rules}"]
    said = fails(tmp_path, *flags, "--store", "sqlite:///missing/penstock.db")
    assert (
        said
        == f"store {tmp_path}/missing/penstock.db: the directory {tmp_path}/missing does not exist"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = fails(tmp_path, *flags, f"--grpc-port={port}")
        assert said.startswith(f"cannot listen on 127.0.0.1:{port}: already taken")
    tls = ["--grpc-server-use-tls", "--grpc-server-tls-cert=no.crt", "--grpc-server-tls-key=no.key"]
    assert fails(tmp_path, *flags, *tls).startswith("GRPC_SERVER_TLS_CERT: no.crt: there is n")
    rules.write_text("bad: 1\n")
    assert fails(tmp_path, *flags).startswith(f"{rules}:1: config error, unknown key 'bad'")


def test_a_unix_socket_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With what may be wrong about it."""
    rules = str(write_rules(tmp_path))
    said = fails(tmp_path, "--config", rules, "--store", "memory:", "--grpc-uds", "missing/s.sock")
    assert said.startswith("cannot listen on unix:missing/s.sock: the path is too long, or its")


def test_a_connection_may_live_longer_than_grpc_can_count(tmp_path: Path) -> None:
    """A thousand hours are as good as for ever."""
    flags = ("--grpc-max-connection-age=1000h", "--grpc-max-connection-age-grace=1000h")
    with penstock(tmp_path, *flags, rules=write_rules(tmp_path), store="memory:") as server:
        assert server.terminate() == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///missing/b.db", "missing does not exist"),
        ("sqlite:///rules.yaml/b.db", "rules.yaml does not exist"),
        ("sqlite:///folder", "cannot be opened"),
        ("sqlite:////proc/penstock.db", "/proc/penstock.db: "),
        ("sqlite:///rules.yaml", "not a SQLite database"),
        ("sqlite://b.db", "with three slashes"),
        ("redis://localhost", "store 'redis://localhost': unknown kind of store"),
        ("b.db", "store 'b.db': unknown kind of store"),
        ("sqlite:///b.db?mode=fast", "unknown option 'mode'"),
        ("sqlite:///b.db?synchronous=off", "synchronous is normal or full"),
        ("sqlite:///a%00b", "with three slashes"),
        ("sqlite://[/a", "Invalid IPv6 URL"),
        ("memory:x", "store 'memory:x': memory: takes nothing behind it"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path, url: str, message: str) -> None:
    """With what is wrong about it."""
    (tmp_path / "folder").mkdir()
    said = fails_on_store(tmp_path, url)
    assert said.startswith("store ")
    assert message in said


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    """And stays as it is, to the byte."""
    path = tmp_path / "b.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    assert f"store {path}: a SQLite file of another program" in fails_on_store(
        tmp_path, "sqlite:///b.db"
    )
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """So that a downgrade destroys nothing."""
    path = tmp_path / "b.db"
    db = open_file(path, "NORMAL")
    db.execute("PRAGMA user_version=99")
    db.close()
    assert f"store {path}: schema version 99" in fails_on_store(tmp_path, "sqlite:///b.db")


def test_a_corrupt_file_is_refused(tmp_path: Path) -> None:
    """At the start, not at the first request."""
    path = tmp_path / "b.db"
    db = open_file(path, "NORMAL")
    rows = [(f"e{i}", "r", 0, 0, '{"a": [1]}') for i in range(2000)]
    columns = "bucket (entity, resource, refilled_ms, stale_at_ms, buckets)"
    db.executemany(f"INSERT INTO {columns} VALUES (?, ?, ?, ?, ?)", rows)  # noqa: S608 - ours
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xa5" * 16384 + whole[24576:])
    said = fails_on_store(tmp_path, "sqlite:///b.db")
    assert said.startswith(f"store {path}: the file is corrupt")


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    """As it is spelt in the environment."""
    said = fails(tmp_path, "--config", "x", env={"PENSTOCK_DRAIN_TIMEOUT": "soon"})
    assert said.startswith("PENSTOCK_DRAIN_TIMEOUT: 'soon' is not a duration")


def test_forced_to_start_it_serves_once_the_rules_are_mended(tmp_path: Path) -> None:
    """Until then requests have no configuration, and the log has what is wrong."""
    rules = write_rules(tmp_path, "domain: d\nbad: 1\n")
    env = {"FORCE_START_WITHOUT_INITIAL_CONFIG": "true"}
    with penstock(tmp_path, rules=rules, store="memory:", env=env) as server:
        check = ("check", "--address", server.address, "--domain", "d", *PATIENT, "few=1")
        ran = run(*check, cwd=tmp_path)
        assert ran.code == 2
        assert "no rate limit configuration loaded" in ran.err
        assert f"{rules}:2: config error, unknown key 'bad'" in server.log()
        write_rules(tmp_path)
        server.wait_for_log("rules loaded, domains: d")
        assert run(*check, cwd=tmp_path).code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_stops_quickly(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end it with exit code 0 and no traceback."""
    with penstock(tmp_path, "--drain-timeout", "1h", rules=write_rules(tmp_path)) as server:
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE_S) == 0
        assert "stopped" in server.log()
        assert "Traceback" not in server.log()


def test_a_second_sigterm_ends_a_drain(tmp_path: Path) -> None:
    """With a client that goes on calling, the first one waits for it, the second does not."""
    flags = ("--drain-timeout", "1h")
    with penstock(tmp_path, *flags, rules=write_rules(tmp_path), store="memory:") as server:
        calls = [str(PENSTOCK), "check", "--address", server.address, "--domain", "d"]
        calls += [*PATIENT, "--repeat", "1000000", "free=1"]
        answers = tmp_path / "answers"
        with answers.open("wb") as out, subprocess.Popen(calls, stdout=out, stderr=out) as client:
            try:
                wait_for(lambda: answers.stat().st_size, "the client's first answers")
                server.process.send_signal(signal.SIGTERM)
                server.wait_for_log("SIGTERM: draining")
                with pytest.raises(subprocess.TimeoutExpired):
                    server.process.wait(2)
                server.process.send_signal(signal.SIGTERM)
                assert server.process.wait(PATIENCE_S) == 0
            finally:
                client.kill()


def test_log_level_hides_what_is_less_severe(tmp_path: Path) -> None:
    """At error, a start that goes well says nothing."""
    rules = write_rules(tmp_path)
    log = tmp_path / "log"
    command = [str(PENSTOCK), "serve", "--config", str(rules), "--store", "memory:"]
    command += ["--grpc-uds", "p.sock", "--log-level", "error"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    try:
        wait_for((tmp_path / "p.sock").exists, "the socket")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
    assert log.read_text() == ""


def without_right_to_low_ports() -> None:
    """Drop the capability before the program starts: root has it otherwise."""
    drop_from_bounding_set, net_bind_service = 24, 10
    ctypes.CDLL(None).prctl(drop_from_bounding_set, net_bind_service, 0, 0, 0)


@pytest.mark.parametrize("flag", ["--grpc-port", "--port"])
def test_a_port_that_needs_rights_is_said_so(tmp_path: Path, flag: str) -> None:
    """Not that it is taken."""
    first_free = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not first_free.exists() or int(first_free.read_text()) <= 81:
        pytest.skip("every port is free to every user here")
    flags = ["--host=127.0.0.1", "--port=0", "--debug-port=0", "--grpc-host=127.0.0.1"]
    flags += ["--grpc-port=0", f"{flag}=81", "--store=memory:"]
    done = subprocess.run(
        [str(PENSTOCK), "serve", "--config", str(write_rules(tmp_path)), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        preexec_fn=without_right_to_low_ports,
    )
    assert done.returncode == 2
    assert (
        "cannot listen on 127.0.0.1:81: not allowed to this user: a port below 1024" in done.stderr
    )
