"""`penstock top` on a real server, in a real pseudo-terminal and in pipes."""

import json
import os
import re
import signal
import socket
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from penstock.cli.top_client import ConsoleAddress, read_address
from penstock.errors import ConfigError

from tests.support.processes import PATIENCE_S, PENSTOCK, Penstock, penstock
from tests.support.terminals import Terminal, without_sequences
from tests.unit.cli.command import Ran, check, write_rules
from tests.unit.cli.conftest import Type

TOKEN = "a-token-of-this-test"  # noqa: S105
HOSTILE = "[red]x[/red]\x1b[2J"
LEAVES_SCREEN = "\x1b[?1049l"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """One server for all; bob is denied often, amy is not, and one has a name for terminals."""
    folder = tmp_path_factory.mktemp("top")
    with penstock(folder, rules=write_rules(folder), store="memory:") as running:
        check(running, "--repeat", "9", "few=bob")
        check(running, "--repeat", "20", "many=amy")
        check(running, "--repeat", "4", f"few={HOSTILE}")
        yield running


def address_of(server: Penstock) -> str:
    return f"127.0.0.1:{server.debug.rpartition(':')[2]}"


def top(type_nowhere: Type, server: Penstock, *arguments: str) -> Ran:
    """Over an hour, because a busy machine may need more than a minute for these tests."""
    return type_nowhere("top", "--address", address_of(server), "--over", "hour", *arguments)


def names(ran: Ran) -> list[str]:
    """The first column of the table."""
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    begin = next(n for n, line in enumerate(lines) if re.match("ENTITY|RULE|RESOURCE", line))
    return [line.split()[0] for line in lines[begin + 1 :]]


def test_a_pipe_gets_one_snapshot(type_nowhere: Type, server: Penstock) -> None:
    """Who is denied most comes first, with the limit and how long to wait."""
    ran = top(type_nowhere, server)
    assert re.match(rf"{address_of(server)}  ready  penstock \S+, up \S+, 1 of 1 workers", ran.out)
    assert names(ran)[0] == "few=bob"
    row = next(line for line in ran.out.splitlines() if line.startswith("few=bob"))
    assert re.match(r"few=bob +\$domain:d +9 +7 +78% +2/hour \(two\), \S+ ago, wait \S+m", row)
    assert "\x1b" not in ran.out
    assert r"few=[red]x[/red]%1b[2J" in ran.out


def test_flags_choose_what_is_shown(type_nowhere: Type, server: Penstock) -> None:
    """By requests, by rule, over an hour, and how many rows."""
    assert names(top(type_nowhere, server, "--by", "requests"))[0] == "many=amy"
    assert names(top(type_nowhere, server, "--of", "rule")) == ["d.few"]
    assert names(top(type_nowhere, server, "--of", "resource")) == ["$domain:d"]
    ran = top(type_nowhere, server, "--limit", "1")
    assert (names(ran), "in the last hour" in ran.out) == (["few=bob"], True)
    assert "in the last minute" in top(type_nowhere, server, "--over", "minute").out


def test_scripts_get_the_answers_of_the_api(type_nowhere: Type, server: Penstock) -> None:
    """One document, with all that the API says."""
    ran = top(type_nowhere, server, "--json", "--by", "requests", "--limit", "2")
    values = json.loads(ran.out)
    assert (values["address"], ran.code) == (address_of(server), 0)
    assert [row["entity"] for row in values["top"]["rows"]] == ["many=amy", "few=bob"]
    assert values["overview"]["health"]["healthy"]
    assert len(values["denials"]["denials"]) == 2


@contextmanager
def live(
    server: Penstock, terminal: Terminal, *arguments: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """The command in a session of its own, whose terminal this is."""
    end = terminal.theirs
    with subprocess.Popen(
        [
            *(str(PENSTOCK), "top", "--address", address_of(server)),
            *("--over", "hour", "--interval", "1h", *arguments),
        ],
        env={**os.environ, "TERM": "xterm-256color"},
        preexec_fn=lambda: os.login_tty(os.dup(end)),  # noqa: PLW1509 - no thread is at work here
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(100, 16)
    yield terminal
    terminal.close()


def wait_for_frame(terminal: Terminal, pattern: str, columns: int = 100) -> None:
    """Read until a screen shows something, with nothing beyond its edge."""

    def shows(text: str) -> bool:
        frames = [without_sequences(frame) for frame in text.split("\x1b[H")]
        found = [frame for frame in frames if re.search(pattern, frame, re.DOTALL)]
        return any(max(map(len, re.split("\r?\n", frame))) <= columns for frame in found)

    terminal.read_until(shows, pattern)


def test_the_screen_follows_keys_and_the_size_of_the_terminal(
    server: Penstock, terminal: Terminal
) -> None:
    """And q leaves the terminal as it was."""
    before = termios.tcgetattr(terminal.theirs)
    with live(server, terminal) as process:
        wait_for_frame(terminal, r"with the most denials in the last hour.*few=bob.*q quit")
        assert terminal.written.startswith("\x1b[?1049h"), "another screen, and the cursor hidden"
        for key, pattern in (
            ("r", r"entities with the most requests in the last hour.*many=amy.*few=bob"),
            ("m", r"entities with the most requests in the last minute"),
            ("h", r"entities with the most requests in the last hour.*many=amy"),
            ("u", r"rules with the most requests in the last hour.*d\.many.*d\.few"),
            ("s", r"by share of denials.*d\.few.*d\.many"),
            ("s", r"by name.*d\.few.*d\.many"),
            ("s", r"by requests.*d\.many.*d\.few"),
            ("o", r"resources with the most requests.*\$domain:d"),
            ("e", r"entities with the most requests"),
            ("d", r"entities with the most denials in the last hour.*few=bob"),
            (" ", r"few=bob"),
        ):
            terminal.press(key)
            wait_for_frame(terminal, pattern)
            assert HOSTILE not in terminal.written
        terminal.press("\x1b[A")  # an arrow is no command
        terminal.resize(60, 9)
        wait_for_frame(terminal, r"few=bob.*q quit", columns=60)
        terminal.press("q")
        assert process.wait(PATIENCE_S) == 0
    terminal.read_all()
    assert terminal.written.endswith(f"\x1b[?25h{LEAVES_SCREEN}")
    assert termios.tcgetattr(terminal.theirs) == before


@pytest.mark.parametrize(
    ("how", "code"), [("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_the_terminal_as_it_was(
    server: Penstock, terminal: Terminal, how: str | signal.Signals, code: int
) -> None:
    """Ctrl-C of the keyboard, and the end of a session."""
    before = termios.tcgetattr(terminal.theirs)
    with live(server, terminal) as process:
        wait_for_frame(terminal, "few=bob")
        if isinstance(how, str):
            terminal.press(how)
        else:
            process.send_signal(how)
        assert process.wait(PATIENCE_S) == code
    terminal.read_all()
    assert terminal.written.endswith(f"\x1b[?25h{LEAVES_SCREEN}")
    assert "Traceback" not in terminal.written
    assert termios.tcgetattr(terminal.theirs) == before


def test_the_screen_shows_what_is_new_and_outlives_the_server(
    tmp_path: Path, terminal: Terminal
) -> None:
    """A server that is gone is told of, above what it said last."""
    with (
        penstock(tmp_path, rules=write_rules(tmp_path), store="memory:") as server,
        live(server, terminal, "--interval", "200ms") as process,
    ):
        wait_for_frame(terminal, r"last hour.*: none.*q quit")
        check(server, "--repeat", "3", "few=carol")
        wait_for_frame(terminal, r"few=carol +\$domain:d +3 +1 +33%")
        server.terminate()
        wait_for_frame(terminal, r"no server answers on \S+ \(Connection refused\).*few=carol")
        terminal.press("q")
        assert process.wait(PATIENCE_S) == 0


def test_once_on_a_terminal_prints_a_snapshot(server: Penstock, terminal: Terminal) -> None:
    """On the same screen, so that it stays."""
    with live(server, terminal, "--once") as process:
        assert process.wait(PATIENCE_S) == 0
    shown = terminal.read_all()
    assert "\x1b[?1049h" not in shown
    assert "few=bob" in without_sequences(shown)


def test_a_server_with_a_token_wants_it(
    tmp_path: Path, type_nowhere: Type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how to give it; with the token all is well."""
    env = {"PENSTOCK_CONSOLE_TOKEN": TOKEN}
    with penstock(tmp_path, rules=write_rules(tmp_path), store="memory:", env=env) as server:
        ran = top(type_nowhere, server)
        assert (ran.code, ran.out) == (2, "")
        assert "wants a token: set PENSTOCK_CONSOLE_TOKEN" in ran.err
        monkeypatch.setenv("PENSTOCK_CONSOLE_TOKEN", "another-token-that-is-wrong")
        assert "did not accept the token" in top(type_nowhere, server).err
        monkeypatch.setenv("PENSTOCK_CONSOLE_TOKEN", TOKEN)
        assert top(type_nowhere, server).code == 0


def test_where_nobody_answers_the_error_says_so(type_nowhere: Type, server: Penstock) -> None:
    """No server, another port of a server, another program."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"SSH-2.0-nobody\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        ran = type_nowhere("top", "--address", f"127.0.0.1:{port}")
        thread.join()
    assert (ran.code, "has no console" in ran.err) == (2, True)
    ran = type_nowhere("top", "--address", f"127.0.0.1:{port}")
    assert (ran.code, "no server answers on" in ran.err) == (2, True)
    for other_port in (server.address, server.http):
        ran = type_nowhere("top", "--address", f"127.0.0.1:{other_port.rpartition(':')[2]}")
        assert (ran.code, "has no console" in ran.err) == (2, True)


def test_addresses_are_read_as_people_write_them() -> None:
    """A port is optional, and IPv6 has brackets if there is one."""
    assert read_address("limits.example") == ConsoleAddress("limits.example", 6070)
    assert read_address("127.0.0.1:99") == ConsoleAddress("127.0.0.1", 99)
    for text in ("[::1]:99", "::1", "[::1]"):
        assert read_address(text).host == "::1"
    assert str(read_address("[::1]:99")) == "[::1]:99"
    # As a server writes them in its log that listens on all addresses.
    assert read_address("0.0.0.0:99") == ConsoleAddress("127.0.0.1", 99)
    assert read_address("[::]:99") == ConsoleAddress("::1", 99)
    for text in ("", ":1", "a:b", "a:0", "a:65536", "http://a", "a b", "ä:1", "a:²", "a:\x1b[2J"):
        with pytest.raises(ConfigError, match="--address"):
            read_address(text)


@pytest.mark.parametrize("interval", ["1ms", "2h", "x", "-1s"])
def test_an_interval_that_makes_no_sense_is_refused(type_nowhere: Type, interval: str) -> None:
    """Too short would be an attack on the server."""
    ran = type_nowhere("top", f"--interval={interval}")
    assert (ran.code, "--interval: " in ran.err) == (2, True)
