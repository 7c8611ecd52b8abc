"""Who may open the console."""

import pytest
from penstock.console.access import Access
from penstock.errors import ConfigError

TOKEN = "a-token-of-this-test"  # noqa: S105 - of no server


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("127.0.0.1", "127.0.0.1:6070"),
        ("127.0.0.1", "localhost:6070"),
        ("127.8.9.1", "LOCALHOST."),
        ("::1", "[::1]:6070"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
def test_this_machine_needs_no_token(peer: str, host: str) -> None:
    """By any of its own names."""
    access = Access("")
    assert access.refuse_page(peer, host) is None
    assert access.refuse_data(peer, host, "") is None


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("10.1.2.3", "127.0.0.1:6070"),
        ("::ffff:10.1.2.3", "localhost"),
        ("", "localhost"),
        ("127.0.0.1", "evil.example:6070"),  # DNS rebinding: a name on the web that leads here
        ("127.0.0.1", "127.0.0.1.evil.example"),
        ("127.0.0.1", "localhost.evil.example"),
        ("127.0.0.1", "evil.example@127.0.0.1"),
        ("127.0.0.1", "10.1.2.3:6070"),
        ("127.0.0.1", ""),
        ("127.0.0.1", "[::1"),
    ],
)
def test_others_and_other_names_are_refused_without_a_token(peer: str, host: str) -> None:
    """Also with a header that would be right if a token were set."""
    access = Access("")
    for refused in (access.refuse_page(peer, host), access.refuse_data(peer, host, "Bearer x")):
        assert refused is not None
        assert refused.status == 403
        assert "PENSTOCK_CONSOLE_TOKEN" in refused.reason


@pytest.mark.parametrize(
    ("authorization", "is_right"),
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer  {TOKEN}", True),
        (f"Bearer {TOKEN}x", False),
        (f"Bearer {TOKEN[:-1]}", False),
        ("Bearer \udce4\udcf6", False),
        (TOKEN, False),
        (f"Basic {TOKEN}", False),
        ("", False),
    ],
)
def test_with_a_token_only_the_token_counts(authorization: str, is_right: bool) -> None:
    """On this machine, too: a proxy may stand before the port."""
    access = Access(TOKEN)
    for peer, host in (("10.1.2.3", "limits.example"), ("127.0.0.1", "localhost")):
        refused = access.refuse_data(peer, host, authorization)
        assert (refused is None) == is_right
        assert refused is None or refused.status == 401
        assert refused is None or TOKEN not in refused.reason
        assert access.refuse_page(peer, host) is None, "the page itself has no data"


@pytest.mark.parametrize("token", ["short", "x" * 15, "with a space in its middle", "tab\t" * 5])
def test_a_token_that_can_be_guessed_or_sent_wrongly_is_refused_and_not_shown(token: str) -> None:
    """At the start, with the name of the setting."""
    with pytest.raises(ConfigError, match="PENSTOCK_CONSOLE_TOKEN") as caught:
        Access(token)
    assert token not in str(caught.value)
