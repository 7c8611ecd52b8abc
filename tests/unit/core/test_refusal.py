"""Which limit refused a call, for callers that want more than a status."""

import pytest
from penstock.core.bucket import Item
from penstock.core.decide import Refusal, find_refusal
from penstock.core.limits import MILLI, Limit, Window
from penstock.core.take import Draw, Key, Take
from penstock.core.taking import take_all

NOW = 20_773 * 86_400_000
USER, PROJECT = Key("user", "gpt-4"), Key("project", "gpt-4")
RPM, TPM = Limit.per(10, 1_000, name="rpm"), Limit.per(1_000, 60_000, name="tpm")


def find(user: tuple[int, int], project: int) -> Refusal | None:
    """Ask for these amounts after all but one token of each limit is gone."""
    items: dict[Key, Item | None] = {}
    used = [
        Take(USER, (RPM, TPM), (Draw(0, 9 * MILLI), Draw(1, 999 * MILLI))),
        Take(PROJECT, (TPM,), (Draw(0, 999 * MILLI),)),
    ]
    for take, taken in zip(used, take_all(items.get, used, NOW), strict=True):
        items[take.key] = taken.item
    takes = [
        Take(USER, (RPM, TPM), (Draw(0, user[0] * MILLI), Draw(1, user[1] * MILLI))),
        Take(PROJECT, (TPM,), (Draw(0, project * MILLI),)),
    ]
    return find_refusal(takes, take_all(items.get, takes, NOW), NOW)


@pytest.mark.parametrize(
    ("user", "project", "refusal"),
    [
        ((1, 1), 1, None),
        ((2, 1), 1, Refusal(USER, RPM, 100)),
        ((2, 2), 1, Refusal(USER, RPM, 100)),  # longer than the 60 ms of tpm
        ((1, 2), 3, Refusal(PROJECT, TPM, 120)),
        ((11, 1), 1, Refusal(USER, RPM, 1_000)),  # never fits: one period
    ],
)
def test_the_refusal_is_the_one_with_the_longest_wait(
    user: tuple[int, int], project: int, refusal: Refusal | None
) -> None:
    """Of all limits, of all levels; to the millisecond."""
    assert find(user, project) == refusal


def test_nothing_refuses_a_call_without_takes() -> None:
    """No limit applied."""
    assert find_refusal((), (), NOW) is None


def test_an_amount_that_never_fits_a_window_waits_for_the_next_one() -> None:
    """No client retries at once, and the answer names the boundary."""
    limit = Limit.per(10, 60_000, window=Window())
    takes = [Take(USER, (limit,), (Draw(0, 11 * MILLI),))]
    refusal = find_refusal(takes, take_all(lambda _: None, takes, NOW + 1_000), NOW + 1_000)
    assert refusal == Refusal(USER, limit, 59_000)
