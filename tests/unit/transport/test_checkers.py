"""Whom a drain waits for, at times that are given."""

import socket

import pytest
from penstock.transport.checkers import MAX_REMEMBERED, Checkers, connected_ports

ENVOY, OTHER = "ipv4:10.0.0.1:41000", "ipv4:10.0.0.1:42000"
PROBE = "ipv4:10.0.0.9:"


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def ask(checkers: Checkers, clock: Clock, peer: str, *times_s: float) -> None:
    for time_s in times_s:
        clock.now_s = time_s
        checkers.ask(peer)


@pytest.mark.parametrize("peer", [ENVOY, "ipv6:%5B::1%5D:41000"])
def test_an_open_connection_that_asked_twice_is_waited_for_until_it_has_asked_again(
    clock: Clock, peer: str
) -> None:
    """Or until it is closed."""
    checkers = Checkers(clock)
    ask(checkers, clock, peer, 1_000, 1_005)
    clock.now_s = 1_020
    assert checkers.awaited_since(1_006, frozenset([41_000])) == [peer]
    assert checkers.awaited_since(1_006, frozenset([42_000])) == [], "it is gone"
    ask(checkers, clock, peer, 1_020)
    assert checkers.awaited_since(1_006, frozenset([41_000])) == []


@pytest.mark.parametrize(
    ("times_s", "waited_s", "gone_s"),
    [
        ((1_000, 1_000.4, 1_000.8, 1_001.2), 1_007, 1_007.1),
        ((1_000, 1_030), 1_089, 1_090.1),  # forgotten a minute after its last call
        ((1_000, 1_000.01, 1_005, 1_005.01), 1_019.9, 1_020),  # two services in each turn
        ((1_000, 1_000.01), 1_060, 1_060.1),  # two services, and no turn is known
    ],
)
def test_an_open_connection_that_has_missed_its_turns_is_gone(
    clock: Clock, times_s: tuple[float, ...], waited_s: float, gone_s: float
) -> None:
    """A machine that was lost closes no connection. One that is busy may be late."""
    checkers = Checkers(clock)
    ask(checkers, clock, ENVOY, *times_s)
    since_s = times_s[-1] + 0.1
    clock.now_s = waited_s
    assert checkers.awaited_since(since_s, frozenset([41_000])) == [ENVOY]
    clock.now_s = gone_s
    assert checkers.awaited_since(since_s, frozenset([41_000])) == []


def test_a_connection_that_asked_once_is_waited_for_while_it_is_open(clock: Clock) -> None:
    """Envoy with long turns may have asked no more than once; a probe that is done closes its."""
    checkers = Checkers(clock)
    ask(checkers, clock, ENVOY, 1_000)
    assert checkers.awaited_since(1_001, frozenset([41_000])) == [ENVOY]
    assert checkers.awaited_since(1_001, frozenset()) == []


def test_where_connections_can_not_be_seen_a_checker_has_two_turns(clock: Clock) -> None:
    """As on a unix socket, or on a system without tables of sockets."""
    for peer, connected in (("unix:", frozenset[int]()), (ENVOY, None)):
        checkers = Checkers(clock)
        ask(checkers, clock, peer, 1_000, 1_005)
        clock.now_s = 1_015
        assert checkers.awaited_since(1_006, connected) == [peer]
        clock.now_s = 1_016.5
        assert checkers.awaited_since(1_006, connected) == []


def test_probes_that_connect_anew_are_waited_for_by_their_host(clock: Clock) -> None:
    """For two of their turns; one that asked once may never come again."""
    checkers = Checkers(clock)
    ask(checkers, clock, f"{PROBE}1", 1_000)
    assert checkers.awaited_since(1_001, frozenset()) == []
    ask(checkers, clock, f"{PROBE}2", 1_010)
    clock.now_s = 1_020
    assert checkers.awaited_since(1_011, frozenset()) == ["ipv4:10.0.0.9"]
    clock.now_s = 1_032
    assert checkers.awaited_since(1_011, frozenset()) == []
    ask(checkers, clock, f"{PROBE}3", 1_033)
    assert checkers.awaited_since(1_011, frozenset()) == []


def test_a_host_with_one_lasting_connection_has_no_probes(clock: Clock) -> None:
    """So a killed Envoy is not waited for by its host, either."""
    checkers = Checkers(clock)
    ask(checkers, clock, ENVOY, 1_000, 1_001, 1_002)
    assert checkers.awaited_since(1_003, frozenset()) == []


def test_who_asked_long_ago_is_forgotten_and_the_rest_is_bounded(clock: Clock) -> None:
    """Anybody may ask, from any number of connections."""
    checkers = Checkers(clock)
    ask(checkers, clock, ENVOY, 1_000, 1_001)
    clock.now_s = 1_062
    assert checkers.awaited_since(1_050, frozenset([41_000])) == []
    peers = [f"ipv4:10.{n >> 8}.{n & 255}.1:41000" for n in range(MAX_REMEMBERED + 10)]
    for peer in peers:
        ask(checkers, clock, peer, 1_062, 1_062)
    assert checkers.awaited_since(1_063, frozenset([41_000])) == peers[10:]


def test_open_connections_are_seen() -> None:
    """And not those that one side has closed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert connected_ports(port) == frozenset()
        with socket.create_connection(("127.0.0.1", port)) as client, listening.accept()[0]:
            mine = client.getsockname()[1]
            assert connected_ports(port) == frozenset([mine])
            client.close()
            assert connected_ports(port) == frozenset()
