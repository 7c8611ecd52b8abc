"""Remembers the clients that check health, so that a drain can wait until each has been told.

Envoy asks again and again over one connection. A probe makes a new connection each time. A drain
does not wait for a checker that is gone. A checker is gone if its connection is closed, or if it
has missed two turns: a lost machine does not close its connections. A checker that asked only once
has shown no turn yet, so it is awaited while its connection is open.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

REMEMBERED_S: Final = 60.0
"""A checker that has not asked for this long is gone. An idle Envoy asks once a minute."""

MAX_REMEMBERED: Final = 10_000
"""The most connections that are remembered, and the most hosts. Each probe is a new connection."""

LATE_S: Final = 1.0
"""How late a checker on a busy machine may be for its turn."""

OPEN_LATE_S: Final = 5.0
"""The same, if its connection is open: then the checker is more likely late than gone."""

GAPS: Final = 4
"""The gaps between calls that count. A checker may ask twice in each turn, for two services, so the
longest of these gaps is its turn."""

SAME_TURN_S: Final = 0.1
"""Calls that are closer together belong to one turn. They do not show when the next turn is."""

ESTABLISHED: Final = "01"
_SOCKET_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_PORT: Final = re.compile(r"ipv[46]:.*:([0-9]+)")


@dataclass(slots=True)
class _Turns:
    """The time of a checker's last call, and the gaps between its last calls."""

    last_s: float
    gaps_s: tuple[float, ...] = ()

    def ask(self, now_s: float) -> None:
        self.gaps_s = (*self.gaps_s, now_s - self.last_s)[-GAPS:]
        self.last_s = now_s

    @property
    def is_known(self) -> bool:
        """Whether the checker has asked in two turns, so that its next turn is known."""
        return max(self.gaps_s, default=0.0) >= SAME_TURN_S

    def is_due(self, now_s: float, late_s: float = LATE_S) -> bool:
        """Whether the checker may still come: it has missed at most one turn."""
        if not self.gaps_s:
            return False
        return now_s <= self.last_s + 2 * max(self.gaps_s) + late_s


class Checkers:
    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        # Both are ordered by the last call, the oldest first.
        self._peers: dict[str, _Turns] = {}
        self._hosts: dict[str, _Turns] = {}
        """Counts only the first call of each connection. Later calls say nothing about probes."""

    def ask(self, peer: str) -> None:
        now_s = self._clock_s()
        if peer in self._peers:
            _ask(self._peers, peer, now_s)
            return
        self._peers[peer] = _Turns(now_s)
        _ask(self._hosts, _host(peer), now_s)
        for known in (self._peers, self._hosts):
            _forget(known, now_s - REMEMBERED_S)

    def awaited_since(self, moment_s: float, connected: frozenset[int] | None) -> list[str]:
        """The checkers that will ask again, and have not asked since this moment.

        `connected` has the clients' ports of all open connections. None if they are unknown.
        """
        now_s = self._clock_s()
        for known in (self._peers, self._hosts):
            _forget(known, now_s - REMEMBERED_S)
        peers = [
            peer
            for peer, turns in self._peers.items()
            if turns.last_s < moment_s and _is_there(peer, turns, now_s, connected)
        ]
        hosts = [
            host
            for host, turns in self._hosts.items()
            if turns.last_s < moment_s and turns.is_due(now_s)
        ]
        return peers + hosts


def _ask(known: dict[str, _Turns], name: str, now_s: float) -> None:
    turns = known.pop(name, None)
    if turns is None:
        turns = _Turns(now_s)
    else:
        turns.ask(now_s)
    known[name] = turns


def _forget(known: dict[str, _Turns], before_s: float) -> None:
    while known:
        name = next(iter(known))
        if known[name].last_s >= before_s and len(known) <= MAX_REMEMBERED:
            return
        del known[name]


def _is_there(peer: str, turns: _Turns, now_s: float, connected: frozenset[int] | None) -> bool:
    port = _PORT.fullmatch(peer)
    if (
        port is None or connected is None
    ):  # a unix socket, or a system that does not list connections
        return turns.is_due(now_s)
    return int(port[1]) in connected and (not turns.is_known or turns.is_due(now_s, OPEN_LATE_S))


def connected_ports(local_port: int) -> frozenset[int] | None:
    """The clients' ports of open connections to a port of this machine.

    gRPC does not say when a client is gone, so this reads Linux's tables. None on other systems.
    """
    found: set[int] = set()
    for table in _SOCKET_TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, remote, state, *_ = line.split()
            if state == ESTABLISHED and int(local.rpartition(":")[2], 16) == local_port:
                found.add(int(remote.rpartition(":")[2], 16))
    return frozenset(found) if any(table.exists() for table in _SOCKET_TABLES) else None


def _host(peer: str) -> str:
    """The peer without its port: the host of `ipv4:127.0.0.1:41234` is `ipv4:127.0.0.1`."""
    return peer.rpartition(":")[0]
