"""Reads rules in a process of its own, so that a long file holds up no answer.

To read 20,000 rules takes 2 to 4 s. A thread would make every answer wait for Python's global lock
meanwhile. So a process reads and checks the rules, and hands them over as rows. The server makes
rules from the rows in slices, between which it answers.

This file is both sides: `read_apart` for the server, and the program that it runs.
"""

import asyncio
import gc
import marshal
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from penstock.config.packing import Unpacking, pack
from penstock.config.problems import Problem, RulesError
from penstock.config.rules import LoadedRules, RulesSource
from penstock.core.rule_counting import RuleCounting
from penstock.errors import ConfigError
from penstock.processes import Ended, start_module
from penstock.slices import Slices, run

ROWS_A_SLICE: Final = 100
"""To make a rule of a row takes 5 to 8 µs."""

READ_S: Final = 600.0
"""For the process to read the rules. A file of the largest size takes about a minute."""

LOW_PRIORITY: Final = 10
"""Where processors are few, answers go first."""

LENGTH_BYTES: Final = 4


class ReadingError(ConfigError):
    """The rules could not be read, whatever is in them. To try again may help."""


async def read_apart(source: RulesSource) -> LoadedRules:
    """Load rules. RulesError if they have errors, ReadingError if the process fails."""
    options = [
        str(int(source.ignore_dot_files)),
        str(int(source.merge_domains)),
        source.counting.value,
    ]
    output = await run_apart(__name__, *options, os.fspath(source.path))
    return await run(unpack(output))


async def run_apart(module: str, *arguments: str, stdin: bytes | None = None) -> bytes:
    """What a process writes that runs a module of ours. ReadingError if the process fails."""
    try:
        async with asyncio.timeout(READ_S):
            ended = await _run(module, *arguments, stdin=stdin)
    except TimeoutError as exc:
        raise ReadingError(f"it took more than {READ_S:.0f} s") from exc
    except OSError as exc:
        raise ReadingError(f"a process can't be started: {exc.strerror}") from exc
    if ended.code != 0:
        *_, last = [f"status {ended.code}", *ended.said.decode(errors="replace").splitlines()]
        raise ReadingError(f"the process that reads them ended with {last}")
    return ended.output


async def _run(module: str, *arguments: str, stdin: bytes | None) -> Ended:
    """Run a process to its end. It is killed if the caller is cancelled."""
    process = start_module(module, *arguments, stdin=stdin, is_read=True)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise


def unpack(output: bytes) -> Slices[LoadedRules]:
    """Make rules of what `write_rules` has written."""
    check_packed(output)
    unpacking = Unpacking()
    for kind, content in _messages(output):
        if kind == "warnings":
            return LoadedRules(unpacking.rules(), tuple(Problem(*one) for one in content))
        unpacking.add(content)
        yield
    raise ReadingError("the process that reads them handed over only a part")


def check_packed(output: bytes) -> None:
    """RulesError if errors were written instead of rules."""
    for kind, content in _messages(output):
        if kind == "errors":
            raise RulesError(Problem(*one) for one in content)
        return


def _messages(output: bytes) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(output):
        begin = at + LENGTH_BYTES
        at = begin + int.from_bytes(output[at:begin])
        kind, content = marshal.loads(output[begin:at])  # noqa: S302 - our own process wrote this
        yield kind, content


def _write(file: BinaryIO, kind: str, content: list[Any]) -> None:
    message = marshal.dumps((kind, content))
    file.write(len(message).to_bytes(LENGTH_BYTES) + message)


def write_rules(load: Callable[[], LoadedRules], file: BinaryIO) -> None:
    """Load rules, and write rows and warnings, or errors."""
    try:
        loaded = load()
    except RulesError as exc:
        _write(file, "errors", [(one.file, one.line, one.text) for one in exc.errors])
        return
    rows = pack(loaded.rules)
    while some := list(islice(rows, ROWS_A_SLICE)):
        _write(file, "rows", some)
    _write(file, "warnings", [(one.file, one.line, one.text) for one in loaded.warnings])


def begin_apart() -> None:
    """Set up a process that only reads rules."""
    os.nice(LOW_PRIORITY)
    # The process ends soon. Without looks for garbage it takes half of the time.
    gc.disable()


def main() -> None:
    begin_apart()
    ignore_dot_files, merge_domains, counting, path = sys.argv[1:]
    source = RulesSource(
        Path(path), ignore_dot_files == "1", merge_domains == "1", RuleCounting(counting)
    )
    write_rules(source.load, sys.stdout.buffer)


if __name__ == "__main__":
    main()
