"""Fetches snapshots in a thread, so that `penstock top` answers keys while a server is slow."""

import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from penstock.cli.top_client import ConsoleClient, Snapshot, TopError, View


class Fed(NamedTuple):
    """The last snapshot, and why there is no newer one; empty if it is new."""

    snapshot: Snapshot
    problem: str = ""


class Feed:
    """`on_news` is called in the thread whenever `fed` has changed."""

    def __init__(
        self,
        client: ConsoleClient,
        first: Snapshot,
        rows: int,
        interval_s: float,
        on_news: Callable[[], None],
    ) -> None:
        self.fed = Fed(first)
        self.view = first.view
        self._rows = rows
        self._client = client
        self._interval_s = interval_s
        self._on_news = on_news
        self._is_wanted = threading.Event()
        self._ending = threading.Lock()
        """Held while there are news, so that none come after the end."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The thread is not waited for, because a server may take its time."""
        with self._ending:
            self._is_over.set()
        self._is_wanted.set()

    def want(self, rows: int) -> None:
        """Fetch so many rows from now on; and at once, if there was less room for them before."""
        more, self._rows = rows > self._rows, rows
        if more:
            self._is_wanted.set()

    def refresh(self, view: View | None = None) -> None:
        """Fetch now, and from now on this view."""
        self.view = view or self.view
        self._is_wanted.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                fed = Fed(self._client.look(self.view, self._rows))
            except TopError as exc:
                fed = self.fed._replace(problem=str(exc))
            with self._ending:
                if self._is_over.is_set():
                    return
                self.fed = fed
                self._on_news()
            self._is_wanted.wait(self._interval_s)
            self._is_wanted.clear()
