"""The port that workers share: theirs alone."""

import socket
from contextlib import ExitStack

import pytest
from penstock.errors import ConfigError
from penstock.transport.listener import Listener
from penstock.workers.port import reserve

LOCAL = "127.0.0.1"


def join(
    port: int, host: str = LOCAL, family: socket.AddressFamily = socket.AF_INET
) -> socket.socket:
    """Listen as gRPC does in a worker."""
    joining = socket.socket(family)
    try:
        joining.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        joining.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        joining.bind((host, port))
        joining.listen()
    except OSError:
        joining.close()
        raise
    return joining


async def test_workers_share_the_port_and_no_other_server_does() -> None:
    """A second server is refused whether it has workers or not."""
    async with reserve(Listener(LOCAL, 0)) as port:
        with ExitStack() as held:
            for _ in range(3):
                held.enter_context(join(port))
            with pytest.raises(OSError, match="already in use"):
                socket.create_server((LOCAL, port))
            with pytest.raises(ConfigError, match=f"cannot listen on {LOCAL}:{port}: already tak"):
                async with reserve(Listener(LOCAL, port)):
                    pass
            # The next worker, after one has ended.
            held.enter_context(join(port))
    socket.create_server((LOCAL, port)).close()


async def test_nobody_is_let_in_before_the_workers_listen() -> None:
    """A client that would be accepted by nobody is refused instead."""
    async with reserve(Listener(LOCAL, 0)) as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOCAL, port))


async def test_a_port_that_is_taken_is_refused() -> None:
    """By a server without workers, say."""
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on {LOCAL}:{port}: already taken"):
            async with reserve(Listener(LOCAL, port)):
                pass


async def test_all_addresses_are_shared_too() -> None:
    """IPv4 and IPv6 together."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("needs IPv6")
    async with reserve(Listener("::", 0)) as port:
        join(port, "::", socket.AF_INET6).close()
