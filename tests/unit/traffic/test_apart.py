"""A policy in a process of its own: the same answers, and nothing left when one of them ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.core.plan import Behaviour
from penstock.core.policy_diff import Policy
from penstock.core.request import Descriptor, Request
from penstock.errors import PenstockError
from penstock.processes import open_module
from penstock.traffic import apart, simulation
from penstock.traffic.apart import Apart
from penstock.traffic.reading import Timed
from penstock.traffic.side import Side
from penstock.traffic.simulation import simulate
from penstock.traffic.tally import Hit

from tests.support.processes import PENSTOCK
from tests.unit.traffic.test_tally import NOW, RULES

REQUEST = Request("d", (Descriptor((("user", "ü\\n"),), hits=1),))


def timed(number: int) -> Timed:
    return Timed(NOW + number, b"as in a file", REQUEST)


def side(name: str) -> Side:
    return Side(name, RULES, Policy())


def opened() -> Apart:
    return Apart(side("in force"), Behaviour(), wants_hits=True)


def play(other: Apart) -> None:
    other.send([timed(0)])
    other.receive()


def children_of(pid: int) -> set[int]:
    found = Path("/proc").glob(f"{pid}/task/*/children")
    return {int(child) for file in found for child in file.read_text().split()}


def test_both_processes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch after batch, and whoever listens is told of the policy in force first."""
    monkeypatch.setattr(simulation, "BATCH", 3)
    sides = [side("in force"), side("proposed")]
    told: list[tuple[int, str, list[Hit]]] = []
    asyncio.run(
        simulate(
            map(timed, range(8)), sides, Behaviour(),
            on_hits=lambda at, one, hits: told.append((at - NOW, one.name, list(hits))),
        )
    )  # fmt: skip
    before, after = sides
    assert before.tally.outcomes == after.tally.outcomes
    assert before.hits == after.hits
    assert before.hits["d", "user"][0] == 8
    assert [where[:2] for where in told] == [
        (at, name) for at, _, _ in told[::2] for name in ("in force", "proposed")
    ]
    assert [hits for _, _, hits in told[::2]] == [hits for _, _, hits in told[1::2]]
    assert told


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_ends_too_early_is_an_error() -> None:
    """Half a comparison would look like a whole one."""
    before = children_of(os.getpid())
    with opened() as other:
        (pid,) = children_of(os.getpid()) - before
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(PenstockError, match="in force ended with status -9"):
            play(other)


def test_the_process_ends_with_the_command() -> None:
    """However the command ends, the other process reads the end of its input."""
    process = open_module(apart.__name__)
    process.communicate(b"")
    assert process.returncode == 1


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A simulation of two policies that waits for more of its trace."""
    rules = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: day, requests_per_unit: 1}}\n"
    (tmp_path / "rules.yaml").write_text(rules)
    given = ("--rules", "rules.yaml", "--against", "rules.yaml", "--trace", "-", "--csv")
    process = subprocess.Popen(
        [str(PENSTOCK), "simulate", *given, "--domain", "d"],
        cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interrupt_ends_both_processes(waiting: "subprocess.Popen[bytes]") -> None:
    """With the exit code of shells, and without a word."""
    assert waiting.stdin is not None
    assert waiting.stdout is not None
    waiting.stdin.write(b"time,k\n" + b"".join(b"%d,v\n" % (NOW + at) for at in range(3_000)))
    waiting.stdin.flush()
    for _ in range(3):  # the header, and a row of each policy
        assert waiting.stdout.readline()
    (child,) = children_of(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    # Ctrl-C is noticed between two batches, and between two requests of the trace.
    said = waiting.communicate()[1]
    assert (waiting.returncode, said) == (130, b"")
    assert not Path(f"/proc/{child}").exists()
