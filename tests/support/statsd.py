"""A StatsD that comes and goes."""

import socketserver
import threading
from collections import Counter

from tests.support.processes import wait_for


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    # Then closing it waits for those that are still read.
    daemon_threads = False


class StatsD:
    """Adds up what it is sent, on the same port whenever it is up."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.timed: Counter[str] = Counter()
        self.port = 0
        self._listener: Listener | None = None

    def start(self) -> None:
        statsd = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    statsd.read(line.decode().removesuffix("\n"))

        self._listener = Listener(("127.0.0.1", self.port), Handler)
        self.port = self._listener.server_address[1]
        threading.Thread(target=self._listener.serve_forever, args=(0.01,)).start()

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
            self._listener = None

    def read(self, line: str) -> None:
        name, _, rest = line.partition(":")
        value, kind, *rate = rest.split("|")
        if kind == "c":
            self.counters[name] += int(float(value))
        elif kind == "g":
            self.gauges[name] = float(value)
        else:
            self.timed[name] += int(1 / float(rate[0].removeprefix("@")))

    def wait_for(self, name: str, value: int) -> None:
        wait_for(lambda: self.counters[name] >= value, f"{name} to be {value}")
