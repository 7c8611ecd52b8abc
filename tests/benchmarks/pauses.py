"""How long answers pause: while 20,000 rules reload, and while 5,000 rules are scraped.

`python -m tests.benchmarks.pauses`, with h2load. `--against FOLDER` measures another version of the
server in the same run: FOLDER is the `server` folder of its checkout. Two figures for each: what
clients saw, over real calls on the loopback at a steady rate, and what a probe in the event loop
saw. A busy machine pauses by itself, so each figure stands beside the same figure while nothing
happens, and beside the longest time that the event loop computed without a turn for others.
"""

import argparse
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from penstock.core.request import Descriptor, Request
from penstock.transport.codec import METHOD, SERVICE, encode_request

from tests.benchmarks.targets import at_most, show_targets
from tests.support.processes import HTTP, LISTENS, wait_for

OURS = Path(__file__).parents[2] / "server"
RELOADED, SCRAPED = 20_000, 5_000
CALLS_S = 12
"""Seconds of calls for each figure."""
CONNECTIONS, CALLS_A_CONNECTION = 4, 125


@dataclass(frozen=True)
class Seen:
    """Times in milliseconds."""

    p50: float
    p99: float
    longest: float
    pause: float
    """The longest, by the probe."""
    computed: float
    """The longest without a turn, by the probe, in CPU time of the event loop's thread."""


class Server:
    def __init__(self, log: Path, probed: Path) -> None:
        self._log = log
        self._probed = probed
        address = wait_for(lambda: LISTENS.search(log.read_text()), "the server to listen")[1]
        self.port = int(address.rpartition(":")[2])
        found = HTTP.search(log.read_text())
        assert found is not None
        self.http = found[1]

    def loads(self) -> int:
        return self._log.read_text().count("rules loaded")

    def longest_ms(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """The longest pause, and the longest that was computed."""
        lines = [map(float, line.split()) for line in self._probed.read_text().splitlines()]
        seen = [figures for at_s, *figures in lines if begin_s <= at_s <= end_s]
        pause_s, computed_s = map(max, zip((0.0, 0.0), *seen, strict=True))
        return 1e3 * pause_s, 1e3 * computed_s


def write_rules(file: Path, count: int, unit: str = "minute") -> None:
    rules = [
        f"  - {{key: user, value: u{number}, rate_limit: "
        f"{{unit: {unit}, requests_per_unit: {number % 500 + 1_000_000}}}}}\n"
        for number in range(count)
    ]
    fresh = file.with_suffix(".new")
    fresh.write_text("domain: bench\ndescriptors:\n" + "".join(rules))
    fresh.rename(file)


@contextmanager
def running(source: Path, folder: Path, rules: Path, store: str) -> Iterator[Server]:
    log, probed = folder / "log", folder / "probed"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "tests.benchmarks.probed_server", str(rules), store]
    with log.open("wb") as said, probed.open("wb") as found:
        process = subprocess.Popen(command, stdout=found, stderr=said, env=environment)
    try:
        yield Server(log, probed)
    finally:
        process.terminate()
        process.wait(30)


def call(server: Server, folder: Path, meanwhile: Callable[[], None]) -> Seen:
    """Call at a steady rate, and do something meanwhile."""
    message = encode_request(Request("bench", (Descriptor((("user", "u1"),)),)))
    body, log = folder / "body", folder / "calls"
    body.write_bytes(b"\0" + struct.pack(">I", len(message)) + message)
    log.unlink(missing_ok=True)
    command = ["h2load", "-D", str(CALLS_S), "-c", str(CONNECTIONS), "-m", "8", "-d", str(body)]
    command += ["--rps", str(CALLS_A_CONNECTION), f"--log-file={log}"]
    command += ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    command += [f"http://127.0.0.1:{server.port}/{SERVICE}/{METHOD}"]
    begin_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as calling:
        time.sleep(1)  # the connections are made, and all caches are filled
        meanwhile()
        calling.communicate(timeout=60)
    longest = server.longest_ms(begin_s + 1, time.monotonic())
    rows = [line.split() for line in log.read_text().splitlines()]
    first_us = min(int(start) for start, *_ in rows)
    taken = sorted(int(us) / 1e3 for start, _, us in rows if int(start) > first_us + 1_000_000)
    return Seen(taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1], *longest)


def reload(server: Server, rules: Path) -> None:
    before = server.loads()
    write_rules(rules, RELOADED, unit="hour")
    wait_for(lambda: server.loads() > before, "the rules to be loaded")


def scrape(server: Server, calls_s: float = CALLS_S - 1.5) -> None:
    end_s = time.monotonic() + calls_s
    while time.monotonic() < end_s:
        asked = urllib.request.Request(
            f"http://{server.http}/metrics", headers={"Accept-Encoding": "gzip"}
        )
        with urllib.request.urlopen(asked, timeout=10) as page:  # noqa: S310 - it is http
            assert page.read()
        time.sleep(1)


def measure(source: Path) -> dict[str, Seen]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = folder / "rules.yaml"
        write_rules(rules, RELOADED)
        found: dict[str, Seen] = {}
        with running(source, folder, rules, "memory:") as server:
            what = f"{RELOADED:,} rules"
            found[what] = call(server, folder, lambda: None)
            found[f"{what}, reloaded"] = call(server, folder, lambda: reload(server, rules))
            found[f"{what}, reloaded and scraped"] = call(
                server, folder, lambda: _both(server, rules)
            )
        write_rules(rules, SCRAPED)
        for store in ("memory:", f"sqlite:///{folder / 'bench.db'}"):
            what = f"{SCRAPED:,} rules, {store.partition(':')[0]}"
            with running(source, folder, rules, store) as server:
                found[what] = call(server, folder, lambda: None)
                found[f"{what}, scraped"] = call(server, folder, lambda: scrape(server))
    return found


def _both(server: Server, rules: Path) -> None:
    write_rules(rules, RELOADED)  # others than before, so that the next change is seen
    scraping = threading.Thread(target=scrape, args=(server,))
    scraping.start()
    reload(server, rules)
    scraping.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, action="append", default=[])
    show_pauses([*parser.parse_args().against, OURS])


def show_pauses(versions: Sequence[Path] = (OURS,)) -> None:
    print(
        "\nmilliseconds: of calls the median, p99 and longest; by the probe the longest pause, and"
    )
    print("the longest that the event loop computed")
    print(f"{'':42} {'p50':>8} {'p99':>8} {'longest':>8} {'pause':>8} {'computed':>8}")
    targets = []
    for source in versions:
        print(re.sub(str(Path.home()), "~", str(source.resolve())))
        found = measure(source.resolve())
        for what, seen in found.items():
            figures = astuple(seen)
            print(f"  {what:<40} " + " ".join(f"{figure:8.1f}" for figure in figures), flush=True)
        what = f"{RELOADED:,} rules, reloaded"
        targets.append(at_most(f"{what}: longest pause", found[what].pause, 50, "ms"))
    show_targets(targets)


if __name__ == "__main__":
    main()
