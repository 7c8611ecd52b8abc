"""The line that tells of a request: what is in it, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.decision import UNMATCHED, Decision, Status
from penstock.core.foreign_text import is_plain
from penstock.core.limits import Limit, Window
from penstock.core.request import Descriptor, Request
from penstock.service.decision_text import MAX_DESCRIPTORS, MAX_ENTRIES, MAX_TEXT, decision_text

FIVE = Limit.per(5, 60_000, name="five")
ODD = Limit.per(10, 90_000)


def told(*entries: tuple[str, str], status: Status = UNMATCHED) -> str:
    request = Request("d", (Descriptor(entries),))
    return decision_text(request, Decision(status.over, (status,)))


def test_a_line_has_what_was_asked_and_answered() -> None:
    """For each descriptor, in order."""
    bob = Descriptor((("user", "bob"), ("PATH", "/x")))
    statuses = (Status(True, FIVE, 0, 12), Status(False, ODD, 7), UNMATCHED)
    text = decision_text(Request("d", (bob, bob, Descriptor(()))), Decision(True, statuses))
    assert text == (
        "OVER_LIMIT domain='d': [user='bob', PATH='/x'] over five 5 per minute, 0 left; "
        "[user='bob', PATH='/x'] within limit 10 in 90000 ms, 7 left; [] no limit"
    )


def test_windows_are_told() -> None:
    """They say why a limit refills when it does."""
    window = Window("calendar", "Europe/Berlin")
    limit = Limit.per(5, 86_400_000, name="five", window=window)
    text = told(("user", "bob"), status=Status(False, limit, 3, 12))
    assert text.endswith("within five 5 per day (calendar timezone=Europe/Berlin), 3 left")


def test_what_passes_in_shadow_mode_is_told_as_over() -> None:
    """That is what somebody who looks wants to know."""
    text = told(("user", "bob"), status=Status(False, FIVE, 0, 12, shadowed=True))
    assert text == "OK domain='d': [user='bob'] over five 5 per minute, 0 left"


@pytest.mark.parametrize(
    "key",
    [
        "generic_key", "PATH", ":path", ":authority", "author", "remote_address", "masked_address",
        "header_match", "user", "user_id", "entity", "resource", "limit", "model",
        "destination_cluster", "keys", "monkey", "tenant", "plan",
    ],
)  # fmt: skip
def test_values_of_ordinary_entries_are_shown(key: str) -> None:
    """They say which rule it was."""
    assert f"{key}='v4lue'" in told((key, "v4lue"))


@pytest.mark.parametrize(
    "key",
    [
        "api_key", "x-api-key", "ApiKey", "api.key", "access_key", "private-key", "token",
        "id_token", "X-Auth", "authorization", "Authorisation", "oauth2", "proxy-authenticate",
        "secret", "client_secret", "password", "passwd", "pwd", "cookie", "Set-Cookie",
        "credentials", "session", "session_id", "jwt", "bearer", "signature",
    ],
)  # fmt: skip
def test_values_of_entries_that_sound_secret_are_hidden(key: str) -> None:
    """Logs are read by many, and kept."""
    text = told(("user", "bob"), (key, "v4lue"))
    assert f"user='bob', {key}=(hidden)" in text
    assert "v4lue" not in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Bearer s3cret", "(hidden)"),
        ("basic czNjcmV0", "(hidden)"),
        ("eyJhbGciOiJub25lIn0.e30.", "(hidden)"),
        ("/login?token=s3cret", "'/login'?(hidden)"),
        ("?s3cret", "''?(hidden)"),
        ("eyJ", "'eyJ'"),
        ("bearer", "'bearer'"),
    ],
)
def test_values_that_look_secret_are_hidden_whatever_they_are_called(
    value: str, shown: str
) -> None:
    """As a header, or a path with parameters, that Envoy makes a descriptor of."""
    assert told(("user", value)) == f"OK domain='d': [user={shown}] no limit"


def test_the_entity_of_a_stored_limit_is_not_told() -> None:
    """It may be made of a secret, such as an API key: only the limit's own name is."""
    limit = Limit.per(5, 60_000, name="s3cret/gpt-4/rpm")
    text = told(("api_key", "s3cret"), ("model", "gpt-4"), status=Status(False, limit, 4))
    assert text.endswith("[api_key=(hidden), model='gpt-4'] within rpm 5 per minute, 4 left")


def test_long_requests_are_cut() -> None:
    """Clients choose them, and a line is to be read."""
    long = "x" * 5_000
    many = Descriptor(((long, long),) * 100)
    count = 200
    request = Request(long, (many,) * count)
    text = decision_text(request, Decision(False, (UNMATCHED,) * count))
    assert text.startswith(f"OK domain='{long[:MAX_TEXT]}… (5,000 characters)': ")
    assert text.endswith(f"; and {count - MAX_DESCRIPTORS} more")
    assert text.count(f", and {100 - MAX_ENTRIES} more] no limit") == MAX_DESCRIPTORS
    assert len(text) < 3 * MAX_TEXT * MAX_ENTRIES * MAX_DESCRIPTORS


@pytest.mark.parametrize("count", [MAX_DESCRIPTORS - 1, MAX_DESCRIPTORS, MAX_DESCRIPTORS + 1])
def test_nothing_is_left_out_without_being_told(count: int) -> None:
    """At the very bounds, too."""
    request = Request("d", (Descriptor((("user", "bob"),) * count),) * count)
    text = decision_text(request, Decision(False, (UNMATCHED,) * count))
    shown = min(count, MAX_DESCRIPTORS)
    assert text.count("no limit") == shown
    assert text.count("user='bob'") == shown * shown
    assert text.count("and 1 more") == (shown + 1 if count > MAX_DESCRIPTORS else 0)
    assert text.count(" more") == text.count("and 1 more")


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_is_sent_is_one_line(text: str) -> None:
    """Or a client could write lines of its own into the log."""
    request = Request(text, (Descriptor(((text, text),)),))
    limit = Limit.per(5, 60_000, name=text)
    line = decision_text(request, Decision(False, (Status(limit=limit),)))
    assert is_plain(line)


def test_no_value_ends_its_quotes() -> None:
    """Or a client could tell of entries that it did not send."""
    assert told(("user", "a', b='c\\")) == "OK domain='d': [user='a\\', b=\\'c\\\\'] no limit"
