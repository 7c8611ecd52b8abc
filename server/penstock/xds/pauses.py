"""How long the client waits before it connects again. Nothing in this file waits."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

CONNECT_SPREAD: Final = 0.5
"""The pause after a failure to connect is up to this share shorter or longer, so that servers which
lost their control plane in the same moment don't come back in the same moment."""

LEAST_S: Final = 0.01
"""A pause of 0 would be a busy loop."""


@dataclass(frozen=True, slots=True)
class PauseOptions:
    connect_s: float = 3.0
    """After a failure to connect."""
    initial_s: float = 10.0
    """After a stream that ended. Doubles for each stream in a row that brought nothing."""
    max_s: float = 60.0
    random_factor: float = 0.5
    has_jitter: bool = True


class Pauses:
    def __init__(
        self, options: PauseOptions, draw: Callable[[float, float], float] = random.uniform
    ) -> None:
        """`draw` gives a random number between two others."""
        self._options = options
        self._draw = draw
        self._ended = 0

    def reset(self) -> None:
        """A stream has brought something."""
        self._ended = 0

    def after_refused_connection(self) -> float:
        connect_s = self._options.connect_s
        return max(connect_s * self._draw(1 - CONNECT_SPREAD, 1 + CONNECT_SPREAD), LEAST_S)

    def after_ended_stream(self) -> float:
        options = self._options
        doubled_s = options.initial_s * 2.0 ** min(self._ended, 32)
        self._ended += 1
        pause_s = min(doubled_s, options.max_s)
        if options.has_jitter:
            pause_s *= self._draw(1 - options.random_factor, 1 + options.random_factor)
        return max(min(pause_s, options.max_s), LEAST_S)
