"""A port to listen on a little later, for programs that can't choose one themselves."""

import socket
from pathlib import Path
from random import SystemRandom

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that is free, and that the system gives to nobody who asks it for any port.

    A port of the system's own choice may be somebody else's a moment later, even if only as the
    near end of a connection.
    """
    end = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    # Not the module's random numbers: processes that run tests side by side share their seed.
    ports = SystemRandom()
    while True:
        port = ports.randrange(10_240, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
