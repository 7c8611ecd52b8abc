"""Sends metrics to StatsD over TCP, with the names of the reference server."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from penstock.slices import Slices, run
from penstock.telemetry.instruments import Distribution, Series, clean_part
from penstock.telemetry.metrics import AnyFamily

LOG: Final = logging.getLogger(__name__)

SEND_S: Final = 5.0
"""Time to connect and to send all lines."""

SERIES_A_SLICE: Final = 100
"""To name a series and to compare it takes 3 to 5 µs. A flush of 5,000 rules took 70 ms at once."""

Tags = Iterable[tuple[str, str]]

ReadMetrics = Callable[[], Awaitable[Iterable[AnyFamily]]]

Counted = tuple[str, str]
"""A name, and the observed value in milliseconds. The value is empty for a counter."""


class Changes:
    """Changes since the last send, as lines for StatsD."""

    def __init__(self, tags: Tags = ()) -> None:
        self._suffix = "".join(
            f".__{clean_part(name)}={clean_part(value).replace('.', '_')}"
            for name, value in sorted(tags)
        )
        self._sent: dict[Counted, float] = {}
        self._unsent: dict[Counted, float] = {}
        """Only of what changed since the last send."""

    def lines(self, families: Iterable[AnyFamily]) -> Slices[list[str]]:
        """The lines to send. Until `sent` is called, the lines contain the same changes again."""
        gauges: dict[str, float] = {}
        # If cleaning makes two names equal, their counts add up.
        counts: defaultdict[Counted, float] = defaultdict(int)
        series = ((family, *named) for family in families for named in family.statsd_series())
        while some := list(islice(series, SERIES_A_SLICE)):
            for family, name, one in some:
                _add(gauges, counts, family, name, one)
            yield
        lines = [f"{name}{self._suffix}:{_number(value)}|g" for name, value in gauges.items()]
        self._unsent = {}
        while counts:
            for counted, count in _pop(counts, SERIES_A_SLICE):
                if more := count - self._sent.get(counted, 0):
                    self._unsent[counted] = count
                    lines.append(self._line(*counted, more))
            yield
        return lines

    def sent(self) -> None:
        self._sent.update(self._unsent)

    def _line(self, name: str, value: str, more: float) -> str:
        if not value:
            return f"{name}{self._suffix}:{_number(more)}|c"
        return f"{name}{self._suffix}:{value}|ms|@{_rate(more)}"


def _add(
    gauges: dict[str, float],
    counts: defaultdict[Counted, float],
    family: AnyFamily,
    name: str,
    series: Series,
) -> None:
    if isinstance(series, Distribution):
        # A timer of StatsD is in milliseconds. Sizes are sent as they are.
        unit = 1000 if family.name.endswith("_seconds") else 1
        for bound, times in _by_bound(series):
            counts[name, _number(unit * bound)] += times
    elif family.kind == "gauge":
        gauges[name] = series.value
    else:
        counts[name, ""] += series.value


def _pop(counts: dict[Counted, float], most: int) -> Iterator[tuple[Counted, float]]:
    """Take some entries out of a dictionary. To free all of them at once takes too long."""
    for _ in range(min(most, len(counts))):
        yield counts.popitem()


def _by_bound(series: Distribution) -> Iterable[tuple[float, int]]:
    """The number of values under each bound. Values beyond the last bound count as the last."""
    return zip([*series.bounds, series.bounds[-1]], series.counts, strict=True)


def _number(value: float) -> str:
    """A number without an exponent, because not every StatsD reads exponents."""
    return str(int(value)) if value == int(value) else f"{value:.6f}".rstrip("0")


def _rate(count: float) -> str:
    """The sample rate 1/count, a little too low, so that a reader that rounds down gets count.

    A reader computes 1/rate. The rate 1/3125 has no exact double, and 1 divided by the nearest
    double is less than 3125. So the last digit is one too low, which outweighs that error.
    """
    if count == 1:
        return "1"
    digits = 10 + len(str(int(count)))
    return f"0.{10**digits // int(count) - 1:0{digits}}"


class Sender:
    def __init__(self, read: ReadMetrics, host: str, port: int, tags: Tags = ()) -> None:
        self._read = read
        self._host, self._port = host, port
        self._changes = Changes(tags)
        self._is_away = False

    async def run(self, interval_s: float) -> None:
        """Send every `interval_s`, for ever."""
        while True:
            await asyncio.sleep(interval_s)
            await self.send()

    async def send(self) -> None:
        """Send what changed. While StatsD is away, changes add up."""
        lines = await run(self._changes.lines(await self._read()))
        try:
            async with asyncio.timeout(SEND_S):
                await _send(self._host, self._port, lines)
        except (OSError, UnicodeError) as exc:  # includes TimeoutError; a host name may be invalid
            if not self._is_away:
                why = str(exc) or "no answer in time"
                LOG.warning(
                    "can't reach StatsD at %s:%s, will try again: %s", self._host, self._port, why
                )
            self._is_away = True
            return
        self._changes.sent()
        if self._is_away:
            LOG.info("StatsD at %s:%s answers again", self._host, self._port)
        self._is_away = False


async def _send(host: str, port: int, lines: list[str]) -> None:
    """Open a new connection each time. An old connection could be dead without an error."""
    _, writer = await asyncio.open_connection(host, port)
    try:
        for begin in range(0, len(lines), SERIES_A_SLICE):
            some = lines[begin : begin + SERIES_A_SLICE]
            writer.write("".join([f"{line}\n" for line in some]).encode())
            await writer.drain()
            await asyncio.sleep(0)  # `drain` does not wait while StatsD keeps up
        writer.close()
        await writer.wait_closed()
    finally:
        writer.transport.abort()
