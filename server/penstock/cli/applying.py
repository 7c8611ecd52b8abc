"""Makes the changes of a policy one by one, and can be interrupted between two of them."""

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from penstock.cli.changes import change_lines
from penstock.cli.output import print_note
from penstock.cli.progress import ProgressLine
from penstock.cli.styled import change_line
from penstock.core.policy_diff import EntityChange, PolicyChange
from penstock.errors import PenstockError
from penstock.store.policy_port import Change
from penstock.store.port import Store

NOTE_EVERY: Final = 1_000
"""Changes. Where stderr is not a terminal, a line is printed for each of this many changes."""

LEFT_SHOWN: Final = 10
"""Changes that were not made. The first ones show where `apply` stopped."""


async def make_changes(
    store: Store, changes: Sequence[PolicyChange], change: Change, file: str
) -> bool:
    """Make all changes; False if somebody pressed Ctrl-C before the end.

    If not all changes were made, print which were and which were not.
    """
    with ProgressLine() as progress, _interrupts() as interrupted:
        for number, one in enumerate(changes):
            if interrupted.is_set():
                progress.clear()
                _tell_left(changes, number, "interrupted", file)
                return False
            try:
                await _make(store, one, change)
            except PenstockError:
                progress.clear()
                _tell_left(changes, number, "then a change failed", file)
                raise
            except asyncio.CancelledError:
                # A second Ctrl-C does not wait for the store.
                progress.clear()
                _tell_left(changes, number, "interrupted; the next change may have been made", file)
                raise
            _tell_progress(progress, number + 1, len(changes))
    return True


async def _make(store: Store, one: PolicyChange, change: Change) -> None:
    if not isinstance(one, EntityChange):
        if one.after is None:
            await store.policy.delete_limits(one.scope, change)
        else:
            await store.policy.write_limits(one.scope, one.after, change)
    elif one.after is not None:
        await store.policy.write_entity(one.after, change)
    elif one.before is not None:
        await store.policy.delete_entity(one.before.name, change)


def _tell_left(changes: Sequence[PolicyChange], made: int, why: str, file: str) -> None:
    print_note(f"{made} of {len(changes)} changes were made ({why}). Not made:")
    left = changes[made:]
    for line in change_lines(left[:LEFT_SHOWN]):
        print_note(change_line(line))
    if len(left) > LEFT_SHOWN:
        print_note(f"… and {len(left) - LEFT_SHOWN} more")
    print_note(f"Apply {file} again to make the rest. `penstock policy diff` shows the rest.")


@contextmanager
def _interrupts() -> Iterator[asyncio.Event]:
    """Set on Ctrl-C, so that the change under way is finished. The next Ctrl-C does not wait."""
    interrupted, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        interrupted.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _tell_progress(progress: ProgressLine, made: int, total: int) -> None:
    text = f"{made} of {total} changes made"
    if not progress.show(text) and made % NOTE_EVERY == 0 and made < total:
        print_note(f"{text} …")
