"""Which event loop the process runs on: uvloop where it can be had, asyncio's own elsewhere."""

import asyncio
from collections.abc import Callable
from importlib import import_module

from penstock.errors import ConfigError

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def choose_loop(choice: str) -> LoopFactory | None:
    """What makes the loop; None for asyncio's own. ConfigError if `uvloop` can't be had."""
    if choice == "asyncio":
        return None
    try:
        # It is not installed everywhere: not on Windows, and not on PyPy.
        factory: LoopFactory = import_module("uvloop").new_event_loop
    except ImportError as exc:
        if choice == "auto":
            return None
        raise ConfigError(
            "--event-loop uvloop: uvloop is not installed; install it, or choose auto or asyncio"
        ) from exc
    return factory
