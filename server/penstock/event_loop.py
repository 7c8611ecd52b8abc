"""Chooses the event loop of the process: uvloop if it is installed, else the loop of asyncio."""

import asyncio
from collections.abc import Callable
from importlib import import_module

from penstock.errors import ConfigError

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def choose_loop(choice: str) -> LoopFactory | None:
    """The factory of the loop; None for asyncio's own. ConfigError if uvloop is not installed."""
    if choice == "asyncio":
        return None
    try:
        # uvloop does not run on Windows and on PyPy.
        factory: LoopFactory = import_module("uvloop").new_event_loop
    except ImportError as exc:
        if choice == "auto":
            return None
        raise ConfigError(
            "--event-loop uvloop: uvloop is not installed; install it, or choose auto or asyncio"
        ) from exc
    return factory
