"""The parts that several files of these tests share."""

from tests.unit.transport.conftest import make_server, running, transport

__all__ = ["make_server", "running", "transport"]
