"""Commands that are interrupted, or whose output nobody reads."""

import os
import pty
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_S, PENSTOCK, wait_for
from tests.support.terminals import Terminal
from tests.unit.cli.command import run

MANY = 20_000
IN_FORCE = "in force within 1m, or the --policy-cache-ttl of your servers"


ON_DEAF_STORE = ("--store", "dynamodb://table?region=eu-west-1&endpoint=http://127.0.0.1:PORT")


@contextmanager
def started(folder: Path, *arguments: str, **streams: int) -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen([str(PENSTOCK), *arguments], cwd=folder, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """So many changes that there is time to press a key."""
    run("limits", "set", "--create", "rpm=1/s", cwd=tmp_path)
    file = tmp_path / "policy.yaml"
    file.write_text("entities:\n" + "".join(f"  e{n:05}: {{}}\n" for n in range(MANY)))
    return file


def test_an_interrupted_apply_tells_what_was_made_and_what_was_not(
    tmp_path: Path, policy: Path
) -> None:
    """And it is so; the next time makes the rest."""
    err = tmp_path / "err"
    apply = ("policy", "apply", "--yes", "-f", str(policy))
    with (
        err.open("wb") as notes,
        started(tmp_path, *apply, stdout=subprocess.DEVNULL, stderr=notes.fileno()) as process,
    ):
        wait_for(lambda: "changes made" in err.read_text(), "progress")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    said = [line for line in err.read_text().splitlines() if not line.endswith("changes made …")]
    made = int(said[0].partition(" ")[0])
    assert said[0] == f"{made} of {MANY} changes were made (interrupted). Not made:"
    assert 1_000 <= made < MANY
    assert said[1] == f"+ entity e{made:05}"
    assert said[11] == f"… and {MANY - made - 10} more"
    assert len(run("entity", "list", cwd=tmp_path).out.splitlines()) == made + 1, "and a header"
    left = run("policy", "diff", "-f", str(policy), cwd=tmp_path).out.splitlines()
    assert left[0] == f"+ entity e{made:05}"
    assert len(left) == MANY - made


def test_progress_on_a_terminal_is_one_line(tmp_path: Path, policy: Path) -> None:
    """Written over once a second has gone, and gone at the end."""
    screen, terminal = pty.openpty()
    shown = ""
    apply = ("policy", "apply", "--yes", "-f", str(policy))
    with started(tmp_path, *apply, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        while not re.search(r"changes made … [0-9]+ s", shown):
            shown += os.read(screen, 10_000).decode()
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # nobody has the other end open any more
            while part := os.read(screen, 10_000):
                shown += part.decode()
        assert process.wait(PATIENCE_S) == 130
    os.close(screen)
    first, *lines = shown.partition("changes were made")[0].split("\r\x1b[K")
    assert first == ""
    *progress, last = lines
    assert re.fullmatch(f"[0-9]+ of {MANY} ", last), "the line is gone before anything else is said"
    assert all(re.fullmatch(r".* … [0-9]+ s", line) for line in progress if line)


@pytest.mark.parametrize(
    ("command", "doing"),
    [
        (("config", "check", "slow"), "reading the rules"),
        (("entity", "children", "a", *ON_DEAF_STORE), "asking the store"),
        (("aggregate", "--once", *ON_DEAF_STORE), "counting the usage"),
        (("aggregate", "--set-aside", *ON_DEAF_STORE), "reading the records"),
    ],
)
def test_what_takes_longer_than_a_second_shows_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Sequence[str], doing: str
) -> None:
    """Rules that come slowly, and a store that does not answer."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    os.mkfifo(tmp_path / "slow")
    terminal = Terminal()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        arguments = [part.replace("PORT", str(deaf.getsockname()[1])) for part in command]
        with started(tmp_path, *arguments, stdout=subprocess.DEVNULL, stderr=terminal.theirs):
            terminal.read_until(lambda text: re.search(f"{doing}.* … [0-9]+ s", text), doing)
    terminal.close()


def test_ctrl_c_exits_130_without_a_traceback(tmp_path: Path) -> None:
    """As a shell expects it of a program that a signal ended."""
    run("limits", "set", "--create", "rpm=1/s", cwd=tmp_path)
    screen, terminal = pty.openpty()
    err = tmp_path / "err"
    try:
        with (
            err.open("wb") as notes,
            started(tmp_path, "limits", "delete", stdin=terminal, stderr=notes.fileno()) as process,
        ):
            wait_for(lambda: "Type yes" in err.read_text(), "the question")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
    finally:
        os.close(screen)
        os.close(terminal)
    assert "Traceback" not in err.read_text()
    assert run("limits", "show", cwd=tmp_path).code == 0, "they are kept"


def test_a_broken_pipe_exits_141_in_silence(tmp_path: Path, policy: Path) -> None:
    """As with `penstock policy diff … | head`."""
    read, write = os.pipe()
    os.close(read)
    diff = ("policy", "diff", "-f", str(policy))
    try:
        with started(tmp_path, *diff, stdout=write, stderr=subprocess.PIPE) as process:
            _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(write)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.parametrize("arguments", [("--help",), ("limits", "set", "--help"), ("--version",)])
def test_help_that_nobody_reads_exits_141_in_silence(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """As with `penstock --help | true`."""
    read, write = os.pipe()
    os.close(read)
    with started(tmp_path, *arguments, stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (141, b"")


def test_errors_that_nobody_reads_exit_141(tmp_path: Path) -> None:
    """As with `penstock … 2>&1 | true`."""
    read, write = os.pipe()
    os.close(read)
    with started(tmp_path, "entity", "list", stdout=write, stderr=write) as process:
        os.close(write)
        assert process.wait(PATIENCE_S) == 141


def test_a_full_disk_is_an_error_with_a_reason(tmp_path: Path) -> None:
    """An answer that is cut off must not look like an answer."""
    run("entity", "create", "--create", "a", cwd=tmp_path)
    with Path("/dev/full").open("wb") as full:
        listing = ("entity", "list")
        with started(tmp_path, *listing, stdout=full.fileno(), stderr=subprocess.PIPE) as process:
            _, err = process.communicate(timeout=PATIENCE_S)
    expected = b"penstock: error: can't write the output: No space left on device\n"
    assert (process.returncode, err) == (2, expected)


def test_ctrl_c_while_a_server_does_not_answer_exits_130(tmp_path: Path) -> None:
    """Wherever a command waits."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        check = ("check", "--timeout", "1h", "--address", address, "--domain", "d", "a=b")
        with started(tmp_path, *check, stderr=subprocess.PIPE) as process:
            connection, _ = deaf.accept()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE_S)
            connection.close()
    assert (process.returncode, err) == (130, b"")


def test_a_closed_output_is_no_fault(tmp_path: Path) -> None:
    """As with `penstock … >&-` in a script that wants the exit code alone."""
    command = ["sh", "-c", '"$0" limits set --create rpm=1/s >&-', str(PENSTOCK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, f"{IN_FORCE}\n".encode())
