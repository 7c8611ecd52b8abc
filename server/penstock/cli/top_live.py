"""The live screen of `penstock top`: keys, refreshes, and a terminal that is left as it was."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live

from penstock.cli.columns import MAX_CELL, align, fit_widths
from penstock.cli.styled import Styled
from penstock.cli.terminal import open_console, paint, paint_table
from penstock.cli.top_client import ConsoleClient, View
from penstock.cli.top_feed import Fed, Feed
from penstock.cli.top_frame import SORTS, head_lines, table_of, title_of

KEYS: Final = "q quit  s sort  r/d requests/denials  m/h min/hour  e/u/o entity/rule/resource"
CHOICES: Final = {
    "r": {"by": "requests"},
    "d": {"by": "denials"},
    "m": {"over": "minute"},
    "h": {"over": "hour"},
    "e": {"of": "entity"},
    "u": {"of": "rule"},
    "o": {"of": "resource"},
}
MOST_ROWS: Final = 1_000


def watch(client: ConsoleClient, view: View, limit: int | None, interval_s: float) -> None:
    """Show snapshots until somebody presses q. Ctrl-C passes through as KeyboardInterrupt."""
    # An error is better told before the screen changes.
    rows = min(limit or _size()[1], MOST_ROWS)
    first = client.look(view, rows)
    address = str(client.address)
    sort = SORTS[0]
    with (
        _wake_ups() as (wake_up, woken),
        Feed(client, first, rows, interval_s, wake_up) as feed,
        _screen() as live,
    ):
        while True:
            console = live.console
            console.size = ConsoleDimensions(*_size())
            feed.want(min(limit or console.height, MOST_ROWS))
            live.update(_frame(feed.fed, address, sort, limit, console), refresh=True)
            key = _wait(woken)
            if key == "q":
                return
            if key == "s":
                sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
            elif key in CHOICES:
                feed.refresh(feed.view._replace(**CHOICES[key]))
            elif key == " ":
                feed.refresh()


def _size() -> tuple[int, int]:
    """Columns and lines of the terminal. Some terminals do not tell, and say 0."""
    columns, lines = os.get_terminal_size(sys.stdout.fileno())
    return (columns, lines) if columns and lines else (80, 24)


def _wait(woken: int) -> str:
    """The key that was pressed; empty if something else happened."""
    ready, _, _ = select.select([sys.stdin, woken], [], [])
    if woken in ready:
        with suppress(BlockingIOError):
            os.read(woken, 1_000)
    if sys.stdin not in ready:
        return ""
    typed = os.read(sys.stdin.fileno(), 100)
    # The end of the input is the end of the watching. A key that sends a sequence is no letter.
    return "q" if not typed else "" if typed[0] == 0x1B else chr(typed[-1])


def _frame(
    fed: Fed, address: str, sort: str, limit: int | None, console: Console
) -> RenderableType:
    """All that fits on the screen."""
    width, height = console.size
    lines = head_lines(fed.snapshot, address)
    if fed.problem:
        lines.insert(1, Styled(fed.problem, "bad"))
    lines += ["", title_of(fed.snapshot, sort)]
    texts = [paint(line, MAX_CELL) for line in (*lines, Styled(KEYS, "less"))]
    for text in texts:
        text.truncate(width, overflow="ellipsis")
    room = max(0, height - len(texts) - 1)
    table = table_of(fed.snapshot, sort, min(room, limit or room))
    if not table.rows:
        return Group(*texts)
    grid = paint_table(table, fit_widths(align(table)[1], width), breaks=False)
    return Group(*texts[:-1], grid, texts[-1])


@contextmanager
def _screen() -> Iterator[Live]:
    """Another screen without echo, as long as this lasts. Then the terminal is as it was."""
    console = open_console(sys.stdout)
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        with Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        ) as live:
            yield live
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def _wake_ups() -> Iterator[tuple[Callable[[], None], int]]:
    """A pipe that becomes readable when there is news, or when the terminal has another size."""
    woken, waker = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waker, False)

    def wake_up() -> None:
        with suppress(BlockingIOError):  # A pipe that is full wakes up as well.
            os.write(waker, b"!")

    handlers = {
        signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: wake_up()),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _stop),
        signal.SIGHUP: signal.signal(signal.SIGHUP, _stop),
        # A stopped program could not give the terminal back.
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, signal.SIG_IGN),
    }
    try:
        yield wake_up, woken
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(waker)


def _stop(number: int, _: object) -> None:
    sys.exit(128 + number)
