"""The parts that several files of these tests share."""

from tests.unit.transport.conftest import running

__all__ = ["running"]
