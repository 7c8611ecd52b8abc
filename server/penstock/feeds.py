"""Where a server gets its rules: from files, over xDS, or from the process that started it."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from penstock.build import make_watcher, make_xds_client
from penstock.config.rules import LoadedRules
from penstock.config.settings import Settings
from penstock.core.foreign_text import escape
from penstock.slices import run_at_once
from penstock.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from penstock.xds.client import XdsClient

Use = Callable[[LoadedRules], Awaitable[None]]


class Feed(Protocol):
    def load(self) -> LoadedRules | None:
        """The present rules; None if the rules come later. RulesError if they can't be used."""
        ...

    async def follow(self, use: Use) -> None:
        """Call `use` with each new version of the rules. Never returns."""
        ...

    def lines(self) -> Iterator[str]:
        """What operators want to know about the source of the rules."""
        ...

    @property
    def error(self) -> str:
        """Why the last load failed; empty if the last load did not fail."""
        ...


class FileFeed:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._path = settings.rules_path()
        self._watcher = make_watcher(settings, metrics)
        run_at_once(metrics.rules_info.show({("file", ""): 1}))

    def load(self) -> LoadedRules:
        return self._watcher.load()

    async def follow(self, use: Use) -> None:
        await self._watcher.follow(use)

    def lines(self) -> Iterator[str]:
        yield f"rules from {self._path}"

    @property
    def error(self) -> str:
        return self._watcher.error


class XdsFeed:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        from penstock.xds.reading import read_rules

        self._client: XdsClient[LoadedRules] = make_xds_client(settings, metrics, read_rules)

    def load(self) -> None:
        return None

    async def follow(self, use: Use) -> None:
        await self._client.follow(use)

    def lines(self) -> Iterator[str]:
        yield from self._client.status.lines()

    @property
    def error(self) -> str:
        return self._client.status.error


def make_feed(settings: Settings, metrics: Metrics) -> Feed:
    return XdsFeed(settings, metrics) if settings.has_xds else FileFeed(settings, metrics)


def as_comments(lines: Iterator[str]) -> bytes:
    """The lines as comments, so that nobody takes them for rules."""
    return "".join(f"# {escape(line)}\n" for line in lines).encode()
